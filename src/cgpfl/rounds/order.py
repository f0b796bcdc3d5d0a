"""Order statistics of clients' numbers, by weight and by group.

Sorting ``[C, d]`` numbers takes XLA ten times as long on a CPU as what is done here: 32 halvings of float32's range
find a weighted order statistic exactly, each a comparison and a product with the groups' weights.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

LARGEST = 2**31 - 1
SLACK = 1e-5
"""Of a group's weight: sums of float32 that differ by less are the same."""


def _ordered(x: Array) -> Array:
    """Float32 as integers in the same order."""
    return _flipped(jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.int32))


def _numbers(ordered: Array, shape: tuple[int, ...]) -> Array:
    """What :func:`_ordered` made integers of; 0 where nobody is."""
    value = jax.lax.bitcast_convert_type(_flipped(ordered), jnp.float32)
    return jnp.where(jnp.isfinite(value), value, 0.0).reshape(shape)


def _flipped(bits: Array) -> Array:
    """Of negative numbers all bits but the sign are the other way round."""
    return jnp.where(bits < 0, bits ^ LARGEST, bits)


def _below(members: Array, mask: Array) -> Array:
    """Weight ``[K, d]`` of each group's members for whom ``mask [C, d]`` holds."""
    return jnp.matmul(members, mask.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)


def order_statistics(x: Array, labels: Array, members: Array, mass: Array, *, above: bool) -> Array:
    """Of each group and number, the smallest value up to which the weight reaches ``mass [K]``; ``above``: exceeds it.

    ``x [C, ...]``, ``labels [C]``, ``members [K, C]`` weights → ``[K, ...]``.
    """
    slack = SLACK * members.sum(axis=1)
    found = _search(_ordered(x.reshape(x.shape[0], -1)), labels, members, mass + slack if above else mass - slack)
    return _numbers(found, (members.shape[0], *x.shape[1:]))


def _search(flat: Array, labels: Array, members: Array, needed: Array) -> Array:
    """Of each group and number, the smallest integer up to which the weight reaches ``needed [K]``: ``[K, d]``."""
    shape = (members.shape[0], flat.shape[1])
    low, high = jnp.full(shape, -LARGEST - 1, jnp.int32), jnp.full(shape, LARGEST, jnp.int32)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low & high) + ((low ^ high) >> 1)
        reached = _below(members, flat <= middle[labels]) >= needed[:, None]
        return jnp.where(reached, low, middle + 1), jnp.where(reached, middle, high)

    return jax.lax.fori_loop(0, 32, halve, (low, high))[1]


def medians(x: Array, labels: Array, members: Array) -> Array:
    """Of each group and number, the mean of the lower and the upper median; shapes as above.

    They differ where the weight up to the lower one is half of all; the upper one is then the member's next to it.
    """
    flat = _ordered(x.reshape(x.shape[0], -1))
    total = members.sum(axis=1)
    lower = _search(flat, labels, members, (0.5 - SLACK) * total)
    enough = _below(members, flat <= lower[labels]) >= ((0.5 + SLACK) * total)[:, None]

    def next_to(own: Array, value: Array) -> Array:
        return jnp.where((own > 0)[:, None] & (flat > value), flat, LARGEST).min(axis=0)

    upper = jnp.where(enough, lower, jax.vmap(next_to)(members, lower))
    shape = (len(total), *x.shape[1:])
    return 0.5 * (_numbers(lower, shape) + _numbers(upper, shape))


def trimmed_means(x: Array, labels: Array, members: Array, share: Array | float) -> Array:
    """Of each group and number, the mean without ``share`` of the weight at either end; shapes as above."""
    total = members.sum(axis=1)
    cut = share * total
    first = order_statistics(x, labels, members, cut, above=True).reshape(len(total), -1)
    last = order_statistics(x, labels, members, total - cut, above=False).reshape(len(total), -1)
    flat = x.reshape(x.shape[0], -1).astype(jnp.float32)
    inside = (flat > first[labels]) & (flat < last[labels])
    whole = jnp.matmul(members, jnp.where(inside, flat, 0.0), precision=jax.lax.Precision.HIGHEST)
    # What is left of the weight at the two ends: they may be cut through.
    at_first = _below(members, flat <= first[labels]) - cut[:, None]
    at_last = (total - cut)[:, None] - _below(members, flat < last[labels])
    mean = (whole + at_first * first + at_last * last) / jnp.where(total > 0, total - 2 * cut, 1.0)[:, None]
    return jnp.where(first < last, mean, first).reshape(len(total), *x.shape[1:])


def median_of(values: Array, weights: Array) -> Array:
    """The weighted median of ``values [C]``: the mean of the lower and the upper one. 0 where nobody has a weight."""
    order = jnp.argsort(jnp.where(weights > 0, values, jnp.inf))
    ranked = weights[order].cumsum()
    total = ranked[-1]
    lower = jnp.argmax(ranked >= (0.5 - SLACK) * total)
    upper = jnp.argmax(ranked > (0.5 + SLACK) * total)
    found = values[order]
    return jnp.where(total > 0, 0.5 * (found[lower] + found[upper]), 0.0)


def capped(weights: Array, cap: Array | float) -> Array:
    """Weights ``[C]``, none above ``cap`` times the median of those that are not 0."""
    return jnp.minimum(weights, cap * median_of(weights, (weights > 0).astype(jnp.float32)))
