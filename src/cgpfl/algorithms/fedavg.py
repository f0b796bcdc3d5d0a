"""FedAvg: one model for everybody.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017.

    client i    w_i ← w;  R times: w_i ← w_i − η ∇f_i(w_i; minibatch)
    server      w ← Σ_i (m_i / m) w_i          over the clients that answered
    personal    w
"""

from __future__ import annotations

from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Method, Task
from cgpfl.algorithms.steps import sgd
from cgpfl.hyper import algorithm, hyper
from cgpfl.tree import Tree, weighted_mean


@algorithm
class FedAvg(Method):
    """One global model, trained on every client in turn and averaged by sample count."""

    name = "fedavg"
    citation = "McMahan et al., AISTATS 2017"

    rate: float = hyper(0.1, "η: rate of the clients' SGD steps", above=0)
    local_rounds: int = hyper(10, "R: minibatch steps a client takes in a round", low=1)
    batch_size: int = hyper(20, "samples in a minibatch; 0 = all of the client's", low=0)

    def init_server(self, task: Task, key: Array) -> Tree:
        """The server's state is the model."""
        return task.initial

    def init_client(self, task: Task, key: Array) -> tuple[()]:
        """Clients keep nothing."""
        return ()

    def send(self, server: Tree, client_id: Array) -> Tree:
        """Everyone gets the same model."""
        return server

    def train(
        self, task: Task, message: Tree, client: tuple[()], data: ClientData, key: Array
    ) -> tuple[Tree, tuple[()]]:
        """R steps of SGD from the global model."""
        steps = self.local_rounds
        return sgd(task, message, data, key, rate=self.rate, steps=steps, batch_size=self.batch_size), ()

    def aggregate(self, server: Tree, uploads: Tree, cohort: Cohort, key: Array) -> Tree:
        """The mean by sample count."""
        return weighted_mean(uploads, cohort.weights.astype("float32"), fallback=server)

    def personal(self, task: Task, message: Tree, client: tuple[()], data: ClientData, key: Array) -> Tree:
        """The global model: FedAvg does not personalise."""
        return message

    def gradients(self) -> int:
        """R."""
        return self.local_rounds
