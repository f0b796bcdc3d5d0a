"""FedProx: FedAvg whose clients are held near the model they were sent.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks. MLSys 2020.

    client i    w_i ← w;  R times: w_i ← w_i − η(∇f_i(w_i; minibatch) + μ(w_i − w)),  w as it was sent
    server      w ← Σ_i (m_i / m) w_i          over the clients that answered
    personal    w

μ = 0 is FedAvg. The paper draws clients by their share of the samples and counts them alike; here they are drawn
alike and counted by samples, as FedAvg's are. Every client takes R steps: the paper's slow devices, which
take fewer, are not part of it.
"""

from __future__ import annotations

from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.fedavg import FedAvg
from cgpfl.algorithms.steps import pull
from cgpfl.batch import Batch
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree


@algorithm
class FedProx(FedAvg):
    """FedAvg with a proximal term that holds each client near the global model."""

    name = "fedprox"
    citation = "Li et al., MLSys 2020"
    original = "μ from {0.001, 0.01, 0.1, 1}, chosen for each data set; 1 on MNIST; minibatches of 10"
    when = "One global model over unequal clients that take many local steps, where FedAvg's clients drift too far."

    prox: float = hyper(0.1, "μ: pull of a client's steps towards the global model", low=0, tune=(0.001, 1.0))

    def train(
        self, task: Task, message: Tree, client: tuple[()], data: ClientData, key: Array
    ) -> tuple[Tree, tuple[()]]:
        """R proximal steps of SGD from the global model, on FedAvg's minibatches."""

        def gradient(w: Tree, batch: Batch) -> Tree:
            return pull(task.grad(w, batch), w, message, self.prox)

        return self.descend(task, message, data, key, gradient=gradient), ()

    noisy_steps = FedAvg.noisy_steps

    def likely_cause(self) -> str:
        """A step of the pull alone diverges once η·μ reaches 2."""
        pulled = float(self.prox) * float(self.rate)
        return super().likely_cause() if pulled < 2 else f"prox x rate = {pulled:g}, and the steps need it below 2"
