"""Steps that several methods take on a client, each written once."""

from __future__ import annotations

import jax
from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.tree import Tree, axpy


def sgd(
    task: Task, params: Tree, data: ClientData, key: Array, *, rate: Array | float, steps: int, batch_size: int
) -> Tree:
    """``steps`` times: draw one minibatch, then w ← w − rate·∇f_i(w)."""

    def step(w: Tree, step_key: Array) -> tuple[Tree, None]:
        batch = data.batch(step_key, batch_size)
        return axpy(-rate, task.grad(w, batch), w), None

    return jax.lax.scan(step, params, jax.random.split(key, steps))[0]


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

    def local_round(state: tuple[Tree, Tree], round_key: Array) -> tuple[tuple[Tree, Tree], None]:
        omega, theta = state
        batch = data.batch(round_key, batch_size)

        def inner(theta: Tree, _: None) -> tuple[Tree, None]:
            gradient = task.grad(theta, batch)
            step = jax.tree.map(lambda t, g, w: t - personal_rate * (g + prox * (t - w)), theta, gradient, omega)
            return step, None

        theta, _ = jax.lax.scan(inner, theta, None, length=inner_steps)
        omega = jax.tree.map(lambda w, t: w - generalized_rate * (w - t), omega, theta)
        return (omega, theta), None

    keys = jax.random.split(key, local_rounds)
    return jax.lax.scan(local_round, (generalized, personal), keys)[0]
