"""Theorem 4.2 for a finished run: the terms of the bound, and lower bounds of what it takes suprema of.

    Σ_i (m_i/m){L_Di(h_i) − min_h L_Di(h)} ≤ 2·sqrt(log(N/δ)/m) + sqrt(dK/m·log(em/d)) + (λ + L/2)·cost
                                              + Σ_i (m_i/m){2B·λ_H(D_i) + disc(D_i, D̃_i)}

    λ_H(D) = sup over h1, h2 of mean |h1(x) − h2(x)|,   disc(D, D̃) = sup over h of |L_D(h) − L_D̃(h)|,
    |L_D(h1) − L_D(h2)| ≤ B·λ_H(D) for all h1, h2,      cost = Σ_i (m_i/m)·min_k ‖θ_i − ω_k‖²

A supremum over all models cannot be computed; over the models that the run has it is a lower bound. These are the
personal models, the context models and the initial one. h(x) are class probabilities and |h1 − h2| is total variation,
½Σ_c|p_c − q_c|, between 0 and 1. L_D is the cross-entropy (no regulariser) on the client's test samples, which stand
for its distribution D_i, and D̃_i are its training samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import Task
from cgpfl.batch import chunk_size
from cgpfl.contexts.choose import complexity
from cgpfl.engine import Simulation, State
from cgpfl.engine.evaluate import score
from cgpfl.engine.problem import Arrays, Part, host
from cgpfl.paper.theory.symbols import contexts_of, symbols
from cgpfl.tree import Tree, norms, size


@dataclass(frozen=True)
class GeneralizationBound:
    """Theorem 4.2's terms for a run, beside what they are to bound. Arrays are ``[N]``."""

    contexts: int  # K
    confidence: float  # 2·sqrt(log(N/δ)/m)
    complexity: float  # sqrt(dK/m·log(em/d)), with min(d, m) for d
    cost: float  # Σ_i (m_i/m)·min_k ‖θ_i − ω_k‖²
    cost_assigned: float  # the same to each client's own context, which is what the proof needs
    prox: float  # λ
    smoothness: float  # L, as given
    share: np.ndarray  # m_i/m
    disagreement: np.ndarray  # λ_H(D_i): at least this
    range: np.ndarray  # B·λ_H(D_i): at least this, the spread of L_Di over the run's models
    discrepancy: np.ndarray  # disc(D_i, D̃_i): at least this, sampling error of the test part apart
    excess: np.ndarray  # L_Di(θ_i) − min over the run's models: the left-hand side, at least

    @property
    def distance(self) -> float:
        """(λ + L/2)·cost."""
        return (self.prox + self.smoothness / 2) * self.cost

    @property
    def B(self) -> float:
        """B: at least this, since λ_H(D) ≤ 1 in total variation."""
        return float(self.range.max())

    @property
    def B_ratio(self) -> float:
        """An estimate of B, neither above nor below for sure: both of its parts are lower bounds."""
        return float((self.range / np.maximum(self.disagreement, 1e-12)).max())

    @property
    def models(self) -> float:
        """Σ_i (m_i/m)·2B·λ_H(D_i): at least this."""
        return 2 * float(self.share @ np.maximum(self.range, self.B * self.disagreement))

    @property
    def samples(self) -> float:
        """Σ_i (m_i/m)·disc(D_i, D̃_i): at least this."""
        return float(self.share @ self.discrepancy)

    @property
    def total(self) -> float:
        """The right-hand side: at least this."""
        return self.confidence + self.complexity + self.distance + self.models + self.samples

    @property
    def measured(self) -> float:
        """The left-hand side: at least this, with the best of the run's models for the best of all."""
        return float(self.share @ self.excess)

    def explain(self) -> str:
        return (
            f"K = {self.contexts}: confidence {self.confidence:.3g} + complexity {self.complexity:.3g} + "
            f"(λ + L/2)·cost {self.distance:.3g} + 2B·λ_H ≥ {self.models:.3g} + disc ≥ {self.samples:.3g} "
            f"= at least {self.total:.3g}\n"
            f"cost {self.cost:.3g} to the nearest context ({self.cost_assigned:.3g} to the client's own), λ = "
            f"{self.prox:.3g}, L = {self.smoothness:.3g}; λ_H between {self.disagreement.min():.2g} and "
            f"{self.disagreement.max():.2g}, B ≥ {self.B:.3g}\n"
            f"left-hand side, at least: {self.measured:.3g}; the bound is {self.total / max(self.measured, 1e-12):.3g} "
            f"times that, and its 2B·λ_H alone {self.models / max(self.measured, 1e-12):.3g} times"
        )


