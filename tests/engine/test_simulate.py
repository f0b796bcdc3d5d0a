import copy
import dataclasses
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import CGPFL, METHODS, FedAvg, Local, PFedMe, Task, get_method
from cgpfl.data import FederatedData, make_data
from cgpfl.engine import Simulation, simulate
from cgpfl.engine.blocks import auto_block
from cgpfl.engine.problem import draw_cohort, keys_of, make_task, on_device, round_keys, with_public
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.round import advance
from cgpfl.models import as_model
from cgpfl.testing import tiny_federation
from helpers import points, quadratic


def close(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), **(tolerance or {"rtol": 1e-3, "atol": 1e-5}))


@pytest.mark.parametrize(
    "name", ["fedavg", *(pytest.param(n, marks=pytest.mark.slow) for n in ("cgpfl", "cgpfl-heur"))]
)
def test_vectorised_equals_a_loop_over_clients(digits, mlr, name):
    """Everyone takes part, evaluated now and then (the contract suite samples clients, in every method)."""
    method = get_method(name, {"contexts": 2} if name == "cgpfl" else {})
    state, records, due = simulate(method, digits, mlr, rounds=7, eval_every=3)
    server, clients, expected = simulate_loop(method, digits, mlr, rounds=7, eval_every=3)
    assert due == [3, 6, 7]
    close(state.server, server)
    close(state.clients, jax.tree.map(lambda *leaves: jnp.stack(leaves), *clients))
    assert records.keys() == expected.keys()
    for key in records:
        np.testing.assert_allclose(records[key], expected[key], rtol=1e-3, atol=1e-4, err_msg=key)


SHORT = {"local_rounds": 2, "inner_steps": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("dnn", PFedMe(**SHORT)),
        *((m, CGPFL(contexts=2, warmup=1, **SHORT)) for m in ("dnn", "cnn")),
    ],
)
def test_other_models_too(digits, name, method):
    model = as_model(name, digits.shape, digits.classes)
    state, records, _ = simulate(method, digits, model, rounds=3)
    server, _, expected = simulate_loop(method, digits, model, rounds=3)
    close(method.send(state.server, jnp.int32(1)), method.send(server, jnp.int32(1)), rtol=1e-2, atol=1e-4)
    np.testing.assert_allclose(records["loss"], expected["loss"], rtol=1e-3)


@pytest.mark.parametrize(
    ("method", "block"),
    [(PFedMe(), 3), *(pytest.param(CGPFL(contexts=2), b, marks=pytest.mark.slow) for b in (1, 3, 4))],
)
def test_blocks_of_clients_change_nothing(digits, mlr, method, block):
    whole, a, _ = simulate(method, digits, mlr, rounds=6, clients_per_block=8)
    parts, b, _ = simulate(method, digits, mlr, rounds=6, clients_per_block=block)
    close(whole, parts)
    if "context" in a:
        np.testing.assert_array_equal(a["context"], b["context"])


def test_any_cut_into_blocks_of_rounds_gives_the_same_bits(digits, mlr):
    def run(cuts):
        simulation = Simulation(CGPFL(contexts="auto"), digits, mlr, rounds=9, eval_every=2, participation=0.7)
        state, rounds = simulation.start(), []
        for start, stop in pairwise(cuts):
            state, _, due = simulation.advance(state, start, stop)
            rounds += due
        return state, rounds

    whole, due = run([0, 9])
    for cuts in ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 4, 9], [0, 7, 8, 9]):
        state, rounds = run(cuts)
        assert rounds == due == [2, 4, 6, 8, 9]
        close(whole, state, rtol=0, atol=0)


def test_same_seed_same_bits_other_seed_other(digits, mlr):
    a, b, c = (simulate(CGPFL(contexts=2), digits, mlr, rounds=4, seed=s)[0] for s in (1, 1, 2))
    close(a, b, rtol=0, atol=0)
    assert not np.allclose(a.clients["weight"], c.clients["weight"])


def test_only_participants_change(digits, mlr):
    simulation = Simulation(Local(batch_size=0), digits, mlr, rounds=1, participation=0.5, seed=3)
    before = np.asarray(simulation.start().clients["weight"])
    state, records, _ = simulation.advance(simulation.start(), 0, 1)
    moved = [not np.array_equal(b, a) for b, a in zip(before, np.asarray(state.clients["weight"]), strict=True)]
    assert sum(moved) == 4 == int(records["answers"][-1])


def test_cohorts_are_fair(digits):
    """Over many rounds everybody is asked about equally often, each time a cohort of the right size."""
    arrays, keys = on_device(digits), keys_of(0)
    cohorts = np.stack(
        [draw_cohort(Local(), (), round_keys(keys, t), arrays.ids, arrays.train.counts, 2) for t in range(400)]
    )
    assert (cohorts[:, 0] < cohorts[:, 1]).all()
    assert (abs(np.bincount(cohorts.ravel(), minlength=8) - 100) < 35).all()


def test_dropout_is_its_rate(digits, mlr):
    _, records, _ = simulate(Local(local_rounds=1, batch_size=0), digits, mlr, rounds=200, eval_every=200, dropout=0.4)
    assert abs(int(records["answers"][-1]) / 1600 - 0.6) < 0.05


