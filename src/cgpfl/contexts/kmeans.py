"""k-means in JAX: greedy k-means++ seeding, Lloyd's iterations, restarts, no empty clusters.

Everything is traceable, so a clustering is part of the compiled round. All that Lloyd needs are inner
products between the n points: a cluster's centre is a weighted mean, so distances to it follow from
X Xᵀ applied to the membership weights. With few points, and fewer than dimensions, that matrix is formed once
(n² numbers instead of n·d); otherwise it is applied as X (Xᵀ a). Both are one formula.

The number of clusters may be traced: ``slots`` fixes the shapes, ``k <= slots`` of them are used.

Arthur, Vassilvitskii: k-means++: The Advantages of Careful Seeding. SODA 2007.
Lloyd: Least squares quantization in PCM. IEEE Trans. Inf. Theory, 1982.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import Precision

GRAM = 1024
"""Points up to which all their inner products are formed: of more, what k-means needs of them costs less."""
FAR = 1e30
"""Stands for an infinite distance without making NaN of 0·inf."""


class KMeans(NamedTuple):
    """A clustering of n points into at most ``slots`` clusters."""

    labels: Array
    """``[n]``: each point's cluster, points of weight 0 included (their nearest)."""
    inertia: Array
    """Weighted sum of squared distances to the centres."""
    distances: Array
    """``[n]``: each point's squared distance to its centre."""
    iterations: Array
    """Lloyd iterations of the restart that won."""


class Points(NamedTuple):
    """Points prepared for clustering: inner products rather than coordinates."""

    norms: Array
    """``[n]``: squared norms."""
    products: Callable[[Array], Array]
    """X Xᵀ a for ``a [n, k]``."""
    weights: Array
    """``[n]``."""


def prepare(*groups: Any, weights: Array | None = None) -> Points:
    """Centre the points (distances do not change, float32 keeps its digits) and set up X Xᵀ.

    A group is a matrix ``[n, d]`` or a pytree of arrays ``[n, ...]`` whose leaves side by side are its
    points: models need not be copied into one matrix first. The points of several groups follow
    each other; ``weights [n]`` are for all of them.
    """
    # One list of matrices a leaf: each group's part of those coordinates.
    parts = list(zip(*([x.reshape(x.shape[0], -1) for x in jax.tree.leaves(g)] for g in groups), strict=True))
    sizes = [x.shape[0] for x in parts[0]]
    n, d = sum(sizes), sum(leaf[0].shape[1] for leaf in parts)
    weights = jnp.ones(n, jnp.float32) if weights is None else weights.astype(jnp.float32)
    total = weights.sum()
    shares = jnp.split(weights / jnp.where(total > 0, total, 1.0), list(itertools.accumulate(sizes))[:-1])
    centred = []
    for leaf in parts:
        mean = _sum([_dot(share, x) for share, x in zip(shares, leaf, strict=True)])
        # Subtract first, then join: XLA's CPU back-end fuses this but copies a plain join (3x slower).
        centred.append(jnp.concatenate([(x - mean).astype(jnp.float32) for x in leaf]))
    if n < min(d, GRAM):
        gram = _sum([_dot(x, x.T) for x in centred])
        return Points(jnp.diagonal(gram), lambda a: _dot(gram, a), weights)
    norms = _sum([jnp.sum(x * x, axis=1) for x in centred])
    return Points(norms, lambda a: _sum([_dot(x, _dot(x.T, a)) for x in centred]), weights)


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=Precision.HIGHEST)


def _sum(terms: list[Array]) -> Array:
    return sum(terms[1:], start=terms[0])