def candidates(simulation: Simulation, state: State, most: int = 64) -> Tree:
    """The run's models ``[M, ...]``: the initial one, contexts with members, and up to ``most`` personal ones."""
    models, labels = contexts_of(simulation.method, state.server, simulation.arrays.ids)
    n = labels.shape[0]
    used = np.unique(np.asarray(labels))
    some = np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(int))
    return jax.tree.map(
        lambda first, omega, theta: jnp.concatenate([first[None], omega[used], theta[some]]),
        simulation.task.initial,
        models,
        state.clients,
    )


def disagreement(task: Task, models: Tree, arrays: Arrays, part: Part) -> Array:
    """The largest mean total variation between two of ``models [M, ...]`` on one client's part."""
    width = min(chunk_size(), part.rows.shape[0])
    chunks = -(-part.rows.shape[0] // width)
    rows = jnp.pad(part.rows, (0, chunks * width - part.rows.shape[0]))

    def chunk(i: Array, total: Array) -> Array:
        at = jax.lax.dynamic_slice(rows, (i * width,), (width,))
        weight = (i * width + jnp.arange(width) < part.counts).astype(jnp.float32)
        x = arrays.view(rows, part.counts).take(at, weight).x
        chances = jax.vmap(lambda params: jax.nn.softmax(task.model.apply(params, x)))(models)  # [M, width, classes]
        between = jax.lax.map(lambda p: 0.5 * jnp.abs(chances - p).sum(axis=-1) @ weight, chances)
        return total + between

    count = jax.tree.leaves(models)[0].shape[0]
    return jax.lax.fori_loop(0, chunks, chunk, jnp.zeros((count, count))).max() / part.counts


@jax.jit
def _losses(task: Task, arrays: Arrays, models: Tree, clients: Tree) -> tuple[Array, Array, Array]:
    """Test and training loss ``[N, M + 1]`` of the models and the client's own (last), and λ_H ``[N]``."""

    def one(args: tuple[Tree, Part, Part]) -> tuple[Array, Array, Array]:
        own, train, test = args
        known = jax.tree.map(lambda m, t: jnp.concatenate([m, t[None]]), models, own)
        test_loss, train_loss = (
            jax.vmap(lambda params, part=part: score(task, params, arrays, part)[1])(known) for part in (test, train)
        )
        return test_loss, train_loss, disagreement(task, known, arrays, test)

    return jax.lax.map(one, (clients, arrays.train, arrays.test))


def costs(models: Tree, labels: Array, personal: Tree, share: Array) -> tuple[Array, Array]:
    """Σ_i (m_i/m)‖θ_i − ω‖², to the nearest context with members and to the client's own."""
    slots = jax.tree.leaves(models)[0].shape[0]
    used = jax.nn.one_hot(labels, slots).sum(axis=0) > 0
    squares = jax.lax.map(lambda omega: norms(jax.tree.map(jnp.subtract, personal, omega)) ** 2, models)  # [K, N]
    nearest = jnp.where(used[:, None], squares, jnp.inf).min(axis=0)
    return share @ nearest, share @ jnp.take_along_axis(squares, labels[None], axis=0)[0]


def generalization(
    simulation: Simulation, state: State, *, smoothness: float, failure: float = 0.05, most: int = 64
) -> GeneralizationBound:
    """Theorem 4.2's terms for the state a run ended in.

    ``smoothness`` is L (see :func:`cgpfl.paper.theory.smoothness`), ``failure`` the theorem's δ, its probability of
    being wrong. Suprema are over the run's models, at most ``most`` personal ones and the client's own.
    """
    arrays, task = simulation.arrays, simulation.task
    models, labels = contexts_of(simulation.method, state.server, arrays.ids)
    samples = np.asarray(arrays.train.counts, float)
    share, total = samples / samples.sum(), float(samples.sum())
    known = candidates(simulation, state, most)
    test, train, apart = host(_losses(task, arrays, known, state.clients))
    nearest, assigned = costs(models, labels, state.clients, jnp.asarray(share, jnp.float32))
    used = len(np.unique(np.asarray(labels)))
    return GeneralizationBound(
        contexts=used,
        confidence=2 * math.sqrt(math.log(len(samples) / failure) / total),
        complexity=float(complexity(jnp.float32(used), size(task.initial), jnp.float32(total))),
        cost=float(nearest),
        cost_assigned=float(assigned),
        prox=symbols(simulation.method, task.clients).prox,
        smoothness=smoothness,
        share=share,
        disagreement=apart,
        range=test.max(axis=1) - test.min(axis=1),
        discrepancy=np.abs(test - train).max(axis=1),
        excess=test[:, -1] - test.min(axis=1),
    )