def test_evaluation_is_what_numpy_says():
    """Clients of very different sizes, larger than an evaluation chunk: accuracy and loss recomputed by hand."""
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((n, 5)).astype(np.float32), rng.integers(3, size=n)) for n in (9, 700, 1400)]
    data = FederatedData.from_clients(clients, test=0.5, validation=0.2, classes=3)
    model = as_model("mlr", (5,), 3)
    state, records, _ = simulate(FedAvg(batch_size=0), data, model, rounds=2)
    w, b = np.asarray(state.server["weight"], float).T, np.asarray(state.server["bias"], float)
    for i in range(3):
        for name, key in (("test", "correct"), ("validation", "validation_correct")):
            x, y = data.inputs(i, name)
            assert records[key][-1, i] == ((x @ w + b).argmax(1) == y).sum()
        x, y = data.inputs(i)
        logits = x @ w + b
        entropy = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
        f = entropy.mean() + 0.5 * model.l2 * ((w**2).sum() + (b**2).sum())
        assert records["train_loss"][-1, i] == pytest.approx(f, rel=1e-4)
    assert (records["distance"] == 0).all()
    np.testing.assert_array_equal(records["correct"], records["shared_correct"])


@pytest.mark.parametrize("name", [n if n == "pfedme" else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
def test_declared_gradients_are_those_computed(name, monkeypatch):
    """One client's round, step by step; a vmap over shares λ counts once, so those methods try one λ here."""
    wanted = {"local_rounds": 3, "inner_steps": 2, "digest_steps": 4, "start_steps": 0, "grid": 1, "seed_steps": 3}
    wanted |= {"warmup": 1, "coin": 0.25, "effort": 1}  # rounds of a warm-up count as others
    method = copy.copy(METHODS[name])
    there = {f.name for f in dataclasses.fields(method)}
    for field in there & set(wanted):  # some are less than a user may choose
        object.__setattr__(method, field, wanted[field])
    calls = []
    original = Task.gradient
    monkeypatch.setattr(Task, "gradient", lambda self, f, p: calls.append(1) or original(self, f, p))
    data = tiny_federation()
    arrays, keys = on_device(data), keys_of(0)
    task = with_public(make_task(as_model("mlr", data.shape, data.classes), keys, data.clients), arrays)
    with jax.disable_jit():
        message = method.send(method.init_server(task, keys.setup), jnp.int32(0))
        if "coin" in there:  # E[H] = (1 − p)/p = 3 local steps
            message = message._replace(steps=jnp.int32(3))
        client = method.init_client(task, keys.setup)
        method.train(task, message, client, arrays.view(arrays.train.rows[0], arrays.train.counts[0]), keys.rounds)
    assert len(calls) == method.gradients()


def test_traffic_is_the_size_of_what_is_sent(digits, mlr):
    model_bytes = 4 * 650
    for method, expected in ((Local(), (0, 0)), (FedAvg(), (model_bytes,) * 2), (CGPFL(), (model_bytes,) * 2)):
        traffic = Simulation(method, digits, mlr, rounds=1).traffic()
        assert (traffic.message, traffic.upload) == expected


def test_another_rate_compiles_nothing_new(digits, mlr):
    simulate(PFedMe(prox=3.0), digits, mlr, rounds=2)
    before = advance._cache_size()
    simulate(PFedMe(prox=4.5, personal_rate=0.01), digits, mlr, rounds=2, seed=5)
    assert advance._cache_size() == before


@pytest.mark.slow
def test_what_is_compiled_ahead_is_what_runs(programs):
    """The first call finds its programs in the cache, and adds none (of several runs: experiment/test_batch)."""
    data = points([[1.0], [2.0]])

    def make():
        return Simulation(Local(batch_size=0), data, quadratic(data), rounds=3, participation=0.5, dropout=0.2)

    make().compile()
    ahead = programs()
    assert len(ahead) == 2  # the first state, and the rounds
    jax.clear_caches()
    simulation = make()
    simulation.advance(simulation.start(), 0, 3)
    assert programs() == ahead


def test_divergence_is_noticed_in_its_round():
    data = points([[1.0], [2.0]])
    # w ← w − 1e30·(w − c) overflows float32 in the second round; with nothing evaluated before the 50th,
    # it is the parameters that tell.
    method = Local(rate=1e30, local_rounds=1, batch_size=0)
    state, _, due = simulate(method, data, quadratic(data), rounds=50, eval_every=50)
    assert int(state.diverged) == 1
    assert due == []
    # Evaluated every round, the loss (1e30²) overflows one round earlier.
    state, _, due = simulate(method, data, quadratic(data), rounds=50)
    assert int(state.diverged) == 0
    assert due == []
    assert np.isfinite(np.asarray(state.clients["w"])).all()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator has other limits")
def test_automatic_blocks_fit_and_divide():
    assert auto_block(31_400, 40) == 40  # MNIST-MLR
    assert auto_block(407_000, 40) == 10  # MNIST-DNN: 11 would fit, 10 divide evenly
    assert auto_block(1 << 30, 40) == 1
    assert auto_block(1 << 20, 41) == 4  # a prime number of clients: a smaller last block


def test_true_contexts_are_never_an_input(digits, mlr):
    hidden = dataclasses.replace(digits, context=None)
    a, b = (simulate(CGPFL(contexts=2), d, mlr, rounds=3)[0] for d in (digits, hidden))
    close(a, b, rtol=0, atol=0)


def test_more_records_than_the_buffer_holds():
    data = make_data("digits", "iid", clients=4)
    method = Local(batch_size=0)
    simulation = Simulation(method, data, as_model("mlr", data.shape, 10), rounds=150)
    assert simulation.static.capacity < 150
    _, records, due = simulate(method, data, as_model("mlr", data.shape, 10), rounds=150)
    assert due == list(range(1, 151))
    assert len(records["correct"]) == 150
