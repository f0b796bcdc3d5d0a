"""FedMD: clients exchange what their models say about public samples, not their models.

Li, Wang: FedMD: Heterogenous Federated Learning via Model Distillation. 2019.

    start       each client trains on the public samples and their labels
    send        the consensus s̄ [P, classes]
    client i    digest:  D steps of SGD on ½‖f_θ(x) − s̄(x)‖² over minibatches of public x
                revisit: R steps of SGD on its own samples
    upload      its logits on all public samples
    server      s̄ ← mean of the logits, over the clients that answered
    personal    θ_i

Nothing but logits travels, so on real nodes the models may differ; in a simulation they have one
architecture (and may start apart: ``own_start``). Needs public data.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.algorithms.steps import Descending, OwnModel, own_start, sgd
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, axpy, where


class Consensus(NamedTuple):
    """s̄, and whether there is one yet."""

    logits: Array  # [P, classes]
    known: Array


@algorithm
class FedMD(OwnModel, Descending):
    """Models that agree on public samples and fit their own."""

    name = "fedmd"
    citation = "Li & Wang, 2019"
    when = (
        "Models that must not or cannot be exchanged: other architectures, or few classes and a large model. "
        "Needs public samples."
    )
    needs_public = True

    digest_rate: float = hyper(0.01, "rate of the steps towards the consensus", above=0, tune=(0.001, 0.02))
    digest_steps: int = hyper(10, "D: minibatch steps towards the consensus", low=0)
    start_steps: int = hyper(100, "minibatch steps on the public samples before the first round", low=0)
    own_start: bool = hyper(False, "clients start from models of their own, not from one")

    def init_server(self, task: Task, key: Array) -> Consensus:
        """No consensus yet."""
        public = task.everybodys
        shape = jax.eval_shape(lambda: task.apply(task.initial, public.all().x))
        return Consensus(jnp.zeros(shape.shape, shape.dtype), jnp.float32(0))

    def init_client(self, task: Task, key: Array) -> Tree:
        """θ_i, trained on the public samples."""
        public = task.everybodys
        params = own_start(task, key) if self.own_start else task.initial
        if not self.start_steps:
            return params
        return sgd(task, params, public, key, rate=self.rate, steps=self.start_steps, batch_size=self.batch_size)

    def train(self, task: Task, message: Consensus, client: Tree, data: ClientData, key: Array) -> tuple[Array, Tree]:
        """Digest, revisit, and say what the model thinks now."""
        public = task.everybodys
        first, second = jax.random.split(key)
        size = self.batch_size or public.rows.shape[0]

        def digest(params: Tree, step_key: Array) -> tuple[Tree, None]:
            picks = jax.random.randint(step_key, (size,), 0, public.count)
            picks = picks if self.batch_size else jnp.arange(size)
            x = public.take(public.rows[picks], jnp.ones(size)).x

            def apart(w: Tree) -> Array:
                return 0.5 * jnp.sum((task.apply(w, x) - message.logits[picks]) ** 2) / size

            return axpy(-self.digest_rate, task.gradient(apart, params), params), None

        digested, _ = jax.lax.scan(digest, client, jax.random.split(first, self.digest_steps))
        params = self.descend(task, where(message.known > 0, digested, client), data, second)
        return task.apply(params, public.all().x), params

    def aggregate(self, server: Consensus, uploads: Array, cohort: Cohort, key: Array) -> Consensus:
        """The mean of the logits."""
        mean = cohort.mean(uploads, fallback=server.logits, equally=True)
        return Consensus(mean, jnp.maximum(server.known, cohort.present.max()))

    def anchor(self, message: Consensus, upload: Array) -> Array:
        return message.logits

    def shared(self, message: Consensus) -> None:
        """Logits are no model."""

    def gradients(self) -> float:
        """D + R (and ``start_steps``, once, before the first round)."""
        return self.digest_steps + self.local_rounds
