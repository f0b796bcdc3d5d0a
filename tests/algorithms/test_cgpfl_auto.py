"""CGPFL-Auto by hand: a client's steps, its limits, and a server that finds, shares and mends contexts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from cgpfl.algorithms import CGPFLAuto, ClientData, Cohort, FedAvg, Local, Task, cgpfl_auto
from cgpfl.algorithms.cgpfl_auto import Message, Private
from cgpfl.engine import simulate
from cgpfl.errors import CgpflError
from cgpfl.models import as_model
from cgpfl.rounds.account import Steps
from helpers import points, quadratic, trained

FOLDS = 3
WARMUP = 2 * FOLDS  # each fold, and all but each
ALL = WARMUP  # the part that is all samples


def client_data(x, y=None):
    x = jnp.asarray(x, jnp.float32)
    n = len(x)
    y = jnp.zeros(n, jnp.int32) if y is None else jnp.asarray(y)
    return ClientData(x, y, jnp.arange(n), jnp.int32(n), jnp.float32(1), jnp.float32(0))


def auto(**settings):
    return CGPFLAuto(**{"folds": FOLDS, "warmup": WARMUP, "restarts": 8, **settings})


# One client


def quadratic_step(part=ALL, lam=2.0, theta=10.0, **settings):
    """One client whose samples are all at 4, sent ω = 1."""
    method = auto(rate=0.2, personal_rate=0.5, local_rounds=2, inner_steps=2, batch_size=0, **settings)
    task = Task({"w": jnp.zeros(1)}, quadratic(points([[4.0]])), 1)
    message = Message({"w": jnp.ones(1)}, jnp.float32(lam), jnp.int32(part))
    private = Private({"w": jnp.full(1, theta)}, jnp.uint32(0))
    upload, after = trained(method, task, message, private, client_data([[4.0]] * 6), jax.random.key(0))
    return method, task, message, upload["w"], after


def test_a_round_by_hand():
    """f(w) = ½(w − 4)², ω = 1, λ = 2, θ = 10."""
    method, task, message, upload, after = quadratic_step()
    # ω̃: four steps of rate 0.2 leave 0.8⁴ of the way: 4 − 3·0.4096. θ, η_pλ = 1: (10 − 0.5·6 + 1·1)/2 = 4, then
    # (4 − 0 + 1)/2 = 2.5: towards ω, not ω̃.
    np.testing.assert_allclose(upload, [4 - 3 * 0.8**4], rtol=1e-6)
    np.testing.assert_allclose(after.model["w"], [2.5], rtol=1e-6)
    own = method.personal(task, message, after, None, jax.random.key(0))
    np.testing.assert_array_equal(own["w"], after.model["w"])


def test_in_the_warm_up_more_minibatches_are_drawn():
    """E = 5: twenty steps of ω̃ leave 0.8²⁰ of the way; ten of θ 0.25¹⁰ of that from 10 to its fixed point, 2."""
    _, _, _, upload, after = quadratic_step(part=1)
    np.testing.assert_allclose(upload, [4 - 3 * 0.8**20], rtol=1e-6)
    np.testing.assert_allclose(after.model["w"], [2 + 8 * 0.25**10], rtol=1e-6)
    _, _, _, upload, after = quadratic_step(part=1, effort=1)
    np.testing.assert_allclose(upload, [4 - 3 * 0.8**4], rtol=1e-6)
    np.testing.assert_allclose(after.model["w"], [2.5], rtol=1e-6)


def test_minibatches_of_the_warm_up_are_drawn_anew(softmax):
    """Effort 2 is not the same R minibatches twice: those would follow from the upload of effort 1."""
    task, start, x, y = softmax
    key, message = jax.random.key(1), Message(start, jnp.float32(1), jnp.int32(1))
    private, data = Private(start, jnp.uint32(3)), client_data(x, y)

    def upload(model, effort):
        sent = message._replace(model=model)
        return trained(auto(batch_size=1, effort=effort), task, sent, private, data, key)[0]

    once, twice = upload(start, 1), upload(start, 2)
    again = upload(once, 1)
    assert not np.allclose(again["weight"], twice["weight"], atol=1e-4)


def test_an_infinite_pull_is_the_contexts_model():
    method, task, message, _, after = quadratic_step(lam=np.inf, theta=1e30)
    np.testing.assert_array_equal(after.model["w"], message.model["w"])
    stale = Private({"w": jnp.full(1, 77.0)}, jnp.uint32(0))  # sent ∞ just now, not trained since
    np.testing.assert_array_equal(method.personal(task, message, stale, None, jax.random.key(0))["w"], [1.0])


@pytest.mark.parametrize("lam", [0.0, 1.0, 1e3, 1e30])
def test_every_pull_is_stable(lam):
    """The prox taken implicitly: between the client's own step and ω, whatever λ."""
    _, _, _, _, after = quadratic_step(lam=lam)
    assert 1.0 <= float(after.model["w"][0]) <= 10.0


