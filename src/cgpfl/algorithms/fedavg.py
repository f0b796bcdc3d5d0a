"""FedAvg: one model for everybody.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017.

    client i    w_i ← w;  R times: w_i ← w_i − η ∇f_i(w_i; minibatch)
    server      w ← Σ_i (m_i / m) w_i          over the clients that answered
    personal    w
"""

from __future__ import annotations

from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.steps import Averaging, Descending
from cgpfl.hyperparameters import algorithm
from cgpfl.rounds.account import Steps
from cgpfl.tree import Tree


@algorithm
class FedAvg(Averaging, Descending):
    """One global model, trained on every client in turn and averaged by sample count."""

    name = "fedavg"
    citation = "McMahan et al., AISTATS 2017"
    original = (
        "its MNIST network: 10 % of the clients a round, 5 epochs, minibatches of 10; rates searched for each data set"
    )
    when = "Clients that are alike, or when one model for all is the goal. The baseline of everything federated."

    def train(
        self, task: Task, message: Tree, client: tuple[()], data: ClientData, key: Array
    ) -> tuple[Tree, tuple[()]]:
        """R steps of SGD from the global model."""
        return self.descend(task, message, data, key), ()

    def noisy_steps(self, rounds: int) -> tuple[Steps, ...] | None:
        """R minibatches a round."""
        return self.stepwise(rounds)
