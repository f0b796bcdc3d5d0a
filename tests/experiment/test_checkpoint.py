import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import MethodFolder, arrays_tree
from cgpfl.experiment.records import Records
from cgpfl.files import load_arrays, save_arrays
from cgpfl.tree import named


def test_trees_survive_with_their_random_keys(tmp_path):
    tree = {
        "w": jnp.arange(6.0).reshape(2, 3),
        "n": jnp.int32(3),
        "key": jax.random.key(7),
        "flag": jnp.bool_(True),
        "half": jnp.array([1.5, -(2.0**-9)], jnp.bfloat16),
        "t": (),
    }
    save_arrays(tmp_path / "tree", named(tree), {})
    back = arrays_tree(load_arrays(tmp_path / "tree")[0], jax.eval_shape(lambda: tree), tmp_path)
    np.testing.assert_array_equal(back["w"], tree["w"])
    assert back["n"].dtype == jnp.int32
    assert (jax.random.key_data(back["key"]) == jax.random.key_data(tree["key"])).all()
    assert back["flag"].dtype == bool
    assert back["half"].dtype == jnp.bfloat16
    assert back["half"].astype(float).tolist() == [1.5, -(2.0**-9)]


def block(rounds):
    return Records(list(rounds), {"loss": np.array([[float(r)] for r in rounds])})


def test_records_after_the_state_are_not_read(tmp_path):
    """Killed between records and state: the block is computed again, not counted twice."""
    folder = MethodFolder(tmp_path / "m")
    like = jax.eval_shape(lambda: {"w": jnp.zeros(2)})
    folder.save({"w": jnp.zeros(2)}, {"round": 4, "records": 2}, block([2, 4]))
    folder.save({"w": jnp.ones(2)}, {"round": 8, "records": 4}, block([6, 8]))
    folder.save({"w": jnp.zeros(2)}, {"round": 4, "records": 2}, Records())  # the state of round 8 never made it
    _, facts, records = folder.load(like)
    assert facts["round"] == 4
    assert records.rounds == [2, 4]
    folder.save({"w": jnp.ones(2)}, {"round": 10, "records": 5}, block([6, 8, 10]))  # cut elsewhere this time
    assert folder.load(like)[2].rounds == [2, 4, 6, 8, 10]


def test_missing_records_are_noticed(tmp_path):
    folder = MethodFolder(tmp_path)
    folder.save({"w": jnp.zeros(2)}, {"round": 4, "records": 2}, block([2, 4]))
    next(tmp_path.glob("records-*")).unlink()
    with pytest.raises(CgpflError, match="has 0 of 2 records; delete this folder"):
        folder.load(jax.eval_shape(lambda: {"w": jnp.zeros(2)}))


def test_records_are_read_in_the_order_of_rounds(tmp_path):
    folder = MethodFolder(tmp_path)
    folder.save({"w": jnp.zeros(2)}, {"round": 999_999, "records": 1}, block([999_999]))
    folder.save({"w": jnp.zeros(2)}, {"round": 1_000_000, "records": 2}, block([1_000_000]))
    assert folder.load(jax.eval_shape(lambda: {"w": jnp.zeros(2)}))[2].rounds == [999_999, 1_000_000]


def test_writing_is_atomic(tmp_path, monkeypatch):
    folder = MethodFolder(tmp_path)
    folder.save({"w": jnp.zeros(2)}, {"round": 1}, Records())

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        folder.save({"w": jnp.ones(2)}, {"round": 2}, Records())
    assert folder.facts() == {"round": 1}


def test_damaged_or_foreign_checkpoints_say_so(tmp_path):
    folder = MethodFolder(tmp_path)
    folder.save({"w": jnp.zeros(2)}, {"round": 1, "records": 0}, Records())
    with pytest.raises(CgpflError, match="of another method"):
        folder.load({"v": jax.ShapeDtypeStruct((2,), jnp.float32)})
    with pytest.raises(CgpflError, match="has shape"):
        folder.load({"w": jax.ShapeDtypeStruct((3,), jnp.float32)})
    (tmp_path / "state.safetensors").write_bytes(b"not tensors")
    with pytest.raises(CgpflError, match="cannot be read"):
        load_arrays(tmp_path / "state.safetensors")
