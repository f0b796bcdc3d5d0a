"""CGPFL against its equations: closed forms, limits, and a NumPy transcription of Algorithm 1."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from cgpfl.algorithms import CGPFL, ClientData, Cohort, Local, PFedMe, Task
from cgpfl.data import make_data
from cgpfl.engine import simulate
from cgpfl.errors import CgpflError
from cgpfl.models import as_model
from helpers import points, quadratic


def client_data(x):
    x = jnp.asarray(x, jnp.float32)
    n = len(x)
    return ClientData(x, jnp.zeros(n, jnp.int32), jnp.arange(n), jnp.int32(n), jnp.float32(1), jnp.float32(0))


def state_of(data, method, model, **settings):
    return simulate(method, data, model, **settings)


def test_inner_problem_converges_to_the_moreau_prox():
    """f(θ) = (a/2)‖θ − c‖²: prox at ω is (a·c + λ·ω)/(a + λ); then ω̃ moves by its rate towards it."""
    c, omega, a, lam, rate = np.array([3.0, -1.0]), np.array([0.5, 2.0]), 2.0, 5.0, 0.3
    data = points([c])
    task = Task({"w": jnp.zeros(2)}, quadratic(data, curvature=a), 1)
    method = CGPFL(
        contexts=1, prox=lam, personal_rate=0.1, context_rate=rate, local_rounds=1, inner_steps=200, batch_size=0
    )
    message, theta = {"w": jnp.asarray(omega, jnp.float32)}, {"w": jnp.full(2, 10.0)}
    upload, personal = method.train(task, message, theta, client_data([c]), jax.random.key(0))
    prox = (a * c + lam * omega) / (a + lam)
    np.testing.assert_allclose(personal["w"], prox, rtol=1e-5)
    np.testing.assert_allclose(upload["w"], omega - rate * (omega - prox), rtol=1e-5)


def test_two_local_rounds_by_hand():
    """S = 1, R = 2, scalar: every number below is worked out from Algorithm 1."""
    method = CGPFL(
        contexts=1, prox=2.0, personal_rate=0.1, context_rate=0.5, local_rounds=2, inner_steps=1, batch_size=0
    )
    data = points([[4.0]])
    task = Task({"w": jnp.zeros(1)}, quadratic(data), 1)
    upload, theta = method.train(task, {"w": jnp.zeros(1)}, {"w": jnp.ones(1)}, client_data([[4.0]]), jax.random.key(0))
    # r=0: θ = 1 − 0.1((1 − 4) + 2(1 − 0)) = 1.1;     ω̃ = 0 − 0.5(0 − 1.1) = 0.55
    # r=1: θ = 1.1 − 0.1((1.1 − 4) + 2(1.1 − 0.55)) = 1.28;  ω̃ = 0.55 − 0.5(0.55 − 1.28) = 0.915
    np.testing.assert_allclose(theta["w"], [1.28], rtol=1e-6)
    np.testing.assert_allclose(upload["w"], [0.915], rtol=1e-6)


def algorithm_1(centres, rounds, k, lam, eta, rate, alpha, R, S):
    """Algorithm 1 in NumPy on f_i(θ) = ½‖θ − c_i‖², with scikit-learn's k-means; labels matched by overlap."""
    n, d = centres.shape
    theta, omega, labels = np.zeros((n, d)), np.zeros((k, d)), np.zeros(n, int)
    for t in range(rounds):
        upload = np.empty((n, d))
        for i in range(n):
            w = omega[labels[i]].copy()
            for _ in range(R):
                for _ in range(S):
                    theta[i] = theta[i] - eta * ((theta[i] - centres[i]) + lam * (theta[i] - w))
                w = w - rate * (w - theta[i])
            upload[i] = w
        new = KMeans(k, n_init=20, random_state=0).fit(upload).labels_
        if t > 0:
            from scipy.optimize import linear_sum_assignment

            overlap = np.array([[np.sum((new == a) & (labels == b)) for b in range(k)] for a in range(k)])
            new = linear_sum_assignment(-overlap)[1][new]
        labels = new
        for j in range(k):
            omega[j] = omega[j] - alpha * (omega[j] - upload[labels == j].mean(0))
    return theta, omega, labels


