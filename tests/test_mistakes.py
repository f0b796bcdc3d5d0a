"""Mistakes found in other libraries of personalised federated learning; a test bears its mistake's number."""

import dataclasses
from functools import cache, partial
from itertools import combinations
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import METHODS, ClientData, Cohort, FedAvg, Task, algorithm, get_method
from cgpfl.data import SPLITS, FederatedData, IndexTable, make_data, splits
from cgpfl.engine import Simulation
from cgpfl.errors import CgpflError
from cgpfl.experiment.records import Cost, Records
from cgpfl.experiment.table import Runs
from helpers import points, quadratic

N, ROUNDS = 8, 12
OWN = ("local", "fedper", "apfl", "apfl-fixed", "l2sgd", "l2sgd-plus", "per-fedavg", "ditto", "pfedme")
OWN += ("mapper", "dapper", "fedmd", "mocha", "cgpfl")  # methods with a model for each client
GROUPED = ("cfl", "fl-hc", "ifca", "hypcluster")
OFTEN = ("fedper", "apfl-fixed", "l2sgd", "l2sgd-plus", "fedmd", "cfl")
OFTEN += ("per-fedavg", "mapper", "dapper", "hypcluster", "fl-hc")
"""Kinds that others stand for."""
# Groups are found early, since rounds are few; APFL's rate: see row 7. All else is as METHODS has it, but steps
# are on all of a client's samples (unless said otherwise): programs that draw no minibatch compile in half the time.
SETTINGS = {
    "apfl": {"rate": 0.02},
    "cfl": {"rest": 0.5, "unrest": 0.1},
    "fl-hc": {"warmup": 2},
    "cgpfl": {"contexts": 2, "warmup": 1},
}


class Run(NamedTuple):
    simulation: Simulation
    state: Any
    records: dict[str, np.ndarray]
    personal: np.ndarray  # the clients' models [N, parameters]
    shared: np.ndarray | None


def flat(params):
    """``[..., parameters]`` of an MLR's weight and bias."""
    weight, bias = np.asarray(params["weight"], float), np.asarray(params["bias"], float)
    return np.concatenate([weight.reshape(*bias.shape[:-1], -1), bias], axis=-1)


@partial(jax.jit, static_argnames=("static",))
def models(method, task, arrays, keys, state, static):
    """Everybody's personal and shared model: one program for all runs of a method that differ in numbers only."""
    run = SimpleNamespace(method=method, task=task, arrays=arrays, keys=keys, static=static, rounds=ROUNDS)
    personal = jax.vmap(partial(Simulation.personal, run), (None, 0))(state, jnp.arange(N))
    return personal, jax.vmap(lambda i: method.shared(method.send(state.server, i)))(arrays.ids)


def simulated(data, model, name, settings=(), **changes):
    method = get_method(name, {"batch_size": 0, **SETTINGS.get(name, {}), **changes})
    simulation = Simulation(method, data, model, rounds=ROUNDS, eval_every=4, **dict(settings))
    state, records, _ = simulation.advance(simulation.start(), 0, ROUNDS)
    parts = (method, simulation.task, simulation.arrays, simulation.keys)
    personal, shared = models(*parts, state, simulation.static)
    return Run(simulation, state, records, flat(personal), None if shared is None else flat(shared))


@pytest.fixture(scope="module")
def data():
    """2 rotation contexts of 4 clients, public samples."""
    return make_data("digits", "rotation", clients=N, contexts=2, public=0.1, seed=0)


@pytest.fixture(scope="module")
def ran(data, mlr):
    """A method's run by name, and by what is changed in its settings."""
    return cache(lambda name, **changes: simulated(data, mlr, name, **changes))


