"""Order statistics of clients' numbers, by weight and by group.

XLA's own sort of ``[C, d]`` numbers takes ten times as long on a CPU as what is done here. A few clients' numbers are
sorted by a network of comparisons, their weights with them: all of it is one kernel, which reads each number once. For
many, 32 halvings of float32's range find a weighted order statistic exactly, each a comparison and a product with the
groups' weights. Both find the same numbers.
"""

from __future__ import annotations

from functools import cache, reduce
from itertools import accumulate

import jax
import jax.numpy as jnp
from jax import Array, lax

LARGEST = 2**31 - 1
SLACK = 1e-5
"""Of a group's weight: sums of float32 that differ by less are the same."""
FEW = 48
"""Clients up to which all are compared with each other, or by a network: for 40 it takes a second to compile, for 100
more than ten.
"""


def _ordered(x: Array) -> Array:
    """Float32 as integers in the same order."""
    return _flipped(lax.bitcast_convert_type(x.astype(jnp.float32), jnp.int32))


def _numbers(ordered: Array) -> Array:
    """What :func:`_ordered` made integers of; 0 where nobody is."""
    value = lax.bitcast_convert_type(_flipped(ordered), jnp.float32)
    return jnp.where(jnp.isfinite(value), value, 0.0)


def _flipped(bits: Array) -> Array:
    """Of negative numbers all bits but the sign are the other way round."""
    return jnp.where(bits < 0, bits ^ LARGEST, bits)


def _below(members: Array, mask: Array) -> Array:
    """Weight ``[K, d]`` of each group's members for whom ``mask [C, d]`` holds."""
    return jnp.matmul(members, mask.astype(jnp.float32), precision=lax.Precision.HIGHEST)


def by_network(count: int, groups: int) -> bool:
    """Whether a network sorts so many clients' numbers, for each group anew; else a search does for all at once.

    On a CPU: elsewhere nobody has measured what a kernel of so many steps takes. Kernels of groups of few clients are
    not vectorised.
    """
    return jax.default_backend() == "cpu" and (groups == 1 or count >= 16) and count <= FEW


@cache
def comparators(count: int) -> tuple[tuple[int, int], ...]:
    """Pairs whose smaller is to be first, one after the other, to sort so many: Batcher's odd-even merge sort.

    Some count·log²(count)/4 of them: 32 for 10, 305 for 40.
    """
    pairs, run = [], 1
    while run < count:
        apart = run
        while apart:
            for start in range(apart % run, count - apart, 2 * apart):
                both = range(start, min(start + apart, count - apart))
                pairs += [(i, i + apart) for i in both if i // (2 * run) == (i + apart) // (2 * run)]
            apart //= 2
        run *= 2
    return tuple(pairs)


def _sorted(flat: Array, weight: Array) -> tuple[list[Array], list[Array]]:
    """Numbers ``[C, d]`` from the smallest on, and their weights; those of weight 0 are among them.

    These are lists of rows ``[1, d]`` of which nothing but the last result is written anywhere: XLA makes one kernel of
    them. Of arrays ``[d]``, or ``[K, d]`` of groups, it makes many, which compute the same again.
    """
    values = jnp.split(flat, len(weight))
    weights = [jnp.broadcast_to(own, values[0].shape) for own in weight]
    for i, j in comparators(len(values)):
        a, b, u, v = values[i], values[j], weights[i], weights[j]
        keep = lax.le(a, b)
        values[i], values[j] = lax.min(a, b), lax.max(a, b)
        weights[i], weights[j] = lax.select(keep, u, v), lax.select(keep, v, u)
    return values, weights


def _search(flat: Array, labels: Array, members: Array, needed: Array) -> Array:
    """Of each group and number, the smallest integer up to which the weight reaches ``needed [K]``: ``[K, d]``."""
    shape = (members.shape[0], flat.shape[1])
    low, high = jnp.full(shape, -LARGEST - 1, jnp.int32), jnp.full(shape, LARGEST, jnp.int32)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low & high) + ((low ^ high) >> 1)
        reached = _below(members, flat <= middle[labels]) >= needed[:, None]
        return jnp.where(reached, low, middle + 1), jnp.where(reached, middle, high)

    return lax.fori_loop(0, 32, halve, (low, high))[1]


def sorted_medians(x: Array, weight: Array) -> Array:
    """Of each number, the mean of the lower and the upper median, by a network.

    ``x [C, d]``, ``weight [C]`` → ``[1, d]``. The lower median is the smallest value up to which there is half of
    the weight; if there is no more than half, the upper one is the value next to it.
    """
    total = weight.sum()
    needed, enough = (jnp.where(total > 0, half * total, jnp.inf) for half in (0.5 - SLACK, 0.5 + SLACK))
    values, weights = _sorted(_ordered(x), weight)
    ranked = list(zip(values, weights, accumulate(weights), strict=True))
    lower = reduce(lax.min, [jnp.where(u >= needed, v, LARGEST) for v, _, u in ranked])
    upper = [jnp.where((w > 0) & ((u >= enough) | (v > lower)), v, LARGEST) for v, w, u in ranked]
    return 0.5 * (_numbers(lower) + _numbers(reduce(lax.min, upper)))


