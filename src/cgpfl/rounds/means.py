"""How uploads become a mean. A method says what it averages, by which weights and what it falls back on; not how."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.hyperparameters import algorithm
from cgpfl.registry import Registry
from cgpfl.tree import Tree, mix, weighted_mean, where


@algorithm
class Mean:
    """A rule that makes one tree of many. A subclass writes ``mean``; groups follow from it."""

    name = ""
    robust: ClassVar[bool] = False
    """Whether it is meant to stand liars: then updates are bounded before anything is made of them."""
    remembers: ClassVar[bool] = False
    """Whether it keeps something of each client from round to round, in the server's state: see ``learned``."""

    def drawn(self, key: Array) -> Mean:
        """The rule of one round, for those that draw something; ``key`` is of (seed, round)."""
        return self

    def begin(self, clients: int) -> Any:
        """What it knows of so many clients before the first round."""
        raise TypeError(f"{type(self).__name__} defines no begin")

    def learned(self, known: Any, updates: Tree, same: Array, ids: Array, present: Array) -> tuple[Any, Mean]:
        """What it knows after a round's ``updates [C, ...]`` of clients ``ids [C]``, and the rule that knows it.

        ``same``: whether all were sent the same model. ``present [C]``: 0.0 for who did not answer.
        """
        raise TypeError(f"{type(self).__name__} defines no learned")

    def mean(self, stacked: Tree, weights: Array, fallback: Tree) -> Tree:
        """Of ``stacked`` (leaves ``[C, ...]``) by ``weights [C]``; 0 = did not answer. All zero: ``fallback``."""
        raise TypeError(f"{type(self).__name__} defines no mean")

    def group_means(self, stacked: Tree, labels: Array, weights: Array, fallback: Tree) -> Tree:
        """The mean of each group ``[K, ...]``, ``labels [C]`` in 0..K-1; of an empty one ``fallback [K, ...]``."""
        groups = jax.tree.leaves(fallback)[0].shape[0]
        members = jax.nn.one_hot(labels, groups) * weights[:, None]
        return jax.vmap(lambda of, own: self.mean(stacked, of, own), in_axes=(1, 0))(members, fallback)


@algorithm
class WeightedMean(Mean):
    """The mean by the method's own weights: samples, or everybody alike."""

    name = "weighted"

    def mean(self, stacked: Tree, weights: Array, fallback: Tree) -> Tree:
        """Σ w_i x_i / Σ w_i."""
        return weighted_mean(stacked, weights, fallback)

    def group_means(self, stacked: Tree, labels: Array, weights: Array, fallback: Tree) -> Tree:
        """All groups by one product: Ω̃P in the paper."""
        groups = jax.tree.leaves(fallback)[0].shape[0]
        members = jax.nn.one_hot(labels, groups) * weights[:, None]
        sizes = members.sum(axis=0)
        return where(sizes > 0, mix(stacked, members / jnp.where(sizes > 0, sizes, 1.0)), fallback)


MEANS = Registry("mean", {"weighted": WeightedMean()}, Mean)
