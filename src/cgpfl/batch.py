"""A batch of samples: what data gives, models read and methods train on."""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax import Array


class Batch(NamedTuple):
    """Samples with weights: ``x [B, ...]``, ``y [B]``, ``weight [B]`` (0 = padding).

    ``key`` is for what a model draws in training, such as dropout; None: it draws nothing. ``expected`` is how many
    samples there are on average, where chance says how many.
    """

    x: Array
    y: Array
    weight: Array
    key: Array | None = None
    expected: Array | None = None


DRAWN = 0x6D61736B
"""Folded into a minibatch's key: what the model draws is independent of which samples were drawn."""


def model_key(key: Array) -> Array:
    """What a model may draw from on the minibatch that was drawn by ``key``."""
    return jax.random.fold_in(key, DRAWN)


def chunk_size() -> int:
    """How many of a client's samples are read at once where all of them are needed: bounds memory.

    Few on a CPU, where what is computed of them should stay in the cache (evaluation of the CNN: 18.6 → 5 s).
    """
    return 32 if jax.default_backend() == "cpu" else 256
