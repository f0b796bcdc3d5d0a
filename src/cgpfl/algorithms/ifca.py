"""IFCA: K models; each client takes the one that fits its data best.

Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning. NeurIPS 2020.
(Its model averaging variant.)

    send        ω_1..ω_K
    client i    k = argmin_k f_i(ω_k) on all of its training samples
                w_i ← ω_k;  R times: w_i ← w_i − η ∇f_i(w_i; minibatch)
    upload      k and w_i
    server      ω_k ← mean of the w_i that chose k; a model that nobody chose stays as it is
    personal    the ω_k that fits the client's training samples best

The K models start independently: ω_1 from everybody's start, the others from keys of their own. If
they started equal, everyone would choose the first for ever. K = 1 is FedAvg (by sample count if ``weighted``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.algorithms.groups import group_step
from cgpfl.algorithms.steps import Descending, SGDMethod, best_model, own_start
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, take


class Server(NamedTuple):
    """ω_1..ω_K, and what each client chose last."""

    models: Tree  # leaves [K, ...]
    assignment: Array  # [N]


class Upload(NamedTuple):
    """k and w_i."""

    choice: Array
    model: Tree


@algorithm
class Hypotheses(SGDMethod):
    """Base of those that send K models, of which each client chooses one by its loss."""

    contexts: int = hyper(4, "K: number of models", low=1)
    weighted: bool = hyper(False, "average by sample count; false = clients count the same, as in the paper")

    def check(self, clients: int, answers: float, rounds: int) -> None:
        """K against N."""
        if self.contexts > clients:
            raise CgpflError(
                f"{self.name}: contexts = {self.contexts}: must be at most the number of clients, {clients}"
            )

    def shared(self, message: Any) -> None:
        """Which of the K is the client's depends on its data."""


@algorithm
class IFCA(Hypotheses, Descending):
    """K models, and each client trains the one with the smallest loss on its data."""

    name = "ifca"
    citation = "Ghosh et al., NeurIPS 2020"
    original = "K known; a round is one gradient step, or several local steps with averaging"
    when = (
        "A known number of groups whose clients can tell by their loss which model is theirs. K times the traffic down."
    )

    def init_server(self, task: Task, key: Array) -> Server:
        """K independent models."""
        others = jax.vmap(lambda k: own_start(task, jax.random.fold_in(key, k)))(jnp.arange(1, self.contexts))
        models = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), task.initial, others)
        return Server(models, jnp.zeros(task.clients, jnp.int32))

    def send(self, server: Server, client_id: Array) -> Any:
        return server.models

    def train(
        self, task: Task, message: Tree, client: tuple[()], data: ClientData, key: Array
    ) -> tuple[Upload, tuple[()]]:
        """Choose, then R steps of SGD."""
        choice, _ = best_model(task, message, data)
        return Upload(choice, self.descend(task, take(message, choice), data, key)), ()

    def aggregate(self, server: Server, uploads: Upload, cohort: Cohort, key: Array) -> Server:
        """Each model moves to the mean of those who chose it."""
        chosen = jnp.where(cohort.present > 0, uploads.choice, server.assignment[cohort.ids])
        return Server(
            group_step(server.models, uploads.model, uploads.choice, cohort, equally=not self.weighted),
            server.assignment.at[cohort.ids].set(chosen),
        )

    def personal(self, task: Task, message: Tree, client: tuple[()], data: ClientData, key: Array) -> Tree:
        """The model with the smallest loss on the client's training samples."""
        return take(message, best_model(task, message, data)[0])

    def anchor(self, message: Tree, upload: Upload) -> Upload:
        """The model that was chosen; the choice itself is no update."""
        return Upload(None, take(message, upload.choice))  # type: ignore[arg-type]

    def choices(self, message: Tree) -> Tree:
        return message

    def report(self, server: Server) -> dict[str, Array]:
        """What each client chose last."""
        return {"context": server.assignment, "k": jnp.int32(self.contexts)}
