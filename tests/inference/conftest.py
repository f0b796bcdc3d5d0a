"""A small run on part of the digits, and clients made of the rest: samples it never saw."""

import numpy as np
import pytest

from cgpfl.data import load
from cgpfl.data.splits import sample
from cgpfl.experiment import run_experiment
from cgpfl.experiment.config import from_dict

METHODS = [
    {"name": "local"},
    {"name": "fedavg"},
    {"name": "ifca", "contexts": 2},
    {"name": "cgpfl", "contexts": 2, "warmup": 2},
]
METHODS = [{**method, "batch_size": 0} for method in METHODS]  # programs without draws compile in half the time


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A finished run of local, fedavg, ifca and cgpfl (2 contexts): its folder and its results by label."""
    federation = {"clients": 8, "contexts": 2, "share": 0.5}
    experiment = from_dict({"rounds": 40, "eval_every": 40, "data": federation, "method": METHODS}, "test")
    done = run_experiment(experiment, tmp_path_factory.mktemp("inference") / "run")
    return done.folder, {r.label: done.result(r.label) for r in done.results}


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    """``stranger(k, n)``: a file of n unseen samples, turned as the clients of true context k of 2 are."""
    source, folder = load("digits"), tmp_path_factory.mktemp("strangers")
    unseen = np.setdiff1d(np.arange(len(source.y)), sample(source.y, 0.5, 0))

    def make(k, n=60, seed=0):
        rows = np.random.default_rng([seed, k]).permutation(unseen)[:n]
        path = folder / f"{k}-{n}-{seed}.npz"
        np.savez(path, x=np.rot90(source.x[rows], 2 * k, axes=(1, 2)), y=source.y[rows])
        return path

    return make
