"""Means of a few uploads before another rule."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.hyperparameters import algorithm, component, hyper
from cgpfl.rounds.means import MEANS, Mean
from cgpfl.rounds.robust import Median
from cgpfl.tree import Tree, mix, where


@algorithm
class Bucketing(Mean):
    """Means of a few uploads, drawn anew in every round, before another rule (Karimireddy, He, Jaggi, ICLR 2022)."""

    name = "bucketing"

    size: int = hyper(2, "uploads in a bucket", low=1)
    inner: Mean = component(Median(), "the rule for the buckets' means", MEANS)

    @property
    def robust(self) -> bool:  # type: ignore[override]
        """As its inner rule."""
        return self.inner.robust

    def drawn(self, key: Array) -> Mean:
        """With the buckets of a round."""
        return Bucketed(self.inner.drawn(key), jax.random.fold_in(key, BUCKETS), self.size)


BUCKETS = 0xB0C
"""Folded into the server's key for who shares a bucket."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Bucketed(Mean):
    """Bucketing with a key."""

    inner: Mean
    key: Array
    size: int = dataclasses.field(metadata={"static": True})

    def mean(self, stacked: Tree, weights: Array, fallback: Tree) -> Tree:
        """Of the buckets; those who answered fill the first ones."""
        count = weights.shape[0]
        drawn = jax.random.uniform(self.key, (count,)) + 2.0 * (weights <= 0)
        bucket = jnp.argsort(jnp.argsort(drawn)) // self.size
        members = jax.nn.one_hot(bucket, -(-count // self.size)) * weights[:, None]
        sizes = members.sum(axis=0)
        nothing = jax.tree.map(jnp.zeros_like, stacked)
        here = where((weights > 0), stacked, nothing)
        return self.inner.mean(mix(here, members / jnp.where(sizes > 0, sizes, 1.0)), sizes, fallback)


MEANS.ours["bucketing"] = Bucketing()
