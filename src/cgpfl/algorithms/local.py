"""Local training: every client alone. The baseline that every personalised result must beat.

    client i    R times: θ_i ← θ_i − η ∇f_i(θ_i; minibatch)
    server      nothing
    personal    θ_i

Nothing is sent. Whatever a federation gains, it must gain over this.
"""

from __future__ import annotations

from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.algorithms.steps import Descending, OwnModel, SGDMethod
from cgpfl.hyperparameters import algorithm
from cgpfl.rounds.account import Steps
from cgpfl.tree import Tree


@algorithm
class Unshared(SGDMethod):
    """Base of those that exchange nothing."""

    def init_server(self, task: Task, key: Array) -> tuple[()]:
        """The server knows nothing."""
        return ()

    def aggregate(self, server: tuple[()], uploads: tuple[()], cohort: Cohort, key: Array) -> tuple[()]:
        return ()

    def noisy_steps(self, rounds: int) -> tuple[Steps, ...]:
        """Nothing leaves."""
        return ()

    def shared(self, message: tuple[()]) -> None:
        """There is no shared model."""


@algorithm
class Local(OwnModel, Unshared, Descending):
    """SGD on each client's own data, with no exchange at all."""

    name = "local"
    citation = "no exchange"
    when = (
        "Always run it: it is what a client gets without taking part. Hard to beat where clients have much "
        "data, or few classes each."
    )

    def train(
        self, task: Task, message: tuple[()], client: Tree, data: ClientData, key: Array
    ) -> tuple[tuple[()], Tree]:
        """R steps of SGD on the client's own model."""
        return (), self.descend(task, client, data, key)
