"""FedOpt: the server treats the clients' mean update as a gradient, for an optimizer of its own.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization. ICLR 2021.

    client i    FedAvg's
    server      g = w − Σ_i (m_i / m) w_i                      the pseudo-gradient (−Δ in the paper)
                sgd         w ← w − η g                        η = 1: FedAvg
                momentum    u ← β₁ u + g;   w ← w − η u        FedAvgM
                adagrad     v ← v + g²
                adam        v ← β₂ v + (1 − β₂) g²
                yogi        v ← v − (1 − β₂) g² sign(v − g²)
                    and for these three   u ← β₁ u + (1 − β₁) g;   w ← w − η u / (√v + τ),   v₀ = τ²
    personal    w

The three adaptive rules are written as the paper has them, as optax transforms: its own Adam and
Yogi divide by 1 − βᵗ, which FedAdam and FedYogi do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import Cohort, Task
from cgpfl.algorithms.fedavg import FedAvg
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, axpy, where

if TYPE_CHECKING:
    import optax

OPTIMIZERS = ("adam", "yogi", "adagrad", "momentum", "sgd")


class Moments(NamedTuple):
    """u and v."""

    first: Tree
    second: Tree


class Server(NamedTuple):
    """w and the optimizer's state."""

    model: Tree
    optimizer: Any


def adaptive(rule: str, b1: Array | float, b2: Array | float, tau: Array | float) -> optax.GradientTransformation:
    """G → u/(√v + τ) of FedAdagrad, FedAdam and FedYogi."""
    import optax

    def init(params: Tree) -> Moments:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return Moments(zeros, jax.tree.map(lambda p: jnp.full_like(p, tau**2), params))

    def second(v: Array, g: Array) -> Array:
        square = g * g
        if rule == "adagrad":
            return v + square
        if rule == "adam":
            return b2 * v + (1 - b2) * square
        return v - (1 - b2) * square * jnp.sign(v - square)

    def update(gradient: Tree, state: Moments, params: Tree = None) -> tuple[Tree, Moments]:
        u = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.first, gradient)
        v = jax.tree.map(second, state.second, gradient)
        return jax.tree.map(lambda m, s: m / (jnp.sqrt(s) + tau), u, v), Moments(u, v)

    return optax.GradientTransformation(init, update)


@algorithm
class FedOpt(FedAvg):
    """FedAvg's mean update as a gradient for Adam, Yogi, Adagrad or momentum on the server."""

    name = "fedopt"
    citation = "Reddi et al., ICLR 2021"
    original = "β₂ = 0.99, τ = 1e-3, β₁ = 0.9 (0 for Adagrad); both rates searched for each data set"
    when = (
        "As FedAvg, where it converges slowly: sparse or badly scaled gradients (adam, yogi, adagrad), few "
        "clients a round (momentum)."
    )

    optimizer: str = hyper("adam", "the server's optimizer", words=OPTIMIZERS)
    server_rate: float = hyper(0.03, "η: rate of the server's step", above=0, tune=(0.003, 1.0))
    momentum: float = hyper(0.9, "β₁: how much of the last direction is kept", low=0, high=0.999)
    decay: float = hyper(0.99, "β₂: how much of the second moment is kept (adam, yogi)", low=0, high=0.9999)
    adaptivity: float = hyper(1e-3, "τ: floor of the second moment's root; smaller = more adaptive", above=0)

    def rule(self) -> optax.GradientTransformation:
        """The server's optimizer."""
        import optax

        if self.optimizer == "sgd":
            return optax.sgd(self.server_rate)
        if self.optimizer == "momentum":
            return optax.sgd(self.server_rate, momentum=self.momentum)
        scaled = adaptive(self.optimizer, self.momentum, self.decay, self.adaptivity)
        return optax.chain(scaled, optax.scale_by_learning_rate(self.server_rate))

    def init_server(self, task: Task, key: Array) -> Server:
        """The model, and an optimizer at rest."""
        return Server(task.initial, self.rule().init(task.initial))

    def send(self, server: Server, client_id: Array) -> Tree:
        return server.model

    def aggregate(self, server: Server, uploads: Tree, cohort: Cohort, key: Array) -> Server:
        """One step of the optimizer along FedAvg's mean update; none if nobody answered."""
        import optax

        mean = super().aggregate(server.model, uploads, cohort, key)
        step, state = self.rule().update(axpy(-1.0, mean, server.model), server.optimizer, server.model)
        return where(cohort.present.any(), Server(optax.apply_updates(server.model, step), state), server)
