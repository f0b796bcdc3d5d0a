import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import FedAvg
from cgpfl.engine.settings import Settings
from cgpfl.engine.store import Store
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import MethodFolder, arrays_tree, check_same
from cgpfl.experiment.compared import check_made_with
from cgpfl.experiment.records import Records
from cgpfl.experiment.run import fingerprint
from cgpfl.files import load_arrays, save_arrays
from cgpfl.models import as_model
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
    with pytest.raises(CgpflError, match="has 0 of 2 records; delete the folder"):
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


LIKE = {"w": jax.ShapeDtypeStruct((2,), jnp.float32)}


def two(path):
    """A folder with a checkpoint of round 4 and one of round 8."""
    folder = MethodFolder(path)
    folder.save({"w": np.zeros(2, np.float32)}, {"round": 4, "records": 2}, block([2, 4]))
    folder.save({"w": np.ones(2, np.float32)}, {"round": 8, "records": 4}, block([6, 8]))
    return MethodFolder(path)


def flip(file, at=-1, bit=0x40):
    """An exponent bit of the last number."""
    content = bytearray(file.read_bytes())
    content[at] ^= bit
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["state.safetensors", "records-000008.safetensors"])
def test_a_damaged_checkpoint_leaves_the_one_before(tmp_path, capsys, name):
    folder = two(tmp_path)
    flip(tmp_path / name)
    state, facts, records = folder.load(LIKE)
    assert (facts["round"], records.rounds, state["w"].tolist()) == (4, [2, 4], [0, 0])
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name}: is damaged: its checksum is another; going on from the one before it, round 4" in line
    folder.save({"w": np.full(2, 3, np.float32)}, {"round": 6, "records": 3}, block([6]))
    (tmp_path / "state.safetensors").write_bytes(b"")  # the good one is still the one before
    assert MethodFolder(tmp_path).load(LIKE)[1]["round"] == 4


def test_damage_everywhere_is_said(tmp_path):
    folder = two(tmp_path)
    flip(tmp_path / "records-000004.safetensors")
    with pytest.raises(CgpflError, match=r"records-000004.*checksum.*; delete the folder"):
        folder.load(LIKE)


def test_a_state_that_was_lost_leaves_the_one_before(tmp_path):
    folder = two(tmp_path)
    (tmp_path / "state.safetensors").unlink()
    assert folder.exists()
    assert folder.load(LIKE)[2].rounds == [2, 4]


def test_a_round_recorded_again_without_its_state(tmp_path):
    """A server evaluates after its last round and dies before the state says so."""
    folder = MethodFolder(tmp_path)
    folder.save({"w": np.zeros(2, np.float32)}, {"round": 8, "records": 1}, block([4]))
    save_arrays(tmp_path / "records-000008.safetensors", {"loss": np.zeros((1, 1))}, {"rounds": [8]})
    again = MethodFolder(tmp_path)
    assert again.load(LIKE)[2].rounds == [4]
    again.save({"w": np.ones(2, np.float32)}, {"round": 8, "records": 2}, block([8]))
    assert MethodFolder(tmp_path).load(LIKE)[2].values["loss"].tolist() == [[4], [8]]


def test_records_from_before_the_first_state_are_not_counted(tmp_path):
    save_arrays(tmp_path / "records-000004.safetensors", {"loss": np.zeros((2, 1))}, {"rounds": [2, 4]})
    folder = MethodFolder(tmp_path)
    assert not folder.exists()
    folder.save({"w": np.zeros(2, np.float32)}, {"round": 6, "records": 3}, block([2, 4, 6]))
    assert MethodFolder(tmp_path).load(LIKE)[2].values["loss"].tolist() == [[2], [4], [6]]


