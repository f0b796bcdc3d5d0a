"""L2SGD and L2SGD+: local models held together by a penalty on their distance from the mean.

Hanzely, Richtárik: Federated Learning of a Mixture of Global and Local Models. 2020.

    min over x_1..x_n of  (1/n) Σ f_i(x_i) + (λ/2n) Σ ‖x_i − x̄‖²

One coin for all clients a step. With probability p (it needs x̄, so it is a communication)

    x_i ← x_i − αλ/(np)·(x_i − x̄)                                        αλ/(np) ≤ 1/2

and else a local step, x_i ← x_i − α/(n(1−p))·∇f_i(x_i; minibatch). A round here is what happens from
one communication to the next: the step towards the mean, then the number of local steps that the
coin gives before it falls on p again, (1 − p)/p of them on average. α appears only as α/n: ``rate``.

L2SGD+ takes the variance out with control variates: Ψ_i, the last pull, and J_i, gradients at a
reference y_i. Its steps are x_i ← x_i − (α/n)·g with

    towards the mean    g = (λ/p)(x_i − x̄) − (1/p − 1)Ψ_i + J̄_i;                    then Ψ_i ← λ(x_i − x̄)
    local               g = (∇f_i(x_i; B) − ∇f_i(y_i; B))/(1 − p) + J̄_i + Ψ_i

both unbiased for ∇f_i(x_i) + λ(x_i − x̄). The paper keeps one gradient a sample (SAGA), which is m_i models
on a client; here, as in SVRG, J̄_i = ∇f_i(y_i) over all samples and y_i ← x_i at a round's first local step.

    personal    x_i

The server's x̄ is the mean over the clients that answered (in the paper, all do).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Method, Task
from cgpfl.algorithms.steps import OwnModel, full_gradient
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, axpy, where

LONGEST = 10_000
"""Local steps in a round at most, whatever the coin says."""


class Server(NamedTuple):
    """x̄, and how many local steps the coin gives in this round. Both are sent."""

    mean: Tree
    steps: Array


@algorithm
class L2SGD(OwnModel, Method):
    """Local SGD, and steps towards the mean at random times."""

    name = "l2sgd"
    citation = "Hanzely & Richtárik, 2020"
    original = "p = λ/(L + λ), L the smoothness of f_i, is its best"
    when = (
        "A clear trade-off between local and global by one number, with little communication; clients that "
        "all take part."
    )
    reveals = True

    rate: float = hyper(0.09, "α/n: rate of a full step", above=0, tune=(0.01, 1.0))
    prox: float = hyper(0.1, "λ: pull towards the mean", low=0, tune=(0.01, 0.5))
    coin: float = hyper(0.1, "p: chance of a step towards the mean; rate·λ/p must be at most 1/2", above=0, high=0.999)
    batch_size: int = hyper(20, "samples in a minibatch; 0 = all of the client's", low=0)

    def check(self, clients: int, answers: float, rounds: int) -> None:
        """The step towards the mean must not overshoot."""
        step = float(self.rate) * float(self.prox) / float(self.coin)
        if step > 0.5 + 1e-6:
            raise CgpflError(f"{self.name}: rate x prox / coin = {step:g}: must be at most 0.5; lower rate or prox")

    def draw(self, key: Array) -> Array:
        """How often the coin (p) fails before it succeeds: a geometric number from 0 up."""
        u = jax.random.uniform(key, minval=1e-37)
        return jnp.minimum(jnp.floor(jnp.log(u) / jnp.log1p(-self.coin)), LONGEST).astype(jnp.int32)

    def init_server(self, task: Task, key: Array) -> Server:
        """x̄ = x_i at the start."""
        return Server(task.initial, self.draw(key))

    def train(self, task: Task, message: Server, client: Tree, data: ClientData, key: Array) -> tuple[Tree, Tree]:
        """One step towards the mean, then local steps."""
        x = axpy(-self.rate * self.prox / self.coin, axpy(-1.0, message.mean, client), client)

        def local(j: Array, x: Tree) -> Tree:
            batch = data.batch(jax.random.fold_in(key, j), self.batch_size)
            return axpy(-self.rate / (1 - self.coin), task.grad(x, batch), x)

        x = jax.lax.fori_loop(0, message.steps, local, x)
        return x, x

    def aggregate(self, server: Server, uploads: Tree, cohort: Cohort, key: Array) -> Server:
        """The mean of the clients' models, and the coin for the next round."""
        new = Server(cohort.mean(uploads, fallback=server.mean, equally=True), self.draw(key))
        return where(cohort.present.any(), new, server)

    def anchor(self, message: Server, upload: Tree) -> Tree:
        return message.mean

    def shared(self, message: Server) -> Tree:
        return message.mean

    def gradients(self) -> float:
        """(1 − p)/p on average."""
        return float((1 - self.coin) / self.coin)

    def likely_cause(self) -> str:
        """The rate of a local step is not the one given."""
        local = float(self.rate) / (1 - float(self.coin))
        return f"a local step has rate / (1 - coin) = {local:g}, too high for this model and data"


class Reduced(NamedTuple):
    """x_i, y_i, J̄_i and Ψ_i; ``known``: whether y_i has been set."""

    model: Tree
    reference: Tree
    gradient: Tree
    pull: Tree
    known: Array


@algorithm
class L2SGDPlus(L2SGD):
    """L2SGD with variance reduction."""

    name = "l2sgd-plus"

    def init_client(self, task: Task, key: Array) -> Reduced:
        """x_i, and control variates that are 0."""
        zero = jax.tree.map(jnp.zeros_like, task.initial)
        return Reduced(task.initial, task.initial, zero, zero, jnp.float32(0))

    def train(self, task: Task, message: Server, client: Reduced, data: ClientData, key: Array) -> tuple[Tree, Reduced]:
        """One step towards the mean, then local steps, the first of which renews the reference."""
        x, y, full, psi, known = client
        p, prox = self.coin, self.prox
        apart = axpy(-1.0, message.mean, x)
        g = jax.tree.map(lambda d, s, j: (prox / p) * d - (1 / p - 1) * s + j, apart, psi, full)
        x, psi = axpy(-self.rate, g, x), jax.tree.map(lambda d: prox * d, apart)
        renewed = full_gradient(task, x, data)
        start = Reduced(x, y, full, psi, known)

        def local(j: Array, state: Reduced) -> Reduced:
            x, y, full, psi, known = state
            batch = data.batch(jax.random.fold_in(key, j), self.batch_size)
            here, there = task.grad(x, batch), task.grad(y, batch)
            g = jax.tree.map(lambda a, b, m, s: (a - known * b) / (1 - p) + m + s, here, there, full, psi)
            first = jnp.equal(j, 0)
            return Reduced(
                axpy(-self.rate, g, x), where(first, x, y), where(first, renewed, full), psi, jnp.maximum(known, 1.0)
            )

        end = jax.lax.fori_loop(0, message.steps, local, start)
        return end.model, end

    def personal(self, task: Task, message: Server, client: Reduced, data: ClientData, key: Array) -> Tree:
        return client.model

    def gradients(self) -> float:
        """Two a local step, and one over all samples."""
        return 2 * super().gradients() + 1
