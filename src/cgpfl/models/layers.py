"""Layers that several models share, as functions of their parameters.

A convolution is written as products: with a kernel for each client XLA would run it as a grouped convolution, several
times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import groupby, product
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.models.base import Params, affine

WIDE = 32
"""From so many channels on, a convolution is made of windows of one row: its table of all windows would be long."""
LARGEST_TABLE = 512
"""Up to so many rows a table is read by a product with ones and zeros, which vectorises better than a gather."""
Sides = tuple[tuple[int, int], tuple[int, int]]
"""Rows added above and below, columns added left and right."""
NONE: Sides = ((0, 0), (0, 0))


def in_turn(one: Callable[[Any, Array], Array], layers: list[Any], x: Array, *, recompute: bool) -> Array:
    """``one(layer, x)`` for one layer after the other; with ``recompute`` the way back computes their insides again.

    Then neighbours of equal shapes, which leave that of ``x`` as it is, are a loop: outside of one, XLA computes the
    insides on a CPU before they are needed, and nothing is saved.
    """
    again = jax.checkpoint(one) if recompute else one
    for _, alike in groupby(layers, lambda layer: jax.tree.map(jnp.shape, layer)):
        same = list(alike)
        if recompute and len(same) > 1:
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *same)
            x, _ = jax.lax.scan(lambda x, layer: (again(layer, x), None), x, stacked)
        else:
            x = reduce(lambda x, layer: again(layer, x), same, x)
    return x


def dropout(x: Array, rate: float, key: Array | None) -> Array:
    """Each value 0 with probability ``rate``, the others larger by 1/(1 − rate); without a key ``x`` as it is."""
    if key is None or rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), 0.0)


def normed(x: Array, axes: tuple[int, ...], eps: float = 1e-5) -> Array:
    """``x`` with mean 0 and variance 1 over ``axes``."""
    mean = x.mean(axis=axes, keepdims=True)
    apart = x - mean
    return apart * jax.lax.rsqrt((apart * apart).mean(axis=axes, keepdims=True) + eps)


def layer_norm(layer: Params, x: Array) -> Array:
    """Normalised over the last axis, then times ``weight`` plus ``bias``, both ``[features]``."""
    return normed(x, (x.ndim - 1,)) * layer["weight"] + layer["bias"]


def group_norm(layer: Params, images: Array, groups: int) -> Array:
    """Images ``[B, H, W, C]`` normalised over all pixels of each of the ``groups`` of channels."""
    batch, height, width, channels = images.shape
    apart = normed(images.reshape(batch, height * width, groups, channels // groups), (1, 3))
    return apart.reshape(images.shape) * layer["weight"] + layer["bias"]


def norm(size: int) -> Params:
    """The parameters of a normalisation before training."""
    return {"weight": jnp.ones(size), "bias": jnp.zeros(size)}


def convolve(images: Array, kernel: Array, stride: tuple[int, int] = (1, 1), padding: Sides = NONE) -> Array:
    """``[B, H, W, C]`` and a kernel ``[h, w, C, out]`` → ``[B, H', W', out]``, H' = (H − h) // stride + 1."""
    if padding != NONE:
        images = jnp.pad(images, ((0, 0), *padding, (0, 0)))
    height, width, channels, out = kernel.shape
    if height == 1 or channels < WIDE:
        return jnp.concatenate(windows(images, (height, width), stride), axis=-1) @ kernel.reshape(-1, out)
    rows = jnp.concatenate(windows(images, (1, width), (1, stride[1])), axis=-1)  # [B, H, W', width·C]
    if stride[0] > 1:
        seen = windows(rows, (height, 1), (stride[0], 1))
        parts = [part @ places.reshape(-1, out) for part, places in zip(seen, kernel, strict=True)]
    else:  # one product for all rows of the kernel, then a sum of shifted parts
        whole = rows @ kernel.reshape(height, -1, out).swapaxes(0, 1).reshape(-1, height * out)
        last = images.shape[1] - height + 1
        parts = [part[:, i : i + last] for i, part in enumerate(jnp.split(whole, height, axis=-1))]
    return sum(parts[1:], start=parts[0])


def windows(images: Array, size: tuple[int, int], stride: tuple[int, int]) -> list[Array]:
    """What each place of a window sees, row by row: ``[B, H', W', C]`` each."""
    last = [(side - n) // s * s + 1 for side, n, s in zip(images.shape[1:3], size, stride, strict=True)]

    def along(x: Array, axis: int, first: int) -> Array:  # a slice: with steps, indexing would be a gather
        return jax.lax.slice_in_dim(x, first, first + last[axis - 1], stride[axis - 1], axis)

    rows = [along(images, 1, i) for i in range(size[0])]
    return [along(part, 2, j) for part, j in product(rows, range(size[1]))]


def embed(table: Array, ids: Array) -> Array:
    """Rows ``[..., width]`` of a table ``[rows, width]``; a number outside of it is the nearest."""
    ids = jnp.clip(ids.astype(jnp.int32), 0, table.shape[0] - 1)
    if table.shape[0] > LARGEST_TABLE:
        return jnp.take(table, ids, axis=0, mode="clip")
    return jax.nn.one_hot(ids, table.shape[0], dtype=table.dtype) @ table


def gru(layer: Params, x: Array, state: Array) -> Array:
    """States ``[T, B, hidden]`` of a gated recurrent unit over ``x [T, B, in]``, from ``state [B, hidden]`` on.

    r, z = σ(Wx + b + Uh + c);  n = tanh(Wx + b + r·(Uh + c));  h ← (1 − z)·n + z·h, W and U with r, z, n one below the
    other, as PyTorch has them.
    """

    def step(h: Array, seen: Array) -> tuple[Array, Array]:
        (r, z, n), (r_h, z_h, n_h) = (jnp.split(v, 3, axis=-1) for v in (seen, affine(layer["hidden"], h)))
        r, z = jax.nn.sigmoid(r + r_h), jax.nn.sigmoid(z + z_h)
        h = (1.0 - z) * jnp.tanh(n + r * n_h) + z * h
        return h, h

    return jax.lax.scan(step, state, affine(layer["input"], x))[1]


def attention(query: Array, key: Array, value: Array, seen: Array | None = None) -> Array:
    """softmax(QKᵀ/√d)V of ``[..., T, d]``; ``seen [T, S]`` says what each place may look at."""
    scores = query @ jnp.swapaxes(key, -1, -2) * query.shape[-1] ** -0.5
    return jax.nn.softmax(scores if seen is None else jnp.where(seen, scores, -jnp.inf), axis=-1) @ value