def searched_medians(x: Array, labels: Array, members: Array) -> Array:
    """The same of each group, by a search: ``x [C, d]``, ``labels [C]``, ``members [K, C]`` weights → ``[K, d]``."""
    flat, total = _ordered(x), members.sum(axis=1)
    lower = _search(flat, labels, members, (0.5 - SLACK) * total)
    enough = _below(members, flat <= lower[labels]) >= ((0.5 + SLACK) * total)[:, None]

    def next_to(own: Array, value: Array) -> Array:
        return jnp.where((own > 0)[:, None] & (flat > value), flat, LARGEST).min(axis=0)

    upper = jnp.where(enough, lower, jax.vmap(next_to)(members, lower))
    return 0.5 * (_numbers(lower) + _numbers(upper))


def sorted_trimmed(x: Array, weight: Array, share: Array | float) -> Array:
    """Of each number, the mean without ``share`` of the weight at either end, by a network; shapes as above.

    Each value counts by how much of its weight is between the two cuts.
    """
    total = weight.sum()
    slack, cut = SLACK * total, share * total
    above = jnp.where(total > 0, cut + slack, jnp.inf)
    values, weights = _sorted(_ordered(x), weight)
    upto = jnp.zeros_like(weights[0])
    whole, first, last = upto, jnp.full_like(values[0], LARGEST), jnp.full_like(values[0], LARGEST)
    below, within = jnp.zeros(upto.shape, bool), jnp.ones(upto.shape, bool)
    for value, own in zip(values, weights, strict=True):
        start = jnp.where(below, upto, cut)  # the first one above the cut has what is left of it, and of those before
        upto = upto + own
        below, ends = upto >= above, upto >= total - cut - slack
        counts = jnp.where(ends, total - cut, upto) - start
        whole = whole + jnp.where(below & within, counts * _numbers(value), 0.0)
        first = jnp.minimum(first, jnp.where(below, value, LARGEST))
        last = jnp.minimum(last, jnp.where(ends, value, LARGEST))
        within = ~ends
    mean = whole / jnp.where(total > 0, total - 2 * cut, 1.0)
    return jnp.where(first < last, mean, _numbers(first))


def searched_trimmed(x: Array, labels: Array, members: Array, share: Array | float) -> Array:
    """The same of each group, by two searches."""
    total = members.sum(axis=1)
    slack, cut = SLACK * total, share * total
    ordered, flat = _ordered(x), x.astype(jnp.float32)
    ends = [_search(ordered, labels, members, mass) for mass in (cut + slack, total - cut - slack)]
    first, last = (_numbers(end) for end in ends)
    inside = (flat > first[labels]) & (flat < last[labels])
    whole = jnp.matmul(members, jnp.where(inside, flat, 0.0), precision=lax.Precision.HIGHEST)
    # What is left of the weight at the two ends: they may be cut through.
    at_first = _below(members, flat <= first[labels]) - cut[:, None]
    at_last = (total - cut)[:, None] - _below(members, flat < last[labels])
    mean = (whole + at_first * first + at_last * last) / jnp.where(total > 0, total - 2 * cut, 1.0)[:, None]
    return jnp.where(first < last, mean, first)


def median_of(values: Array, weights: Array) -> Array:
    """The weighted median of ``values [C]``: the mean of the lower and the upper one. 0 where nobody has a weight.

    What is not a number is above all numbers: +∞.
    """
    values, total = jnp.where(jnp.isnan(values), jnp.inf, values), weights.sum()
    lower, upper = (_compared if values.shape[0] <= FEW else _ranked)(values, weights, total)
    return jnp.where(total > 0, 0.5 * (lower + upper), 0.0)


def _compared(values: Array, weights: Array, total: Array) -> tuple[Array, Array]:
    """The two medians by comparing all pairs: rows of a few values in a tenth of what sorting takes."""
    upto = jnp.matmul(weights, (values[:, None] <= values).astype(jnp.float32), precision=lax.Precision.HIGHEST)
    reached = [(weights > 0) & there for there in (upto >= (0.5 - SLACK) * total, upto > (0.5 + SLACK) * total)]
    return jnp.where(reached[0], values, jnp.inf).min(), jnp.where(reached[1], values, jnp.inf).min()


def _ranked(values: Array, weights: Array, total: Array) -> tuple[Array, Array]:
    """The same by sorting."""
    order = jnp.argsort(jnp.where(weights > 0, values, jnp.inf))
    upto, found = weights[order].cumsum(), values[order]
    return found[jnp.argmax(upto >= (0.5 - SLACK) * total)], found[jnp.argmax(upto > (0.5 + SLACK) * total)]


def capped(weights: Array, cap: Array | float) -> Array:
    """Weights ``[C]``, none above ``cap`` times the median of those that are not 0."""
    return jnp.minimum(weights, cap * median_of(weights, (weights > 0).astype(jnp.float32)))
