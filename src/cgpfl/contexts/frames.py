"""Evidence made comparable: without noise as far as it goes, of equal lengths, along its leading directions.

Coordinates are divided by their noise, known from the differences between folds. Clients have equal lengths: of their
own signal, not of its noise. Two clients i ≠ j are similar by S_ij = ⟨a_i, a_j⟩ of what each says of all samples in
use: their noises have nothing to do with each other. A client's own has with itself: S_ii = γ ⟨X_f,i, X_g,i⟩, of
different folds f ≠ g, where γ is how much larger S_ij is than what folds say of i ≠ j, by least squares.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from cgpfl.contexts.evidence import FLOOR


class Frame(NamedTuple):
    """Evidence ready to be compared: scaled, centred, weighted."""

    own: Array  # [N, p] updates on all samples in use
    weights: Array  # [N] of the clients, 0 = not heard enough
    places: Array  # [N, r] coordinates for k-means, most telling first


def whitened(updates: Array, heard: Array) -> tuple[Array, Array, Array]:
    """:func:`scaled` evidence of those heard."""
    x, most, whole = (v * heard[:, None] for v in scaled(updates, heard))
    return x, most, whole


def scaled(updates: Array, heard: Array) -> tuple[Array, Array, Array]:
    """Updates ``[2F, N, p]`` on folds ``[F, N, p]``, on all but each ``[F, N, p]``, and of all of these ``[N, p]``.

    Each coordinate is divided by the noise in it. The last is the mean by numbers of samples.
    """
    folds = updates.shape[0] // 2
    x, most = updates[:folds], updates[folds:]
    scale = scales(x, heard)
    whole = (x.mean(axis=0) + (folds - 1) * most.mean(axis=0)) / folds
    return x / scale, most / scale, whole / scale


def scales(updates: Array, heard: Array) -> Array:
    """Noise of each coordinate ``[p]``: how much a client's folds differ from one another."""
    folds = updates.shape[0]
    apart = (updates - updates.mean(axis=0)) * heard[:, None]
    variance = jnp.square(apart).sum(axis=(0, 1)) / jnp.maximum(heard.sum() * (folds - 1), 1.0)
    rounding = 1e-12 * jnp.square(updates * heard[:, None]).mean()  # what float32 cannot tell is noise at least
    return jnp.sqrt(variance + FLOOR * variance.mean() + rounding + 1e-30)


def signal_and_noise(x: Array, used: Array) -> tuple[Array, Array]:
    """Squared length of what repeats over the folds ``used [F]``, and of what does not in one fold. ``[N]`` each."""
    count = used.sum()
    mean = jnp.einsum("f,fnp->np", used, x) / count
    noise = jnp.einsum("f,fnp->n", used, jnp.square(x - mean)) / (count - 1)
    return jnp.square(mean).sum(axis=1) - noise / count, jnp.maximum(noise, 1e-12)


def lengths(x: Array, used: Array, heard: Array) -> Array:
    """Length of each client's signal, ``[N]``; half of the median one's is the least, or a little of the noise's."""
    signal, noise = signal_and_noise(x, used)
    usual = jnp.maximum(median_of(signal, heard), 0.02 * median_of(noise, heard))
    return jnp.sqrt(jnp.maximum(signal, 0.25 * jnp.maximum(usual, 1e-12)))


def framed(x: Array, own: Array, used: Array, heard: Array, slots: int) -> Frame:
    """Scaled evidence as k-means and the prediction want it.

    ``x [F, N, p]`` of the folds ``used [F]``, ``own [N, p]`` of all samples in these.
    """
    apart = x - mean_over(x, heard)
    signal, noise = signal_and_noise(apart, used)
    usual = jnp.maximum(median_of(signal, heard), 1e-3 * median_of(noise, heard))
    weights = heard / (noise / used.sum() + usual)
    weights = weights / jnp.maximum(weights.sum(), 1e-30) * heard.sum()
    centred, away = ((v - mean_over(v, weights)) * heard[:, None] for v in (x, own[None]))
    return Frame(own, weights, leading(centred, away[0], used, weights, max(slots - 1, 1)))


def leading(x: Array, own: Array, used: Array, weights: Array, r: int) -> Array:
    """Coordinates ``[N, r]`` of clients along the leading directions of what clients have in common."""
    _, n, p = x.shape
    root = jnp.sqrt(weights)[:, None]
    total = jnp.einsum("f,fnp->np", used, x)
    pairs = used.sum() * (used.sum() - 1)
    r = min(r, n, p)
    repeated = (dot(total, total.T) - jnp.einsum("f,fip,fjp->ij", used, x, x, precision="highest")) / pairs
    similar, other = dot(own, own.T), jnp.where(jnp.eye(n) > 0, 0.0, weights * weights[:, None])
    larger = (other * similar * repeated).sum() / jnp.maximum((other * jnp.square(repeated)).sum(), 1e-30)
    similar = jnp.where(jnp.eye(n) > 0, jnp.maximum(larger, 0.0) * repeated, similar)
    values, vectors = jnp.linalg.eigh(root * similar * root.T)
    places = vectors * jnp.sqrt(jnp.maximum(values, 0.0)) / jnp.where(root > 0, root, 1.0)
    return places[:, ::-1][:, :r]


def mean_over(x: Array, weights: Array) -> Array:
    """Mean over clients ``[F, 1, p]``."""
    return jnp.einsum("n,fnp->fp", weights, x)[:, None] / jnp.maximum(weights.sum(), 1e-30)


def median_of(values: Array, heard: Array) -> Array:
    """Median of those heard; 0 of nobody."""
    return jnp.nan_to_num(jnp.nanmedian(jnp.where(heard > 0, values, jnp.nan)))


def dot(a: Array, b: Array) -> Array:
    """The product in full float32, on accelerators, too."""
    return jnp.matmul(a, b, precision="highest")
