"""APFL: each client mixes a model of its own with the global one, and learns how much of each.

Deng, Kamani, Mahdavi: Adaptive Personalized Federated Learning. 2020.

    client i    R times, everything from the values before the step, on one minibatch:
                v̄ = a·v + (1 − a)·w
                w ← w − η ∇f_i(w)
                v ← v − η·a·∇f_i(v̄)                              the gradient of f_i(v̄) in v
                a ← clip(a − η ⟨v − w, ∇f_i(v̄)⟩, 0, 1)           if ``adaptive``: the gradient in a
    server      Σ_i (m_i / m) w_i
    personal    v̄ = a·v + (1 − a)·w, with the global model w as it is now

a kept at 0 is FedAvg, at 1 local training.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.steps import Mixing, Own, SGDMethod, interpolate
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, axpy, dot


@algorithm
class APFL(Mixing, SGDMethod):
    """A mixture, client by client, of an own and the global model."""

    name = "apfl"
    citation = "Deng et al., 2020"
    when = (
        "Clients that differ in how much the others can help them. Adaptive shares drift to the own model "
        "when data is scarce."
    )

    mixture: float = hyper(0.5, "a: share of the own model, at the start", low=0, high=1, tune=(0.1, 0.9))
    adaptive: bool = hyper(True, "learn a; false = keep it")

    def init_client(self, task: Task, key: Array) -> Own:
        return Own(task.initial, jnp.asarray(self.mixture, jnp.float32))

    def train(self, task: Task, message: Tree, client: Own, data: ClientData, key: Array) -> tuple[Tree, Own]:
        """R steps on w, v and a."""
        rate = self.rate

        def step(state: tuple[Tree, Own], step_key: Array) -> tuple[tuple[Tree, Own], None]:
            w, (v, a) = state
            batch = data.batch(step_key, self.batch_size)
            g, mixed = task.grad(w, batch), task.grad(interpolate(a, v, w), batch)
            share = jnp.clip(a - rate * dot(axpy(-1.0, w, v), mixed), 0.0, 1.0) if self.adaptive else a
            return (axpy(-rate, g, w), Own(axpy(-rate * a, mixed, v), share)), None

        return jax.lax.scan(step, (message, client), jax.random.split(key, self.local_rounds))[0]

    def gradients(self) -> float:
        """Two a step: at w and at v̄."""
        return 2 * self.local_rounds
