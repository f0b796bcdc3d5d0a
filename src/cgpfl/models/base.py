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
from cgpfl.objectives import Classification, Objective, weighted_mean

Params = Any


@dataclass(frozen=True)
class Model:
    """A model. Subclasses write ``init`` and ``apply``; another loss is another ``objective`` or another ``loss``."""

    shape: tuple[int, ...]
    """Shape of one input."""
    classes: int
    """Number of outputs: one a class; one a target in regression, one a label of many."""
    l2: float = 0.0
    """Weight of (l2/2)‖params‖² in the training loss."""
    objective: Objective = dataclasses.field(default=Classification(), kw_only=True)
    """What the outputs are trained for; the data's."""
    frozen: str = dataclasses.field(default="", kw_only=True)
    """Patterns of parameters that nobody trains or sends, such as ``base.*``; the experiment's."""

    def init(self, key: Array) -> Params:
        """Fresh parameters from a key."""
        raise TypeError(f"{type(self).__name__} defines no init")

    def apply(self, params: Params, x: Array) -> Array:
        """Logits ``[B, classes]`` of inputs ``x [B, *shape]``."""
        raise TypeError(f"{type(self).__name__} defines no apply")

    @property
    def stochastic(self) -> bool:
        """Whether the model draws in training (dropout): then it writes ``apply(params, x, key=None)``."""
        return False

    def outputs(self, params: Params, batch: Batch) -> Array:
        """Logits of a batch; a stochastic model draws from the batch's key, and nothing where that is None."""
        if not self.stochastic:
            return self.apply(params, batch.x)
        forward: Any = self.apply
        return forward(params, batch.x, key=batch.key)

    def loss(self, params: Params, batch: Batch) -> Array:
        """The objective's weighted mean over the batch plus (l2/2)‖params‖²."""
        return self.mean_loss(self.outputs(params, batch), batch) + self.penalty(params)

    def mean_loss(self, outputs: Array, batch: Batch) -> Array:
        """The objective's weighted mean over the batch."""
        return weighted_mean(self.objective.trained(outputs, batch.y), batch.weight)

    def penalty(self, params: Params) -> Array | float:
        """The regulariser, (l2/2)‖params‖²."""
        if self.l2 == 0.0:
            return 0.0
        squares = [jnp.sum(p * p) for p in jax.tree.leaves(params)]
        return 0.5 * self.l2 * sum(squares, start=jnp.float32(0))

    def score(self, params: Params, batch: Batch) -> tuple[Array, Array]:
        """Weighted sums over the batch: the objective's score (correct answers), its loss."""
        outputs = self.apply(params, batch.x)
        right = self.objective.score(outputs, batch.y) * batch.weight
        return jnp.sum(right), jnp.sum(self.objective.each(outputs, batch.y) * batch.weight)

    def settings(self) -> dict[str, Any]:
        """What was chosen about the architecture, beside the data's shape and classes."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in GIVEN}


GIVEN = ("shape", "classes", "objective", "frozen")
"""Fields of a model that the data or the experiment gives."""


class Layered(Model):
    """A model whose first layer is dense: logits = tail(rest, x·weightᵀ + bias).

    Several steps on one minibatch then need only one pass over that layer (:meth:`proximal_steps`).
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
        first, rest = self.split(params)
        return self.tail(rest, affine(first, x.reshape(x.shape[0], -1)))

    def tail_loss(self, rest: Params, hidden: Array, batch: Batch) -> Array:
        """The loss without its penalty, from the first layer's outputs."""
        return self.mean_loss(self.tail(rest, hidden), batch)

    def proximal_steps(
        self, params: Params, anchor: Params, batch: Batch, prox: Array | float, rate: Array | float, steps: int
    ) -> Params | None:
        """``steps`` times θ ← θ − η(∇f(θ) + λ(θ − ω)) on one minibatch, with one pass over the first layer.

        On one minibatch X ``[B, d]`` the gradient of the first layer's weight is DᵀX, with D ``[B, out]`` that of its
        outputs. So after any number of steps W = a·W₀ + b·ω + CᵀX, with numbers a, b and a matrix C ``[B, out]``, and
        the outputs X·Wᵀ = a·XW₀ᵀ + b·Xωᵀ + (XXᵀ)C follow from products that are formed once. None where that is no
        shorter, or where the loss is not the objective of these outputs and the penalty.
        """
        first, rest = self.split(params)
        if not self._is_plain() or not shorter(batch.x.shape[0], first["weight"].shape[0], steps):
            return None
        x = batch.x.reshape(batch.x.shape[0], -1)
        first_anchor, rest_anchor = self.split(anchor)
        start, towards = (jax.lax.dot_general(x, w["weight"], (((1,), (1,)), ((), ()))) for w in (first, first_anchor))
        gram = x @ x.T
        keep = 1.0 - rate * (prox + self.l2)  # what a step leaves of a parameter

        def moved(old: Params, gradient: Params, towards: Params) -> Params:
            return jax.tree.map(lambda p, g, w: keep * p + rate * prox * w - rate * g, old, gradient, towards)

        def inner(state: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
            a, b, c, bias, rest = state
            outputs = a * start + b * towards + gram @ c + bias
            of_rest, d = jax.grad(self.tail_loss, argnums=(0, 1))(rest, outputs, batch)
            a, b, c = keep * a, keep * b + rate * prox, keep * c - rate * d
            return (a, b, c, moved(bias, d.sum(axis=0), first_anchor["bias"]), moved(rest, of_rest, rest_anchor)), None

        began = (jnp.float32(1), jnp.float32(0), jnp.zeros_like(start), first["bias"], rest)
        # On an accelerator steps this small are mostly launches: written out, several of them become one.
        unroll = 1 if jax.default_backend() == "cpu" else min(steps, UNROLLED)
        (a, b, c, bias, rest), _ = jax.lax.scan(inner, began, None, length=steps, unroll=unroll)
        weight = a * first["weight"] + b * first_anchor["weight"] + c.T @ x
        return self.join({"weight": weight, "bias": bias}, rest)

    def _is_plain(self) -> bool:
        """Whether its loss is the objective of those outputs and the penalty, and nothing of that was changed."""
        cls = type(self)
        own = (cls.apply, cls.outputs, cls.loss, cls.mean_loss, cls.penalty)
        plain = (Layered.apply, Model.outputs, Model.loss, Model.mean_loss, Model.penalty)
        return not self.stochastic and own == plain


UNROLLED = 8
"""Steps written out one after the other, at most."""


def shorter(samples: int, out: int, steps: int) -> bool:
    """Whether steps on one minibatch ``[B, d]`` read less by products that are formed once.

    One by one each step multiplies the minibatch twice with the first layer ``[out, d]``; by products it is three times
    in all, and once with itself.
    """
    return 3 + samples / out < 2 * steps


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
