"""Ditto: FedAvg, and beside it a personal model pulled towards the global one.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization. ICML 2021.

    client i    w_i ← FedAvg's R steps from w
                R times: v_i ← v_i − η_p(∇f_i(v_i; minibatch) + λ(v_i − w)),  w as at the round's start
    server      FedAvg's mean of w_i
    personal    v_i

λ = 0 is local training, λ → ∞ the global model.
"""

from __future__ import annotations

from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.moreau import unstable_prox
from cgpfl.algorithms.steps import Averaging, Descending, OwnModel, pull
from cgpfl.batch import Batch
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.rounds.account import Steps
from cgpfl.tree import Tree


@algorithm
class Ditto(OwnModel, Averaging, Descending):
    """A personal model for each client, pulled towards FedAvg's."""

    name = "ditto"
    citation = "Li et al., ICML 2021"
    original = "λ from {0.1, 1, 2}, chosen by each client"
    when = "A global model is wanted anyway, and each client should get a robust personal one beside it."

    prox: float = hyper(1.0, "λ: pull of the personal model towards the global one", low=0, tune=(0.01, 10.0))
    personal_rate: float = hyper(0.1, "η_p: rate of the personal model's steps", above=0, tune=(0.01, 1.0))

    def train(self, task: Task, message: Tree, client: Tree, data: ClientData, key: Array) -> tuple[Tree, Tree]:
        """FedAvg's steps for the upload, proximal steps for the personal model, on the same minibatches."""

        def gradient(v: Tree, batch: Batch) -> Tree:
            return pull(task.own.grad(v, batch), v, message, self.prox)

        v = self.descend(task, client, data, key, rate=self.personal_rate, gradient=gradient)
        return self.descend(task, message, data, key), v

    def noisy_steps(self, rounds: int) -> tuple[Steps, ...] | None:
        """FedAvg's; the personal model never leaves."""
        return self.stepwise(rounds)

    def gradients(self) -> float:
        """R for each of the two models."""
        return 2 * self.local_rounds

    def gradients_of(self, samples: float) -> float:
        """The same for each of the two."""
        return 2 * self.descent.steps(self.local_rounds, samples, self.batch_size)

    def likely_cause(self) -> str:
        """The pull's step size is the usual reason."""
        return unstable_prox(self.prox, self.personal_rate) or super().likely_cause()