@pytest.fixture(scope="module")
def swapped(data):
    """The same federation, but everybody is tested on samples of a client of the other context."""
    other = np.empty(N, int)
    other[np.argsort(data.context, kind="stable")] = np.roll(np.argsort(data.context, kind="stable"), N // 2)
    return dataclasses.replace(data, test=IndexTable(data.test.rows[other], data.test.counts[other]))


def forward(params, x, y):
    """An MLR in NumPy, of parameters ``[P]``: inputs, logits, chances of each class."""
    x = x.reshape(len(y), -1).astype(float)
    logits = x @ params[:-10].reshape(10, -1).T + params[-10:]
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return x, logits, chances / chances.sum(axis=1, keepdims=True)


def score(params, x, y):
    """Correct answers and mean loss."""
    _, logits, chances = forward(params, x, y)
    return (logits.argmax(axis=1) == y).sum(), -np.log(chances[np.arange(len(y)), y]).mean()


def apart(a, b):
    return np.abs(a - b).max(axis=-1)


# 1. Personal accuracy measured on the shared model, on the one a client trained for the server, or on the initial one


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in OFTEN else n for n in (*OWN, *GROUPED, "fedavg")]
)
def test_1_personal_accuracy_is_of_the_personal_model(name, data, ran):
    run = ran(name)
    assert (apart(run.personal, flat(run.simulation.task.initial)) > 0.01).all()
    for prefix, models in (("", run.personal), ("shared_", run.shared)):
        for i in range(N if models is not None else 0):
            correct, loss = score(models[i], *data.inputs(i, "test"))
            assert run.records[f"{prefix}correct"][-1, i] == correct
            np.testing.assert_allclose(run.records[f"{prefix}loss"][-1, i], loss, rtol=1e-3)
    if run.shared is not None:
        assert ((apart(run.personal, run.shared) > 1e-3) == (name in OWN)).all()
    if name in OWN:
        assert min(apart(a, b) for a, b in combinations(run.personal, 2)) > 1e-3


# 2. θ compared with itself, gradients that add up over the inner steps, ω̃ that stands still within a round


def at(centre):
    """The data of a client whose two samples are at ``centre``."""
    x = jnp.full((2, 1), centre, jnp.float32)
    return ClientData(x, jnp.zeros(2, int), jnp.arange(2), jnp.int32(2), jnp.float32(1), jnp.float32(0))


def two_by_two(mistake=""):
    """R = S = 2 on f(θ) = ½(θ − 4)², λ = 2, η = 0.1, ω̃'s rate 0.5, from ω = 0 and θ = 1 → (θ, ω̃)."""
    theta, omega = 1.0, 0.0
    for r in range(2):
        total = 0.0
        for _ in range(2):
            gradient = theta - 4 + 2 * (theta - (theta if mistake == "itself" else omega))
            total = total + gradient if mistake == "adds up" else gradient
            theta -= 0.1 * total
        if r == 1 or mistake != "stands still":
            omega -= 0.5 * (omega - theta)
    return theta, omega


@pytest.mark.parametrize("name", ["pfedme", "cgpfl"])
def test_2_the_inner_steps_by_hand(name):
    # r = 0:  θ = 1 − 0.1(−3 + 2) = 1.1,              θ = 1.1 − 0.1(−2.9 + 2.2) = 1.17,             ω̃ = 0.585
    # r = 1:  θ = 1.17 − 0.1(−2.83 + 1.17) = 1.336,   θ = 1.336 − 0.1(−2.664 + 1.502) = 1.4522,     ω̃ = 1.0186
    more = {"global_rate": 0.5} if name == "pfedme" else {"context_rate": 0.5, "contexts": 1}
    steps = {"local_rounds": 2, "inner_steps": 2, "batch_size": 0}
    method = get_method(name, {"prox": 2.0, "personal_rate": 0.1, **more, **steps})
    task, key, zero = Task({"w": jnp.zeros(1)}, quadratic(points([[4.0]])), 1), jax.random.key(0), {"w": jnp.zeros(1)}
    upload, client = method.train(task, zero, {"w": jnp.ones(1)}, at(4.0), key)
    ours = np.array([method.personal(task, zero, client, at(4.0), key)["w"][0], upload["w"][0]])
    np.testing.assert_allclose(ours, [1.4522, 1.0186], rtol=1e-6)
    np.testing.assert_allclose(ours, two_by_two(), rtol=1e-6)
    wrong = [np.array(two_by_two(mistake)) for mistake in ("itself", "adds up", "stands still")]
    for a, b in combinations([ours, *wrong], 2):
        assert (np.abs(a - b) > 0.01).all()  # each mistake would show, and as itself


# 3. IFCA from equal models, so that all choose the first; the choice by test samples


@pytest.mark.parametrize("name", ["ifca", "hypcluster"])
def test_3_the_models_of_groups_start_apart(name, ran):
    simulation = ran(name).simulation
    state = simulation.start()
    if name == "hypcluster":  # its models are added one a round
        state, _, _ = simulation.advance(state, 0, 4)
    assert min(apart(a, b) for a, b in combinations(flat(state.server.models), 2)) > 0.01


