"""MOCHA: federated multi-task learning. A model for each client, and how the clients are related.

Smith, Chiang, Sanjabi, Talwalkar: Federated Multi-Task Learning. NIPS 2017.

    min over W = [w_1..w_N] and Ω of   Σ_i f_i(w_i) + λ₁ tr(W Ω Wᵀ) + λ₂ ‖W‖²

    send        Ω_ii and Σ_{j≠i} Ω_ij w_j
    client i    R times: w_i ← w_i − η(∇f_i(w_i; minibatch) + 2λ₁ Σ_j Ω_ij w_j + 2λ₂ w_i),  the other w_j as sent
    server      Σ ← (WᵀW)^½ / tr (WᵀW)^½,   Ω ← (Σ + εI)⁻¹                     relation = "learned"
    personal    w_i

Ω is the clients' precision matrix: the closed form is that of their covariance Σ (Zhang & Yeung, UAI 2010,
whose penalty is tr(W Σ⁻¹ Wᵀ)), so its inverse goes into the penalty; ε keeps it bounded. "mean" keeps
Ω = (I − 11ᵀ/N)², which pulls all clients to their mean, and "identity" Ω = I: no relation.

The solver of the W-step is primal: R minibatch SGD steps on each block w_i, all blocks at once (the paper solves a
dual of it with SDCA, for linear models; this one takes any model).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.algorithms.steps import OwnModel, SGDMethod, sgd
from cgpfl.batch import Batch
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, gram, mix, repeat, take, where


class Server(NamedTuple):
    """W and Ω."""

    models: Tree  # leaves [N, ...]
    relation: Array  # [N, N]


class Message(NamedTuple):
    """Ω_ii and Σ_{j≠i} Ω_ij w_j."""

    own: Array
    others: Tree


def learned(models: Tree, floor: Array | float) -> Array:
    """Ω = (Σ + εI)⁻¹ of the stacked models ``[N, ...]``, Σ = (WᵀW)^½ / tr (WᵀW)^½."""
    values, vectors = jnp.linalg.eigh(gram(models))
    roots = jnp.sqrt(jnp.maximum(values, 0.0))
    share = roots / jnp.maximum(roots.sum(), 1e-30)
    return jnp.matmul(vectors / (share + floor), vectors.T, precision=jax.lax.Precision.HIGHEST)


@algorithm
class MOCHA(OwnModel, SGDMethod):
    """A model for each client, tied to the others' as far as they are related."""

    name = "mocha"
    citation = "Smith et al., NIPS 2017"
    original = 'relations learned or "mean"; λ by cross-validation'
    when = "Few clients with linear models that are related in unknown ways; the server may know every model."
    reveals = True

    relate: float = hyper(1e-3, "λ₁: weight of the relations between clients", low=0, tune=(1e-5, 1e-2))
    shrink: float = hyper(0.0, "λ₂: weight of the models' size", low=0)
    relation: str = hyper("learned", "Ω: learned, mean or identity", words=("learned", "mean", "identity"))
    floor: float = hyper(0.01, "ε: added to the covariance before it is inverted", above=0)

    def init_server(self, task: Task, key: Array) -> Server:
        """Everybody's start; clients unrelated (Σ = I/N) until there is something to learn from."""
        n = task.clients
        if self.relation == "mean":
            relation = jnp.eye(n) - 1.0 / n  # a projection: its square is itself
        else:
            relation = jnp.eye(n) if self.relation == "identity" else jnp.eye(n) / (1.0 / n + self.floor)
        return Server(repeat(task.initial, n), relation)

    def send(self, server: Server, client_id: Array) -> Message:
        """What the client needs of Ω and of the others."""
        row = server.relation[client_id]
        others = jax.tree.map(lambda v: v[0], mix(server.models, row.at[client_id].set(0.0)[:, None]))
        return Message(row[client_id], others)

    def train(self, task: Task, message: Message, client: Tree, data: ClientData, key: Array) -> tuple[Tree, Tree]:
        """R steps on the client's block of the objective."""
        own = 2 * self.relate * message.own + 2 * self.shrink

        def gradient(w: Tree, batch: Batch) -> Tree:
            g = task.grad(w, batch)
            return jax.tree.map(lambda a, v, o: a + own * v + 2 * self.relate * o, g, w, message.others)

        steps, size = self.local_rounds, self.batch_size
        w = sgd(task, client, data, key, rate=self.rate, steps=steps, batch_size=size, gradient=gradient)
        return w, w

    def aggregate(self, server: Server, uploads: Tree, cohort: Cohort, key: Array) -> Server:
        """The answered blocks of W, then Ω."""
        new = where(cohort.present > 0, uploads, take(server.models, cohort.ids))
        models = jax.tree.map(lambda all_, v: all_.at[cohort.ids].set(v), server.models, new)
        if self.relation != "learned":
            return Server(models, server.relation)
        return Server(models, where(cohort.present.any(), learned(models, self.floor), server.relation))

    def anchor(self, message: Message, upload: Tree) -> None:
        """The server has every model, not a change of one: there is nothing to measure an upload against."""

    def shared(self, message: Message) -> None:
        """There is no shared model."""

    def likely_cause(self) -> str:
        """The relations' step size may be the reason."""
        return "rate or relate is too high for this model and data"
