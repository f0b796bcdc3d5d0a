"""DP-SGD for any method: a task whose gradients are noisy, on samples that are drawn as its account says.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy. CCS 2016.

    minibatch   each of the n samples that are seen with chance q = b/n, by itself (Poisson)
    gradient    (Σ clip(∇ℓ_j) + z·C·N(0, 1)) / min(b, n)  +  the regulariser's, which knows no samples

What never leaves its client is trained on ``task.own``, the task without noise.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.batch import Batch, model_key
from cgpfl.contexts.evidence import hashed
from cgpfl.errors import CgpflError
from cgpfl.rounds.account import room
from cgpfl.rounds.outgoing import Noise
from cgpfl.rounds.privacy import clipped_sum
from cgpfl.rounds.samplers import uniforms
from cgpfl.tree import Tree, axpy

STREAM = 0xD9
"""Folded into a minibatch's key for the noise: other draws than the model's."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PoissonData(ClientData):
    """A client's samples, of which each is in a minibatch with the same chance, whatever the others."""

    def poisson(self, key: Array, size: int) -> tuple[Array, Array]:
        """Rows and weights (1, or 0 for unused places) of a sample of ``size`` on average, ``[places]`` each."""
        places = jnp.arange(self.rows.shape[0])
        draws = uniforms(key, places)  # of its place alone, however far the table is padded
        chosen = (places < self.count) & (draws < size / jnp.maximum(self.count, 1))
        at = jnp.argsort(jnp.where(chosen, draws, 2.0))[: min(room(size), self.rows.shape[0])]
        return self.rows[at], chosen[at].astype(jnp.float32)

    def batch(self, key: Array, size: int) -> Batch:
        """A Poisson sample; ``size=0``: all of them."""
        batch = self.all() if size == 0 else self.take(*self.poisson(key, size))
        held = jnp.maximum(self.count, 1).astype(jnp.float32)  # of a fold its own
        return batch._replace(key=model_key(key), expected=held if size == 0 else jnp.minimum(held, size))


@dataclass(frozen=True)
class NoisyTask(Task):
    """The task with noisy gradients; ``noise`` is a multiple of ``clip``.

    A gradient of anything but the loss is refused: nothing is known of what it tells.
    """

    clip: Any = 1.0
    noise: Any = 1.0

    @property
    def own(self) -> Task:
        """The task without noise, for what never leaves."""
        return Task(**{f.name: getattr(self, f.name) for f in fields(Task)})

    def grad(self, params: Tree, batch: Batch) -> Tree:
        """∇f_i on a batch, clipped and with noise of the batch's own key and of where it is taken."""
        assert batch.key is not None
        return self._noisy(params, batch, jax.random.fold_in(batch.key, STREAM))

    def gradient(self, f: object, params: Tree) -> Tree:
        """Refused."""
        raise CgpflError("privacy = sample: this method takes gradients of other functions than the loss")

    def proximal_steps(
        self, params: Tree, anchor: Tree, batch: Batch, prox: Array | float, rate: Array | float, steps: int
    ) -> Tree:
        """``steps`` times θ ← θ − η(g + λ(θ − anchor)), each g with noise of its own."""
        assert batch.key is not None

        def step(theta: Tree, key: Array) -> tuple[Tree, None]:
            g = self._noisy(theta, batch, key)
            return jax.tree.map(lambda t, g, w: -rate * (g + prox * (t - w)) + t, theta, g, anchor), None

        return jax.lax.scan(step, params, jax.random.split(jax.random.fold_in(batch.key, STREAM), steps))[0]

    def _noisy(self, params: Tree, batch: Batch, key: Array) -> Tree:
        assert batch.expected is not None
        plain, key = self.own, jax.random.fold_in(key, word_of(params))  # elsewhere it has another noise

        def of_one(x: Array, y: Array) -> Tree:
            one = Batch(x[None], y[None], jnp.ones(1), batch.key)
            return jax.grad(lambda p: plain.loss(p, one) - plain.penalty(p))(params)

        total = clipped_sum(jax.vmap(of_one)(batch.x, batch.y), batch.weight, self.clip)
        total = Noise(scale=self.noise * self.clip).change(total, key)
        regular = jax.grad(lambda p: jnp.asarray(plain.penalty(p), jnp.float32))(params)
        return axpy(1.0 / batch.expected, total, regular)


def word_of(tree: Tree, start: Array | int = 0) -> Array:
    """32 bits of all numbers of a tree, where they are, and ``start``: of other numbers they are others."""
    word = jnp.asarray(start, jnp.uint32)
    for leaf in jax.tree.leaves(tree):
        bits = jax.lax.bitcast_convert_type(jnp.ravel(jnp.asarray(leaf, jnp.float32)), jnp.uint32)
        word = hashed(hashed(bits, hashed(jnp.arange(bits.size), word)).sum(dtype=jnp.uint32), word)
    return word


def noisy(task: Task, data: ClientData, clip: Array | float, noise: Array) -> tuple[Task, ClientData]:
    """Task and samples of a client as DP-SGD has them."""
    given = {f.name: getattr(task, f.name) for f in fields(Task)}
    samples = PoissonData(**{f.name: getattr(data, f.name) for f in fields(ClientData)})
    return NoisyTask(**given, clip=clip, noise=noise), samples