@pytest.mark.parametrize("name", ["ifca", "hypcluster"])
def test_3_groups_are_chosen_by_training_samples(name, data, mlr, ran, swapped):
    run, other = ran(name), simulated(swapped, mlr, name)
    found, models = run.records["context"][-1], flat(run.state.server.models)
    assert not set(found[data.context == 0]) & set(found[data.context == 1])
    # the test samples change neither state nor choice, though they would have made another
    jax.tree.map(np.testing.assert_array_equal, (run.state, run.personal), (other.state, other.personal))
    for i in range(N):
        views = data.inputs(i, "train"), swapped.client(i, "test")
        trained, tested = (np.argmin([score(m, *view)[1] for m in models]) for view in views)
        assert trained == found[i] != tested
        np.testing.assert_array_equal(run.personal[i], models[trained])


# 4. Per-FedAvg's personal step on test batches


def test_4_per_fedavg_adapts_on_training_samples(data, mlr, ran, swapped):
    def stepped(w, x, y, rate):
        """w − α∇f(w): cross-entropy and regulariser."""
        x, _, chances = forward(w, x, y)
        error = (chances - np.eye(10)[y]) / len(y)
        return w - rate * (np.concatenate([(error.T @ x).ravel(), error.sum(axis=0)]) + mlr.l2 * w)

    run, other = ran("per-fedavg"), simulated(swapped, mlr, "per-fedavg")
    rate = run.simulation.method.adapt_rate
    for i in range(N):
        np.testing.assert_allclose(run.personal[i], stepped(run.shared[i], *data.inputs(i, "train"), rate), atol=1e-5)
        assert apart(run.personal[i], stepped(run.shared[i], *data.inputs(i, "test"), rate)) > 1e-3
    np.testing.assert_array_equal(run.personal, other.personal)
    assert (run.records["loss"] != other.records["loss"]).all()  # the test samples did change


# 5. CFL's split inside a group takes places in the group for client ids: clients are lost or doubled


def test_5_nested_splits_of_cfl_keep_client_ids():
    """Group 0 pulls against 1 and 2, who part later; their clients are interleaved and listed in any order."""
    centres = np.array([[-10.0, 0], [8, 4], [8, -4]])
    method = get_method("cfl", {"rate": 0.5, "local_rounds": 1, "batch_size": 0, "rest": 0.3, "unrest": 1.0, "most": 4})
    for seed in range(3):
        rng = np.random.default_rng(seed)
        planted, order = rng.permutation([0, 0, 0, 1, 1, 1, 1, 2, 2]), rng.permutation(9)
        own = centres[planted] + 0.1 * rng.standard_normal((9, 2))
        plain = points(own)
        simulation = Simulation(method, plain.permute(order), quadratic(plain), rounds=24)
        state, records, _ = simulation.advance(simulation.start(), 0, 24)
        found = np.asarray(state.server.assignment)
        assert sorted(set(records["k"].tolist())) == [1, 2, 3]  # two splits, one after the other
        np.testing.assert_array_equal(np.equal.outer(found, found), np.equal.outer(planted, planted))
        np.testing.assert_array_equal(records["context"][-1], found[order])
        for place, i in enumerate(order):  # and each uses its own group's model
            mean = own[planted == planted[i]].mean(axis=0)
            np.testing.assert_allclose(simulation.personal(state, place)["w"], mean, atol=0.01)


# 6. Personal and shared accuracy in one list; the best round reported as if it were the last


@algorithm
class Falls(FedAvg):
    """FedAvg whose clients use the global model for three rounds and its opposite from then on."""

    name = "falls"

    def init_server(self, task, key):
        return task.initial, jnp.int32(0)

    def train(self, task, message, client, data, key):
        return super().train(task, message[0], client, data, key)

    def aggregate(self, server, uploads, cohort, key):
        return super().aggregate(server[0], uploads, cohort, key), server[1] + 1

    def personal(self, task, message, client, data, key):
        return jax.tree.map(lambda w: jnp.where(message[1] > 3, -w, w), message[0])

    def shared(self, message):
        return message[0]


