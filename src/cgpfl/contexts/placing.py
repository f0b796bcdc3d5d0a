"""Contexts from noised sums alone: of a client nothing is seen but its part in a sum, and it finds its own place.

Evidence s_i is a direction: of length 1, or nothing. Five sums are taken over all clients, and normal noise is added to
each; whatever follows from these is public. A client's own context follows from its own evidence and from them.

    m = (Σ s_i + noise) / N                        e_i = s_i − m, of length 1 again
    A = Σ e_i e_iᵀ + noise                         V: main directions of A that stand out of noise; y_i = Vᵀ e_i
    S = Σ φ(y_i) + noise                           φ(c)·S: about how many are near c
    peaks of that; twice: sums of those nearest to each, and how many they are, + noise
    client i is where the nearest centre is

A client's part in each has at most length 1 (√2 with a count): e eᵀ has that of e squared, and φ, random waves, has
cos² + sin² over all. So each sum is a Gaussian mechanism, and :data:`SHARES` divide one budget among them. Peaks are
found by as many tries as one likes: they are of S, not of clients.

Schellekens, Chatalic, Houssiau, de Montjoye, Jacques, Gribonval: Differentially Private Compressive K-Means. ICASSP
2019.
Rahimi, Recht: Random Features for Large-Scale Kernel Machines. NeurIPS 2007.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import Precision

from cgpfl.contexts.evidence import hashed
from cgpfl.tree import Tree

WIDTH = 61
"""Numbers of evidence. A prime: coordinates of one bucket are then not a column of some layer."""
MOST = 12
"""Contexts that are looked for where nobody says how many."""
SHARES = (0.1, 0.3, 0.3, 0.3)
"""Of 1/noise²: for the mean, second moments, the density, and the steps together."""
STEPS = 2
WAVES = 512
NEAR = 0.2
"""h of the Gaussian kernel e^(−‖c − y‖²/2h²) by which clients are near."""
TRIES, CLIMB = 2048, 40
STANDS_OUT = 1.1
"""Times the largest eigenvalue of noise alone."""
PEAK, VALLEY = 5.0, 3.0
"""Standard deviations of noise by which a density stands out of nothing, and a peak out of what is beside it."""


class Found(NamedTuple):
    """Where clients are."""

    labels: Array  # [N] in 0..k-1
    k: Array
    sizes: Array  # [slots] about how many: counts with noise
    gain: Array  # [slots] how much more clients of it have in common than all have: of squared lengths, at least 1


def sketch(updates: Tree, seed: Array) -> Array:
    """Updates, leaves ``[C, ...]``, as ``[C, WIDTH]`` or fewer numbers: with random signs, added up in buckets."""
    flat = jnp.concatenate([u.reshape(u.shape[0], -1) for u in jax.tree.leaves(updates)], axis=1).astype(jnp.float32)
    n, d = flat.shape
    p = min(d, WIDTH)
    signs = jnp.where(hashed(jnp.arange(d, dtype=jnp.uint32), seed) & 1, 1.0, -1.0)
    return jnp.pad(flat * signs, ((0, 0), (0, -d % p))).reshape(n, -1, p).sum(axis=1)


def directions(rows: Array) -> Array:
    """Rows ``[N, p]`` of length 1; of nothing, or of what is no number, nothing."""
    length = jnp.sqrt(jnp.sum(rows * rows, axis=1, keepdims=True))
    fine = (length > 0) & jnp.isfinite(length)
    return jnp.where(fine, rows / jnp.where(fine, length, 1.0), 0.0)


def noises(noise: Array | float) -> tuple[Array | float, ...]:
    """Those of mean, moments, density and each step's sums, of that of all together; in a step a part has length √2."""
    mean, moments, density, steps = (noise / math.sqrt(share) for share in SHARES)
    return mean, moments, density, steps * math.sqrt(2 * STEPS)


def place(evidence: Array, key: Array, noise: Array | float, slots: int, known: bool) -> Found:
    """Contexts of ``evidence [N, p]``: ``slots`` of them where ``known``, else as many as peaks are seen.

    The ``key`` is that of the noise: ``noise`` times a client's part for all of it. All other draws everybody may know.
    """
    of, (n, p) = noises(noise), evidence.shape
    count = min(max(slots - 1, 1), p)
    shapes = [(p,), (p, p), (2 * WAVES,), (STEPS, slots, count + 1)]
    drawn = _normals(key, shapes)
    wave, tries = (jnp.asarray(v) for v in _public(count))
    s = directions(evidence)
    here = (jnp.square(s).sum(axis=1) > 0.5).astype(jnp.float32)
    m = (everybody(s) + of[0] * drawn[0]) / n
    e = directions(s - m) * here[:, None]
    values, axes = _spectrum(_moments(e) + of[1] * _symmetric(drawn[1]))
    kept = values[:count] > STANDS_OUT * of[1] * math.sqrt(2 * p)
    y = _dot(e, axes[:, :count] * kept)
    density = everybody(_waves(y, wave) * here[:, None]) + of[2] * drawn[2]
    tries = tries * jnp.sqrt(jnp.maximum(values[:count], 0.0) / n) * kept
    centres, there = _peaks(density, wave, tries, of[2], slots, known)
    sizes = jnp.zeros(slots)
    for step in range(STEPS):
        sums = _sums(y, here, _nearest(y, centres, there), slots)
        sums = sums + of[3] * drawn[3][step]
        sizes = jnp.maximum(sums[:, -1], of[3])
        if not known:  # what nobody is near to was a peak of noise
            most = jnp.argmax(jnp.where(there, sums[:, -1], -jnp.inf))
            there = there & ((sums[:, -1] > PEAK * of[3]) | (jnp.arange(slots) == most))
        centres = jnp.where(there[:, None], sums[:, :-1] / sizes[:, None], centres)
    order = jnp.argsort(~there)  # those that are there come first
    centres, there, sizes = centres[order], there[order], jnp.where(there, sizes, 0.0)[order]
    sizes = sizes * n / jnp.maximum(sizes.sum(), 1.0)
    sizes = jnp.where(there, jnp.maximum(sizes, 1.0), 0.0)
    blur = p * jnp.square(of[0] / n)
    common = jnp.clip(jnp.square(m).sum() - blur, jnp.minimum(blur, 1.0), 1.0)
    gain = 1.0 + jnp.minimum(jnp.square(centres).sum(axis=1), 1.0) * (1.0 - common) / jnp.maximum(common, 1e-6)
    return Found(_nearest(y, centres, there), there.sum().astype(jnp.int32), sizes, jnp.where(there, gain, 1.0))


