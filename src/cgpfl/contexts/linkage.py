"""Agglomerative clustering: the two nearest groups are merged, again and again.

Written in JAX by the Lance-Williams recurrence, so that it is part of the compiled round: nothing
leaves the device, the program can be cached, and many runs can be mapped at once. N − 1 merges of
O(N²) each; groups and distances are those of ``scipy.cluster.hierarchy.linkage``.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.tree import Tree, gram

METRICS = ("cosine", "euclidean", "manhattan")
LINKAGES = ("complete", "average", "single", "ward")


class Agglomeration(NamedTuple):
    """Groups found: ``labels [N]`` in 0..k-1 (0 where a point does not count), and ``k``."""

    labels: Array
    k: Array


def distances(stacked: Tree, metric: str) -> Array:
    """Distances ``[N, N]`` between the stacked trees: 1 − cos, ‖a − b‖ or Σ|a − b|."""
    if metric == "manhattan":
        points = jnp.concatenate([x.reshape(x.shape[0], -1) for x in jax.tree.leaves(stacked)], axis=1)
        return jax.lax.map(lambda p: jnp.abs(points - p).sum(axis=1), points)
    if metric == "euclidean":  # from the mean: points far from zero would lose digits
        stacked = jax.tree.map(lambda x: x - x.mean(axis=0), stacked)
    products = gram(stacked)
    squares = jnp.diagonal(products)
    if metric == "cosine":
        lengths = jnp.sqrt(squares)
        return 1.0 - products / jnp.maximum(lengths[:, None] * lengths[None, :], 1e-30)
    return jnp.sqrt(jnp.maximum(squares[:, None] + squares[None, :] - 2 * products, 0.0))


def agglomerate(
    between: Array,
    counts: Array,
    *,
    linkage: str,
    threshold: Array | float = jnp.inf,
    least: Array | int = 1,
    most: Array | int | None = None,
) -> Agglomeration:
    """Merge the nearest groups while they are within ``threshold`` and more than ``least`` are left.

    ``between [N, N]``: distances. ``counts [N]``: whether a point takes part. Where more than ``most``
    groups would be left, merging goes on beyond the threshold.
    """
    n = between.shape[0]
    if most is None:
        most = n
    here = counts.astype(bool)
    eye = jnp.eye(n, dtype=bool)

    class Carry(NamedTuple):
        between: Array  # [N, N], inf where a pair may not be merged
        group: Array  # [N] the point that stands for each point's group
        size: Array  # [N] points in the group it stands for, 0 if it stands for none

    def left(c: Carry) -> Array:
        return (c.size > 0).sum()

    def going(c: Carry) -> Array:
        groups, nearest = left(c), c.between.min()
        wanted = (groups > most) | (nearest <= threshold)
        return wanted & (groups > jnp.maximum(least, 1)) & jnp.isfinite(nearest)

    def merge(c: Carry) -> Carry:
        i, j = jnp.divmod(jnp.argmin(c.between), n)  # i < j: the first of the smallest
        to_i, to_j, si, sj = c.between[i], c.between[j], c.size[i], c.size[j]
        if linkage == "complete":
            row = jnp.maximum(to_i, to_j)
        elif linkage == "single":
            row = jnp.minimum(to_i, to_j)
        elif linkage == "average":
            row = (si * to_i + sj * to_j) / (si + sj)
        else:  # ward
            others, apart = c.size, c.between[i, j]
            square = (si + others) * to_i**2 + (sj + others) * to_j**2 - others * apart**2
            row = jnp.sqrt(jnp.maximum(square, 0.0) / (si + sj + others))
        size = c.size.at[i].set(si + sj).at[j].set(0)
        alive = (size > 0) & (jnp.arange(n) != i)
        row = jnp.where(alive, row, jnp.inf)
        table = c.between.at[i].set(row).at[:, i].set(row).at[j].set(jnp.inf).at[:, j].set(jnp.inf)
        return Carry(table, jnp.where(c.group == j, i, c.group), size)

    start = Carry(
        jnp.where(eye | ~here[:, None] | ~here[None, :], jnp.inf, between),
        jnp.arange(n),
        here.astype(between.dtype),
    )
    end = jax.lax.while_loop(going, merge, start)
    number = jnp.cumsum(end.size > 0) - 1
    labels = jnp.where(here, number[end.group], 0).astype(jnp.int32)
    return Agglomeration(labels, jnp.maximum(left(end), 1).astype(jnp.int32))
