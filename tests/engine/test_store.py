"""Rows of many clients, in memory and in a file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.engine.store import Store

LIKE = {"w": jax.ShapeDtypeStruct((2, 3), np.float32), "n": jax.ShapeDtypeStruct((), np.int32)}


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    return Store(LIKE, 5, tmp_path / "there" if request.param == "file" else None)


def rows(*numbers):
    return {"w": np.stack([np.full((2, 3), v, np.float32) for v in numbers]), "n": np.array(numbers, np.int32)}


def test_what_is_put_is_taken(store):
    store.put(np.array([3, 1]), rows(30, 10))
    taken = store.take(np.array([1, 2, 3]))
    assert taken["n"].tolist() == [10, 0, 30]
    assert taken["w"][:, 1, 2].tolist() == [10.0, 0.0, 30.0]
    assert store.known.tolist() == [False, True, False, True, False]
    taken["n"][:] = 7  # a copy
    assert store.take(np.array([1]))["n"].tolist() == [10]


def test_leaves_numpy_has_no_name_for(tmp_path):
    """bfloat16 in a file is two bytes without a type; what is read are the numbers that were put."""
    like = {"w": jax.ShapeDtypeStruct((3,), jnp.bfloat16)}
    for folder in (None, tmp_path / "there"):
        store, values = Store(like, 4, folder), jnp.array([[1.5, -2.0, 2.0**-9], [3.0, 0.0, 7.0]], jnp.bfloat16)
        store.put(np.array([2, 0]), {"w": values})
        saved = tmp_path / ("memory" if folder is None else "file")
        store.dump(saved)
        again = Store(like, 4)
        again.restore(saved)
        taken = again.take(np.array([2, 0, 1]))["w"]
        assert taken.dtype == jnp.bfloat16
        assert taken.astype(float).tolist() == [[1.5, -2.0, 2.0**-9], [3.0, 0.0, 7.0], [0.0] * 3]


def test_only_known_clients_are_written(store, tmp_path):
    store.put(np.array([4, 0]), rows(4, 1))
    store.dump(tmp_path / "saved")
    assert np.load(tmp_path / "saved" / "ids.npy").tolist() == [0, 4]
    assert np.load(tmp_path / "saved" / "0.npy").tolist() == [1, 4]
    again = Store(LIKE, 5)
    again.restore(tmp_path / "saved")
    assert again.known.tolist() == store.known.tolist()
    assert again.take(np.arange(5))["n"].tolist() == [1, 0, 0, 0, 4]


def test_a_file_has_no_name(tmp_path):
    """Nothing is left behind, however the process ends."""
    store = Store(LIKE, 5, tmp_path)
    store.put(np.array([2]), rows(2))
    assert list(tmp_path.iterdir()) == []
    assert isinstance(store.arrays["w"], np.memmap)


def test_another_form_is_refused(store, tmp_path):
    store.put(np.array([0]), rows(1))
    store.dump(tmp_path / "saved")
    other = Store({"w": jax.ShapeDtypeStruct((3, 3), np.float32), "n": LIKE["n"]}, 5)
    with pytest.raises(ValueError, match=r"1\.npy has shape"):
        other.restore(tmp_path / "saved")


def test_clients_without_a_state(tmp_path):
    """FedAvg's clients keep nothing."""
    store = Store((), 3)
    store.put(np.array([1]), ())
    store.dump(tmp_path / "saved")
    again = Store((), 3)
    again.restore(tmp_path / "saved")
    assert again.known.tolist() == [False, True, False]