def _normals(key: Array, shapes: list[tuple[int, ...]]) -> list[Array]:
    """Normal numbers in these forms, by one draw."""
    sizes = [math.prod(shape) for shape in shapes]
    parts = jnp.split(jax.random.normal(key, (sum(sizes),)), np.cumsum(sizes)[:-1].tolist())
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


@cache
def _public(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Waves ``[r, WAVES]``, and where peaks are looked for ``[TRIES, r]``, in units of the spread along each axis."""
    draw = np.random.default_rng(0)
    wave, tries = draw.standard_normal((count, WAVES)) / NEAR, 1.2 * draw.standard_normal((TRIES, count))
    return wave.astype(np.float32), tries.astype(np.float32)


def everybody(rows: Array) -> Array:
    """Σ over clients."""
    return rows.sum(axis=0)


def _moments(e: Array) -> Array:
    """Σ e eᵀ."""
    return _dot(e.T, e)


def _symmetric(drawn: Array) -> Array:
    """Noise of a symmetric matrix, as long as a whole: √½ off the diagonal, where each number is there twice."""
    upper = jnp.triu(drawn)
    return (upper + upper.T) * jnp.where(jnp.eye(drawn.shape[0], dtype=bool), 0.5, math.sqrt(0.5))


def _spectrum(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, the largest first, and their axes as columns."""
    values, axes = jnp.linalg.eigh(matrix)
    return values[::-1], axes[:, ::-1]


def _waves(y: Array, wave: Array) -> Array:
    """φ(y) ``[..., 2·WAVES]``, of length 1."""
    at = _dot(y, wave)
    return jnp.concatenate([jnp.cos(at), jnp.sin(at)], axis=-1) / math.sqrt(WAVES)


def _sums(y: Array, here: Array, labels: Array, slots: int) -> Array:
    """Of each context's members the sum of where they are, and how many they are: ``[slots, r + 1]``."""
    return _dot((jax.nn.one_hot(labels, slots) * here[:, None]).T, jnp.pad(y, ((0, 0), (0, 1)), constant_values=1.0))


def _nearest(y: Array, centres: Array, there: Array) -> Array:
    apart = jnp.square(centres).sum(axis=1) - 2 * _dot(y, centres.T)
    return jnp.argmin(jnp.where(there, apart, jnp.inf), axis=1).astype(jnp.int32)


def _peaks(
    density: Array, wave: Array, tries: Array, noise: Array | float, slots: int, known: bool
) -> tuple[Array, Array]:
    """Centres ``[slots, r]`` and which of them are there: the highest peak, then that of what is left, and so on.

    One is there where it is a peak of all, too, with valleys between it and those before; all, where their number is
    ``known``.
    """
    features = _waves(tries, wave)
    top = jnp.maximum(jnp.max(_dot(features, density)), noise + 1e-6)

    def value(c: Array, of: Array) -> Array:
        return _dot(_waves(c, wave), of)

    def climbed(c: Array, *each: Array) -> Array:
        def step(i: Array, c: Array) -> Array:
            of = each[0] if len(each) == 1 else jnp.where(i < CLIMB, *each)
            height, slope = jax.value_and_grad(value)(c, of)
            return c + NEAR * NEAR * slope / jnp.maximum(height, 0.25 * top)

        return jax.lax.fori_loop(0, len(each) * CLIMB, step, c)

    between = jnp.linspace(0.0, 1.0, 17)[1:-1, None]

    def add(j: Array, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        taken, centres, there, rest = state
        first = tries[jnp.argmax(_dot(features, rest))]
        c = climbed(first, rest)
        taken = taken.at[j].set(_waves(c, wave))
        gram = _dot(taken, taken.T) + 1e-3 * jnp.eye(slots)  # of those not yet taken nothing
        rest = density - _dot(taken.T, jnp.linalg.solve(gram, _dot(taken, density)))
        if known:
            return taken, centres.at[j].set(c), there.at[j].set(True), rest
        c = climbed(first, rest, density)
        own = value(c, density)

        def apart(other: Array) -> Array:
            lower = jnp.minimum(own, value(other, density))
            least = jnp.min(value(other + (c - other) * between, density))
            return (least < 0.5 * lower) & (lower - least > VALLEY * noise)

        fine = (own > PEAK * noise) & (jax.vmap(apart)(centres) | ~there).all()
        return taken, centres.at[j].set(c), there.at[j].set(fine | (j == 0)), rest

    nothing = jnp.zeros((slots, tries.shape[1]))
    start = (jnp.zeros((slots, features.shape[1])), nothing, jnp.zeros(slots, bool), density)
    _, centres, there, _ = jax.lax.fori_loop(0, slots, add, start)
    return centres, there


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=Precision.HIGHEST)
