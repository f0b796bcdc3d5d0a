"""CGPFL-Heur: the number of contexts that minimises the generalization bound's terms in K.

    e(K) = sqrt(d·K/m · log(e·m/d)) + μ·cost(K),   cost(K) = Σ_i (m_i/m)·min_k ‖θ_i − ω_k‖²

The first term grows with K (more models, each with less data), the second falls (each model closer
to its members). θ_i stands for whatever describes client i: its upload, or its deviation in the warm-up.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.contexts.kmeans import Points, best_of, seedings


class Choice(NamedTuple):
    """The curve over K = 1..Kmax and the K that minimises it."""

    k: Array
    labels: Array
    """``[n]`` at the chosen K."""
    complexity: Array
    """``[Kmax]``: the first term."""
    cost: Array
    """``[Kmax]``: cost(K), before μ."""
    mu: Array
    iterations: Array

    @property
    def error(self) -> Array:
        """e(K), ``[Kmax]``."""
        return self.complexity + self.mu * self.cost


def complexity(k: Array, dimension: int, samples: Array) -> Array:
    """sqrt(d·K/m · log(e·m/d)), with d replaced by min(d, m): beyond that the logarithm means nothing."""
    d = jnp.minimum(jnp.float32(dimension), samples)
    return jnp.sqrt(d * k / samples * (1.0 + jnp.log(samples / d)))


def choose_k(
    points: Points,
    samples: Array,
    dimension: int,
    key: Array,
    *,
    largest: int,
    mu: Array | float | None = None,
    restarts: int = 8,
) -> Choice:
    """Cluster for every K = 1..``largest`` and take the K with the smallest e(K).

    ``samples [n]`` are the m_i. ``mu=None`` is the scale-free μ = 4/cost(1): the second term then
    starts at 4 whatever the scale of the models, so one setting serves every model and data set.
    """
    total = samples.sum()
    share = samples / jnp.where(total > 0, total, 1.0)
    seeds = seedings(points, largest, key, restarts)
    ks = jnp.arange(1, largest + 1)
    runs = jax.lax.map(lambda k: best_of(points, seeds, k), ks)
    cost = jnp.matmul(runs.distances, share)
    scale = 4.0 / jnp.maximum(cost[0], 1e-30) if mu is None else jnp.float32(mu)
    first = complexity(ks.astype(jnp.float32), dimension, jnp.maximum(total, 1.0))
    best = jnp.argmin(first + scale * cost)
    return Choice(ks[best], runs.labels[best], first, cost, jnp.asarray(scale, jnp.float32), runs.iterations[best])
