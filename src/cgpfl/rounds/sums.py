"""Means of groups by sums with noise, which a server adds that is trusted: of a client they have its part alone.

    ω_k + (Σ_{i in k} clip(u_i − ω_k) + z·C·N(0, 1)) / about how many are in k

A client is in one group, so with or without it one sum differs, by C at most: all sums together are one Gaussian
mechanism. Clipping is done here once more: the bound then needs nothing of what clients did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.rounds.means import Mean
from cgpfl.rounds.normal import normals
from cgpfl.tree import Tree, mix, norms, repeat, scale, take, where


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NoisySums(Mean):
    """The rule of one round. ``noise`` is a multiple of ``clip``; ``sizes [K]``: about how many are in each group."""

    clip: Array | float
    noise: Array | float
    key: Array
    sizes: Array | None = None

    def mean(self, stacked: Tree, weights: Array, fallback: Tree) -> Tree:
        """Of one group, in which all are; how many answered is known to all."""
        everybody = replace(self, sizes=jnp.ones(1))
        labels = jnp.zeros(weights.shape[0], jnp.int32)
        return jax.tree.map(lambda m: m[0], everybody.group_means(stacked, labels, weights, repeat(fallback, 1)))

    def group_means(self, stacked: Tree, labels: Array, weights: Array, fallback: Tree) -> Tree:
        """Everybody counts the same. A group that has nobody by ``sizes`` keeps ``fallback``, whoever is in it."""
        assert self.sizes is not None
        present = weights > 0
        answered = present.sum() * self.sizes / jnp.maximum(self.sizes.sum(), 1e-30)
        sums = clipped_sums(stacked, labels, present, fallback, self.clip)
        noise = normals(sums, self.key)
        share = 1.0 / jnp.maximum(answered, 1.0)
        moved = jax.tree.map(lambda s, n: s + (self.noise * self.clip * n).astype(s.dtype), sums, noise)
        means = jax.tree.map(lambda w, m: w + m, fallback, scale(moved, share))
        return where(present.any() & (self.sizes > 0), means, fallback)


def clipped_sums(stacked: Tree, labels: Array, present: Array, anchors: Tree, clip: Array | float) -> Tree:
    """Σ of each group's updates ``[K, ...]``, each at most ``clip`` long; of one that is no number nothing.

    ``stacked [C, ...]`` are moved copies of ``anchors [K, ...]``. Who is in none of the groups (label K) counts
    nowhere.
    """
    groups = jax.tree.leaves(anchors)[0].shape[0]
    updates = jax.tree.map(lambda u, a: u - a, stacked, take(anchors, jnp.minimum(labels, groups - 1)))
    length = norms(updates)
    fine = present & jnp.isfinite(length)
    updates = where(fine, updates, jax.tree.map(jnp.zeros_like, updates))
    factor = jnp.where(length > clip, clip / jnp.maximum(length, 1e-30), 1.0)
    members = jax.nn.one_hot(labels, groups) * jnp.where(fine, factor, 0.0)[:, None]
    return mix(updates, members)
