"""Clients shared by several devices: the same result as on one."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import get_method
from cgpfl.engine import Simulation
from cgpfl.engine import round as round_
from cgpfl.engine.mesh import filled, gathered, put, row_of_devices, split
from cgpfl.engine.round import advance
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.run import Settings, checked, run_method
from cgpfl.models import as_model
from cgpfl.tree import plain

pytestmark = pytest.mark.skipif(len(jax.devices()) < 3, reason="needs three devices")
RUN = {"rounds": 5, "eval_every": 2}


def through(simulation):
    """A run from start to end → (state, records)."""
    state, t, blocks = simulation.start(), 0, []
    while t < simulation.rounds:
        stop = simulation.furthest(t)
        state, records, _ = simulation.advance(state, t, stop)
        blocks.append(records)
        t = stop
    return simulation.whole(state), {k: np.concatenate([b[k] for b in blocks]) for k in blocks[0]}


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


# Nobody has a copy on two devices: one method's test. pfedme: test_a_state_is_saved_without_copies_and_placed_again.
@pytest.mark.parametrize(
    ("method", "devices"),
    [
        pytest.param(method, devices, marks=pytest.mark.slow if devices == 3 or method == "cgpfl" else pytest.mark.long)
        for method in ("cgpfl", "ifca", "cgpfl-heur", "l2sgd")
        for devices in (2, 3)
    ],
)
def test_a_run_on_several_devices_is_the_run_on_one(digits, mlr, method, devices):
    """Eight clients on three devices: nine places, one of them a copy that must not count."""
    method = get_method(method)
    one, records = through(Simulation(method, digits, mlr, **RUN))
    many, others = through(Simulation(method, digits, mlr, devices=devices, **RUN))
    same(one, many)
    assert records.keys() == others.keys()
    for name, values in records.items():
        assert values.shape == others[name].shape
        np.testing.assert_allclose(values, others[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_some_clients_of_a_round_on_several_devices(digits, mlr):
    """A cohort of five on three devices; some do not answer."""
    settings = {**RUN, "participation": 0.6, "dropout": 0.3}
    method = get_method("cgpfl", {"warmup": 0, "contexts": 2})
    one, records = through(Simulation(method, digits, mlr, **settings))
    many, others = through(Simulation(method, digits, mlr, devices=3, **settings))
    same(one, many)
    np.testing.assert_array_equal(records["context"], others["context"])
    np.testing.assert_array_equal(records["answers"], others["answers"])


def test_each_device_has_its_own_clients_alone(digits, mlr):
    simulation = Simulation(get_method("pfedme", {"batch_size": 0}), digits, mlr, devices=3, **RUN)
    for state in (simulation.start(), simulation.advance(simulation.start(), 0, 2)[0]):
        leaf = jax.tree.leaves(state.clients)[0]
        assert leaf.shape[0] == 9
        assert [s.data.shape[0] for s in leaf.addressable_shards] == [3, 3, 3]
        assert jax.tree.leaves(state.server)[0].is_fully_replicated


def test_a_round_is_one_message(digits, mlr):
    """Of k-means' many small steps none waits for another device: what they need is gathered before, all at once."""
    simulation = Simulation(get_method("cgpfl", {"contexts": 2, "batch_size": 0}), digits, mlr, devices=3, **RUN)
    parts = (simulation.method, simulation.task, simulation.arrays, simulation.keys, simulation.start())
    schedule = tuple(np.int32(v) for v in (0, 1, 9, 9))
    text = advance.lower(*parts, schedule, simulation.dropout, simulation.static).compile().as_text()
    called = re.compile(r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(-start)?\(")
    messages = [line for line in text.splitlines() if called.search(line) and "jit(advance)/while" in line]
    evaluation = [line for line in messages if "reduce_and" in line]  # whether everybody's loss is finite
    assert len(evaluation) == 1
    (uploads,) = [line for line in messages if line not in evaluation]
    assert f"u32[9,{64 * 10 + 10 + 3}]" in uploads  # model, id, weight, and whether all of it is finite


def test_leaves_of_any_kind_are_gathered():
    """All that are of one width together."""
    mesh = row_of_devices(3)
    tree = {
        "a": jnp.arange(12, dtype=jnp.float32).reshape(6, 2) - np.float32(0.1),
        "b": jnp.arange(6, dtype=jnp.bfloat16),
        "c": jnp.arange(6) % 2 == 0,
        "d": jnp.full((6, 1, 2), -3, jnp.int8),
        "e": jax.random.split(jax.random.key(0), 6),
        "f": jnp.zeros((6, 0)),
    }
    whole = jax.jit(lambda t: gathered(t, mesh))(put(tree, split(mesh)))
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(whole))
    for a, b in zip(jax.tree.leaves(plain(tree)), jax.tree.leaves(plain(whole)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert gathered(tree, None) is tree


def test_a_state_is_saved_without_copies_and_placed_again(digits, mlr):
    simulation = Simulation(get_method("pfedme", {"batch_size": 0}), digits, mlr, devices=3, **RUN)
    state, _, _ = simulation.advance(simulation.start(), 0, 2)
    whole = simulation.whole(state)
    assert jax.tree.leaves(whole.clients)[0].shape[0] == 8
    assert jax.tree.map(lambda a, b: a.shape == b.shape, whole, simulation.shapes())
    again, _, _ = simulation.advance(simulation.placed(whole), 2, 5)
    straight, _ = through(Simulation(get_method("pfedme", {"batch_size": 0}), digits, mlr, **RUN))
    same(simulation.whole(again), straight)


@pytest.mark.slow
def test_a_run_goes_on_with_other_devices(digits, tmp_path):
    whole = cgpfl.run("cgpfl", digits, rounds=12, eval_every=4)
    method = checked(get_method("cgpfl"), digits, Settings(rounds=12))
    model, folder = as_model("mlr", digits.shape, digits.classes), MethodFolder(tmp_path / "methods" / "cgpfl")
    first = Settings(rounds=12, eval_every=4, devices=3)
    with pytest.raises(KeyboardInterrupt):
        run_method(method, digits, model, first, label="cgpfl", folder=folder, stop=lambda: True)
    second = Settings(rounds=12, eval_every=4, devices=2)
    result = run_method(method, digits, model, second, label="cgpfl", folder=folder)
    assert result.rounds == 12
    assert result.accuracy == pytest.approx(whole.accuracy)
    np.testing.assert_array_equal(result.contexts.assignment, whole.contexts.assignment)
    x = digits.x[:5]
    np.testing.assert_allclose(
        result.personal_model(7).logits(x), whole.personal_model(7).logits(x), rtol=1e-3, atol=1e-4
    )


def test_devices_that_are_not_there(digits, mlr, tmp_path):
    with pytest.raises(CgpflError, match=r"devices = 9: JAX finds 3; use 1\.\.3, or all"):
        cgpfl.run("fedavg", digits, devices=9, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(CgpflError, match=r"devices = 9: JAX finds 3; use 1\.\.3, or all"):
        Simulation(get_method("fedavg"), digits, mlr, devices=9, **RUN)
    assert row_of_devices(1) is None
    assert row_of_devices(0).size == len(jax.devices())


@pytest.mark.slow
def test_what_is_told_of_a_run_does_not_depend_on_where_it_was(digits):
    """Bytes, gradients, accuracies: on one device, on several, on the host."""

    def told(**place):
        result = cgpfl.run("pfedme", digits, rounds=3, participation=0.5, **place)
        summary = result.summary()
        assert summary.pop("seconds") > 0
        return summary

    assert told(devices=1) == told(devices=2) == told(store="host")


def test_places_fill_the_devices():
    row = row_of_devices(3)
    assert [filled(n, row) for n in (1, 3, 4, 9)] == [3, 3, 6, 9]
    assert filled(4, None) == 4


@pytest.mark.slow
def test_uploads_beyond_a_limit_stay_where_they_are(digits, mlr, monkeypatch):
    """Then the server's step is divided, too, with the same result."""
    method = get_method("fedavg")
    monkeypatch.setattr(round_, "GATHERED", 0)
    jax.clear_caches()  # the limit is no part of a program's key
    same(*(through(Simulation(method, digits, mlr, devices=n, **RUN))[0] for n in (1, 3)))
    jax.clear_caches()
