"""What leaves a client: its update, clipped, noised, quantised or made sparse, before anybody sees it.

An update is what an upload has moved away from what the client was sent (the method's ``anchor``). Rules apply one
after the other. Those that change the update keep its form; an :class:`Encoder`, at most one and the last, gives it
another: that form is what travels, in a simulation, too, so bytes are counted as they are on the wire.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.registry import Registry
from cgpfl.rounds.normal import normals
from cgpfl.tree import Tree


@algorithm
class Outgoing:
    """A rule that changes an update. A subclass writes ``change``."""

    name = ""

    def change(self, update: Tree, key: Array) -> Tree:
        """The update as it leaves; ``key`` is of (seed, round, client)."""
        raise TypeError(f"{type(self).__name__} defines no change")


@algorithm
class Encoder(Outgoing):
    """A rule that gives an update another form for the wire. A subclass writes ``encode`` and ``decode``."""

    feedback = False
    """Whether what was not sent is kept by the client, and added to its next update."""

    def encode(self, update: Tree, key: Array) -> Any:
        """What is sent."""
        raise TypeError(f"{type(self).__name__} defines no encode")

    def decode(self, sent: Any, like: Tree) -> Tree:
        """The update again, in the form of ``like``."""
        raise TypeError(f"{type(self).__name__} defines no decode")


def norm(update: Tree) -> Array:
    """‖update‖ over all its leaves."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(v.astype(jnp.float32))) for v in jax.tree.leaves(update)) + 0.0)


@algorithm
class Clip(Outgoing):
    """An update longer than the bound is shortened to it."""

    name = "clip"

    norm: float = hyper(1.0, "largest norm of an update", above=0)

    def change(self, update: Tree, key: Array) -> Tree:
        length = norm(update)
        factor = jnp.where(length > self.norm, self.norm / jnp.maximum(length, 1e-30), 1.0)
        return jax.tree.map(lambda v: (factor * v).astype(v.dtype), update)


@algorithm
class Noise(Outgoing):
    """Normal noise on every number of an update, drawn on the client."""

    name = "noise"

    scale: float = hyper(0.01, "standard deviation of the noise", low=0)

    def change(self, update: Tree, key: Array) -> Tree:
        return jax.tree.map(lambda v, n: v + (self.scale * n).astype(v.dtype), update, normals(update, key))


@algorithm
class Quantise(Encoder):
    """Stochastic rounding to few bits (QSGD, Alistarh et al., NeurIPS 2017, with the largest number as scale)."""

    name = "quantise"

    bits: int = hyper(8, "bits a number: 2, 4 or 8", low=2, high=8)

    @property
    def _largest(self) -> int:
        return int(2 ** (self.bits - 1)) - 1

    @property
    def _each(self) -> int:
        """Numbers in a byte."""
        return 8 // self.bits

    def encode(self, update: Tree, key: Array) -> Any:
        """A scale for each leaf, and its numbers as integers, several in a byte."""
        leaves, structure = jax.tree.flatten(update)
        sent = [self._leaf(v, k) for v, k in zip(leaves, jax.random.split(key, max(len(leaves), 1)), strict=False)]
        return jax.tree.unflatten(structure, sent)

    def _leaf(self, value: Array, key: Array) -> tuple[Array, Array]:
        flat = value.astype(jnp.float32).reshape(-1)
        scale = jnp.max(jnp.abs(flat), initial=0.0)
        steps = flat / jnp.where(scale > 0, scale, 1.0) * self._largest
        whole = jnp.floor(steps + jax.random.uniform(key, flat.shape))
        codes = jnp.clip(whole, -self._largest, self._largest).astype(jnp.int32) + self._largest
        each = self._each
        rows = jnp.pad(codes, (0, -len(codes) % each)).reshape(-1, each)
        shifts = self.bits * jnp.arange(each)
        return scale, (rows << shifts).sum(axis=1).astype(jnp.uint8)

    def decode(self, sent: Any, like: Tree) -> Tree:
        def leaf(v: Any, code: tuple[Array, Array]) -> Array:
            scale, packed = code
            shifts = self.bits * jnp.arange(self._each)
            codes = (packed[:, None].astype(jnp.int32) >> shifts) & (2**self.bits - 1)
            flat = codes.reshape(-1)[: math.prod(v.shape)] - self._largest
            return (flat.astype(jnp.float32) * (scale / self._largest)).reshape(v.shape).astype(v.dtype)

        return jax.tree.map(leaf, like, sent)


@algorithm
class Sparsify(Encoder):
    """Of each leaf only the numbers with the largest size, and where they are."""

    name = "sparsify"

    percent: int = hyper(10, "how many of a hundred numbers are sent", low=1, high=100)

    def _kept(self, size: int) -> int:
        return max(1, -(-self.percent * size // 100))

    def encode(self, update: Tree, key: Array) -> Any:
        """Values and places."""

        def leaf(v: Array) -> tuple[Array, Array]:
            flat = v.reshape(-1)
            places = jax.lax.top_k(jnp.abs(flat), self._kept(flat.shape[0]))[1].astype(jnp.int32)
            return flat[places], places

        return jax.tree.map(leaf, update)

    def decode(self, sent: Any, like: Tree) -> Tree:
        """Zeros elsewhere."""

        def leaf(v: Any, code: tuple[Array, Array]) -> Array:
            values, places = code
            return jnp.zeros(math.prod(v.shape), v.dtype).at[places].set(values).reshape(v.shape)

        return jax.tree.map(leaf, like, sent)


@algorithm
class TopK(Sparsify):
    """As sparsify, with error feedback: what was not sent waits on the client for its turn.

    Stich, Cordonnier, Jaggi: Sparsified SGD with Memory. NeurIPS 2018.
    """

    name = "top-k"
    feedback = True


OUTGOING = Registry(
    "outgoing rule",
    {"clip": Clip(), "noise": Noise(), "quantise": Quantise(), "sparsify": Sparsify(), "top-k": TopK()},
    Outgoing,
)
