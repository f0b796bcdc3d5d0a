"""Clients of very different sizes: evaluated without gaps, and as if each were alone."""

import jax
import numpy as np
import pytest

from cgpfl.algorithms import get_method
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from cgpfl.engine.blocks import is_ragged
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.simulation import simulate
from cgpfl.engine.stream import Streamed
from cgpfl.engine.together import Run, simulate_together
from cgpfl.models import as_model

SIZES = (4, 300, 40, 9, 130, 70, 5)
WHAT = {"rounds": 2, "eval_every": 1, "metrics": ["macro-f1"]}


def federation(sizes=SIZES, seed=0):
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(owner), 5)).astype(np.float32)
    y = (x[:, 0] + 0.3 * owner > 0.5).astype(int) + (x[:, 1] > 0.4)
    return FederatedData.from_arrays(x, y, owner, classes=3, validation=0.2)


DATA = federation()
MODEL = as_model("mlr", DATA.shape, 3)


def records(method, **more):
    return simulate(get_method(method), DATA, MODEL, **WHAT, **more)[1]


def same(found, wanted, names=None, tolerance=1e-5):
    for name in names or wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=tolerance, atol=tolerance, err_msg=name)


def test_ragged_is_what_would_mostly_wait():
    assert is_ragged(DATA)
    assert not is_ragged(federation((100, 100, 110)))
    assert not is_ragged(federation((5, 9, 30, 12)))  # one chunk each
    assert is_ragged(federation((100, 100)), DATA)


@pytest.mark.parametrize("method", ["fedavg", "fedavg-ft"])  # one model for all; one for each
def test_every_record_is_what_the_loop_over_clients_finds(method):
    found = records(method)
    wanted = simulate_loop(get_method(method), DATA, MODEL, **WHAT)[-1]
    assert {"correct", "train_loss", "validation_correct", "shared_loss", "macro-f1"} <= set(found)
    same(found, wanted, [name for name in found if name in wanted])
    np.testing.assert_array_equal(found["correct"], wanted["correct"])


@pytest.mark.parametrize("method", ["fedavg-ft"])
def test_a_record_is_bit_for_bit_what_it_is_with_gaps(method):
    found = []
    for ragged in (True, False):
        engine = Simulation(get_method(method), DATA, MODEL, **WHAT)
        assert engine.static.ragged
        engine.static = engine.static._replace(ragged=ragged)
        found.append(engine.advance(engine.start(), 0, 2)[1])
    same(*found, tolerance=0)


def test_blocks_streams_and_runs_together_agree():
    wanted = records("fedavg-ft")
    same(records("fedavg-ft", clients_per_block=3), wanted)  # the last block is smaller
    streamed = Streamed(get_method("fedavg-ft"), DATA, MODEL, **WHAT)
    same(streamed.advance(streamed.start(), 0, 2)[1], wanted, [n for n in wanted if n != "answers"])
    other = federation(SIZES[::-1], seed=1)
    runs = [Run(get_method("fedavg-ft"), data, seed) for seed, data in ((0, DATA), (5, other))]
    for own, data, seed in zip(simulate_together(runs, MODEL, **WHAT), (DATA, other), (0, 5), strict=True):
        alone = simulate(get_method("fedavg-ft"), data, MODEL, **WHAT, seed=seed)[1]
        same(own[1], alone)


@pytest.mark.skipif(jax.device_count() < 2, reason="one device")
def test_devices_that_share_the_clients_agree():
    same(records("fedavg-ft", devices=2), records("fedavg-ft"))
