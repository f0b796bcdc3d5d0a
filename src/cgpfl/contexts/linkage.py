"""Agglomerative clustering: the two nearest groups are merged, again and again.

Written in JAX, so that it is part of the compiled round: nothing leaves the device, the program can be cached, and
servers of many runs can share it. The merges are found along chains of nearest neighbours (Murtagh, 1983), with
distances between groups by the Lance-Williams recurrence: O(N²) in all. Groups and heights are those of
``scipy.cluster.hierarchy.linkage``.
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


class Merges(NamedTuple):
    """The N − 1 merges of a dendrogram: a point of each of the two groups, and their distance. ``[N - 1]`` each."""

    a: Array
    b: Array
    height: Array


def dendrogram(between: Array, here: Array, linkage: str) -> Merges:
    """All merges of the points that are ``here [N]``, in the order they were found; height inf where there is none."""
    n = between.shape[0]

    class Carry(NamedTuple):
        between: Array  # [N, N]; inf on the diagonal and where a group was merged into another
        size: Array  # [N] points in the group that a point stands for, 0 if it stands for none
        chain: Array  # [N] groups, each the nearest of the one before
        length: Array
        merges: Merges
        found: Array

    def going(c: Carry) -> Array:
        return c.found < here.sum() - 1

    def step(c: Carry) -> Carry:
        length = jnp.maximum(c.length, 1)
        chain = c.chain.at[0].set(jnp.where(c.length == 0, jnp.argmax(c.size > 0), c.chain[0]))
        top, before = chain[length - 1], chain[length - 2]
        to_top = c.between[top]
        nearest = jnp.argmin(to_top)
        back = (length > 1) & (to_top[before] <= to_top[nearest])  # the last two are each other's nearest
        nearest = jnp.where(back, before, nearest)
        i, j = jnp.minimum(top, nearest), jnp.maximum(top, nearest)
        row = jnp.where((c.size > 0) & (jnp.arange(n) != i) & (jnp.arange(n) != j), united(c, i, j), jnp.inf)
        at, gone, place = (jnp.where(back, v, n) for v in (i, j, c.found))  # n: out of bounds, nothing is written
        table = c.between.at[at].set(row).at[:, at].set(row).at[gone].set(jnp.inf).at[:, gone].set(jnp.inf)
        return Carry(
            table,
            c.size.at[at].set(c.size[i] + c.size[j]).at[gone].set(0),
            chain.at[jnp.where(back, n, length)].set(nearest),
            jnp.where(back, length - 2, length + 1),
            Merges(*(v.at[place].set(new) for v, new in zip(c.merges, (i, j, to_top[nearest]), strict=True))),
            c.found + back,
        )

    def united(c: Carry, i: Array, j: Array) -> Array:
        """Distances of all groups from the union of groups ``i`` and ``j``."""
        to_i, to_j, si, sj = c.between[i], c.between[j], c.size[i], c.size[j]
        if linkage == "complete":
            return jnp.maximum(to_i, to_j)
        if linkage == "single":
            return jnp.minimum(to_i, to_j)
        if linkage == "average":
            return (si * to_i + sj * to_j) / (si + sj)
        others, apart = c.size, c.between[i, j]  # ward
        square = (si + others) * to_i**2 + (sj + others) * to_j**2 - others * apart**2
        return jnp.sqrt(jnp.maximum(square, 0.0) / (si + sj + others))

    blank = jnp.eye(n, dtype=bool) | ~here[:, None] | ~here[None, :] | jnp.isnan(between)  # no number: never merged
    none = jnp.zeros(max(n - 1, 1), jnp.int32)
    start = Carry(
        jnp.where(blank, jnp.inf, between),
        here.astype(between.dtype),
        jnp.zeros(n, jnp.int32),
        jnp.int32(0),
        Merges(none, none, jnp.full(max(n - 1, 1), jnp.inf, between.dtype)),
        jnp.int32(0),
    )
    return jax.lax.while_loop(going, step, start).merges


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
    here = counts.astype(bool)
    merges = dendrogram(between, here, linkage)
    order = jnp.argsort(merges.height, stable=True)
    heights = merges.height[order]
    left = here.sum() - jnp.arange(heights.shape[0])  # groups before each merge
    wanted = (left > (n if most is None else most)) | (heights <= threshold)
    done = jnp.sum(wanted & (left > jnp.maximum(least, 1)) & jnp.isfinite(heights))

    def merge(t: Array, group: Array) -> Array:
        a, b = group[merges.a[order[t]]], group[merges.b[order[t]]]
        return jnp.where(group == b, a, group)

    group = jax.lax.fori_loop(0, done, merge, jnp.arange(n))
    first = (group == jnp.arange(n)) & here  # the point that stands for a group
    labels = jnp.where(here, (jnp.cumsum(first) - 1)[group], 0).astype(jnp.int32)
    return Agglomeration(labels, jnp.maximum(first.sum(), 1).astype(jnp.int32))
