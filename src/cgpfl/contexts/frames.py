"""Evidence made comparable: without noise as far as it goes, of equal lengths, along its leading directions.

Coordinates are divided by their noise, known from the differences between folds. Clients have equal lengths: of their
own signal, not of its noise. And similarity is that of different folds alone, S_ij = Σ_{f≠g} ⟨X_f,i, X_g,j⟩.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from cgpfl.contexts.evidence import FLOOR


class Frame(NamedTuple):
    """Evidence ready to be compared: scaled, centred, weighted."""

    own: Array  # [N, p] mean over the folds used
    weights: Array  # [N] of the clients, 0 = not heard enough
    places: Array  # [N, r] coordinates for k-means, most telling first


def whitened(updates: Array, heard: Array) -> Array:
    """Evidence of those heard, each coordinate divided by the noise in it."""
    return updates * heard[:, None] / scales(updates, heard)


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


def framed(x: Array, used: Array, heard: Array, slots: int) -> Frame:
    """Scaled evidence ``x [F, N, p]``, of the folds ``used [F]``, as k-means and the prediction want it."""
    apart = x - mean_over(x, heard)
    signal, noise = signal_and_noise(apart, used)
    usual = jnp.maximum(median_of(signal, heard), 1e-3 * median_of(noise, heard))
    weights = heard / (noise / used.sum() + usual)
    weights = weights / jnp.maximum(weights.sum(), 1e-30) * heard.sum()
    centred = (x - mean_over(x, weights)) * heard[:, None]
    own = jnp.einsum("f,fnp->np", used, x) / used.sum()
    return Frame(own, weights, leading(centred, used, weights, max(slots - 1, 1)))


def leading(x: Array, used: Array, weights: Array, r: int) -> Array:
    """Coordinates ``[N, r]`` of clients along the leading directions of what repeats over folds."""
    _, n, p = x.shape
    root = jnp.sqrt(weights)[:, None]
    total = jnp.einsum("f,fnp->np", used, x)
    pairs = used.sum() * (used.sum() - 1)
    r = min(r, n, p)
    similar = dot(total, total.T) - jnp.einsum("f,fip,fjp->ij", used, x, x, precision="highest")
    values, vectors = jnp.linalg.eigh(root * similar / pairs * root.T)
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