@pytest.fixture(scope="module")
def softmax():
    """A softmax problem, and everything its clients' steps need."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((9, 4)).astype(np.float32), rng.integers(0, 3, 9)
    model = as_model("mlr", (4,), 3)
    start = {
        "weight": jnp.asarray(rng.standard_normal((3, 4)), jnp.float32),
        "bias": jnp.asarray(rng.standard_normal(3), jnp.float32),
    }
    return Task(start, model, 2), start, x, y


def test_softmax_regression_by_numpy(softmax):
    """Two rounds of three steps on all samples, λ = 1.5."""
    task, start, x, y = softmax
    method = auto(rate=0.3, personal_rate=0.4, local_rounds=2, inner_steps=3, batch_size=0)
    l2 = task.model.l2

    def gradient(w, b):
        p = np.exp(x @ w.T + b)
        p = p / p.sum(axis=1, keepdims=True) - np.eye(3)[y]
        return p.T @ x / len(x) + l2 * w, p.mean(axis=0) + l2 * b

    omega = [np.asarray(start[k], float) for k in ("weight", "bias")]
    copy, theta = omega, [v * 0.0 for v in omega]
    for _ in range(2):
        for _ in range(3):
            copy = [v - 0.3 * g for v, g in zip(copy, gradient(*copy), strict=True)]
        moved = [v - 0.4 * g for v, g in zip(theta, gradient(*theta), strict=True)]
        theta = [(v + 0.4 * 1.5 * w) / (1 + 0.4 * 1.5) for v, w in zip(moved, omega, strict=True)]
    private = Private(jax.tree.map(jnp.zeros_like, start), jnp.uint32(0))
    message = Message(start, jnp.float32(1.5), jnp.int32(ALL))
    upload, after = trained(method, task, message, private, client_data(x, y), jax.random.key(0))
    for name, a, b in zip(("weight", "bias"), copy, theta, strict=True):
        np.testing.assert_allclose(upload[name], a, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(after.model[name], b, rtol=1e-5, atol=1e-6)


def test_no_pull_is_local_training(softmax):
    """λ = 0, as where everybody stands alone: the steps of Local on the same minibatches, whatever is sent."""
    task, start, x, y = softmax
    method, local = auto(personal_rate=0.2, batch_size=4), Local(rate=0.2, batch_size=4)
    data, key = client_data(x, y), jax.random.key(5)
    _, alone = trained(local, task, (), start, data, key)
    for sent in (start, jax.tree.map(lambda v: v + 9, start)):
        message = Message(sent, jnp.float32(0), jnp.int32(ALL))
        _, after = trained(method, task, message, Private(start, jnp.uint32(0)), data, key)
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(after.model), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_one_step_on_a_minibatch_is_fedavgs(softmax):
    """S = 1 after the warm-up: the upload of FedAvg, from the same draws."""
    task, start, x, y = softmax
    method, data, key = auto(rate=0.2, inner_steps=1, batch_size=4), client_data(x, y), jax.random.key(5)
    theirs, _ = trained(FedAvg(rate=0.2, batch_size=4), task, start, (), data, key)
    message = Message(start, jnp.float32(1), jnp.int32(ALL))
    ours, _ = trained(method, task, message, Private(start, jnp.uint32(0)), data, key)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("batch", [0, 4])
def test_the_warm_up_sees_its_part_alone(softmax, batch):
    """Three of nine samples, or the other six."""
    task, start, x, y = softmax
    method, seed, key = auto(batch_size=batch), jnp.uint32(3), jax.random.key(1)
    whole = client_data(x, y)
    for number in range(WARMUP):
        of = (jnp.int32(number % FOLDS), FOLDS, seed)
        part = whole.fold(*of) if number < FOLDS else whole.without(*of)
        rows = np.asarray(part.rows[: int(part.count)])
        assert len(rows) == (3 if number < FOLDS else 6)
        spoilt, names = np.full_like(x, 1e3), np.full_like(y, 2)
        spoilt[rows], names[rows] = x[rows], y[rows]
        message = Message(start, jnp.float32(1), jnp.int32(number))
        clean, dirty = (
            trained(method, task, message, Private(start, seed), data, key)
            for data in (whole, client_data(spoilt, names))
        )
        for a, b in zip(jax.tree.leaves(clean), jax.tree.leaves(dirty), strict=True):
            np.testing.assert_array_equal(a, b)
    message = Message(start, jnp.float32(1), jnp.int32(ALL))  # afterwards all of them count
    upload, _ = trained(method, task, message, Private(start, seed), client_data(spoilt, names), key)
    assert not np.allclose(upload["weight"], clean[0]["weight"], atol=1.0)


# The server: eight clients whose updates are made

N, D = 8, 30
TRUTH = np.repeat([0, 1], 4)


class Made:
    """A server, and clients that move a third of the way to where their context's optimum is, with noise."""

    def __init__(self, apart=2.0, noise=0.3, truth=TRUTH, seed=0, method=None):
        self.method = method or auto()
        self.rng = np.random.default_rng(seed)
        self.aims = apart * self.rng.standard_normal((truth.max() + 1, D))[truth]
        self.noise = noise
        self.weights = np.full(N, 20)
        self.task = Task({"w": jnp.zeros(D)}, quadratic(points([[0.0] * D])), N)
        self.server = self.method.init_server(self.task, jax.random.key(0))

    def sent(self):
        return send(self.method, self.server)

    def round(self, times=1, ids=range(N)):
        """``ids``: who answers."""
        weights = np.where(np.isin(np.arange(N), ids), self.weights, 0)
        for _ in range(times):
            w = np.asarray(send(self.method, self.server).model["w"])
            uploads = w + (self.aims - w) / 3 + self.noise * self.rng.standard_normal((N, D))
            cohort = Cohort(jnp.arange(N), jnp.asarray(weights, jnp.int32))
            self.server = aggregate(self.method, self.server, {"w": jnp.asarray(uploads, jnp.float32)}, cohort)
        return self

    def given(self, **values):
        self.server = dataclasses.replace(self.server, **values)
        return self

    @property
    def labels(self):
        return np.asarray(self.server.assignment)


