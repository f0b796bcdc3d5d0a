"""Sets by name."""

import importlib.util

import numpy as np
import pytest
from sklearn.datasets import load_digits

from cgpfl.data import sources
from cgpfl.errors import CgpflError


def test_digits_are_scikit_learns(monkeypatch):
    expected = load_digits()
    quick = sources.load("digits")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # a scikit-learn that keeps its file elsewhere
    assert sources._digits_file() is None
    for found in (quick, sources.load("digits")):
        np.testing.assert_array_equal(found.x, expected.images)
        np.testing.assert_array_equal(found.y, expected.target)
        assert (found.x.dtype, found.y.dtype, found.x.shape) == (np.uint8, np.int32, (1797, 8, 8))


def test_a_number_is_no_samples(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.float32(1), y=np.zeros((3, 3)))
    with pytest.raises(CgpflError, match=r"x \(\) and y \(3, 3\); must be x \[n, features...\] and y \[n\]"):
        sources.load(str(tmp_path / "a.npz"))
