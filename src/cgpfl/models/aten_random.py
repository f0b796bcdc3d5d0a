"""PyTorch's operations in JAX: those that draw in training, by dropout of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.models.aten import Operation, UnsupportedError, operation
from cgpfl.models.base import affine
from cgpfl.models.layers import dropout, gru

RANDOM: set[str] = set()
"""Operations that draw in training: they are given a :class:`Draw`."""


class Draw:
    """Keys for what a pass through a module draws, one after the other; none without a key."""

    def __init__(self, key: Array | None) -> None:
        self.key, self.count = key, 0

    def dropped(self, x: Array, rate: float, training: bool = True, shape: Sequence[int] | None = None) -> Array:
        """``x`` after dropout; ``shape``: values that are kept together have an axis of one."""
        if self.key is None or rate == 0 or not training:
            return x
        self.count += 1
        key = jax.random.fold_in(self.key, self.count)
        if rate >= 1:
            return jnp.zeros_like(x)
        return dropout(x, rate, key) if shape is None else x * dropout(jnp.ones(tuple(shape)), rate, key)


def random(*names: str) -> Callable[[Operation], Operation]:
    """As :func:`operation`, for one that draws."""
    RANDOM.update(names)
    return operation(*names)


@random("scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    rate: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    draw: Draw,
    **named: Any,
) -> Array:
    """softmax(QKᵀ·scale + mask)V, with dropout of the shares; a mask of truths says what is looked at."""
    if enable_gqa:
        raise UnsupportedError("has enable_gqa; repeat keys and values instead")
    mask = named.get("attn_mask", mask)
    scores = query @ jnp.swapaxes(key, -1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if named.get("is_causal", is_causal):
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask
    shares = jax.nn.softmax(scores, axis=-1)
    return draw.dropped(shares, named.get("dropout_p", rate)) @ value


random("dropout.default")(lambda x, rate, training, *, draw: draw.dropped(x, rate, training))
random("native_dropout.default")(lambda x, rate, training, *, draw: (draw.dropped(x, rate, training), None))
# Whole channels ``[B, C]`` of ``[B, C, ...]``.
random("feature_dropout.default")(
    lambda x, rate, training, *, draw: draw.dropped(x, rate, training, (*x.shape[:2], *[1] * (x.ndim - 2)))
)


def _lstm(layer: dict[str, Any], x: Array, state: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    """Outputs ``[T, B, hidden]`` and the last state and cell of a long short-term memory over ``x [T, B, in]``."""

    def step(carried: tuple[Array, Array], seen: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = carried
        i, f, g, o = jnp.split(seen + affine(layer["hidden"], h), 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (h, c), states = jax.lax.scan(step, state, affine(layer["input"], x))
    return states, h, c


@random("gru.input", "lstm.input")
def recurrent(
    x: Array,
    start: Any,
    weights: Sequence[Array],
    biased: bool,
    layers: int,
    rate: float,
    training: bool,
    both_ways: bool,
    batch_first: bool,
    *,
    draw: Draw,
) -> tuple[Array, ...]:
    """GRU and LSTM: outputs and the last states (LSTM: and cells) ``[layers·directions, B, hidden]``."""
    starts = start if isinstance(start, list | tuple) else [start]
    each, ways = 4 if biased else 2, 2 if both_ways else 1
    if len(weights) != each * layers * ways:
        raise UnsupportedError("has a projection (proj_size); must be without")
    h = x.swapaxes(0, 1) if batch_first else x
    ends: list[tuple[Array, ...]] = []
    for number in range(layers):
        answers = []
        for way in range(ways):
            place = number * ways + way
            own = weights[place * each : (place + 1) * each]
            none = jnp.zeros(own[0].shape[0])
            biases = own[2:] if biased else (none, none)
            cell = {n: {"weight": w, "bias": b} for n, w, b in zip(("input", "hidden"), own, biases, strict=False)}
            seen = h[::-1] if way else h
            if len(starts) == 1:
                states = gru(cell, seen, starts[0][place])
                ends.append((states[-1],))
            else:
                states, *last = _lstm(cell, seen, (starts[0][place], starts[1][place]))
                ends.append(tuple(last))
            answers.append(states[::-1] if way else states)
        h = jnp.concatenate(answers, axis=-1)
        h = draw.dropped(h, rate, training) if number < layers - 1 else h
    outputs = h.swapaxes(0, 1) if batch_first else h
    return outputs, *(jnp.stack(part) for part in zip(*ends, strict=True))
