"""Local training: every client alone. The baseline that every personalised result must beat.

client i    R times: θ_i ← θ_i − η ∇f_i(θ_i; minibatch)
server      nothing
personal    θ_i
"""

from __future__ import annotations

from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Method, Task
from cgpfl.algorithms.steps import sgd
from cgpfl.hyper import algorithm, hyper
from cgpfl.tree import Tree


@algorithm
class Local(Method):
    """SGD on each client's own data, with no exchange at all."""

    name = "local"
    citation = "no exchange"

    rate: float = hyper(0.1, "η: rate of the SGD steps", above=0)
    local_rounds: int = hyper(10, "R: minibatch steps a client takes in a round", low=1)
    batch_size: int = hyper(20, "samples in a minibatch; 0 = all of the client's", low=0)

    def init_server(self, task: Task, key: Array) -> tuple[()]:
        """The server knows nothing."""
        return ()

    def init_client(self, task: Task, key: Array) -> Tree:
        """The client's state is its model."""
        return task.initial

    def send(self, server: tuple[()], client_id: Array) -> tuple[()]:
        """Nothing is sent."""
        return ()

    def train(
        self, task: Task, message: tuple[()], client: Tree, data: ClientData, key: Array
    ) -> tuple[tuple[()], Tree]:
        """R steps of SGD on the client's own model."""
        steps = self.local_rounds
        return (), sgd(task, client, data, key, rate=self.rate, steps=steps, batch_size=self.batch_size)

    def aggregate(self, server: tuple[()], uploads: tuple[()], cohort: Cohort, key: Array) -> tuple[()]:
        """Nothing to aggregate."""
        return ()

    def personal(self, task: Task, message: tuple[()], client: Tree, data: ClientData, key: Array) -> Tree:
        """The client's own model."""
        return client

    def shared(self, message: tuple[()]) -> None:
        """There is no shared model."""

    def gradients(self) -> int:
        """R."""
        return self.local_rounds
