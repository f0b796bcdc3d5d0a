"""Samples before any split: only what comes with the installation, or from a seed.

Every function returns ``x [n, ...]`` float32 and labels ``y [n]``; those that draw take a generator.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cgpfl.data import load
from cgpfl.data.sources import with_sklearn

WRITERS = (0, 130, 256, 386, 516, 646, 776, 915, 1029, 1157, 1287, 1415, 1545, 1667, 1797)
"""Where the 14 blocks of one writer each begin in the file of digits, as scikit-learn's course on grouping has them."""


@lru_cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's 1,797 images ``[1797, 8, 8]``, pixels 0..16: turned first, standardised by the federation."""
    raw = load("digits")
    x, y = raw.x.astype(np.float32), raw.y
    x.flags.writeable = y.flags.writeable = False  # everybody gets the same arrays
    return x, y


def pixels() -> dict[str, float]:
    """What standardises the images of :func:`digits`: inputs are x * scale + shift."""
    raw = load("digits")
    return {"scale": raw.scale, "shift": raw.shift}


@lru_cache
def cancer() -> tuple[np.ndarray, np.ndarray]:
    """569 tumours, 30 measurements, malignant or benign; standardised."""
    path = with_sklearn("breast_cancer.csv")
    if path is not None:
        rows = np.loadtxt(path, delimiter=",", skiprows=1)  # the first line counts and names
    else:
        from sklearn.datasets import load_breast_cancer

        rows = np.column_stack(load_breast_cancer(return_X_y=True))
    x, y = standardised(rows[:, :-1]), rows[:, -1].astype(np.int32)
    x.flags.writeable = y.flags.writeable = False
    return x, y


def standardised(x: np.ndarray) -> np.ndarray:
    """Every column with mean 0 and standard deviation 1."""
    return ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)


def gaussian(
    rows: int, features: int, classes: int, length: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A table of normal noise around class means, which are ``length`` from the origin in random directions.

    Equally many rows of each class, to within one; standardised.
    """
    means = rng.standard_normal((classes, features))
    means *= length / np.linalg.norm(means, axis=1, keepdims=True)
    y = rng.permutation(np.arange(rows) % classes).astype(np.int32)
    return standardised(means[y] + rng.standard_normal((rows, features))), y
