"""Personal states on the host and a cohort on the device: the same numbers as with everything on the device."""

import jax
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import METHODS, PFedMe, get_method
from cgpfl.data import FederatedData, make_data
from cgpfl.engine import Simulation, Streamed, blocks, engine_for, placement
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.run import Settings, checked, run_method
from cgpfl.models import as_model
from helpers import points, quadratic

SOME = {"rounds": 6, "eval_every": 2, "participation": 0.5, "dropout": 0.2}


def both(method, data, model, **settings):
    """Final states and records of the two engines."""
    found = []
    for engine in (Simulation, Streamed):
        simulation = engine(method, data, model, **settings)
        found.append((simulation, *simulation.advance(simulation.start(), 0, settings["rounds"])))
    return found


def same_states(device, stream, atol=1e-6):
    """Clients that were ever asked have the same state."""
    known = stream.clients.known
    assert known.any()
    plain = jax.tree.map(np.asarray, device.clients)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(stream.clients.arrays), strict=True):
        np.testing.assert_allclose(a[known], b[known], rtol=1e-5, atol=atol)


@pytest.mark.parametrize(
    "name", ["fedavg", *(pytest.param(n, marks=pytest.mark.slow) for n in ("cgpfl", "cgpfl-heur"))]
)
def test_streamed_is_the_run_on_the_device(digits, mlr, name):
    method = get_method(name, {"warmup": 0} if name == "cgpfl" else {})
    (_, device, records, due), (_, stream, others, rounds) = both(method, digits, mlr, **SOME)
    assert due == rounds == [2, 4, 6]
    same_states(device, stream)
    assert records.keys() == others.keys()
    for key, values in records.items():
        assert values.shape == others[key].shape, key
        np.testing.assert_allclose(values, others[key], rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pfedme", "fedmd"])
def test_validation_and_public_samples_travel_along(mlr, name):
    data = make_data("digits", "rotation", clients=6, contexts=2, seed=0, validation=0.2, public=0.1)
    (_, device, records, _), (_, stream, others, _) = both(get_method(name), data, mlr, **SOME)
    same_states(device, stream)
    np.testing.assert_allclose(records["validation_correct"], others["validation_correct"], atol=1e-5)


@pytest.mark.slow
def test_more_clients_than_are_evaluated_at_once(digits, mlr, monkeypatch):
    """Three at a time: two full blocks, and one with a copy that is dropped."""
    from cgpfl.engine import stream as room

    (_, _, records, _), _ = both(PFedMe(), digits, mlr, rounds=2, eval_every=2)
    monkeypatch.setattr(room, "EVALUATED", 3)
    simulation = Streamed(PFedMe(), digits, mlr, rounds=2, eval_every=2)
    _, others, _ = simulation.advance(simulation.start(), 0, 2)
    for key, values in records.items():
        np.testing.assert_allclose(values, others[key], rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.slow
def test_who_was_never_asked_has_a_first_state_and_a_model(digits, mlr):
    settings = {"rounds": 1, "eval_every": 1, "participation": 0.25}
    (one, device, _, _), (other, stream, _, _) = both(PFedMe(), digits, mlr, **settings)
    assert stream.clients.known.sum() == 2
    for i in (int(np.flatnonzero(~stream.clients.known)[0]), int(np.flatnonzero(stream.clients.known)[0])):
        for a, b in zip(
            jax.tree.leaves(one.personal(device, i)), jax.tree.leaves(other.personal(stream, i)), strict=True
        ):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


def test_only_the_cohort_is_on_the_device(digits, mlr):
    simulation = Streamed(PFedMe(), digits, mlr, rounds=4, participation=0.25)
    at = np.asarray(simulation._drawn((), 0))
    assert len(at) == 2
    arrays = simulation._part(at)
    assert 2 * digits.train.counts.max() >= len(arrays.x) * 7 / 8
    for i, (rows, count) in enumerate(zip(arrays.train.rows, arrays.train.counts, strict=True)):
        np.testing.assert_array_equal(arrays.x[rows[:count]], digits.x[digits.train.parts()[at[i]]])


def test_a_large_client_does_not_make_the_small_ones_large(mlr):
    """Samples are copied as often as they are held, not as wide as the widest client's table."""
    sizes = [4] * 7 + [400]
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(8), sizes)
    data = FederatedData.from_arrays(rng.integers(0, 16, (428, 8, 8), np.uint8), rng.integers(0, 10, 428), owner)
    simulation = Streamed(PFedMe(), data, mlr, rounds=2, participation=0.5)
    few = simulation._part(np.array([0, 1, 2]))
    assert len(few.x) == data.train.counts[:3].sum() < 20
    (_, device, _, _), (_, stream, _, _) = both(PFedMe(), data, mlr, **SOME)
    same_states(device, stream)


def test_sizes_are_rounded_up_a_little():
    from cgpfl.engine.stream import rounded

    assert [rounded(n) for n in (0, 1, 7, 16, 17, 100, 1000)] == [0, 1, 7, 16, 18, 104, 1024]
    assert all(n <= rounded(n) <= 1.125 * n for n in range(1, 5000))


def test_a_run_that_diverges_stops_in_the_same_round():
    data = points([[1.0], [2.0], [3.0], [4.0]])
    method = PFedMe(personal_rate=50.0, prox=1.0, local_rounds=20)
    model = quadratic(data, curvature=50.0)
    settings = {"rounds": 30, "eval_every": 1, "participation": 0.5}
    (_, device, records, due), (_, stream, others, rounds) = both(method, data, model, **settings)
    assert int(device.diverged) >= 0
    assert int(device.diverged) == int(stream.diverged)
    assert due == rounds
    assert {k: len(v) for k, v in records.items()} == {k: len(others.get(k, ())) for k in records}


def test_traffic_is_the_same(digits, mlr):
    for name in ("cgpfl", "ifca", "fedavg"):
        method = get_method(name)
        one, other = Simulation(method, digits, mlr, rounds=1), Streamed(method, digits, mlr, rounds=1)
        assert one.traffic() == other.traffic()


@pytest.mark.parametrize(
    ("store", "name"),
    [
        ("host", "pfedme"),
        ("disk", "pfedme"),
        *(pytest.param(s, "cgpfl", marks=pytest.mark.slow) for s in ("host", "disk")),
    ],
)
def test_a_streamed_run_resumes(digits, tmp_path, store, name):
    settings = Settings(rounds=12, eval_every=4, participation=0.5, store=store)
    changes = {"warmup": 0} if name == "cgpfl" else {"batch_size": 0}
    method, model = checked(get_method(name, changes), digits, settings), as_model("mlr", (8, 8), 10)
    whole = run_method(method, digits, model, Settings(rounds=12, eval_every=4, participation=0.5), label="a")
    folder = MethodFolder(tmp_path / "methods" / "a")
    with pytest.raises(KeyboardInterrupt):
        run_method(method, digits, model, settings, label="a", folder=folder, stop=lambda: True)
    (saved,) = folder.path.glob("clients-*")
    result = run_method(method, digits, model, settings, label="a", folder=folder)
    assert sorted(p.name for p in folder.path.glob("clients-*")) == [saved.name, "clients-000012"]  # and the one before
    assert result.accuracy == whole.accuracy
    if name == "cgpfl":
        np.testing.assert_array_equal(result.contexts.history, whole.contexts.history)
    np.testing.assert_allclose(
        result.personal_model(3).logits(digits.x[:4]), whole.personal_model(3).logits(digits.x[:4]), rtol=1e-4
    )


def test_personal_states_that_are_lost_are_missed(digits, tmp_path):
    settings = Settings(rounds=12, participation=0.5, store="host")
    method, model = checked(get_method("pfedme", {"batch_size": 0}), digits, settings), as_model("mlr", (8, 8), 10)
    folder = MethodFolder(tmp_path / "methods" / "a")
    with pytest.raises(KeyboardInterrupt):
        run_method(method, digits, model, settings, label="a", folder=folder, stop=lambda: True)
    (saved,) = folder.path.glob("clients-*")
    (saved / "0.npy").unlink()
    with pytest.raises(CgpflError, match=r"clients-0000\d+: cannot be read \(FileNotFoundError\); delete the folder"):
        run_method(method, digits, model, settings, label="a", folder=folder)


def test_auto_streams_what_does_not_fit(digits, mlr, monkeypatch):
    def engine(**more):
        return type(engine_for(PFedMe(), digits, mlr, rounds=1, **more))

    assert engine(participation=0.5) is Simulation
    monkeypatch.setattr(placement, "memory", lambda: 40_000)
    assert engine(participation=0.5) is Streamed
    assert engine(participation=1.0) is Simulation  # all are on the device in every round anyway
    assert engine(participation=0.5, store="device") is Simulation
    assert blocks.memory() > 1 << 28


def test_stores_that_cannot_be(digits, mlr):
    with pytest.raises(CgpflError, match='store = "host": goes with one device'):
        engine_for(PFedMe(), digits, mlr, rounds=1, store="host", devices=2)
    with pytest.raises(CgpflError, match='store = "disk": needs a run folder'):
        engine_for(PFedMe(), digits, mlr, rounds=1, store="disk")
    with pytest.raises(CgpflError, match=r'run: store = .tape.: must be "auto" or "device" or "host" or "disk"'):
        cgpfl.run("fedavg", digits, store="tape")


OF_EACH_KIND = ("cgpfl", "apfl", "fedmd", "mocha", "scaffold")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in OF_EACH_KIND else pytest.mark.long) for n in METHODS]
)
def test_every_method_can_be_streamed(name):
    data = make_data("digits", "rotation", clients=6, contexts=2, seed=0, public=0.1)
    method = checked(get_method(name), data, Settings(rounds=12))
    model = as_model("mlr", data.shape, data.classes)
    (_, device, records, _), (_, stream, others, _) = both(method, data, model, **{**SOME, "rounds": 12})
    same_states(device, stream, atol=1e-4 if name == "mocha" else 1e-6)  # roots of matrices magnify rounding
    for key, values in records.items():
        np.testing.assert_allclose(values, others[key], rtol=1e-3, atol=1e-4, err_msg=key)


def test_auto_goes_on_where_the_states_are(digits, tmp_path, monkeypatch):
    """A run that was streamed because memory was short goes on so where it is not."""
    settings = Settings(rounds=12, participation=0.5)
    method, model = checked(get_method("pfedme", {"batch_size": 0}), digits, settings), as_model("mlr", (8, 8), 10)
    folder = MethodFolder(tmp_path / "methods" / "a")
    monkeypatch.setattr(placement, "memory", lambda: 40_000)
    with pytest.raises(KeyboardInterrupt):
        run_method(method, digits, model, settings, label="a", folder=folder, stop=lambda: True)
    monkeypatch.undo()
    assert folder.store() == "host"
    wrong = Settings(rounds=12, participation=0.5, store="device")
    with pytest.raises(CgpflError, match='was run with store = "host" or "disk", now "device"; use what it was'):
        run_method(method, digits, model, wrong, label="a", folder=folder)
    result = run_method(method, digits, model, settings, label="a", folder=folder)
    assert result.rounds == 12
    assert isinstance(result.simulation, Streamed)
