"""A run watched round by round: what the convergence theorem speaks of, and where the time goes.

The rounds are those of :class:`cgpfl.engine.Simulation`, to the last digit or nearly; only here the host calls the
clients' work and the server's step one after the other, so that each can be timed and looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import Task
from cgpfl.contexts import membership, transition
from cgpfl.engine import Simulation, State
from cgpfl.engine.problem import Arrays, Keys, host
from cgpfl.engine.round import Static, Work, program
from cgpfl.paper.theory.prox import exact
from cgpfl.paper.theory.symbols import contexts_of, spread
from cgpfl.tree import Tree, gram


@dataclass(frozen=True)
class Watched:
    """What was seen after each of T rounds; arrays are NumPy's, entry t is the state after round t + 1.

    A run that diverges ends there: T is then less than was asked for, and ``state.diverged`` says where.
    """

    context: np.ndarray  # [T, N] context of each client, by place in the data's table
    k: np.ndarray  # [T] contexts with members
    gradient: np.ndarray  # [T] (1/K)‖∇G_K(Ω)‖², at the clients' own θ
    exact_gradient: np.ndarray  # [T] the same at the exact proximal points θ̂(ω); NaN where not asked for
    objective: np.ndarray  # [T] (1/K) Σ_k G_k(ω_k), at the clients' own θ
    omega: np.ndarray  # [T] ‖Ω‖²
    diversity: np.ndarray  # [T] max over k of (1/|C_k|) Σ_i ‖θ_i − mean θ‖²
    gap: np.ndarray  # [T, N] ‖θ_i − ω_k(i)‖
    transition: np.ndarray  # [T] ‖Q − I‖_F, Q = J P⁺ from the contexts before the round to those after
    personal_distance: np.ndarray  # [T] mean Euclidean distance of two clients' personal models
    upload_distance: np.ndarray  # [T] the same of two uploads
    kmeans_iterations: np.ndarray  # [T] 0 where there was no clustering
    client_seconds: np.ndarray  # [T] all clients' work
    server_seconds: np.ndarray  # [T] the server's step, clustering included
    start: State  # before the first round
    state: State  # after the last
    simulation: Simulation

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.k)


@partial(jax.jit, static_argnames=("static",))
def _work(
    method: Any, task: Task, arrays: Arrays, keys: Keys, dropout: Array, state: State, t: Array, static: Static
) -> Work:
    of = program(method, task, arrays, keys, dropout, static)
    return of.work(of.keys(t), state)


@partial(jax.jit, static_argnames=("static",))
def _aggregate(
    method: Any,
    task: Task,
    arrays: Arrays,
    keys: Keys,
    dropout: Array,
    state: State,
    t: Array,
    work: Work,
    static: Static,
) -> Any:
    of = program(method, task, arrays, keys, dropout, static)
    return of.aggregate(state, work, of.keys(t))


@jax.jit
def _look(method: Any, arrays: Arrays, server: Any, work: Work) -> dict[str, Array]:
    models, labels = contexts_of(method, server, arrays.ids)
    seen = spread(models, labels, work.clients)
    everyone = jnp.ones(arrays.ids.shape[0])
    return {
        "context": labels,
        "k": seen.k.astype(jnp.int32),
        "gradient": seen.gradient,
        "objective": seen.objective,
        "omega": seen.omega,
        "diversity": seen.diversity,
        "gap": seen.gap,
        "personal_distance": mean_distance(work.clients, everyone),
        "upload_distance": mean_distance(work.uploads, work.cohort.present),
        "kmeans_iterations": method.report(server).get("kmeans_iterations", jnp.int32(0)),
    }


def watch(
    method: Any, data: Any, model: Any, *, rounds: int, seed: int = 0, exact_every: int = 0, **settings: Any
) -> Watched:
    """Run CGPFL or pFedMe for ``rounds`` rounds and look at it after each.

    ``settings`` are those of :class:`cgpfl.engine.Simulation`. Another seed, rate or λ compiles nothing anew. The
    first round is computed once before, unmeasured, so that no time of a round is compilation. After every
    ``exact_every``-th round the gradient is also computed at exact proximal points, some dozens of full-batch
    gradients a client; 0 = never.
    """
    simulation = Simulation(method, data, model, rounds=rounds, seed=seed, **settings)
    static = simulation.static._replace(capacity=1)  # only of the recorded evaluations: none here
    fixed = (method, simulation.task, simulation.arrays, simulation.keys, simulation.dropout)
    start = state = simulation.start()
    models, first = contexts_of(method, start.server, simulation.arrays.ids)
    labels, slots = np.asarray(first), jax.tree.leaves(models)[0].shape[0]
    work = _work(*fixed, state, jnp.int32(0), static=static)
    jax.block_until_ready(_aggregate(*fixed, state, jnp.int32(0), work, static=static))

    seen: list[dict[str, Any]] = []
    for t in range(rounds):
        now = jnp.int32(t)
        work, client_seconds = _timed(_work, *fixed, state, now, static=static)
        server, server_seconds = _timed(_aggregate, *fixed, state, now, work, static=static)
        if not bool(work.finite):
            state = state._replace(diverged=jnp.int32(t))
            break
        look = host(_look(method, simulation.arrays, server, work))
        away = moved(labels, look["context"], slots)
        labels = look["context"]
        times = {"client_seconds": client_seconds, "server_seconds": server_seconds}
        answered = (work.cohort.weights > 0).sum(dtype=jnp.int32)
        state = State(server, work.clients, state.answers + answered, state.diverged)
        at_prox = exact(simulation, state).gradient if exact_every and (t + 1) % exact_every == 0 else np.nan
        seen.append({**look, **times, "transition": away, "exact_gradient": at_prox})
    columns = {name: np.stack([s[name] for s in seen]) for name in seen[0]} if seen else _nothing(data.clients)
    return Watched(**columns, start=start, state=state, simulation=simulation)


def _nothing(clients: int) -> dict[str, np.ndarray]:
    """The columns of a run whose first round diverged."""
    wide = {"context", "gap"}
    names = [n for n in Watched.__dataclass_fields__ if n not in ("start", "state", "simulation")]
    return {n: np.zeros((0, clients) if n in wide else 0) for n in names}


def _timed(f: Callable[..., Any], *args: Any, **named: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    result = jax.block_until_ready(f(*args, **named))
    return result, time.perf_counter() - began


def mean_distance(stacked: Tree, present: Array) -> Array:
    """Mean Euclidean distance over pairs of the stacked trees ``[N, ...]`` that are ``present [N]``.

    From their inner products: N² numbers, never N² models. Centred first, for float32's sake.
    """
    share = present / jnp.maximum(present.sum(), 1.0)
    centred = jax.tree.map(lambda x: x - jnp.tensordot(share, x, axes=1, precision=jax.lax.Precision.HIGHEST), stacked)
    products = gram(centred)
    lengths = jnp.diagonal(products)
    squared = jnp.maximum(lengths[:, None] + lengths[None, :] - 2 * products, 0.0)
    pairs = present[:, None] * present[None, :] * (1.0 - jnp.eye(present.shape[0]))
    return jnp.sum(jnp.sqrt(squared) * pairs) / jnp.maximum(pairs.sum(), 1.0)


def moved(before: np.ndarray, after: np.ndarray, k: int) -> float:
    """‖Q − I‖_F of Q = J P⁺ over contexts that have members after; 0 when nobody moved."""
    if np.array_equal(before, after):
        return 0.0
    columns = np.bincount(after, minlength=k) > 0
    return float(np.linalg.norm((transition(before, after, k) - np.eye(k))[:, columns]))


@dataclass(frozen=True)
class Transition:
    """Q of one round, and what the paper says of it: P⁺ = P Q, with rows and columns that sum to one."""

    q: np.ndarray  # [K, K] J P⁺
    away: float  # ‖Q − I‖_F
    rows: np.ndarray  # [K] sums of Q's rows
    columns: np.ndarray  # [K] sums of Q's columns
    residual: float  # ‖P⁺ − P Q‖_F: 0 only where P⁺ = P Q holds


def inspect(before: np.ndarray, after: np.ndarray, k: int) -> Transition:
    """Q from contexts ``before [N]`` to ``after [N]``, checked against the paper's claims about it."""
    q = transition(before, after, k)
    residual = membership(after, k) - membership(before, k) @ q
    return Transition(q, moved(before, after, k), q.sum(axis=1), q.sum(axis=0), float(np.linalg.norm(residual)))
