"""DAPPER: each client trains on a mixture of its own data and public data.

Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to Federated
Learning. 2020. (Its data interpolation.)

    client i    for each λ of a grid:  R times θ_λ ← θ_λ − η ∇[λ·f_i + (1 − λ)·f_public](θ_λ; minibatches)
    server      nothing
    personal    the θ_λ with the smallest loss on samples the client kept back

The grid is 0, 1/(r − 1), …, 1: from a model of the public data alone to local training. Needs public data;
after that nothing is exchanged.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.local import Unshared
from cgpfl.algorithms.steps import best_model, held_back
from cgpfl.batch import Batch
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, axpy, repeat, take


def blend(own: Batch, public: Batch, share: Array) -> Batch:
    """One batch whose mean loss is share·(mean over own) + (1 − share)·(mean over public)."""
    weights = [share * own.weight / own.weight.sum(), (1 - share) * public.weight / public.weight.sum()]
    size = own.weight.shape[0]  # losses divide by the sum of weights, if that is at least 1
    weight = size * jnp.concatenate(weights)
    return Batch(jnp.concatenate([own.x, public.x]), jnp.concatenate([own.y, public.y]), weight, own.key)


@algorithm
class DAPPER(Unshared):
    """Training on a mixture of own and public data, its share chosen from a grid by loss."""

    name = "dapper"
    citation = "Mansour et al., 2020"
    when = "Public, labelled samples of the same kind exist and clients have little data; no exchange is possible."
    needs_public = True

    grid: int = hyper(5, "r: shares λ tried, from 0 to 1", low=2)
    holdout: float = hyper(0.2, "share of its training samples a client chooses λ by", above=0, high=0.9)

    def init_client(self, task: Task, key: Array) -> Tree:
        """A model for each λ, ``[r, ...]``."""
        return repeat(task.initial, self.grid)

    def train(
        self, task: Task, message: tuple[()], client: Tree, data: ClientData, key: Array
    ) -> tuple[tuple[()], Tree]:
        """R steps for each λ, on the same samples."""
        public = task.everybodys
        fit, _ = held_back(data, self.holdout)

        def own(share: Array, params: Tree) -> Tree:
            def step(w: Tree, step_key: Array) -> tuple[Tree, None]:
                first, second = jax.random.split(step_key)
                batch = blend(fit.batch(first, self.batch_size), public.batch(second, self.batch_size), share)
                return axpy(-self.rate, task.grad(w, batch), w), None

            return jax.lax.scan(step, params, jax.random.split(key, self.local_rounds))[0]

        return (), jax.vmap(own)(jnp.linspace(0.0, 1.0, self.grid), client)

    def personal(self, task: Task, message: tuple[()], client: Tree, data: ClientData, key: Array) -> Tree:
        """The model with the smallest loss on the samples kept back."""
        _, choose = held_back(data, self.holdout)
        return take(client, best_model(task, client, choose)[0])

    def gradients(self) -> float:
        """R for each λ (on minibatches of own and public samples together)."""
        return self.grid * self.local_rounds
