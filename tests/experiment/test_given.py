"""What is given in Python is remembered by its run folder: it goes on, and is used, from the command line."""

import dataclasses
import signal
import tomllib

import flax.linen as nn
import jax
import numpy as np
import pytest

import cgpfl
from cgpfl.data import FederatedData
from cgpfl.errors import CgpflError
from cgpfl.experiment import given, resume_experiment
from cgpfl.experiment.compare import resume_comparison
from cgpfl.experiment.reload import load_published, load_result

RUN = {"rounds": 3, "eval_every": 1}


class Net(nn.Module):
    wide: int = 5

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(self.wide)(x.reshape(len(x), -1))))


@pytest.fixture(scope="module")
def own():
    """A federation of arrays."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    x = (rng.normal(size=(90, 4)) + y[:, None]).astype(np.float32)
    return FederatedData.from_arrays(x, y, np.arange(90) % 3, context=[0, 1, 0], validation=0.2)


def stop_after(rounds):
    def tell(progress):
        if progress.round >= rounds:
            signal.raise_signal(signal.SIGINT)

    return tell


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_federation_comes_back_from_its_file(own, tmp_path):
    own.save(tmp_path / "f.safetensors")
    again = FederatedData.load(tmp_path / "f.safetensors")
    assert again.digest == own.digest
    assert again.summary() == own.summary()
    with pytest.raises(CgpflError, match="does not exist"):
        FederatedData.load(tmp_path / "g.safetensors")


def test_a_federation_knows_how_it_was_made():
    data = cgpfl.make_data("digits", "iid", clients=4, share=0.2, validation=0.2, seed=3)
    assert cgpfl.make_data(data.recipe["source"], data.recipe["split"], **{
        k: v for k, v in data.recipe.items() if k not in ("source", "split")
    }).digest == data.digest  # fmt: skip
    assert dataclasses.replace(data, y=data.y.copy()).recipe is None
    assert data.permute([1, 0, 2, 3]).recipe is None


def test_objects_and_arrays_go_on_from_the_command_line(own, tmp_path):
    """Stopped in Python, resumed from the folder: the numbers of a run never stopped; then published and reloaded."""
    method, model = cgpfl.Ditto(prox=0.3, batch_size=0), Net(wide=4)
    whole = cgpfl.run(method, own, model, **RUN)
    with pytest.raises(KeyboardInterrupt):
        cgpfl.run(method, own, model, out=tmp_path / "run", on_progress=stop_after(1), **RUN)
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["model"] == {"name": "test_given:Net", "wide": 4}
    assert (config["method"][0]["name"], config["method"][0]["prox"]) == ("ditto", 0.3)
    moved = (tmp_path / "run").rename(tmp_path / "moved")  # samples are found beside config.toml
    done = resume_experiment(moved)
    assert done.results[0].summary["accuracy"] == whole.scores
    same(load_result(moved).personal_model(1).params, whole.personal_model(1).params)
    assert load_published(moved).method == whole.method


def test_made_data_is_made_again(tmp_path):
    data = cgpfl.make_data("digits", "iid", clients=4, share=0.2, seed=3)
    result = cgpfl.run("local", data, out=tmp_path / "run", rounds=1)
    section = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["data"]
    assert (section["source"], section["share"], section["seed"]) == ("digits", 0.2, 3)
    assert not list((tmp_path / "run").glob("samples*"))
    assert load_result(tmp_path / "run").accuracy == result.accuracy
    by_name = cgpfl.run("local", section, rounds=1)
    assert by_name.accuracy == result.accuracy


def test_a_result_that_is_saved_later_is_as_complete(own, tmp_path):
    result = cgpfl.run("fedavg", own, rounds=2)
    result.save(tmp_path / "run")
    assert load_result(tmp_path / "run").accuracy == result.accuracy


def test_what_cannot_be_imported_is_said(own, tmp_path, monkeypatch):
    @cgpfl.algorithm
    class Mine(cgpfl.FedAvg):
        """Nobody else's."""

    cgpfl.run(Mine(), own, out=tmp_path / "a", rounds=1, label="mine")
    with pytest.raises(
        CgpflError, match=r"method 1: Mine: was given in Python: its class .*Mine cannot be imported; go on"
    ):
        resume_experiment(tmp_path / "a")
    assert cgpfl.run(Mine(), own, out=tmp_path / "a", rounds=1, label="mine", resume=True).rounds == 1
    pair = (lambda key: {"w": np.zeros((4, 3), np.float32)}, lambda p, x: x @ p["w"])
    cgpfl.run("local", own, pair, out=tmp_path / "b", rounds=1)
    with pytest.raises(CgpflError, match="model: tuple: was given in Python: tuple cannot be imported"):
        resume_experiment(tmp_path / "b")
    monkeypatch.setattr(given, "MOST_BYTES", 100)
    cgpfl.run("local", own, out=tmp_path / "c", rounds=1)
    with pytest.raises(CgpflError, match=r"data: samples given in Python take .* kept in a run folder; go on"):
        resume_experiment(tmp_path / "c")
    with pytest.raises(CgpflError, match="data: int is no FederatedData"):
        cgpfl.run("local", 3)


@pytest.mark.slow
def test_a_comparison_of_objects_goes_on_inside_a_method(own, tmp_path):
    """One federation a seed, given by a function; stopped in the middle of a method, resumed from the folder."""

    def split(seed):
        return FederatedData.from_arrays(
            own.x, own.y, np.random.default_rng(seed).permutation(own.y.size) % 3, seed=seed
        )

    methods = [cgpfl.Ditto(prox=0.3), {"name": "fedavg", "label": "slow", "rate": 0.01}]
    whole = cgpfl.compare(methods, split, seeds=2, out=tmp_path / "whole", **RUN)
    seen, heard = [], []

    def tell(progress):
        seen.append(progress)
        if progress.label == "ditto":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cgpfl.compare(methods, [split(0), split(1)], seeds=2, out=tmp_path / "c", on_progress=tell, **RUN)
    assert list((tmp_path / "c" / "methods").glob("ditto.part/*/state.safetensors"))
    seen.clear()
    again = resume_comparison(tmp_path / "c", seen.append, callbacks=[heard.append])
    assert {p.label for p in seen} == {"ditto", "slow"}
    assert next(p for p in seen if p.label == "ditto").round > 1
    assert again.table.drop(columns="seconds").equals(whole.table.drop(columns="seconds"))
    assert not list((tmp_path / "c").glob("methods/*.part"))
    ended = {e.method: e.values["accuracy"]["pooled"] for e in heard if e.kind == "ended"}
    assert ended["slow"] == pytest.approx(again.runs["slow"].accuracy().mean())
    assert {e.round for e in heard if e.kind == "evaluated" and e.method == "slow"} == {1, 2, 3}


@pytest.mark.slow
def test_a_comparison_streams(own, tmp_path):
    """Personal states on disk, a seed after the other: the numbers of all at once."""
    together = cgpfl.compare(["local"], own, seeds=2, out=tmp_path / "a", participation=0.7, **RUN)
    streamed = cgpfl.compare(["local"], own, seeds=2, out=tmp_path / "b", participation=0.7, store="disk", **RUN)
    for label, runs in together.runs.items():
        np.testing.assert_array_equal(runs.accuracy(), streamed.runs[label].accuracy())
    with pytest.raises(CgpflError, match="3 federations for 2 seeds"):
        cgpfl.compare(["ditto"], [own] * 3, seeds=2, out=tmp_path / "c")