@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_is_algorithm_1(alpha):
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 4)
    centres = (np.array([[4.0, 0, 0], [0, 4, 0], [0, 0, 4]])[truth] + 0.3 * rng.standard_normal((12, 3))).astype(
        np.float32
    )
    settings = {"lam": 3.0, "eta": 0.05, "rate": 0.2, "alpha": alpha, "R": 3, "S": 2}
    theta, omega, labels = algorithm_1(centres.astype(float), 6, 3, **settings)
    method = CGPFL(
        contexts=3, prox=3.0, personal_rate=0.05, context_rate=0.2, server_rate=alpha,
        local_rounds=3, inner_steps=2, batch_size=0, warmup=0,
    )  # fmt: skip
    data = points(centres)
    state, _, _ = simulate(method, data, quadratic(data), rounds=6)
    np.testing.assert_allclose(np.asarray(state.clients["w"]), theta, atol=1e-5)
    ours = np.asarray(state.server.assignment)
    for i in range(12):
        np.testing.assert_allclose(state.server.models["w"][ours[i]], omega[labels[i]], atol=1e-5)
        np.testing.assert_array_equal(ours == ours[i], labels == labels[i])


SOME = {"participation": 0.5, "dropout": 0.3}


@pytest.mark.parametrize(
    ("warmup", "settings"),
    [(3, SOME), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0, {}), (3, {}), (0, SOME)))],
)
def test_one_context_is_pfedme_bit_for_bit(digits, mlr, warmup, settings):
    method = CGPFL(contexts=1, warmup=warmup, server_rate=0.9, prox=12.0, context_rate=0.06)
    ours, _, _ = simulate(method, digits, mlr, rounds=6, **settings)
    theirs, _, _ = simulate(PFedMe(server_rate=0.9, prox=12.0, global_rate=0.06), digits, mlr, rounds=6, **settings)
    # On a CPU every bit; on a GPU two programs may sum in another order.
    slack = 0 if jax.default_backend() == "cpu" else 1e-6
    pairs = ((ours.clients, theirs.clients), (ours.server.models, theirs.server))
    for a, b in ((x, y) for p in pairs for x, y in zip(*map(jax.tree.leaves, p), strict=True)):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=slack, atol=slack)


@pytest.mark.slow
def test_as_many_contexts_as_clients_exchange_nothing(digits, mlr):
    """K = N, α = 1: what client 3 ends with does not depend on the others' data."""
    method = CGPFL(contexts=8, warmup=0)
    state, _, _ = simulate(method, digits, mlr, rounds=5)
    assert sorted(np.asarray(state.server.assignment)) == list(range(8))
    y = digits.y.copy()
    for i in (0, 1, 2, 4, 5, 6, 7):
        rows = digits.train.parts()[i]
        y[rows] = (y[rows] + 1) % 10
    other, _, _ = simulate(method, dataclasses.replace(digits, y=y), mlr, rounds=5)
    for a, b in zip(jax.tree.leaves(state.clients), jax.tree.leaves(other.clients), strict=True):
        np.testing.assert_allclose(np.asarray(a[3]), np.asarray(b[3]), atol=1e-5)
        assert not np.allclose(np.asarray(a[4]), np.asarray(b[4]), atol=1e-2)


@pytest.mark.slow
def test_no_pull_is_local_training(digits, mlr):
    """λ = 0, S = 1: θ takes the same SGD steps on the same minibatches as local training."""
    free, _, _ = simulate(CGPFL(contexts=2, prox=0.0, inner_steps=1, personal_rate=0.1), digits, mlr, rounds=5)
    alone, _, _ = simulate(Local(rate=0.1), digits, mlr, rounds=5)
    for a, b in zip(jax.tree.leaves(free.clients), jax.tree.leaves(alone.clients), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-6)


def test_infinite_pull_pins_the_personal_model(digits, mlr):
    weak = simulate(CGPFL(contexts=2, prox=1.0), digits, mlr, rounds=3)[1]["distance"][-1]
    strong = simulate(CGPFL(contexts=2, prox=1e6, personal_rate=1e-6), digits, mlr, rounds=3)[1]["distance"][-1]
    assert strong.max() < 1e-6 < weak.min()


