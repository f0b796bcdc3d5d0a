"""The exact proximal point that a client's S steps approximate, and how far they stay from it.

    θ̂_i(ω) = argmin_θ f_i(θ) + (λ/2)‖θ − ω‖²   over all of the client's training samples
    δ² ≥ (1/N) E‖Θ̃ − Θ̂‖²                       for the Θ̃ of Algorithm 1's S minibatch steps, in every local round

θ̂ is computed by full-batch gradient descent with step 1/c, c = λ at first and doubled whenever a step would lengthen
the gradient: with λ well above the curvature a few dozen steps reach float32's precision. Where f_i is convex the
distance left is at most ‖gradient‖/λ, which is reported; where it is not, that holds if the curvature stays above −λ.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import ClientData, Task
from cgpfl.algorithms.steps import full_gradient, pull
from cgpfl.engine import Simulation, State
from cgpfl.engine.blocks import over_clients
from cgpfl.engine.problem import Arrays, host
from cgpfl.paper.theory.symbols import Spread, contexts_of, spread
from cgpfl.tree import Tree, axpy, dot, squared_distance, take, where


class Prox(NamedTuple):
    """θ̂, and a bound on the distance to the true one."""

    params: Tree
    error: Array
    steps: Array


def prox(
    task: Task,
    anchor: Tree,
    start: Tree,
    data: ClientData,
    strength: Array | float,
    *,
    most: int = 500,
    tolerance: float = 1e-5,
) -> Prox:
    """θ̂_i(ω) at ω = ``anchor``, by gradient descent from ``start``; ``strength`` is λ > 0.

    Stops when the distance left is below ``tolerance`` times the distance to the anchor.
    """

    def gradient(theta: Tree) -> tuple[Tree, Array]:
        g = pull(full_gradient(task, theta, data), theta, anchor, strength)
        return g, jnp.sqrt(dot(g, g))

    def going(state: tuple[Tree, Tree, Array, Array, Array]) -> Array:
        theta, _, length, _, step = state
        far = length > tolerance * strength * jnp.sqrt(squared_distance(theta, anchor))
        return far & (step < most)

    def body(state: tuple[Tree, Tree, Array, Array, Array]) -> tuple[Tree, Tree, Array, Array, Array]:
        theta, g, length, c, step = state
        trial = axpy(-1.0 / c, g, theta)
        new, new_length = gradient(trial)
        better = new_length < length
        return (
            where(better, trial, theta),
            where(better, new, g),
            jnp.where(better, new_length, length),
            jnp.where(better, c, 2 * c),
            step + 1,
        )

    g, length = gradient(start)
    first = (start, g, length, jnp.float32(strength), jnp.int32(0))
    theta, _, length, _, steps = jax.lax.while_loop(going, body, first)
    return Prox(theta, length / strength, steps)


@partial(jax.jit, static_argnames=("block", "most"))
def _exact(
    method: Any, task: Task, arrays: Arrays, server: Any, clients: Any, block: int, most: int
) -> tuple[Spread, Array]:
    models, labels = contexts_of(method, server, arrays.ids)

    def one(context: Array, start: Tree, rows: Array, count: Array) -> Prox:
        return prox(task, take(models, context), start, arrays.view(rows, count), method.prox, most=most)

    found = over_clients(one, (labels, clients, arrays.train.rows, arrays.train.counts), block)
    return spread(models, labels, found.params), found.error.max()


@dataclass(frozen=True)
class Exact:
    """G and ∇G with θ = θ̂(ω), as the theorem has it (a run's own θ are the S-step approximations)."""

    objective: float  # (1/K) Σ_k G_k(ω_k)
    gradient: float  # (1/K) Σ_k ‖∇G_k(ω_k)‖²
    diversity: float  # max over k of (1/|C_k|) Σ_i ‖θ̂_i − mean θ̂‖²
    error: float  # largest bound on a client's distance to its true θ̂


def exact(simulation: Simulation, state: State, *, most: int = 500) -> Exact:
    """G and ∇G of a state at the exact proximal points of all clients."""
    of = (simulation.method, simulation.task, simulation.arrays, state.server, state.clients)
    seen, error = host(_exact(*of, block=simulation.static.block, most=most))
    return Exact(float(seen.objective), float(seen.gradient), float(seen.diversity), float(error))


@dataclass(frozen=True)
class Approximation:
    """How far S steps stay from the proximal point, in each local round of one more round of a run."""

    squared: np.ndarray  # [R, n] ‖θ̃_i − θ̂_i‖², for n clients
    error: float  # largest bound on a client's distance to its true θ̂: squared is known no better than that

    @property
    def delta2(self) -> float:
        """δ²: the largest mean over clients among the local rounds."""
        return float(self.squared.mean(axis=1).max())


@partial(jax.jit, static_argnames=("block", "most"))
def _approximate(
    method: Any, task: Task, arrays: Arrays, state: State, at: Array, key: Array, block: int, most: int
) -> tuple[Array, Array]:
    models, labels = contexts_of(method, state.server, arrays.ids)
    rate = method.context_rate if hasattr(method, "context_rate") else method.global_rate
    single = dataclasses.replace(method, local_rounds=1, warm_start=True)

    def one(client_id: Array, context: Array, theta: Tree, rows: Array, count: Array) -> tuple[Array, Array]:
        data, omega = arrays.view(rows, count), take(models, context)

        def local_round(carry: tuple[Tree, Tree], round_key: Array) -> tuple[tuple[Tree, Tree], tuple[Array, Array]]:
            omega, theta = carry
            after, reached = single.moreau_rounds(task, omega, theta, data, round_key, rate)
            best = prox(task, omega, reached, data, method.prox, most=most)
            return (after, reached), (squared_distance(reached, best.params), best.error)

        keys = jax.random.split(jax.random.fold_in(key, client_id), method.local_rounds)
        return jax.lax.scan(local_round, (omega, theta if method.warm_start else omega), keys)[1]

    table = (arrays.ids, labels, state.clients, arrays.train.rows, arrays.train.counts)
    return over_clients(one, jax.tree.map(lambda v: v[at], table), block)


def approximation(
    simulation: Simulation, state: State, *, clients: int = 8, seed: int = 0, most: int = 500
) -> Approximation:
    """δ of Proposition 1, measured: one more round from ``state``, with θ̂ computed in each of its R local rounds.

    For ``clients`` of them, evenly spaced. Minibatches are drawn anew from ``seed``; the mean over clients stands
    for the expectation. To ask what S or the batch size does to δ, give the same ``state`` and a simulation of the
    method with that setting.
    """
    n = simulation.task.clients
    at = jnp.asarray(np.unique(np.linspace(0, n - 1, min(clients, n)).round().astype(int)))
    of = (simulation.method, simulation.task, simulation.arrays, state, at, jax.random.key(seed))
    squared, error = host(_approximate(*of, block=min(simulation.static.block, len(at)), most=most))
    return Approximation(squared.T, float(error.max()))