@jax.jit
def send(method, server):
    return jax.vmap(lambda i: method.send(server, i))(jnp.arange(N))


@jax.jit
def aggregate(method, server, uploads, cohort):
    return method.aggregate(server, uploads, cohort, jax.random.key(0))


@pytest.mark.slow
def test_contexts_after_the_warm_up():
    made = Made()
    parts = []
    for _ in range(WARMUP):
        assert (int(made.server.settled), int(made.server.k)) == (0, 1)
        assert len(np.unique(made.sent().model["w"], axis=0)) == 1
        parts.append(np.asarray(made.sent().part).tolist())
        made.round()
    assert parts == [[t] * N for t in range(WARMUP)]
    assert (int(made.server.settled), int(made.server.k)) == (1, 2)
    assert adjusted_rand_score(TRUTH, made.labels) == 1.0
    assert (np.asarray(made.sent().part) == ALL).all()  # from now on all samples
    # Contexts' models are the means of their members from the first round that knows them.
    assert len(np.unique(np.asarray(made.sent().model["w"]).round(4), axis=0)) == 2
    np.testing.assert_allclose(
        np.asarray(made.sent().prox), 0.5 * (1 - made.server.trust) / made.server.trust, rtol=1e-5
    )


def test_models_are_means_by_samples():
    """Warm-up: of all; then of a context's members; absent ones have no say; nobody leaves a model where it is."""
    made = Made()
    uploads = {"w": jnp.arange(N, dtype=jnp.float32)[:, None] * jnp.ones(D)}
    weights = jnp.asarray([1, 3, 0, 0, 2, 0, 2, 0])
    cohort = Cohort(jnp.arange(N), weights)
    warm = aggregate(made.method, made.server, uploads, cohort)
    np.testing.assert_allclose(warm.models["w"][:, 0], [(0 + 3 + 8 + 12) / 8] * 4, rtol=1e-6)
    labels = jnp.asarray([0, 0, 0, 0, 1, 1, 1, 1])
    settled = dataclasses.replace(warm, settled=jnp.int32(9), k=jnp.int32(2), assignment=labels)
    after = aggregate(made.method, settled, uploads, cohort)
    np.testing.assert_allclose(after.models["w"][:2, 0], [3 / 4, (8 + 12) / 4], rtol=1e-6)
    nobody = aggregate(made.method, settled, uploads, dataclasses.replace(cohort, weights=jnp.zeros(N, int)))
    np.testing.assert_array_equal(nobody.models["w"], settled.models["w"])


