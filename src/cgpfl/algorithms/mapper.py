"""MAPPER: each client interpolates between a model of its own and the global one.

Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to Federated
Learning. 2020. (Its model interpolation.)

    client i    for each λ of a grid:  v_λ ← R steps of SGD from v_i on f_i(λ·v + (1 − λ)·w) in v
                λ_i = the one whose interpolation has the smallest loss;  v_i ← v_λi
                w_i ← R steps of SGD from w on f_i(λ_i·v_i + (1 − λ_i)·w) in w
    server      w ← Σ_i (m_i / m) w_i
    personal    λ_i·v_i + (1 − λ_i)·w

The grid is 1/(r + 1), …, r/(r + 1). Parameters are interpolated; for a linear model that is the paper's
interpolation of predictions. By training loss the largest λ always looks best, so a client keeps back a
share of its training samples to choose by (``holdout``; 0 = choose by training loss).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.steps import Mixing, Own, SGDMethod, best_model, held_back, interpolate, sgd
from cgpfl.batch import Batch
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, take


@algorithm
class MAPPER(Mixing, SGDMethod):
    """A mixture of an own and the global model, its share chosen from a grid by loss."""

    name = "mapper"
    citation = "Mansour et al., 2020"
    when = "As APFL, where the share should be chosen by samples kept back instead of by gradient."

    grid: int = hyper(4, "r: shares λ tried", low=1)
    holdout: float = hyper(0.2, "share of its training samples a client chooses λ by", low=0, high=0.9)

    def init_client(self, task: Task, key: Array) -> Own:
        """v_i; λ_i is chosen in the first round."""
        return Own(task.initial, jnp.float32(0.5))

    def train(self, task: Task, message: Tree, client: Own, data: ClientData, key: Array) -> tuple[Tree, Own]:
        """Fit v for each λ, choose, then fit w."""
        fit, choose = held_back(data, self.holdout)
        more: dict[str, Any] = {"rate": self.rate, "steps": self.local_rounds, "batch_size": self.batch_size}
        shares = jnp.arange(1, self.grid + 1) / (self.grid + 1)

        def own(share: Array) -> Tree:
            def gradient(v: Tree, batch: Batch) -> Tree:
                g = task.grad(interpolate(share, v, message), batch)
                return jax.tree.map(lambda x: share * x, g)

            return sgd(task, client.model, fit, key, gradient=gradient, **more)

        models = jax.vmap(own)(shares)
        mixed = jax.vmap(lambda share, v: interpolate(share, v, message))(shares, models)
        best, _ = best_model(task, mixed, choose)
        share, v = shares[best], take(models, best)

        def gradient(w: Tree, batch: Batch) -> Tree:
            g = task.grad(interpolate(share, v, w), batch)
            return jax.tree.map(lambda x: (1 - share) * x, g)

        return sgd(task, message, fit, key, gradient=gradient, **more), Own(v, share)

    def gradients(self) -> float:
        """R for each λ, and R for w."""
        return (self.grid + 1) * self.local_rounds
