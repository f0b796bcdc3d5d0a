"""k-means in JAX: greedy k-means++ seeding, Lloyd's iterations, restarts, no empty clusters.

Everything is traceable, so a clustering is part of the compiled round. All that Lloyd needs are inner
products between the n points: a cluster's centre is a weighted mean, so distances to it follow from
X Xᵀ applied to the membership weights. With few points, and fewer than dimensions, that matrix is formed once
(n² numbers instead of n·d); otherwise it is applied as X (Xᵀ a). Both are one formula.

Of thousands of points each such product is a walk through all of memory, and tens of Lloyd's iterations from nine
starts are too many of them. :func:`search` lets the starts compete in a few directions along which the points differ
most, where contexts show if they show at all; Lloyd's on the points themselves then goes on from the one that did best,
and from the clustering that is there, and decides. The directions are those of a sketch, random sums of coordinates,
made sharper by one product with the points (a randomised singular value decomposition).

The number of clusters may be traced: ``slots`` fixes the shapes, ``k <= slots`` of them are used.

Halko, Martinsson, Tropp: Finding Structure with Randomness. SIAM Review, 2011.
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

from cgpfl.contexts.evidence import hashed

GRAM = 1024
"""Points up to which all their inner products are formed: of more, what k-means needs of them costs less."""
SKETCH = 251
"""Numbers a point has in a sketch. A prime: coordinates of one bucket are then not a column of some layer."""
SPARE = 8
"""Directions beyond two a cluster."""
ROUNDS = 8
"""Orthogonal iterations that find the main directions of a sketch."""
SLABS = 8
"""Coordinates of one bucket that are added at a time."""
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
    principal: Callable[[Array, int], Points] | None = None
    """The points in about so many directions along which they differ most, found with a key; None where that would save
    nothing."""


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
    means = [_sum([_dot(share, x) for share, x in zip(shares, leaf, strict=True)]) for leaf in parts]
    if max(sizes) > GRAM and d > SLABS * SKETCH:
        return _in_place(parts, means, weights)
    centred = []
    for leaf, mean in zip(parts, means, strict=True):
        # Subtract first, then join: XLA's CPU back-end fuses this but copies a plain join (3x slower).
        centred.append(jnp.concatenate([(x - mean).astype(jnp.float32) for x in leaf]))
    if n < min(d, GRAM):
        gram = _sum([_dot(x, x.T) for x in centred])
        return Points(jnp.diagonal(gram), lambda a: _dot(gram, a), weights)
    norms = _sum([jnp.sum(x * x, axis=1) for x in centred])
    return Points(norms, lambda a: _sum([_dot(x, _dot(x.T, a)) for x in centred]), weights)


def _in_place(parts: list[tuple[Array, ...]], means: list[Array], weights: Array) -> Points:
    """Many points, of which no centred copy is made: only sums of them, and what is multiplied with them, are centred.

    That loses no more digits than the points have lost themselves by being far from the origin.
    """
    sizes = list(itertools.accumulate(x.shape[0] for x in parts[0]))[:-1]

    def sums(a: Array) -> list[Array]:  # aᵀ X and not Xᵀ a: for that all of X would be transposed on its way
        own, total = jnp.split(a, sizes), a.sum(axis=0)
        uncentred = [_sum([_dot(w.T, x) for w, x in zip(own, leaf, strict=True)]) for leaf in parts]
        return [s - total[:, None] * mean for s, mean in zip(uncentred, means, strict=True)]

    def along(rows: list[Array]) -> Array:  # X rowsᵀ
        each = zip(parts, means, rows, strict=True)
        return _sum([jnp.concatenate([_dot(x, s.T) for x in leaf]) - _dot(s, mean) for leaf, mean, s in each])

    def principal(key: Array, directions: int) -> Points:
        sketch = _sketch(parts, means, key)
        heavy = weights[:, None] * sketch
        mixed = _dot(heavy, _leading(_dot(sketch.T, heavy), directions, jax.random.fold_in(key, 1)))
        rows = sums(mixed / jnp.maximum(jnp.sqrt(jnp.sum(mixed * mixed, axis=0)), 1e-30))
        # Not of unit length and not quite at right angles: both are mended by their inner products.
        squares = _sum([_dot(s, s.T) for s in rows])
        small = _dot(along(rows), _upright(jnp.eye(directions), squares, 1e-5))
        return Points(jnp.sum(small * small, axis=1), lambda a: _dot(small, _dot(a.T, small).T), weights)

    squares = [[jnp.sum(jnp.square(x - mean), axis=1) for x in leaf] for leaf, mean in zip(parts, means, strict=True)]
    return Points(_sum([jnp.concatenate(each) for each in squares]), lambda a: along(sums(a)), weights, principal)


def _leading(matrix: Array, count: int, key: Array) -> Array:
    """About the first ``count`` eigenvectors of a positive ``matrix [m, m]``, by orthogonal iteration.

    Not by LAPACK: its threads wait for each other longer than they work where processors are busy.
    """
    metric = jnp.eye(matrix.shape[0])
    start = jax.random.normal(key, (matrix.shape[0], count))
    return jax.lax.fori_loop(0, ROUNDS, lambda _, v: _upright(_dot(matrix, v), metric, 1e-12), start)


def _upright(columns: Array, metric: Array, least: float) -> Array:
    """Gram and Schmidt: ``columns [m, r]`` of unit length and at right angles in ``metric [m, m]``.

    One of whose squared length less than a share ``least`` is its own, beside the columns before it, becomes zero.
    """
    squares = jnp.sum(columns * _dot(metric, columns), axis=0)
    later = jnp.arange(columns.shape[1])

    def step(i: Array, columns: Array) -> Array:
        own = columns[:, i]
        measured = _dot(metric, own)
        square = jnp.sum(own * measured)
        size = jnp.where(square > least * squares[i], jax.lax.rsqrt(jnp.maximum(square, 1e-30)), 0.0)
        shares = _dot(measured * size, columns)
        rest = columns - jnp.where(later > i, shares, 0.0) * (own * size)[:, None]
        return jnp.where(later == i, (own * size)[:, None], rest)

    return jax.lax.fori_loop(0, columns.shape[1], step, columns)


def _sketch(parts: list[tuple[Array, ...]], means: list[Array], key: Array) -> Array:
    """Coordinates with random signs, in buckets: ``[n, SKETCH]``. Squared distances stay the same on average."""
    seed = jax.random.bits(key, (), jnp.uint32)
    rows, first = [jnp.zeros((x.shape[0], SKETCH)) for x in parts[0]], 0
    for leaf, mean in zip(parts, means, strict=True):
        bits = hashed(jnp.arange(first, first + mean.shape[0], dtype=jnp.uint32), seed)
        signs = jnp.where(bits & 1, 1.0, -1.0)
        rows = [_bucketed(to, x, mean, signs) for to, x in zip(rows, leaf, strict=True)]
        first += mean.shape[0]
    return jnp.concatenate(rows)


def _bucketed(sketch: Array, x: Array, mean: Array, signs: Array) -> Array:
    """``sketch [n, SKETCH]`` with the coordinates of ``x - mean`` added: times ``signs``, i to bucket i mod SKETCH.

    Slab after slab: a sum over a middle axis takes XLA's CPU back-end five times as long.
    """

    def add(sketch: Array, x: Array, mean: Array, signs: Array) -> Array:
        for at in range(0, signs.shape[0], SKETCH):
            here = slice(at, at + SKETCH)
            part = (x[:, here] - mean[here]) * signs[here]
            sketch = sketch + jnp.pad(part, ((0, 0), (0, SKETCH - part.shape[1])))
        return sketch

    wide = SLABS * SKETCH
    whole = signs.shape[0] // wide

    def slab(i: Array, sketch: Array) -> Array:
        return add(sketch, *(jax.lax.dynamic_slice_in_dim(v, i * wide, wide, axis=-1) for v in (x, mean, signs)))

    sketch = jax.lax.fori_loop(0, whole, slab, sketch) if whole else sketch
    return add(sketch, *(v[..., whole * wide :] for v in (x, mean, signs)))


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


def lloyd(points: Points, members: Array, k: Array | int, iterations: int = 100, labels: Array | None = None) -> KMeans:
    """Lloyd's iterations from initial memberships ``members [n, slots]`` (a column may be one seed).

    Stops when no label changes. A used cluster that becomes empty takes the farthest point of a
    cluster with more than one member, so none of the first k stays empty while there are k distinct
    points of positive weight. Where the memberships are those of ``labels [n]``, to say so spares a pass.
    """
    n, slots = members.shape
    used = jnp.arange(slots) < k
    fresh = labels is None

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
        # Points of weight 0 move no centre; where only they move, all labels are final.
        moved = new != labels if fresh else (new != labels) & (points.weights > 0)
        moving = moved.any() & (count < iterations)
        labels = jnp.where(moving if fresh else moving | ~moved.any(), new, labels)
        nearest = jnp.take_along_axis(squared, labels[:, None], axis=1)[:, 0]
        return members_of(labels, slots, points.weights), labels, nearest, moving, jnp.minimum(count + 1, iterations)

    # The first pass takes the memberships that are given; in the last one no label moves, so its distances are those
    # to the final centres.
    unknown, count = (jnp.full(n, -1, jnp.int32), -1) if labels is None else (labels, 0)
    start = (members, unknown, jnp.zeros(n), jnp.bool_(True), jnp.int32(count))
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
    runs = _runs(points, seeds, k, start)
    return _take(runs, _winner(points, runs.inertia))


def _runs(points: Points, seeds: Array, k: Array | int, start: Array | None) -> KMeans:
    n = points.norms.shape[0]
    slots = seeds.shape[1]
    starts = jax.vmap(lambda s: jax.nn.one_hot(s, n).T)(seeds)
    if start is not None:
        starts = jnp.concatenate([members_of(start, slots, points.weights)[None], starts])
    return jax.vmap(lambda members: lloyd(points, members, k))(starts)


def _winner(points: Points, inertia: Array) -> Array:
    """The first of the lowest inertia ``[runs]``: a difference within float32 rounding of the distances is none."""
    slack = 1e-5 * jnp.sum(points.weights * points.norms)
    return jnp.argmax(inertia <= inertia.min() + slack)


def _take(runs: KMeans, winner: Array) -> KMeans:
    return KMeans(*(value[winner] for value in runs))


def search(
    points: Points,
    slots: int,
    k: Array | int,
    key: Array,
    restarts: int,
    ids: Array | None = None,
    start: Array | None = None,
) -> KMeans:
    """The best of ``restarts`` seedings by ``key`` and of the clustering ``start [n]``, as :func:`best_of` finds it.

    Of thousands of points the starts compete in a few directions. Lloyd's on the points themselves goes on from the one
    that is best there and from ``start``, and the lower inertia wins: the result is a fixed point of Lloyd's on the
    points, and no worse than what Lloyd's makes of ``start``. Which seeding is best is judged in those directions:
    of very many weak contexts, more than a sketch can hold, starts on the points themselves may find better ones (of
    100 contexts of 1,200 points up to 0.4 % less inertia).
    """
    if points.principal is None:
        return best_of(points, seedings(points, slots, key, restarts, ids), k, start)
    small = points.principal(key, min(SKETCH, 2 * slots + SPARE))
    runs = _runs(small, seedings(small, slots, key, restarts, ids), k, start)
    winner = _winner(small, runs.inertia)
    starts = runs.labels[winner][None]
    if start is not None:  # where it wins it goes on as it is, not as what those directions made of it
        starts = jnp.stack([start, jnp.where(winner == 0, start, starts[0])])
    runs = jax.vmap(lambda labels: lloyd(points, members_of(labels, slots, points.weights), k, labels=labels))(starts)
    return _take(runs, _winner(points, runs.inertia))


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
