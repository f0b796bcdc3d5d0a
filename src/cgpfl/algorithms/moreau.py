"""The client's step of pFedMe and CGPFL, and what makes it unstable."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.steps import over_batches, pull
from cgpfl.batch import Batch
from cgpfl.tree import Tree, axpy

UNROLLED = 8
"""Inner steps written out one after the other, at most."""


def moreau_rounds(
    task: Task,
    generalized: Tree,
    personal: Tree,
    data: ClientData,
    key: Array,
    *,
    prox: Array | float,
    personal_rate: Array | float,
    generalized_rate: Array | float,
    local_rounds: int,
    inner_steps: int,
    batch_size: int,
) -> tuple[Tree, Tree]:
    """The client's work in pFedMe and CGPFL → (ω̃, θ).

    R times: draw one minibatch; S times θ ← θ − η(∇f_i(θ) + λ(θ − ω̃)), which approaches the Moreau
    prox of f_i at ω̃; then ω̃ ← ω̃ − rate·(ω̃ − θ).
    """

    def local_round(state: tuple[Tree, Tree], batch: Batch) -> tuple[Tree, Tree]:
        omega, theta = state
        steps = steps_by_products if pays(task.model, theta, batch, inner_steps) else steps_one_by_one
        theta = steps(task, omega, theta, batch, prox, personal_rate, inner_steps)
        omega = jax.tree.map(lambda w, t: w - generalized_rate * (w - t), omega, theta)
        return omega, theta

    return over_batches(local_round, (generalized, personal), data, key, local_rounds, batch_size)


def steps_one_by_one(
    task: Task, omega: Tree, theta: Tree, batch: Batch, prox: Array | float, rate: Array | float, steps: int
) -> Tree:
    """``steps`` times θ ← θ − η(∇f(θ) + λ(θ − ω)) on one minibatch, as it is written."""

    def inner(theta: Tree, _: None) -> tuple[Tree, None]:
        return axpy(-rate, pull(task.grad(theta, batch), theta, omega, prox), theta), None

    return jax.lax.scan(inner, theta, None, length=steps)[0]


def pays(model: Any, params: Tree, batch: Batch, steps: int) -> bool:
    """Whether the steps on one minibatch are cheaper by :func:`steps_by_products`: it has to read less.

    One by one each step multiplies the minibatch ``[B, d]`` twice with the first layer ``[out, d]``; by products
    it is three times in all, and once with itself.
    """
    if not getattr(model, "is_plain", False):
        return False
    out = model.split(params)[0]["weight"].shape[0]
    return 3 + batch.x.shape[0] / out < 2 * steps


def steps_by_products(
    task: Task, omega: Tree, theta: Tree, batch: Batch, prox: Array | float, rate: Array | float, steps: int
) -> Tree:
    """The same, with one pass over the first layer instead of one in each step.

    On one minibatch X ``[B, d]`` the gradient of the first layer's weight is DᵀX, with D ``[B, out]`` that of its
    outputs. So after any number of steps W = a·W₀ + b·ω + CᵀX, with numbers a, b and a matrix C ``[B, out]``, and the
    outputs X·Wᵀ = a·XW₀ᵀ + b·Xωᵀ + (XXᵀ)C follow from products that are formed once.
    """
    model: Any = task.model
    x = batch.x.reshape(batch.x.shape[0], -1)
    (first, rest), (first_omega, rest_omega) = model.split(theta), model.split(omega)
    start, towards = (jax.lax.dot_general(x, w["weight"], (((1,), (1,)), ((), ()))) for w in (first, first_omega))
    gram = x @ x.T
    keep = 1.0 - rate * (prox + model.l2)  # what a step leaves of a parameter

    def moved(old: Tree, gradient: Tree, anchor: Tree) -> Tree:
        return jax.tree.map(lambda p, g, w: keep * p + rate * prox * w - rate * g, old, gradient, anchor)

    def inner(state: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        a, b, c, bias, rest = state
        outputs = a * start + b * towards + gram @ c + bias
        of_rest, d = jax.grad(model.tail_loss, argnums=(0, 1))(rest, outputs, batch)
        a, b, c = keep * a, keep * b + rate * prox, keep * c - rate * d
        return (a, b, c, moved(bias, d.sum(axis=0), first_omega["bias"]), moved(rest, of_rest, rest_omega)), None

    began = (jnp.float32(1), jnp.float32(0), jnp.zeros_like(start), first["bias"], rest)
    # On an accelerator steps this small are mostly launches: written out, several of them become one.
    unroll = 1 if jax.default_backend() == "cpu" else min(steps, UNROLLED)
    (a, b, c, bias, rest), _ = jax.lax.scan(inner, began, None, length=steps, unroll=unroll)
    weight = a * first["weight"] + b * first_omega["weight"] + c.T @ x
    return model.join({"weight": weight, "bias": bias}, rest)


def unstable_prox(prox: float, rate: float) -> str | None:
    """θ ← θ − η·λ(θ − ω) alone diverges once η·λ reaches 2."""
    if float(prox) * float(rate) < 2:
        return None
    return f"prox x personal_rate = {float(prox) * float(rate):g}, and the inner steps need it below 2"