def test_personal_model_is_no_alias(digits, mlr):
    method = CGPFL(contexts=2)
    state, records, _ = simulate(method, digits, mlr, rounds=10)
    task = Task(jax.tree.map(lambda v: v[0], state.server.models), mlr, 8)
    for i in range(8):
        message = method.send(state.server, jnp.int32(i))
        client = jax.tree.map(lambda v, i=i: v[i], state.clients)
        personal = method.personal(task, message, client, client_data([[0.0]]), jax.random.key(0))
        assert not np.allclose(personal["weight"], message["weight"], atol=1e-4)
        others = [state.clients["weight"][j] for j in range(8) if j != i]
        assert all(not np.allclose(personal["weight"], o, atol=1e-4) for o in others)
    assert (records["correct"] != records["shared_correct"]).any()


@pytest.mark.parametrize(
    "method",
    [
        CGPFL(contexts=2),
        *(pytest.param(m, marks=pytest.mark.slow) for m in (CGPFL(contexts="auto"), CGPFL(contexts=2, warmup=0))),
    ],
)
def test_permuting_clients_permutes_the_result(digits, mlr, method):
    order = np.random.default_rng(1).permutation(8)
    _, a, _ = simulate(method, digits, mlr, rounds=8)
    _, b, _ = simulate(method, digits.permute(order), mlr, rounds=8)
    for name in ("correct", "loss", "train_loss", "shared_loss", "distance", "context"):
        np.testing.assert_allclose(a[name][:, order], b[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_restart_option_starts_theta_from_omega():
    method = CGPFL(
        contexts=1, warm_start=False, prox=1.0, personal_rate=0.1, local_rounds=1, inner_steps=1, batch_size=0
    )
    task = Task({"w": jnp.zeros(1)}, quadratic(points([[4.0]])), 1)
    _, theta = method.train(task, {"w": jnp.ones(1)}, {"w": jnp.full(1, 50.0)}, client_data([[4.0]]), jax.random.key(0))
    np.testing.assert_allclose(theta["w"], [1 - 0.1 * (1 - 4)], rtol=1e-6)


def test_known_contexts_are_never_clustered(digits, mlr):
    told = (0, 1, 0, 1, 2, 2, 2, 0)
    state, records, _ = simulate(CGPFL(contexts=told), digits, mlr, rounds=3)
    assert (records["context"] == np.array(told)).all()
    assert int(state.server.iterations) == 0


@jax.jit
def aggregate(method, server, uploads, cohort):
    """Compiled once for all tests of one method and as many clients; operation by operation it takes twice as long."""
    return method.aggregate(server, uploads, cohort, jax.random.key(1))


def server_after(method, labels, uploads, weights, ids=None, task=None):
    """One aggregation of a settled server with the given labels."""
    task = task or Task({"w": jnp.zeros(2)}, quadratic(points([[0.0, 0.0]])), len(labels))
    server = method.init_server(task, jax.random.key(0))
    slots = server.cost.shape[0]
    models = {"w": jnp.asarray([[10.0 * k, 0.0] for k in range(slots)])}
    server = dataclasses.replace(
        server,
        models=models,
        assignment=jnp.asarray(labels),
        settled=jnp.bool_(True),
        k=jnp.int32(slots),
        round=jnp.int32(9),
    )
    ids = jnp.arange(len(labels)) if ids is None else jnp.asarray(ids)
    cohort = Cohort(ids, jnp.asarray(weights))
    return server, aggregate(method, server, {"w": jnp.asarray(uploads, jnp.float32)}, cohort)


def test_a_cohort_without_a_context_leaves_it_alone():
    """Only members of context 0 answer: they are not torn apart, and context 1 keeps its model and members."""
    method = CGPFL(contexts=2)
    before, after = server_after(method, [0, 0, 1, 1], [[0.1, 0], [-0.3, 0]], [5, 5], ids=[0, 1])
    np.testing.assert_array_equal(after.assignment, [0, 0, 1, 1])
    np.testing.assert_allclose(after.models["w"], [[-0.1, 0], [10, 0]], atol=1e-6)
    assert int(before.round) + 1 == int(after.round)


def test_an_absent_client_has_no_say():
    method = CGPFL(contexts=2)
    uploads = [[0.2, 0], [500.0, 500], [10.2, 0], [9.8, 0]]
    _, after = server_after(method, [0, 0, 1, 1], uploads, [5, 0, 5, 5])
    np.testing.assert_array_equal(after.assignment, [0, 0, 1, 1])
    np.testing.assert_allclose(after.models["w"], [[0.2, 0], [10, 0]], atol=1e-5)


def test_nobody_answers_nothing_changes():
    for method in (CGPFL(contexts=2), CGPFL(contexts="auto", warmup=0), CGPFL(contexts=2, warmup=20)):
        before, after = server_after(method, [0, 0, 1, 1], [[7.0, 7]] * 4, [0, 0, 0, 0])
        for a, b in zip(
            jax.tree.leaves(before), jax.tree.leaves(dataclasses.replace(after, round=before.round)), strict=True
        ):
            assert (a == b).all()


def test_a_client_can_change_its_context():
    method = CGPFL(contexts=2)
    _, after = server_after(method, [0, 0, 1, 1], [[0.1, 0], [9.9, 0], [10.2, 0], [9.8, 0]], [5] * 4)
    np.testing.assert_array_equal(after.assignment, [0, 1, 1, 1])


def test_first_clustering_waits_for_an_answer():
    """Nobody answers in the round that should cluster first: the next one does."""
    method = CGPFL(contexts=2, warmup=0)
    task = Task({"w": jnp.zeros(2)}, quadratic(points([[0.0, 0.0]])), 4)
    server = method.init_server(task, jax.random.key(0))
    uploads = {"w": jnp.asarray([[0.0, 0], [0.1, 0], [5, 0], [5.1, 0]])}
    server = aggregate(method, server, uploads, Cohort(jnp.arange(4), jnp.zeros(4, int)))
    assert not bool(server.settled)
    server = aggregate(method, server, uploads, Cohort(jnp.arange(4), jnp.ones(4, int)))
    labels = np.asarray(server.assignment)
    assert labels[0] == labels[1] != labels[2] == labels[3]


@pytest.mark.slow
def test_heuristic_chooses_once_and_keeps_k():
    data = make_data("digits", "rotation", clients=16, contexts=2, seed=1)
    model = as_model("mlr", data.shape, data.classes)
    method = CGPFL(contexts="auto", warmup=3)
    _, records, _ = simulate(method, data, model, rounds=8)
    k = records["k"]
    assert (k[:2] == 1).all()  # the warm-up shares one model
    assert len(set(k[2:].tolist())) == 1
    curve = records["complexity"][-1] + records["mu"][-1] * records["cost"][-1]
    assert len(curve) == 8  # K = 1..N/2
    assert int(k[-1]) == int(np.argmin(curve)) + 1
    assert (records["cost"][2] == records["cost"][-1]).all()
    assert len(np.unique(records["context"][-1])) == k[-1]


@pytest.mark.slow
def test_mu_as_a_number_is_the_papers_form():
    data = make_data("digits", "rotation", clients=12, contexts=2, seed=1)
    model = as_model("mlr", data.shape, data.classes)
    few = simulate(CGPFL(contexts="auto", mu=0.0), data, model, rounds=6)[1]["k"][-1]
    many = simulate(CGPFL(contexts="auto", mu=1e9), data, model, rounds=6)[1]["k"][-1]
    assert (few, many) == (1, 6)


def test_contexts_out_of_range():
    with pytest.raises(CgpflError, match="at most the number of clients, 8"):
        CGPFL(contexts=9).slots(8)
    with pytest.raises(CgpflError, match="3 labels for 8 clients"):
        CGPFL(contexts=(0, 1, 0)).slots(8)


@pytest.mark.slow
def test_the_warm_up_waits_until_everyone_is_heard():
    """A fifth of the clients a round: 25 rounds for 5 answers a client, and contexts are still found."""
    data = make_data("digits", "rotation", seed=0)
    model = as_model("mlr", data.shape, data.classes)
    _, records, _ = simulate(CGPFL(contexts="auto"), data, model, rounds=60, participation=0.2, seed=0)
    k = records["k"]
    assert (k[:24] == 1).all()
    assert k[-1] == 4
    assert adjusted_rand_score(data.context, records["context"][-1]) == 1.0
