"""The server's step of pFedMe and CGPFL, and what makes their inner problem unstable."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.tree import Tree, mix, where


def group_step(models: Tree, uploads: Tree, labels: Array, present: Array, rate: Array | float) -> Tree:
    """Ω ← Ω − α(Ω − Ω̃P): each group's model moves to the mean of its members' uploads.

    ``models [K, ...]``, ``uploads [C, ...]``, ``labels [C]`` in 0..K-1, ``present [C]`` 1 or 0. A group
    without a present member keeps its model.
    """
    groups = jax.tree.leaves(models)[0].shape[0]
    members = jax.nn.one_hot(labels, groups) * present[:, None]
    sizes = members.sum(axis=0)
    means = mix(uploads, members / jnp.where(sizes > 0, sizes, 1.0))
    moved = jax.tree.map(lambda w, mean: w - rate * (w - mean), models, means)
    return where(sizes > 0, moved, models)


def unstable_prox(prox: float, rate: float) -> str | None:
    """θ ← θ − η·λ(θ − ω) alone diverges once η·λ reaches 2."""
    if float(prox) * float(rate) < 2:
        return None
    return f"prox x personal_rate = {float(prox) * float(rate):g}, and the inner steps need it below 2"
