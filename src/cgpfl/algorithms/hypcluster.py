"""HypCluster: K hypotheses, each client takes the best, started as k-means++ starts.

Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to Federated
Learning. 2020.

    client i    k = argmin_k f_i(h_k) on all of its training samples;   R steps of SGD from h_k
    server      h_k ← mean, by sample count, of the models that chose k
    personal    the h_k that fits the client's training samples best

so it alternates as IFCA does, with sample weights. The start decides how it ends; the paper proposes
one in the manner of k-means++. Here the first K rounds each add a hypothesis: every client trains a model
of its own from everybody's start, and the server keeps that of one client, drawn with probability
proportional to m_i · f_i(best hypothesis so far) (the first: to m_i), nobody's twice.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.algorithms.groups import group_step
from cgpfl.algorithms.ifca import Hypotheses
from cgpfl.algorithms.steps import best_model, sgd_some
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, repeat, take, where


class Server(NamedTuple):
    """The hypotheses, how many there are so far, and what each client chose last."""

    models: Tree  # leaves [K, ...]
    known: Array
    assignment: Array  # [N]
    drawn: Array  # [N] whether a client's model became a hypothesis


class Message(NamedTuple):
    """The hypotheses and how many there are so far."""

    models: Tree
    known: Array


class Upload(NamedTuple):
    """k, w_i and the loss of h_k."""

    choice: Array
    model: Tree
    loss: Array


@algorithm
class HypCluster(Hypotheses):
    """IFCA with sample weights and a start in the manner of k-means++."""

    name = "hypcluster"
    citation = "Mansour et al., 2020"
    when = "As IFCA, where independent random starts collapse onto few models."

    weighted: bool = hyper(True, "average by sample count, as in the paper; false = clients count the same")
    seed_steps: int = hyper(50, "minibatch steps that train a client's model for the start", low=1)

    def check(self, clients: int, answers: float, rounds: int) -> None:
        """K against N, and rounds that are left after K hypotheses were added."""
        super().check(clients, answers, rounds)
        if self.contexts >= rounds:
            raise CgpflError(f"hypcluster: contexts = {self.contexts}: takes as many rounds, and the run has {rounds}")

    def init_server(self, task: Task, key: Array) -> Server:
        """No hypothesis yet."""
        n = task.clients
        return Server(repeat(task.initial, self.contexts), jnp.int32(0), jnp.zeros(n, jnp.int32), jnp.zeros(n, bool))

    def send(self, server: Server, client_id: Array) -> Message:
        return Message(server.models, server.known)

    def choose(self, task: Task, message: Message, data: ClientData) -> tuple[Array, Array]:
        """The best of the hypotheses known so far (the first, if none is) → (k, its loss)."""
        among = jnp.arange(self.contexts) < jnp.maximum(message.known, 1)
        return best_model(task, message.models, data, among)

    def train(
        self, task: Task, message: Message, client: tuple[()], data: ClientData, key: Array
    ) -> tuple[Upload, tuple[()]]:
        """A model of its own while hypotheses are missing, then R steps from the best one."""
        k, loss = self.choose(task, message, data)
        seeding = message.known < self.contexts
        model = sgd_some(
            task,
            where(seeding, task.initial, take(message.models, k)),
            data,
            key,
            rate=self.rate,
            steps=jnp.where(seeding, self.seed_steps, self.local_rounds),
            most=max(self.seed_steps, self.local_rounds),
            batch_size=self.batch_size,
        )
        return Upload(k, model, loss), ()

    def aggregate(self, server: Server, uploads: Upload, cohort: Cohort, key: Array) -> Server:
        """Add a hypothesis, or move each to the mean of those who chose it."""
        weights = cohort.weights.astype(jnp.float32)
        left = jnp.where(server.drawn[cohort.ids], 0.0, weights)
        left = jnp.where(left.sum() > 0, left, weights)
        far = jnp.where(server.known > 0, left * jnp.maximum(uploads.loss, 0.0), left)
        far = jnp.where(far.sum() > 0, far, left)
        # The draw goes by client, not by place: in another order of clients the same one is drawn.
        noise = jax.vmap(lambda i: jax.random.gumbel(jax.random.fold_in(key, i)))(cohort.ids)
        drawn = jnp.argmax(jnp.where(far > 0, jnp.log(jnp.where(far > 0, far, 1.0)) + noise, -jnp.inf))
        added = jax.tree.map(lambda all_, new: all_.at[server.known].set(new[drawn]), server.models, uploads.model)
        chosen = jnp.where(cohort.present > 0, uploads.choice, server.assignment[cohort.ids])
        assignment = server.assignment.at[cohort.ids].set(chosen)
        moved = group_step(server.models, uploads.model, uploads.choice, cohort, equally=not self.weighted)
        seeding = server.known < self.contexts
        new = Server(
            where(seeding, added, moved),
            jnp.minimum(server.known + 1, self.contexts).astype(jnp.int32),
            assignment,
            server.drawn.at[cohort.ids[drawn]].max(seeding),
        )
        return where(cohort.present.any(), new, server)

    def personal(self, task: Task, message: Message, client: tuple[()], data: ClientData, key: Array) -> Tree:
        """The hypothesis with the smallest loss on the client's training samples."""
        return take(message.models, self.choose(task, message, data)[0])

    def anchor(self, message: Message, upload: Upload) -> Upload:
        """The hypothesis that was chosen, or everybody's start, which unused places have; the rest is no update."""
        start = jnp.where(message.known < self.contexts, message.known, upload.choice)
        return Upload(None, take(message.models, start), None)  # type: ignore[arg-type]

    def choices(self, message: Message) -> Tree:
        """All hypotheses; those known so far come first."""
        return message.models

    def gradients(self) -> float:
        """R; while hypotheses are added, ``seed_steps`` instead."""
        return self.local_rounds

    def report(self, server: Server) -> dict[str, Array]:
        """What each client chose last, and how many hypotheses there are."""
        return {"context": server.assignment, "k": jnp.maximum(server.known, 1)}
