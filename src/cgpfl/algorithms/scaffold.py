"""SCAFFOLD: FedAvg whose clients correct their drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning. ICML 2020. (Option II of its Algorithm 1.)

    send        x and c
    client i    y ← x;  R times: y ← y − η(∇f_i(y; minibatch) − c_i + c)
                c_i⁺ = c_i − c + (x − y)/(R·η)
    upload      Δy = y − x,  Δc = c_i⁺ − c_i
    server      x ← x + η_g · mean Δy,   c ← c + (|S|/N) · mean Δc        over the clients S that answered
    personal    x

The control variate c_i estimates client i's own gradient, c that of the mean; their difference is
the drift that is taken out of each step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.algorithms.steps import SGDMethod, sgd
from cgpfl.batch import Batch
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.rounds.account import Steps
from cgpfl.tree import Tree, axpy


class Server(NamedTuple):
    """x, c, and N."""

    model: Tree
    control: Tree
    clients: Array


class Message(NamedTuple):
    """x and c."""

    model: Tree
    control: Tree


class Upload(NamedTuple):
    """Δy and Δc."""

    model: Tree
    control: Tree


@algorithm
class SCAFFOLD(SGDMethod):
    """FedAvg with control variates against the drift of unequal clients."""

    name = "scaffold"
    citation = "Karimireddy et al., ICML 2020"
    original = "η_g = 1; η searched"
    when = (
        "One global model over unequal clients with many local steps, most of which take part often. Twice the traffic."
    )

    only_means = True

    server_rate: float = hyper(1.0, "η_g: rate of the server's step", above=0, tune=(0.3, 1.5))

    def init_server(self, task: Task, key: Array) -> Server:
        """x, and c = 0."""
        return Server(task.initial, jax.tree.map(jnp.zeros_like, task.initial), jnp.float32(task.clients))

    def init_client(self, task: Task, key: Array) -> Tree:
        """c_i = 0."""
        return jax.tree.map(jnp.zeros_like, task.initial)

    def send(self, server: Server, client_id: Array) -> Message:
        """Model and control variate: twice FedAvg's message."""
        return Message(server.model, server.control)

    def train(self, task: Task, message: Message, client: Tree, data: ClientData, key: Array) -> tuple[Upload, Tree]:
        """R corrected steps, then the new control variate."""
        x, c = message

        def corrected(y: Tree, batch: Batch) -> Tree:
            return jax.tree.map(lambda g, ci, cs: g - ci + cs, task.grad(y, batch), client, c)

        steps, rate = self.local_rounds, self.rate
        y = sgd(task, x, data, key, rate=rate, steps=steps, batch_size=self.batch_size, gradient=corrected)
        control = jax.tree.map(lambda ci, cs, a, b: ci - cs + (a - b) / (steps * rate), client, c, x, y)
        return Upload(axpy(-1.0, x, y), axpy(-1.0, client, control)), control

    def aggregate(self, server: Server, uploads: Upload, cohort: Cohort, key: Array) -> Server:
        """Both means, over the clients that answered; c moves by their share of all."""
        zero = jax.tree.map(jnp.zeros_like, Upload(server.model, server.control))
        mean = cohort.mean(uploads, fallback=zero, equally=True)
        share = cohort.present.sum() / server.clients
        return server._replace(
            model=axpy(self.server_rate, mean.model, server.model), control=axpy(share, mean.control, server.control)
        )

    def anchor(self, message: Message, upload: Upload) -> Upload:
        """Both parts are differences."""
        return Upload(*jax.tree.map(jnp.zeros_like, tuple(message)))

    def noisy_steps(self, rounds: int) -> tuple[Steps, ...] | None:
        """FedAvg's: both parts are made of the same gradients."""
        return (Steps(rounds, self.local_rounds, 1, self.batch_size),)

    def personal(self, task: Task, message: Message, client: Tree, data: ClientData, key: Array) -> Tree:
        return message.model

    def shared(self, message: Message) -> Tree:
        return message.model