def test_6_last_not_best_and_two_columns(data):
    result = cgpfl.run(Falls(batch_size=0), data, "mlr", rounds=6, eval_every=2)
    values, summary = result.records.values, result.summary()
    personal, shared = (values[name].sum(axis=1) / data.test.counts.sum() for name in ("correct", "shared_correct"))
    np.testing.assert_allclose(result.history["accuracy"], personal)
    np.testing.assert_allclose(result.history["shared_accuracy"], shared)
    assert personal[0] == shared[0] > 0.5 > 0.2 > personal[2]  # it falls
    assert shared[2] > 0.5  # the shared model's does not
    assert result.accuracy == summary["accuracy"]["pooled"] == personal[2]
    assert result.shared_scores["pooled"] == summary["shared_accuracy"]["pooled"] == shared[2]
    # nor does a comparison rank by the best round
    records = Records([1, 2, 3], {"correct": np.array([[1.0, 3], [4, 4], [2, 0]])})
    runs = Runs("x", [0], [records], [np.array([4, 4])], Cost(1, 1, 1.0, 2), [6], [3], [None], 0.0, {}, [], [None])
    np.testing.assert_allclose(runs.accuracy(), [0.25])


# 7. Defaults that switch a method off

OFF = [
    ("ditto", {"prox": 0.0}, "local"),
    ("mocha", {"relate": 0.0}, "local"),
    ("apfl-fixed", {"mixture": 1.0}, "local"),
    ("apfl-fixed", {"mixture": 0.0}, "fedavg"),
    ("per-fedavg", {"adapt_rate": 1e-9}, "fedavg"),
    *((name, {"prox": 0.0}, "") for name in ("l2sgd", "l2sgd-plus", "pfedme", "cgpfl")),
    ("pfedme", {"global_rate": 0.0}, ""),
    ("cgpfl", {"context_rate": 0.0}, ""),
    ("fedmd", {"digest_rate": 1e-9}, ""),
]


@pytest.mark.parametrize(
    ("name", "off", "twin"),
    [pytest.param(*case, marks=pytest.mark.slow) if case[0] in OFTEN else case for case in OFF],
)
def test_7_no_default_switches_a_method_off(name, off, twin, ran):
    """Every client's model differs from what it is with a knob at zero, where the method is another (``twin``)."""
    without = ran(name, **off)
    if twin:
        np.testing.assert_allclose(without.personal, ran(twin).personal, atol=1e-4)
    assert (apart(ran(name).personal, without.personal) > 1e-3).all()
    if name == "pfedme":
        assert (apart(ran(name).shared, flat(without.simulation.task.initial)) > 0.01).all()


def test_7_apfl_mixes_at_its_defaults(ran):
    """Everyone starts half own, half global, and learns its share: one step moves it, and it may go either way.

    (Where it ends is the data's: on iid clients near 0, the global model, on very different ones near 1.)
    """
    method = METHODS["apfl"]
    run = ran("apfl", rate=method.rate)
    np.testing.assert_array_equal(run.simulation.start().clients.mixture, np.full(N, 0.5))
    task, one = Task({"w": jnp.zeros(1)}, quadratic(points([[4.0]])), 2), dataclasses.replace(method, local_rounds=1)
    for own, shared, better in ((3.0, 0.0, 1), (0.0, 3.0, -1)):  # the own model, or the global one, is nearer to 4
        client = method.init_client(task, jax.random.key(0))._replace(model={"w": jnp.full(1, own)})
        message = {"w": jnp.full(1, shared)}
        mixed = method.personal(task, message, client, at(4.0), jax.random.key(0))
        assert mixed["w"][0] == 1.5
        _, after = one.train(task, message, client, at(4.0), jax.random.key(0))
        assert np.sign(after.mixture - 0.5) == better


def test_7_servers_move_and_mixtures_mix_by_default(ran):
    task = Task({"w": jnp.zeros(1)}, quadratic(points([[4.0]])), 2)
    key, cohort = jax.random.key(0), Cohort(jnp.arange(2), jnp.asarray([2, 2]))
    for name in ("fedavgm", "fedadagrad", "fedadam", "fedyogi", "pfedme"):
        method = METHODS[name]
        after = method.aggregate(method.init_server(task, key), {"w": jnp.ones((2, 1))}, cohort, key)
        assert method.send(after, jnp.int32(0))["w"][0] > 1e-3
        with pytest.raises(CgpflError, match=r"server_rate = 0\.0: must be a number > 0"):
            get_method(name, {"server_rate": 0.0})
    # SCAFFOLD: control variates that are not 0, and that enter the next round's steps
    method, zero = get_method("scaffold", {"batch_size": 0}), {"w": jnp.zeros(1)}
    server = method.init_server(task, key)
    ends = [method.train(task, method.send(server, i), zero, at(c), key) for i, c in enumerate((4.0, -1.0))]
    uploads, controls = jax.tree.map(lambda *v: jnp.stack(v), *ends)
    message = method.send(method.aggregate(server, uploads, cohort, key), 0)
    assert min(map(abs, (*controls["w"][:, 0], message.control["w"][0]))) > 0.01
    corrected, plain = (method.train(task, message, c, at(4.0), key)[0].model["w"] for c in (ends[0][1], zero))
    assert abs(corrected[0] - plain[0]) > 0.01
    # several models to mix, clients related to each other, more than one group
    share, grid = ran("mapper").state.clients.mixture, np.asarray(ran("dapper").state.clients["bias"])
    assert ((share > 0) & (share < 1)).all()
    assert (apart(grid[:, 0], grid[:, -1]) > 0.01).all()
    relation = np.asarray(ran("mocha").state.server.relation)
    assert np.abs(relation - np.diag(np.diag(relation))).max() > 0.1
    assert all(METHODS[name].contexts > 1 for name in ("ifca", "hypcluster", "cgpfl"))
    assert all(len(set(ran(name).records["context"][-1])) > 1 for name in ("fl-hc", "cgpfl"))