def test_one_context_is_fedavgs_step(softmax):
    made = Made()
    uploads = {"w": jax.random.normal(jax.random.key(3), (N, D))}
    cohort = Cohort(jnp.arange(N), jnp.arange(N))
    settled = dataclasses.replace(made.server, settled=jnp.int32(1))
    after = aggregate(made.method, settled, uploads, cohort)
    theirs = FedAvg().aggregate(made.task.initial, uploads, cohort, jax.random.key(0))
    np.testing.assert_allclose(after.models["w"][0], theirs["w"], rtol=1e-5, atol=1e-6)


def test_everybody_alone_shares_nothing_that_is_used():
    made = Made(truth=np.arange(N), noise=0.2)
    made.aims = made.aims - made.aims.mean(axis=0)
    made.round(WARMUP)
    assert int(made.server.k) == N
    np.testing.assert_array_equal(made.labels, np.arange(N))
    assert not np.asarray(made.sent().prox).any()  # local training
    seen = np.asarray(made.server.evidence.sums)
    made.round(2)
    np.testing.assert_array_equal(made.server.evidence.sums, seen)  # and nothing more is looked at
    assert len(np.unique(made.sent().model["w"], axis=0)) == 1


def swapped(made):
    """Two clients in each other's context, by mistake."""
    labels = made.labels.copy()
    labels[[0, 7]] = labels[[7, 0]]
    made.given(assignment=jnp.asarray(labels))
    made.server = made.method._centred(made.server)
    assert adjusted_rand_score(TRUTH, made.labels) < 1.0
    return made


def test_a_wrong_start_is_mended():
    made = swapped(Made().round(WARMUP))
    names = made.labels[1:7]
    made.round(WARMUP - 1)
    assert adjusted_rand_score(TRUTH, made.labels) < 1.0  # not before the window is over
    made.round()
    assert adjusted_rand_score(TRUTH, made.labels) == 1.0
    np.testing.assert_array_equal(made.labels[1:7], names)  # contexts keep their names
    made.round(10 * WARMUP)
    assert int(made.server.settled) == 1 + cgpfl_auto.REPAIRS


def test_a_context_seen_wrong_in_the_warm_up_is_mended_by_what_comes_after():
    """The warm-up's evidence of two clients is exchanged as well: only later rounds tell where they belong."""
    made = Made().round(WARMUP)
    sums = made.server.evidence.sums
    other = sums.at[:, jnp.asarray([0, 7])].set(0.4 * sums[:, jnp.asarray([7, 0])])
    made.given(evidence=dataclasses.replace(made.server.evidence, sums=other))
    swapped(made).round(cgpfl_auto.REPAIRS * WARMUP)
    assert adjusted_rand_score(TRUTH, made.labels) == 1.0


def test_too_few_samples_are_no_evidence():
    """A client with one sample has it in every part: what repeats there is no signal, and makes it no context."""
    made = Made(truth=np.zeros(N, int), noise=0.3)
    made.weights[5] = 1
    made.aims[5] += 3.0
    made.round(WARMUP)
    assert int(made.server.k) == 1
    assert np.asarray(made.method.report(made.server)["heard"]).tolist() == [True] * 5 + [False] + [True] * 2
    assert float(made.server.trust[5]) == 0.0
    assert np.isinf(made.sent().prox[5])


