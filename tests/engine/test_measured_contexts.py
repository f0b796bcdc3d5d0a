"""CGPFL-Auto, whose server remembers most, has the same numbers in every engine; some are asked, some answer."""

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from cgpfl.algorithms import CGPFLAuto
from cgpfl.contexts import evidence
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, Streamed
from cgpfl.engine.together import Run, Together
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.records import Records
from cgpfl.models import as_model
from cgpfl.tree import plain

METHOD = CGPFLAuto(restarts=8, local_rounds=4, inner_steps=2, batch_size=8)
SETTINGS = {"rounds": 32, "eval_every": 4, "participation": 0.75, "dropout": 0.2}
CLIENTS = 8


@pytest.fixture(scope="module")
def data():
    """Two contexts that name three classes otherwise; 32 features, 99 parameters.

    Of about equal size: any six of them are one program of the engine that keeps samples on the host.
    """
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((3, 32))

    def samples(n, turned):
        y = rng.integers(0, 3, n)
        return (directions[y] + rng.standard_normal((n, 32))).astype(np.float32), (y + turned) % 3

    sizes = [24, 25, 26, 25, 26, 24, 26, 25]
    train = [samples(n, i % 2) for i, n in enumerate(sizes)]
    return FederatedData.from_clients(train, test=[samples(6, i % 2) for i in range(CLIENTS)], classes=3)


@pytest.fixture(scope="module")
def model(data):
    return as_model("mlr", data.shape, data.classes)


def ran(engine, data, model, seed=0, **more):
    simulation = engine(METHOD, data, model, **{**SETTINGS, "seed": seed, **more})
    state, records, _ = simulation.advance(simulation.start(), 0, SETTINGS["rounds"])
    return simulation, state, records


@pytest.fixture(scope="module")
def expected(data, model):
    """On one device, by seed."""
    return {seed: ran(Simulation, data, model, seed) for seed in (0, 1)}


def same(one, other):
    """States or records agree; server and clients are compared by their numbers."""
    for (path, a), (_, b) in zip(*map(jax.tree_util.tree_leaves_with_path, map(plain, (one, other))), strict=True):
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-3, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_contexts_are_found_and_looked_at_again(data, expected):
    """What the others are compared with: a warm-up, contexts, and at least one repair."""
    _, state, records = expected[0]
    assert int(state.server.settled) >= 2
    assert records["k"].tolist()[-1] == 2
    assert adjusted_rand_score(np.arange(CLIENTS) % 2, records["context"][-1]) == 1.0
    assert int(records["answers"][-1]) < SETTINGS["rounds"] * 6
    assert np.asarray(state.server.evidence.answers).sum() == records["answers"][-1]


@pytest.mark.slow
def test_streamed(data, model, expected):
    _, device, records = expected[0]
    _, stream, others = ran(Streamed, data, model)
    same(device.server, stream.server)
    known = stream.clients.known
    assert known.all()
    same(device.clients, jax.tree.unflatten(jax.tree.structure(device.clients), jax.tree.leaves(stream.clients.arrays)))
    assert records.keys() == others.keys()
    same(records, others)


@pytest.mark.slow
def test_several_seeds_in_one_program(data, model, expected):
    settings = {k: v for k, v in SETTINGS.items() if k != "seed"}
    together = Together([Run(METHOD, data, seed) for seed in (0, 1)], model, **settings)
    states, records, due = together.advance(together.start(), 0, SETTINGS["rounds"])
    for seed, (found, _) in enumerate(together.split(states, records, due)):
        same(expected[seed][1], together.one(states, seed))
        same(expected[seed][2], found)


@pytest.mark.slow
@pytest.mark.skipif(len(jax.devices()) < 2, reason="needs two devices")
def test_two_devices(data, model, expected):
    _, device, records = expected[0]
    simulation, state, others = ran(Simulation, data, model, devices=2)
    whole = simulation.whole(state)
    same(device.server, whole.server)
    same(device.clients, whole.clients)
    same(records, others)


@pytest.mark.parametrize("stop", [2, 24])
def test_a_run_goes_on_where_it_was(expected, tmp_path, stop):
    """In the middle of the warm-up and after it, bit for bit; the evidence is part of the state."""
    simulation, end, _ = expected[0]
    state, _, _ = simulation.advance(simulation.start(), 0, stop)
    assert (int(state.server.settled) > 0) == (stop > 10)
    folder = MethodFolder(tmp_path / "method")
    folder.save(state, {"round": stop, "records": 0}, Records())
    loaded, _, _ = folder.load(simulation.shapes())
    again, _, _ = simulation.advance(loaded, stop, SETTINGS["rounds"])
    for a, b in zip(jax.tree.leaves(plain(end)), jax.tree.leaves(plain(again)), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.slow
def test_a_sketch_of_the_evidence_finds_the_same_contexts(data, model, expected, monkeypatch):
    """64 buckets for 99 parameters, on the device and from the host."""
    monkeypatch.setattr(evidence, "EXACT", 1)
    jax.clear_caches()  # how much is kept is no part of a program's key
    try:
        _, device, records = ran(Simulation, data, model)
        _, stream, others = ran(Streamed, data, model)
    finally:
        jax.clear_caches()
    assert device.server.evidence.sums.shape == (6, CLIENTS, 64)
    np.testing.assert_array_equal(records["k"], expected[0][2]["k"])
    assert adjusted_rand_score(expected[0][2]["context"][-1], records["context"][-1]) == 1.0
    same(device.server, stream.server)
    same(records, others)
