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

from cgpfl.algorithms.base import ClientData, Cohort, Method, Task
from cgpfl.algorithms.groups import group_step
from cgpfl.algorithms.moreau import moreau_rounds, unstable_prox
from cgpfl.hyper import algorithm, hyper
from cgpfl.tree import Tree, repeat


@algorithm
class PFedMe(Method):
    """A personal model for each client, tied to one global model by a proximal term."""

    name = "pfedme"
    citation = "Dinh et al., NeurIPS 2020"
    original = "λ = 15, S = 5, R = 20, minibatches of 20 on MNIST"
    when = "Personal models around one global model, by a proximal term; it needs more gradients and rounds than Ditto."

    prox: float = hyper(12.0, "λ: pull of the personal model towards the global one", low=0, tune=(1.0, 15.0))
    personal_rate: float = hyper(0.1, "η: rate of the personal model's steps", above=0, tune=(0.01, 0.12))
    global_rate: float = hyper(
        0.06, "λ·lr: rate of the client's copy of the global model", low=0, high=1, tune=(0.01, 1.0)
    )
    server_rate: float = hyper(1.0, "β: how far the server moves to the mean", above=0, high=1)
    local_rounds: int = hyper(10, "R: minibatches a client draws in a round", low=1)
    inner_steps: int = hyper(5, "S: personal steps on one minibatch", low=1)
    batch_size: int = hyper(20, "samples in a minibatch; 0 = all of the client's", low=0)
    warm_start: bool = hyper(True, "keep θ over rounds; false = restart from w each round")

    def init_server(self, task: Task, key: Array) -> Tree:
        """The one global model, stacked ``[1, ...]`` as CGPFL's context models are."""
        return repeat(task.initial, 1)

    def init_client(self, task: Task, key: Array) -> Tree:
        """θ_i."""
        return task.initial

    def send(self, server: Tree, client_id: Array) -> Tree:
        """Everyone gets the global model."""
        return jax.tree.map(lambda w: w[0], server)

    def train(self, task: Task, message: Tree, client: Tree, data: ClientData, key: Array) -> tuple[Tree, Tree]:
        """R local rounds of S proximal steps → (w̃, θ)."""
        return moreau_rounds(
            task,
            message,
            client if self.warm_start else message,
            data,
            key,
            prox=self.prox,
            personal_rate=self.personal_rate,
            generalized_rate=self.global_rate,
            local_rounds=self.local_rounds,
            inner_steps=self.inner_steps,
            batch_size=self.batch_size,
        )

    def aggregate(self, server: Tree, uploads: Tree, cohort: Cohort, key: Array) -> Tree:
        """The relaxed mean of the uploads."""
        return group_step(server, uploads, jnp.zeros_like(cohort.ids), cohort, rate=self.server_rate, equally=True)

    def personal(self, task: Task, message: Tree, client: Tree, data: ClientData, key: Array) -> Tree:
        """θ_i, not w."""
        return client

    def gradients(self) -> float:
        """R·S."""
        return self.local_rounds * self.inner_steps

    def likely_cause(self) -> str:
        """The inner problem's step size is the usual reason."""
        return unstable_prox(self.prox, self.personal_rate) or super().likely_cause()
