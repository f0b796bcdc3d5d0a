"""How good a model is on samples."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.batch import Batch
from cgpfl.experiment.result import PersonalModel

CHUNK = 256
"""Samples at once: bounds memory, and makes one program of any number of samples."""


class Score(NamedTuple):
    """Of a model on labelled samples."""

    samples: int
    accuracy: float
    """Mean of the objective's score: right answers, or variance explained."""
    loss: float
    """Mean of the objective's loss."""


@partial(jax.jit, static_argnames="model")
def _sums(model: Any, params: Any, x: Array, y: Array, weight: Array, scale: Array, shift: Array) -> tuple[Any, Any]:
    return model.score(params, Batch(x.astype(jnp.float32) * scale + shift, y, weight))


def padded(values: np.ndarray, size: int) -> np.ndarray:
    """``values [n, ...]`` with zeros up to ``size`` of them."""
    return np.concatenate([values, np.zeros((size - len(values), *values.shape[1:]), values.dtype)])


def scored(model: PersonalModel, x: np.ndarray, y: np.ndarray) -> Score:
    """The score on samples ``x [n, ...]`` as they are stored, with labels ``y [n, ...]`` as codes."""
    units = model.form.units()
    correct = loss = 0.0
    for start in range(0, len(y), CHUNK):
        part = slice(start, start + CHUNK)
        weight = np.ones(len(y[part]), np.float32)
        batch = [padded(values, CHUNK) for values in (x[part], y[part], weight)]
        right, entropy = _sums(model.model, model.params, *batch, *units)
        correct, loss = correct + float(right), loss + float(entropy)
    return Score(len(y), correct / len(y), loss / len(y))
