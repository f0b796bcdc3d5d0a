import numpy as np
import pytest

from cgpfl.data import load, make_contexts, make_data, split
from cgpfl.data.makers import rotate
from cgpfl.errors import CgpflError


def made(maker, contexts=4):
    raw = load("digits")
    parts = split(raw.y, "iid", 20, seed=0)
    return (raw, parts, *make_contexts(maker, raw.x, raw.y, parts, contexts=contexts, classes=10, seed=0))


def test_rotation_turns_by_the_context():
    raw, parts, x, y, context = made("rotation")
    np.testing.assert_array_equal(np.bincount(context), [5, 5, 5, 5])
    np.testing.assert_array_equal(y, raw.y)
    for part, c in zip(parts, context, strict=True):
        np.testing.assert_array_equal(x[part], np.rot90(raw.x[part], c, axes=(1, 2)))
    assert x.dtype == np.uint8


def test_rotation_by_other_angles_turns_the_same_way():
    image = np.zeros((1, 9, 9), np.float32)
    image[0, 0:5, 4] = 1  # a hand pointing up
    quarter, half_quarter = rotate(image, 90), rotate(image, 45)
    assert quarter[0, 4, 1] == 1  # counter-clockwise: now it points left
    assert half_quarter[0, 2, 2] > 0.5  # and half-way: up and left


def test_labels_are_renamed_by_a_permutation_of_the_context():
    raw, parts, x, y, context = made("labels")
    np.testing.assert_array_equal(x, raw.x)
    names = {}
    for part, c in zip(parts, context, strict=True):
        for old, new in zip(raw.y[part], y[part], strict=True):
            assert names.setdefault((c, old), new) == new
    for c in range(4):
        assert sorted(names[c, label] for label in range(10)) == list(range(10))
    assert all(names[0, label] == label for label in range(10))
    assert len({tuple(names[c, label] for label in range(10)) for c in range(4)}) == 4


def test_shift_adds_one_direction_a_context():
    raw, parts, x, _, context = made("shift")
    offsets = {}
    for part, c in zip(parts, context, strict=True):
        moved = x[part] - raw.x[part]
        np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-4)
        np.testing.assert_allclose(offsets.setdefault(c, moved[0]), moved[0], atol=1e-4)
    assert np.abs(offsets[0]).max() == 0
    assert len({round(float(np.linalg.norm(o)), 2) for c, o in offsets.items() if c}) == 1


def test_the_source_is_not_changed():
    before = load("digits").x.copy()
    make_data("digits", "rotation", seed=3)
    np.testing.assert_array_equal(before, load("digits").x)


def test_too_many_contexts():
    with pytest.raises(CgpflError, match="contexts = 9: must be between 1 and the number of clients, 8"):
        make_data("digits", "rotation", clients=8, contexts=9)


def test_label_contexts_are_all_different():
    x, y = np.zeros((40, 2), np.float32), np.arange(40) % 2
    parts = [np.arange(i * 10, i * 10 + 10) for i in range(4)]
    _, renamed, context = make_contexts("labels", x, y, parts, contexts=2, classes=2, seed=0)
    for part, c in zip(parts, context, strict=True):
        np.testing.assert_array_equal(renamed[part], y[part] if c == 0 else 1 - y[part])
    with pytest.raises(CgpflError, match="2 classes can be renamed in 2 ways"):
        make_contexts("labels", x, y, parts, contexts=3, classes=2)
