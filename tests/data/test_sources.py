"""Sets by name."""

import importlib.util

import numpy as np
from sklearn.datasets import load_digits

from cgpfl.data import sources


def test_digits_are_scikit_learns(monkeypatch):
    expected = load_digits()
    quick = sources.load("digits")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # a scikit-learn that keeps its file elsewhere
    assert sources._digits_file() is None
    for found in (quick, sources.load("digits")):
        np.testing.assert_array_equal(found.x, expected.images)
        np.testing.assert_array_equal(found.y, expected.target)
        assert (found.x.dtype, found.y.dtype, found.x.shape) == (np.uint8, np.int32, (1797, 8, 8))
