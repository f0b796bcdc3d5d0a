"""Clusterings as labels and as the paper's matrices P, J and Q."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.tree import switch


def match(new: Array, old: Array, slots: int, k: Array | int | None = None) -> Array:
    """Rename the clusters in ``new [n]`` so that they overlap most with ``old [n]``.

    Cluster labels are arbitrary; a context keeps its identity over rounds only if they are matched.
    Solves the assignment problem exactly (Hungarian algorithm). With ``k`` only the first k of the
    ``slots`` names are given to the first k clusters. Returns the new name of each cluster, ``[slots]``.
    """

    def as_they_are(new: Array, old: Array, k: Array) -> Array:
        return jnp.arange(slots, dtype=jnp.int32)

    def renamed(new: Array, old: Array, k: Array) -> Array:
        import optax  # takes a quarter of a second, and a kept program needs none

        overlap = jnp.matmul(jax.nn.one_hot(new, slots).T, jax.nn.one_hot(old, slots))
        used = jnp.arange(slots) < k
        overlap = jnp.where(used[:, None] == used[None, :], overlap, -1.0 - new.shape[0])
        rows, columns = optax.assignment.hungarian_algorithm(-overlap)
        return jnp.zeros(slots, jnp.int32).at[rows].set(columns.astype(jnp.int32))

    changed = (new != old).any().astype(jnp.int32)  # seldom, once contexts have settled
    return switch(changed, [as_they_are, renamed], new, old, jnp.int32(slots if k is None else k))


def membership(labels: np.ndarray, k: int) -> np.ndarray:
    """P ``[N, K]``: 1/|C_j| where client i is in context j, else 0; a column of an empty context is 0."""
    one_hot = np.eye(k)[np.asarray(labels)]
    return one_hot / np.maximum(one_hot.sum(axis=0), 1)


def spreading(labels: np.ndarray, k: int) -> np.ndarray:
    """J ``[K, N]``: Ω J gives each client its context's model; J P = I where no context is empty."""
    return np.eye(k)[np.asarray(labels)].T


def transition(before: np.ndarray, after: np.ndarray, k: int) -> np.ndarray:
    """Q ``[K, K]`` of P⁺ = P Q, in the least-squares sense: Q = J P⁺.

    Column j tells where the members of the new context j come from; Q = I means nobody moved. The
    equation holds exactly when new contexts are unions of old ones' equal shares, and Q always
    has columns that sum to one (empty contexts apart).
    """
    return np.asarray(spreading(before, k) @ membership(after, k))
