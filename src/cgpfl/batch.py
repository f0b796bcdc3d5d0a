"""A batch of samples: what data gives, models read and methods train on."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array


class Batch(NamedTuple):
    """Samples with weights: ``x [B, ...]``, ``y [B]``, ``weight [B]`` (0 = padding)."""

    x: Array
    y: Array
    weight: Array