# 8. Splits with empty clients or shared samples, and splits that never end


@pytest.mark.parametrize("rule", [rule for rule in SPLITS if rule != "own"])
def test_8_every_sample_once_and_every_client_enough(rule):
    labels, again = make_data("digits", "iid", clients=1).y, []
    for seed in range(4):
        more = {"alpha": 0.2, "classes_per_client": 2, "spread": 0.5, "smallest": 12, "contexts": 3, "public": 0.1}
        made = make_data("digits", rule, clients=20, seed=seed, validation=0.2, **more)
        tables = [made.train, made.test, made.validation]
        used = np.concatenate([*(p for t in tables for p in t.parts()), made.public])
        assert len(np.unique(used)) == len(used)
        assert len(used) == len(labels) or rule == "random"  # a class that nobody may hold is left out
        assert sum(t.counts for t in tables).min() >= 12
        assert min(t.counts.min() for t in tables) >= 1
        again += [min(map(len, splits.dirichlet(labels, 20, np.random.default_rng([seed, 0, 0]), 0.2))) < 12]
    assert any(again)  # small clients are drawn: that dirichlet has none is its second draw's doing


@pytest.mark.parametrize(("rule", "draw"), [("dirichlet", "dirichlet"), ("random", "by_class"), ("iid", "iid")])
def test_8_an_impossible_split_ends_with_an_error(rule, draw, monkeypatch):
    tries = []
    monkeypatch.setattr(splits, draw, lambda *_: tries.append(0) or [np.arange(8), np.zeros(0, int)])
    with pytest.raises(CgpflError, match=f"split {rule}: 100 draws left a client with under 4 samples; use fewer"):
        splits.split(np.arange(8) % 4, rule, 2)
    assert len(tries) == 100
    with pytest.raises(CgpflError, match="too many for 8 samples at 4 a client; at most 2"):
        splits.split(np.arange(8) % 4, rule, 3)


@pytest.mark.parametrize(("parts", "why"), [([[0, 1, 2], [2, 3, 4]], "used 2 times"), ([[0, 1, 2], []], "client 1")])
def test_8_a_bad_split_of_ones_own_is_refused(parts, why):
    with pytest.raises(CgpflError, match=why):
        FederatedData.from_parts(np.zeros((5, 1)), np.zeros(5, int), [np.array(p, int) for p in parts])


# 9. The same seed and another result, because the order of arrival or of summation decides


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in OFTEN else n for n in ("fedavg", "mocha", "cgpfl", *GROUPED)],
)
def test_9_the_order_of_clients_and_their_uploads_does_not_matter(name, data, mlr, ran):
    """Listed in another order, clients upload in another order; FedAvg's draw minibatches and may not answer."""
    order = np.random.default_rng(1).permutation(N)
    more = {"batch_size": 5, "settings": (("dropout", 0.2), ("seed", 1))} if name == "fedavg" else {}
    one, again, other = (simulated(d, mlr, name, **more) for d in (data, data, data.permute(order)))
    jax.tree.map(np.testing.assert_array_equal, (one.records, one.personal), (again.records, again.personal))
    for key, value in one.records.items():
        expected = value[:, order] if value.ndim == 2 else value
        np.testing.assert_allclose(expected, other.records[key], rtol=1e-3, atol=1e-4, err_msg=key)
    np.testing.assert_allclose(one.personal[order], other.personal, atol=1e-3)
    assert "context" not in one.records or len(set(one.records["context"][-1])) > 1