def test_few_samples_go_where_they_look_like():
    made = Made()
    made.weights[[0, 6]] = 2
    made.round(WARMUP)
    assert int(made.server.k) == 2
    assert adjusted_rand_score(TRUTH, made.labels) == 1.0


def test_the_warm_up_waits_for_every_part_but_not_for_ever():
    """Client 7 never answers: after three times 6 × 8 answers, which 21 rounds of seven have, it is not waited for."""
    made = Made(seed=1)
    made.round(20, ids=range(7))
    assert int(made.server.settled) == 0
    made.round(ids=range(7))
    assert int(made.server.settled) == 1
    assert int(made.server.k) == 2
    assert adjusted_rand_score(TRUTH[:7], made.labels[:7]) == 1.0
    assert 0 <= made.labels[7] < 2


def test_partial_participation_finds_the_same_contexts():
    made, rng = Made(seed=1), np.random.default_rng(1)
    for _ in range(24):
        made.round(ids=np.sort(rng.choice(N, 5, replace=False)))
    assert int(made.server.settled) > 0
    assert adjusted_rand_score(TRUTH, made.labels) == 1.0


@pytest.mark.slow
def test_without_repairs_a_wrong_start_stays(monkeypatch):
    made = swapped(Made().round(WARMUP))
    wrong = made.labels
    monkeypatch.setattr(cgpfl_auto, "REPAIRS", 0)
    aggregate.clear_cache()
    made.round(3 * WARMUP)
    aggregate.clear_cache()
    np.testing.assert_array_equal(made.labels, wrong)


# Settings


def test_settings_that_cannot_be():
    cases = [
        (CGPFLAuto(warmup=5), r"warmup = 5: must be at least twice the number of folds, 6"),
        (CGPFLAuto(contexts=9), r"contexts = 9: must be at most the number of clients, 8"),
        (CGPFLAuto(contexts=(0, 1, 0)), r"contexts has 3 labels for 8 clients"),
        (CGPFLAuto(contexts=(0,) * 7 + (8,)), r"contexts has label 8; labels must be below 8"),
        (CGPFLAuto(warmup=50), r"warmup = 50: takes 400 answers of clients and the run has 400"),
    ]
    for method, why in cases:
        with pytest.raises(CgpflError, match=why) as error:
            method.check(8, 400.0, 50)
        assert "\n" not in str(error.value)
    CGPFLAuto().check(8, 400.0, 50)


def test_noisy_steps_by_hand():
    """Three rounds on a third, three on two thirds, then all; a warm-up of ten goes on with thirds, and one more."""
    of = (50, 4, 20, 3)
    assert CGPFLAuto().noisy_steps(150) == (Steps(3, *of), Steps(3, *of, 2), Steps(144, 10, 4, 20))
    assert CGPFLAuto(warmup=10).noisy_steps(150) == (Steps(6, *of), Steps(4, *of, 2), Steps(140, 10, 4, 20))
    assert CGPFLAuto().noisy_steps(2) == (Steps(2, *of), Steps(0, *of, 2), Steps(0, 10, 4, 20))


def test_room_for_contexts():
    assert [CGPFLAuto().slots(n) for n in (1, 2, 3, 8, 40, 4000)] == [1, 1, 1, 4, 20, 32]
    assert CGPFLAuto(contexts=3).slots(8) == 3
    assert CGPFLAuto(contexts=(0, 2, 0)).slots(3) == 3


@pytest.mark.slow
def test_a_context_of_two_among_forty_loses_little_to_local_training():
    """Too few to be found; their own signal is what they are trusted for. Three seeds, 60 test samples of theirs."""
    from cgpfl.battery.problems import federation

    gains, others = [], []
    for seed in range(3):
        data = federation("pair", seed)
        model, two = as_model("mlr", data.shape, data.classes), np.bincount(data.context)[data.context] == 2
        ours, theirs = (
            simulate(m, data, model, rounds=80, eval_every=80, seed=seed)[1]["correct"][-1] / data.test.counts
            for m in (CGPFLAuto(), Local())
        )
        gains.append((ours - theirs)[two].mean())
        others.append((ours - theirs)[~two].mean())
    assert np.mean(gains) > -0.1
    assert min(others) > 0.1
