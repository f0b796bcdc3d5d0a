"""pFedMe: a personal model pulled towards one global model.

Dinh, Tran, Nguyen: Personalized Federated Learning with Moreau Envelopes. NeurIPS 2020.

    send        w to every client
    client i    w̃ ← w;  R times: draw one minibatch;
                S times θ_i ← θ_i − η(∇f_i(θ_i) + λ(θ_i − w̃));   w̃ ← w̃ − λ·lr·(w̃ − θ_i)
    server      w ← (1 − β) w + β · mean of w̃        over the clients that answered
    personal    θ_i  ("PM" in the paper; the global model "GM" is recorded as the shared one)

This is CGPFL with one context: both share the client's step and the server's mean.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.algorithms.groups import group_step
from cgpfl.algorithms.moreau import MoreauMethod
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, repeat


@algorithm
class PFedMe(MoreauMethod):
    """A personal model for each client, tied to one global model by a proximal term."""

    name = "pfedme"
    citation = "Dinh et al., NeurIPS 2020"
    original = "λ = 15, S = 5, R = 20, minibatches of 20 on MNIST"
    when = "Personal models around one global model, by a proximal term; it needs more gradients and rounds than Ditto."

    global_rate: float = hyper(
        0.06, "λ·lr: rate of the client's copy of the global model", low=0, high=1, tune=(0.01, 1.0)
    )

    def init_server(self, task: Task, key: Array) -> Tree:
        """The one global model, stacked ``[1, ...]`` as CGPFL's context models are."""
        return repeat(task.initial, 1)

    def send(self, server: Tree, client_id: Array) -> Tree:
        return jax.tree.map(lambda w: w[0], server)

    def train(self, task: Task, message: Tree, client: Tree, data: ClientData, key: Array) -> tuple[Tree, Tree]:
        """R local rounds of S proximal steps → (w̃, θ)."""
        return self.moreau_rounds(task, message, client, data, key, self.global_rate)

    noisy_steps = MoreauMethod.noisy_steps

    def aggregate(self, server: Tree, uploads: Tree, cohort: Cohort, key: Array) -> Tree:
        """The relaxed mean of the uploads."""
        return group_step(server, uploads, jnp.zeros_like(cohort.ids), cohort, rate=self.server_rate, equally=True)
