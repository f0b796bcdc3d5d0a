"""FedAvg with fine-tuning: the global model, trained a little further on each client's own samples before use.

Wang, Mathews, Kiddon, Eichner, Beaufays, Ramage: Federated Evaluation of On-device Personalization. 2019.
Yu, Bagdasaryan, Shmatikov: Salvaging Federated Learning by Local Adaptation. 2020.
Collins, Hassani, Mokhtari, Shakkottai: FedAvg with Fine Tuning: Local Updates Lead to Representation Learning.
NeurIPS 2022.

    client i    FedAvg's R steps from w
    server      FedAvg's mean
    personal    θ ← w;  T times: θ ← θ − η_p ∇f_i(θ; minibatch),  on the client's training samples

T = 0 is FedAvg. Nothing of the fine-tuning is kept or sent: it starts again from w whenever the model is used, so a
client that has never taken part gets a personal model, too. The global model does not depend on it, and its T
gradients are no part of a round's.
"""

from __future__ import annotations

from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.fedavg import FedAvg
from cgpfl.algorithms.steps import sgd
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree


@algorithm
class FedAvgFT(FedAvg):
    """FedAvg, and steps on the client's own samples before it uses the model."""

    name = "fedavg-ft"
    citation = "Wang et al., 2019; Collins et al., NeurIPS 2022"
    original = ""
    when = (
        "The first thing to try for personal models: it costs the federation nothing, and any FedAvg run can be "
        "fine-tuned afterwards. A personalised method should beat it."
    )

    tune_steps: int = hyper(10, "T: minibatch steps before use; 0 = FedAvg", low=0)
    tune_rate: float = hyper(0.1, "η_p: rate of the steps before use", above=0, tune=(0.01, 1.0))

    def personal(self, task: Task, message: Tree, client: tuple[()], data: ClientData, key: Array) -> Tree:
        """The global model after T steps on the client's own training samples."""
        steps, size = self.tune_steps, self.batch_size
        return sgd(task, message, data, key, rate=self.tune_rate, steps=steps, batch_size=size) if steps else message
