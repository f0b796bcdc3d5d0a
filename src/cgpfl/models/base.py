"""A model: parameters and inputs to logits, and from there to a loss and a score.

A model is a frozen dataclass compared by value, so that the same architecture is compiled once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.batch import Batch

Params = Any


@dataclass(frozen=True)
class Model:
    """A classifier. Subclasses write ``init`` and ``apply``; another loss is another ``loss``."""

    shape: tuple[int, ...]
    """Shape of one input."""
    classes: int
    l2: float = 0.0
    """Weight of (l2/2)‖params‖² in the training loss."""

    def init(self, key: Array) -> Params:
        """Fresh parameters from a key."""
        raise TypeError(f"{type(self).__name__} defines no init")

    def apply(self, params: Params, x: Array) -> Array:
        """Logits ``[B, classes]`` of inputs ``x [B, *shape]``."""
        raise TypeError(f"{type(self).__name__} defines no apply")

    def loss(self, params: Params, batch: Batch) -> Array:
        """Weighted mean cross-entropy plus (l2/2)‖params‖²."""
        return mean_cross_entropy(self.apply(params, batch.x), batch) + self.penalty(params)

    def penalty(self, params: Params) -> Array | float:
        """The regulariser, (l2/2)‖params‖²."""
        if self.l2 == 0.0:
            return 0.0
        squares = [jnp.sum(p * p) for p in jax.tree.leaves(params)]
        return 0.5 * self.l2 * sum(squares, start=jnp.float32(0))

    def score(self, params: Params, batch: Batch) -> tuple[Array, Array]:
        """Weighted sums over the batch: correct answers, cross-entropy."""
        logits = self.apply(params, batch.x)
        correct = (jnp.argmax(logits, axis=-1) == batch.y) * batch.weight
        return jnp.sum(correct), jnp.sum(_cross_entropy(logits, batch.y) * batch.weight)

    def settings(self) -> dict[str, Any]:
        """What was chosen about the architecture, beside the data's shape and classes."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("shape", "classes")}


class Layered(Model):
    """A model whose first layer is dense: logits = tail(rest, x·weightᵀ + bias).

    Several steps on one minibatch then need only one pass over that layer (see :mod:`cgpfl.algorithms.moreau`).
    """

    def split(self, params: Params) -> tuple[Params, Params]:
        """``params`` as (first layer, rest)."""
        raise TypeError(f"{type(self).__name__} defines no split")

    def join(self, first: Params, rest: Params) -> Params:
        """The way back from :meth:`split`."""
        raise TypeError(f"{type(self).__name__} defines no join")

    def tail(self, rest: Params, hidden: Array) -> Array:
        """Logits ``[B, classes]`` from the first layer's outputs ``[B, out]``."""
        raise TypeError(f"{type(self).__name__} defines no tail")

    def apply(self, params: Params, x: Array) -> Array:
        """Logits ``[B, classes]`` of inputs ``x [B, *shape]``."""
        first, rest = self.split(params)
        return self.tail(rest, affine(first, x.reshape(x.shape[0], -1)))

    def tail_loss(self, rest: Params, hidden: Array, batch: Batch) -> Array:
        """The loss without its penalty, from the first layer's outputs."""
        return mean_cross_entropy(self.tail(rest, hidden), batch)

    @property
    def is_plain(self) -> bool:
        """Whether its loss is the cross-entropy of those logits and the penalty, and nothing of that was changed."""
        cls = type(self)
        return (cls.apply, cls.loss, cls.penalty) == (Layered.apply, Model.loss, Model.penalty)


def mean_cross_entropy(logits: Array, batch: Batch) -> Array:
    """Weighted mean over the batch."""
    entropy = _cross_entropy(logits, batch.y)
    return jnp.sum(entropy * batch.weight) / jnp.maximum(jnp.sum(batch.weight), 1.0)


def _cross_entropy(logits: Array, labels: Array) -> Array:
    """``[B]`` from logits ``[B, classes]``; written with a mask, which vectorises better than a gather."""
    true = jnp.sum(logits * jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype), axis=-1)
    return jax.nn.logsumexp(logits, axis=-1) - true


def dense(key: Array, inputs: int, outputs: int) -> dict[str, Array]:
    """A dense layer: ``weight [outputs, inputs]``, ``bias [outputs]``, uniform in ±1/sqrt(inputs).

    The weight is stored output-major, as PyTorch does: with a weight for each client both products of
    a training step then run along the long axis (measured on a CPU: 1.8x for MLR, 1.2x for DNN).
    """
    bound = inputs**-0.5
    weight, bias = jax.random.split(key)
    return {
        "weight": jax.random.uniform(weight, (outputs, inputs), minval=-bound, maxval=bound),
        "bias": jax.random.uniform(bias, (outputs,), minval=-bound, maxval=bound),
    }


def affine(layer: dict[str, Array], x: Array) -> Array:
    """x·weightᵀ + bias over the last axis of ``x``."""
    return jax.lax.dot_general(x, layer["weight"], (((x.ndim - 1,), (1,)), ((), ()))) + layer["bias"]