def seed(points: Points, slots: int, key: Array, ids: Array | None = None, trials: int | None = None) -> Array:
    """Greedy k-means++: ``slots`` seeds, one after the other.

    Each step draws ``trials`` candidates (2 + log(slots) by default, 1 = plain k-means++) with
    probability ∝ weight × squared distance to the seeds so far, and keeps the one that lowers the
    inertia most. Drawn as argmax(log p + Gumbel noise), the noise of a point depending on its id
    alone: renumbering the points renumbers the seeds. The first k seeds are a seeding for k clusters.
    Returns indices ``[slots]``.
    """
    n = points.norms.shape[0]
    ids = jnp.arange(n) if ids is None else ids
    trials = 2 + int(math.log(slots)) if trials is None else trials

    def add(step: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        seeds, nearest = state
        chances = points.weights * jnp.where(step == 0, 1.0, nearest)
        log_p = jnp.where(chances > 0, jnp.log(jnp.maximum(chances, 1e-37)), -FAR)
        step_key = jax.random.fold_in(key, step)
        noise = jax.vmap(lambda i: jax.random.gumbel(jax.random.fold_in(step_key, i), (trials,)))(ids)
        drawn = jnp.argmax(log_p[:, None] + noise, axis=0)
        one_hot = (jnp.arange(n)[:, None] == drawn).astype(jnp.float32)
        squared = points.norms[:, None] + points.norms[drawn] - 2 * points.products(one_hot)
        candidates = jnp.minimum(nearest[:, None], jnp.where(one_hot > 0, 0.0, jnp.maximum(squared, 0.0)))
        best = jnp.argmin(points.weights @ candidates)
        return seeds.at[step].set(drawn[best]), candidates[:, best]

    start = (jnp.zeros(slots, jnp.int32), jnp.full(n, FAR, jnp.float32))
    return jax.lax.fori_loop(0, slots, add, start)[0]


def lloyd(points: Points, members: Array, k: Array | int, iterations: int = 100) -> KMeans:
    """Lloyd's iterations from initial memberships ``members [n, slots]`` (a column may be one seed).

    Stops when no label changes. A used cluster that becomes empty takes the farthest point of a
    cluster with more than one member, so none of the first k stays empty while there are k distinct
    points of positive weight.
    """
    n, slots = members.shape
    used = jnp.arange(slots) < k

    def distances(members: Array) -> Array:
        mass = members.sum(axis=0)
        a = members / jnp.where(mass > 0, mass, 1.0)
        products = points.products(a)
        squared = points.norms[:, None] - 2 * products + jnp.sum(a * products, axis=0)
        return jnp.where(used & (mass > 0), jnp.maximum(squared, 0.0), FAR)

    def refill(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        labels, nearest, _ = state
        counts = (members_of(labels, slots, points.weights) > 0).sum(axis=0)
        spare = (points.weights > 0) & (counts[labels] > 1) & (nearest > 0)
        empty = used & (counts == 0)
        fill = empty.any() & spare.any()
        here = fill & (jnp.arange(n) == jnp.argmax(jnp.where(spare, nearest, -1.0)))
        return jnp.where(here, jnp.argmax(empty).astype(jnp.int32), labels), jnp.where(here, 0.0, nearest), fill

    def iterate(state: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        members, labels, _, _, count = state
        squared = distances(members)
        first = (jnp.argmin(squared, axis=1).astype(jnp.int32), jnp.min(squared, axis=1), jnp.bool_(True))
        new, _, _ = jax.lax.while_loop(lambda filling: filling[2], refill, first)
        moving = (new != labels).any() & (count < iterations)
        labels = jnp.where(moving, new, labels)
        nearest = jnp.take_along_axis(squared, labels[:, None], axis=1)[:, 0]
        return members_of(labels, slots, points.weights), labels, nearest, moving, jnp.minimum(count + 1, iterations)

    # The first pass takes the memberships that are given; in the last one no label moves, so its distances are those
    # to the final centres.
    start = (members, jnp.full(n, -1, jnp.int32), jnp.zeros(n), jnp.bool_(True), jnp.int32(-1))
    _, labels, final, _, count = jax.lax.while_loop(lambda state: state[3], iterate, start)
    return KMeans(labels, jnp.sum(points.weights * final), final, count)


def members_of(labels: Array, slots: int, weights: Array) -> Array:
    """Memberships ``[n, slots]`` of labels ``[n]``, to start :func:`lloyd` from a known clustering."""
    return jax.nn.one_hot(labels, slots) * weights[:, None]


def seedings(points: Points, slots: int, key: Array, restarts: int, ids: Array | None = None) -> Array:
    """``restarts`` independent k-means++ seedings, as indices ``[restarts, slots]``."""
    return jax.vmap(lambda r: seed(points, slots, jax.random.fold_in(key, r), ids))(jnp.arange(restarts))


def best_of(points: Points, seeds: Array, k: Array | int, start: Array | None = None) -> KMeans:
    """The lowest inertia among Lloyd runs from each of ``seeds [restarts, slots]`` and from labels ``start [n]``.

    Among equals the first wins, and ``start`` comes first: a clustering that cannot be improved stays.
    """
    n = points.norms.shape[0]
    slots = seeds.shape[1]
    starts = jax.vmap(lambda s: jax.nn.one_hot(s, n).T)(seeds)
    if start is not None:
        starts = jnp.concatenate([members_of(start, slots, points.weights)[None], starts])
    runs = jax.vmap(lambda members: lloyd(points, members, k))(starts)
    inertia = runs.inertia
    # A difference within float32 rounding of the distances is no improvement.
    slack = 1e-5 * jnp.sum(points.weights * points.norms)
    winner = jnp.argmax(inertia <= inertia.min() + slack)
    return KMeans(*(value[winner] for value in runs))


def kmeans(
    points: Array,
    k: int,
    key: Array,
    *,
    weights: Array | None = None,
    restarts: int = 8,
    ids: Array | None = None,
) -> KMeans:
    """Cluster ``points [n, d]`` into ``k`` clusters: the best of ``restarts`` k-means++ seedings."""
    prepared = prepare(points, weights=weights)
    return best_of(prepared, seedings(prepared, k, key, restarts, ids), k)