def test_reading_changes_nothing(tmp_path):
    """An export beside a run that has just written records must not remove them."""
    folder = two(tmp_path)
    save_arrays(tmp_path / "records-000009.safetensors", {"loss": np.zeros((1, 1))}, {"rounds": [9]})
    before = sorted(p.name for p in tmp_path.iterdir())
    folder.load(LIKE)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_personal_states_off_the_device_are_checked(tmp_path):
    like = {"w": jax.ShapeDtypeStruct((3,), np.float32)}
    store = Store(like, 5)
    store.put(np.array([1, 4]), {"w": np.ones((2, 3), np.float32)})
    store.dump(tmp_path / "clients")
    back = Store(like, 5)
    back.restore(tmp_path / "clients")
    assert back.take(np.array([0, 4]))["w"].tolist() == [[0, 0, 0], [1, 1, 1]]
    flip(tmp_path / "clients" / "0.npy")
    with pytest.raises(CgpflError, match=r"0\.npy is damaged"):
        Store(like, 5).restore(tmp_path / "clients")


def test_files_that_changed_places_are_noticed(tmp_path):
    """Their checksums are right, and they are not what they stand for."""
    folder = two(tmp_path)
    records = tmp_path / "records-000004.safetensors", tmp_path / "records-000008.safetensors"
    contents = [file.read_bytes() for file in records]
    for file, content in zip(records, reversed(contents), strict=True):
        file.write_bytes(content)
    with pytest.raises(CgpflError, match="is another file: its records are not of this method and round"):
        folder.load(LIKE)
    for file, content in zip(records, contents, strict=True):
        file.write_bytes(content)
    (tmp_path / "state.safetensors").write_bytes(contents[0])
    assert MethodFolder(tmp_path).load(LIKE)[1]["round"] == 4  # the one before
    (tmp_path / "before.safetensors").write_bytes(contents[0])
    with pytest.raises(CgpflError, match="is another file: it says no round; delete the folder"):
        MethodFolder(tmp_path).load(LIKE)
    other = two(tmp_path / "other")
    (tmp_path / "other" / "records-000004.safetensors").write_bytes(contents[0])
    with pytest.raises(CgpflError, match="not of this method"):
        other.load(LIKE)


@pytest.mark.parametrize("name", ["state", "before", "records-000004", "records-000008"])
def test_a_folder_in_the_place_of_a_checkpoint_is_one_line(tmp_path, name):
    """Refused before anything is run: the next state could not be written there."""
    two(tmp_path)
    (tmp_path / f"{name}.safetensors").unlink()
    (tmp_path / f"{name}.safetensors").mkdir()
    with pytest.raises(CgpflError, match=rf"^checkpoint .*{name}\.safetensors: is a folder; must be a file or nothing"):
        MethodFolder(tmp_path).load(LIKE)


def test_killed_after_the_state_before_was_kept(tmp_path):
    """Both names were of one file then, and the third, by which the next was to be kept, stayed."""
    folder = two(tmp_path)
    (tmp_path / "before.safetensors").unlink()
    (tmp_path / "before.safetensors").hardlink_to(tmp_path / "state.safetensors")
    folder.save({"w": np.zeros(2, np.float32)}, {"round": 10, "records": 5}, block([10]))
    assert not list(tmp_path.glob(".*"))
    assert MethodFolder(tmp_path).facts()["round"] == 10
    assert load_arrays(tmp_path / "before.safetensors")[1]["round"] == 8


def test_runs_of_models_before_they_could_recompute_are_the_same_runs(tmp_path):
    """Checkpoints and comparisons of resnet and transformer that say nothing of it."""
    for name, shape in (("resnet", (8, 8)), ("transformer", (6, 2))):
        now, again = (
            fingerprint(FedAvg(), as_model(name, shape, 3, recompute=recompute), Settings())
            for recompute in (False, True)
        )
        before = {key: value for key, value in now.items() if key != "model.recompute"}
        for check in (check_same, check_made_with):
            check(tmp_path, before, now)
            check(tmp_path, now, before)
            with pytest.raises(CgpflError, match=r"was run with model.recompute = False, now True"):
                check(tmp_path, before, again)
