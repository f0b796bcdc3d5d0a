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
from cgpfl.engine import Drive, Simulation, State
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


Fixed = tuple[Any, Task, Arrays, Keys, Array]
"""What is the same in every round: method, task, arrays, keys, dropout."""


@partial(jax.jit, static_argnames=("static",))
def _work(fixed: Fixed, state: State, t: Array, static: Static) -> Work:
    of = program(*fixed, static)
    return of.work(of.keys(t), state)


@partial(jax.jit, static_argnames=("static",))
def _aggregate(fixed: Fixed, state: State, t: Array, work: Work, static: Static) -> Any:
    of = program(*fixed, static)
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
    looked = _Looked(method, data, model, rounds=rounds, seed=seed, **settings)
    looked.exact_every = exact_every
    drive = Drive(looked)
    start = drive.state
    drive.quick()
    return Watched(**drive.records.values or _nothing(data.clients), start=start, state=drive.state, simulation=looked)


class _Looked(Simulation):
    """A simulation a round at a time, whose records are what is seen after each."""

    exact_every = 0

    def start(self) -> State:
        """The state before the first round, which is computed here once, unmeasured."""
        state = super().start()
        self.static = self.static._replace(capacity=1)  # only of the recorded evaluations: none here
        models, labels = contexts_of(self.method, state.server, self.arrays.ids)
        self._labels, self._slots = np.asarray(labels), jax.tree.leaves(models)[0].shape[0]
        self._fixed = (self.method, self.task, self.arrays, self.keys, self.dropout)
        work = _work(self._fixed, state, jnp.int32(0), static=self.static)
        jax.block_until_ready(_aggregate(self._fixed, state, jnp.int32(0), work, static=self.static))
        return state

    def furthest(self, start: int) -> int:
        return start + 1

    def advance(self, state: State, start: int, stop: int) -> tuple[State, dict[str, np.ndarray], list[int]]:
        """Round ``start``, the clients' work and the server's step each timed."""
        now = jnp.int32(start)
        work, client_seconds = _timed(_work, self._fixed, state, now, static=self.static)
        server, server_seconds = _timed(_aggregate, self._fixed, state, now, work, static=self.static)
        if not bool(work.finite):
            return state._replace(diverged=now), {}, []
        look = host(_look(self.method, self.arrays, server, work))
        away = moved(self._labels, look["context"], self._slots)
        self._labels = look["context"]
        answered = (work.cohort.weights > 0).sum(dtype=jnp.int32)
        state = State(server, work.clients, state.answers + answered, state.diverged)
        due = self.exact_every and stop % self.exact_every == 0
        at_prox = exact(self, state).gradient if due else np.nan
        times = {"client_seconds": client_seconds, "server_seconds": server_seconds}
        seen = {**look, **times, "transition": away, "exact_gradient": at_prox}
        return state, {name: np.asarray(value)[None] for name, value in seen.items()}, [stop]


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
