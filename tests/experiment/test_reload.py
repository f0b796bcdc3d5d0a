"""Finished runs opened again from their folders."""

import json
import shutil

import jax
import numpy as np
import pytest

from cgpfl.errors import CgpflError
from cgpfl.experiment import run, run_experiment
from cgpfl.experiment.config import from_dict
from cgpfl.experiment.reload import load_published, load_result, published
from cgpfl.files import SUMS


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run on a file of one's own, and the file."""
    folder, rng = tmp_path_factory.mktemp("opened"), np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    np.savez(folder / "mine.npz", x=(rng.normal(size=(120, 4)) + y[:, None]).astype(np.float32), y=y)
    values = {
        "rounds": 3,
        "data": {"source": str(folder / "mine.npz"), "split": "iid", "clients": 4},
        "method": [
            {"name": "local", "batch_size": 0},
            {"name": "fedavg"},
            {"name": "fedavg", "label": "wild", "rate": 1e30},
        ],
    }
    return run_experiment(from_dict(values, "test"), folder / "run"), folder / "mine.npz"


def test_a_result_comes_back(made):
    done, _ = made
    for label in ("local", "fedavg"):
        now, kept = done.result(label), next(r for r in done.results if r.label == label)
        was = run(now.method, now.data, now.model, rounds=3)  # once more, in memory
        assert (now.rounds, now.accuracy, now.data.digest) == (3, was.accuracy, kept.data.digest)
        assert now.accuracy == kept.summary["accuracy"]["pooled"]
        jax.tree.map(np.testing.assert_array_equal, now.personal_model(2).params, was.personal_model(2).params)


def test_the_servers_side_needs_no_samples(made, tmp_path):
    done, file = made
    elsewhere = shutil.copytree(done.folder, tmp_path / "run")
    moved = file.rename(file.with_suffix(".moved"))
    try:
        known = load_published(elsewhere, "fedavg")
        with pytest.raises(CgpflError, match=r"mine.npz: does not exist"):
            load_result(elsewhere, "fedavg")
    finally:
        moved.rename(file)
    wanted = published(done.result("fedavg"))
    jax.tree.map(np.testing.assert_array_equal, known.server, wanted.server)
    jax.tree.map(np.testing.assert_array_equal, known.task.initial, wanted.task.initial)
    assert known.data == wanted.data | {"source": known.data["source"]}
    assert (known.rounds, known.seed, known.model) == (3, 0, wanted.model)


def test_a_summary_from_before_scales_were_noted(made, tmp_path):
    folder = shutil.copytree(made[0].folder, tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    del summary["data"]["scale"]
    (folder / SUMS).unlink(missing_ok=True)  # changed on purpose
    (folder / "summary.json").write_text(json.dumps(summary))
    assert load_published(folder, "fedavg").data["scale"] == 1.0


def test_the_most_accurate_is_the_default(made, tmp_path):
    folder = shutil.copytree(made[0].folder, tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    for best in ("local", "fedavg"):
        for label in ("local", "fedavg"):
            summary["methods"][label]["accuracy"]["pooled"] = 0.9 if label == best else 0.5
        (folder / SUMS).unlink(missing_ok=True)  # changed on purpose
        (folder / "summary.json").write_text(json.dumps(summary))
        assert load_result(folder).label == best


def test_a_run_that_has_no_model(made, tmp_path, digits):
    folder = made[0].folder
    with pytest.raises(CgpflError, match="wild diverged in round 1; it has no model to use"):
        load_result(folder, "wild")
    with pytest.raises(CgpflError, match="wild diverged in round 1; it has no model to use"):
        load_published(folder, "wild")
    with pytest.raises(CgpflError, match="no method 'fedprox'; it has local, fedavg, wild"):
        load_published(folder, "fedprox")
    with pytest.raises(CgpflError, match="nowhere: no such folder"):
        load_published(tmp_path / "nowhere")
    (tmp_path / "python").mkdir()
    with pytest.raises(CgpflError, match=r"has no config.toml; is it a run folder of an earlier version"):
        load_result(tmp_path / "python")
    (tmp_path / "comparison").mkdir()
    (tmp_path / "comparison" / "config.toml").write_text("[compare]\nseeds = 3\n")
    with pytest.raises(CgpflError, match="is a comparison, which keeps no models"):
        load_result(tmp_path / "comparison")


def test_a_run_that_is_not_finished_or_changed(made, tmp_path):
    folder = shutil.copytree(made[0].folder, tmp_path / "run")
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace("rounds = 3", "rounds = 9", 1))
    with pytest.raises(CgpflError, match=r"fedavg is at round 3 of 9; finish it with: cgpfl resume"):
        load_published(folder, "fedavg")
    (folder / "config.toml").write_text(config.replace("l2 = 0.001", "l2 = 0.5", 1))
    for load in (load_published, load_result):
        with pytest.raises(CgpflError, match=r"was run with model.l2 = 0.001, now 0.5"):
            load(folder, "fedavg")
    (folder / "config.toml").write_text(config.replace("test = 0.25", "test = 0.5", 1))
    with pytest.raises(CgpflError, match="the data or the split has changed"):
        load_result(folder, "fedavg")
    (folder / "config.toml").write_text(config)
    shutil.rmtree(folder / "methods" / "fedavg")
    with pytest.raises(CgpflError, match=r"fedavg is at round 0 of 3"):
        load_result(folder, "fedavg")


def test_flipped_bits_are_not_taken_for_a_model(made, tmp_path):
    folder = shutil.copytree(made[0].folder, tmp_path / "run")
    state = folder / "methods" / "fedavg" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-9] ^= 0x40  # an exponent
    state.write_bytes(content)
    for load in (load_published, load_result):
        with pytest.raises(CgpflError, match=r"checksum is another; go on from the one before it by: cgpfl resume"):
            load(folder, "fedavg")
    assert load_published(folder, "local").rounds == 3
