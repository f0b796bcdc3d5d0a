"""The house is open: parts of one's own, each in one file outside the package, through every door."""

import json
import signal
import time
import tomllib

import pandas as pd
import pytest

from helpers import cgpfl, start

DATA = '''
import numpy as np


def waves():
    """Noise around one of three waves."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 240)
    return np.sin(np.arange(6) * (1 + y[:, None])).astype(np.float32) + rng.normal(size=(240, 6)).astype(np.float32), y
'''
SPLIT = """
import numpy as np


def in_turn(labels, clients, seed):
    return [np.arange(i, len(labels), clients) for i in range(clients)]
"""
MODEL = """
import flax.linen as nn


class Net(nn.Module):
    wide: int = 4

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.tanh(nn.Dense(self.wide)(x)))
"""
METRIC = """
def confidence(logits, labels):
    return logits.max(axis=-1)
"""
SAMPLER = """
import jax.numpy as jnp
from cgpfl import algorithm
from cgpfl.rounds import Sampler


@algorithm
class EvenOdd(Sampler):
    name = "even-odd"

    def choose(self, key, t, known, size):
        return (jnp.arange(size) * 2 + t) % known.ids.shape[0]
"""
MEAN = """
import jax
import jax.numpy as jnp
from cgpfl import algorithm
from cgpfl.rounds import Mean
from cgpfl.tree import where


@algorithm
class Median(Mean):
    name = "median"

    def mean(self, stacked, weights, fallback):
        here = weights > 0

        def middle(v):
            return jnp.nanmedian(jnp.where(here.reshape(-1, *[1] * (v.ndim - 1)), v, jnp.nan), axis=0)

        return where(here.any(), jax.tree.map(middle, stacked), fallback)
"""
FILES = {"data": DATA, "split": SPLIT, "model": MODEL, "metric": METRIC, "sampler": SAMPLER, "mean": MEAN}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for name, text in FILES.items():
        (folder / f"house_{name}.py").write_text(text)
    return folder


@pytest.mark.slow
def test_every_part_of_ones_own_in_one_run(parts):
    """A data set, a split, a model, a metric, a sampler, a robust mean, clipping and noise: a file each, or none."""
    flags = ["--data", "house_data:waves", "--split", "house_split:in_turn", "--model", "house_model:Net"]
    flags += ["--metrics", "accuracy,house_metric:confidence", "--sampler", "house_sampler:EvenOdd"]
    flags += ["--mean", "house_mean:Median", "--set", "outgoing.clip.norm=1", "--set", "outgoing.noise.scale=0.01"]
    flags += ["--set", "model.wide=5", "--clients", 6, "--participation", 0.5, "--rounds", 4, "--method", "fedavg"]
    cgpfl("run", *flags, "--out", "run", cwd=parts)
    config = tomllib.loads((parts / "run" / "config.toml").read_text())
    assert config["model"] == {"name": "house_model:Net", "wide": 5}
    assert config["sampler"] == {"name": "house_sampler:EvenOdd"}
    assert [one["name"] for one in config["outgoing"]] == ["clip", "noise"]
    summary = json.loads((parts / "run" / "summary.json").read_text())
    assert summary["methods"]["fedavg"]["metrics"]
    again = cgpfl("run", "run/config.toml", "--out", "again", cwd=parts)
    assert "confidence" in again.stdout
    histories = [pd.read_csv(parts / name / "history.csv") for name in ("run", "again")]
    pd.testing.assert_frame_equal(*histories)
    cgpfl("report", "run", cwd=parts)
    cgpfl("export", "run", "--client", 0, "--out", "exported", cwd=parts)
    assert list((parts / "exported").glob("*.safetensors"))


@pytest.mark.slow
def test_a_method_of_ones_own_through_every_door(tmp_path):
    """Written by ``cgpfl new``, compared, tuned, stopped in its middle and resumed, reported, exported."""
    cgpfl("new", "method", "MyMethod", cwd=tmp_path)
    small = ["--clients", 8, "--set", "data.contexts=2"]
    mine = "my_method:MyMethod"
    cgpfl("compare", "--methods", mine, *small, "--rounds", 3, "--seeds", 2, "--out", "compared", cwd=tmp_path)
    assert "my-method" in set(pd.read_csv(tmp_path / "compared" / "table.csv")["method"])
    flags = ["--tune", "--budget", 2, "--rounds", 3, "--seeds", 2, "--out", "tuned"]
    cgpfl("compare", "--methods", mine, *small, *flags, cwd=tmp_path)
    tuned = json.loads((tmp_path / "tuned" / "summary.json").read_text())
    assert len(tuned["methods"]["my-method"]["tried"]) == 2

    flags = ["--rounds", 1500, "--seeds", 2, "--set", "eval_every=500", "--set", "checkpoint_seconds=0"]
    process = start("compare", "--methods", mine, *map(str, small), *map(str, flags), "--out", "stopped", cwd=tmp_path)
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("stopped/methods/my-method.part/*/state.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert not (tmp_path / "stopped" / "methods" / "my-method.safetensors").exists()
    cgpfl("resume", "stopped", cwd=tmp_path)
    assert "my-method" in set(pd.read_csv(tmp_path / "stopped" / "table.csv")["method"])
    cgpfl("report", "stopped", cwd=tmp_path)

    cgpfl("run", "--method", mine, *small, "--rounds", 3, "--out", "run", cwd=tmp_path)
    cgpfl("resume", "run", cwd=tmp_path)
    cgpfl("export", "run", "--client", 0, "--out", "exported", cwd=tmp_path)
    assert list((tmp_path / "exported").glob("*.safetensors"))


@pytest.mark.slow
def test_a_method_of_ones_own_on_real_nodes(tmp_path):
    """Its file travels with the app; so do the rules of a round. The same numbers as in simulation."""
    pytest.importorskip("flwr")
    cgpfl("new", "method", "MyMethod", cwd=tmp_path)
    flags = ["--nodes", "3", "--rounds", "2", "--method", "my_method:MyMethod", "--sampler", "by-size"]
    flags += ["--participation", "0.67", "--set", "outgoing.clip.norm=1", "--set", "outgoing.quantise.bits=8"]
    process = start("deploy", "up", *flags, "--check", "--out", "deployed", cwd=tmp_path)
    said, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    assert "every client's accuracy in every round equal, the server's parameters to 0 " in " ".join(said.split())
