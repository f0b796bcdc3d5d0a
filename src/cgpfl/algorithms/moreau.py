"""The client's step of pFedMe and CGPFL, and what makes it unstable."""

from __future__ import annotations

import jax
from jax import Array

from cgpfl.algorithms.base import ClientData, Method, Task
from cgpfl.algorithms.steps import OwnModel, over_batches
from cgpfl.batch import Batch
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.rounds.account import Steps
from cgpfl.tree import Tree


@algorithm
class MoreauMethod(OwnModel, Method):
    """Base of pFedMe and CGPFL: a personal model θ_i on each client, held near a shared one by a Moreau envelope."""

    prox: float = hyper(12.0, "λ: pull of the personal model towards the shared one", low=0, tune=(1.0, 15.0))
    personal_rate: float = hyper(0.1, "η: rate of the personal model's steps", above=0, tune=(0.01, 0.12))
    server_rate: float = hyper(1.0, "how far the server moves to the mean", above=0, high=1)
    local_rounds: int = hyper(10, "R: minibatches a client draws in a round", low=1)
    inner_steps: int = hyper(5, "S: personal steps on one minibatch", low=1)
    batch_size: int = hyper(20, "samples in a minibatch; 0 = all of the client's", low=0)
    warm_start: bool = hyper(True, "keep θ over rounds; false = restart from the shared model each round")

    def moreau_rounds(
        self, task: Task, message: Tree, client: Tree, data: ClientData, key: Array, copy_rate: Array | float
    ) -> tuple[Tree, Tree]:
        """A client's round → (ω̃, θ).

        R times: draw one minibatch; S times θ ← θ − η(∇f_i(θ) + λ(θ − ω̃)), which approaches the Moreau
        prox of f_i at ω̃; then ω̃ ← ω̃ − rate·(ω̃ − θ).
        """

        def local_round(state: tuple[Tree, Tree], batch: Batch) -> tuple[Tree, Tree]:
            omega, theta = state
            theta = task.proximal_steps(theta, omega, batch, self.prox, self.personal_rate, self.inner_steps)
            omega = jax.tree.map(lambda w, t: w - copy_rate * (w - t), omega, theta)
            return omega, theta

        start = (message, client if self.warm_start else message)
        return over_batches(local_round, start, data, key, self.local_rounds, self.batch_size)

    def noisy_steps(self, rounds: int) -> tuple[Steps, ...] | None:
        """S on each of R minibatches."""
        return (Steps(rounds, self.local_rounds, self.inner_steps, self.batch_size),)

    def gradients(self) -> float:
        return self.local_rounds * self.inner_steps

    def likely_cause(self) -> str:
        """The inner problem's step size is the usual reason."""
        return unstable_prox(self.prox, self.personal_rate) or super().likely_cause()


def unstable_prox(prox: float, rate: float) -> str | None:
    """θ ← θ − η·λ(θ − ω) alone diverges once η·λ reaches 2."""
    if float(prox) * float(rate) < 2:
        return None
    return f"prox x personal_rate = {float(prox) * float(rate):g}, and the inner steps need it below 2"
