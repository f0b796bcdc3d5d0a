"""Clients of very different sizes: evaluated without gaps, and as if each were alone."""

import jax
import numpy as np
import pytest

from cgpfl.algorithms import Task, get_method
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from cgpfl.engine.blocks import is_ragged
from cgpfl.engine.evaluate import score
from cgpfl.engine.problem import Part, on_device
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.simulation import simulate
from cgpfl.engine.stream import Streamed
from cgpfl.engine.together import Run, simulate_together
from cgpfl.metrics import METRICS
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


def named(method):
    """Steps on all samples: what is evaluated is tried here, not what is drawn."""
    return get_method(method, {"batch_size": 0})


def records(method, **more):
    return simulate(named(method), DATA, MODEL, **WHAT, **more)[1]


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
    wanted = simulate_loop(named(method), DATA, MODEL, **WHAT)[-1]
    assert {"correct", "train_loss", "validation_correct", "shared_loss", "macro-f1"} <= set(found)
    same(found, wanted, [name for name in found if name in wanted])
    np.testing.assert_array_equal(found["correct"], wanted["correct"])


@pytest.mark.parametrize("method", ["fedavg-ft"])
def test_a_record_is_bit_for_bit_what_it_is_with_gaps(method):
    found = []
    for ragged in (True, False):
        engine = Simulation(named(method), DATA, MODEL, **WHAT)
        assert engine.static.ragged
        engine.static = engine.static._replace(ragged=ragged)
        found.append(engine.advance(engine.start(), 0, 2)[1])
    same(*found, tolerance=0)


def test_blocks_streams_and_runs_together_agree():
    wanted = records("fedavg-ft")
    same(records("fedavg-ft", clients_per_block=3), wanted)  # the last block is smaller
    streamed = Streamed(named("fedavg-ft"), DATA, MODEL, **WHAT)
    same(streamed.advance(streamed.start(), 0, 2)[1], wanted, [n for n in wanted if n != "answers"])
    other = federation(SIZES[::-1], seed=1)
    runs = [Run(named("fedavg-ft"), data, seed) for seed, data in ((0, DATA), (5, other))]
    for own, data, seed in zip(simulate_together(runs, MODEL, **WHAT), (DATA, other), (0, 5), strict=True):
        alone = simulate(named("fedavg-ft"), data, MODEL, **WHAT, seed=seed)[1]
        same(own[1], alone)


@pytest.mark.skipif(jax.device_count() < 2, reason="one device")
def test_devices_that_share_the_clients_agree():
    same(records("fedavg-ft", devices=2), records("fedavg-ft"))


@pytest.mark.parametrize("places", [96, 70])  # whole chunks; one that is cut
def test_nobody_and_whole_chunks(places):
    """Clients without a sample, with exactly one, two and all chunks; alone, and as two runs with their own models."""
    counts = np.minimum([0, 32, 64, 0, 1, 33, places, 0], places).astype(np.int32)
    rng = np.random.default_rng(1)
    rows = np.where(np.arange(places) < counts[:, None], rng.integers(0, len(DATA.y), (8, places)), 0).astype(np.int32)
    arrays, part = on_device(DATA), Part(*jax.device_put((rows, counts)))
    models = jax.tree.map(lambda v: rng.normal(size=(2, 8, *v.shape)).astype(np.float32), MODEL.init(jax.random.key(0)))

    def total(ragged):
        def one(params, part):
            task = Task(initial=params, model=MODEL, clients=8)
            return score(task, params, arrays.samples(), part, [METRICS["macro-f1"]], ragged)

        def run(params):
            return jax.vmap(one)(params, part)

        return jax.jit(lambda m: (run(jax.tree.map(lambda v: v[0], m)), jax.vmap(run)(m)))(models)

    (alone, together), wanted = total(True), total(False)
    same(dict(enumerate(jax.tree.leaves((alone, together)))), dict(enumerate(jax.tree.leaves(wanted))), tolerance=1e-6)
    np.testing.assert_array_equal(np.isnan(alone[1]), counts == 0)  # the mean of nothing
    assert float(jax.tree.leaves(alone[2])[0][0].sum()) == 0.0
