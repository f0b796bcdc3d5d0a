"""FedMD against its equations."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms import Cohort, FedMD, Local
from cgpfl.algorithms.fedmd import Consensus
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from cgpfl.models import Model

FEATURES, CLASSES, SIZES = 3, 2, (3, 5, 8)
RATE, STEPS, DIGEST_RATE, DIGEST_STEPS, START_STEPS, ROUNDS = 0.3, 2, 0.1, 3, 2, 3
COMMON = {"rate": RATE, "local_rounds": STEPS, "batch_size": 0}


@dataclass(frozen=True)
class Linear(Model):
    """Logits x·w, cross-entropy."""

    def init(self, key):
        return {"w": jax.random.normal(key, (*self.shape, self.classes))}

    def apply(self, params, x):
        return jnp.matmul(x, params["w"], precision="highest")


MODEL = Linear((FEATURES,), CLASSES)


def draw(size, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, FEATURES)).astype(np.float32), rng.integers(CLASSES, size=size)


CLIENTS = [draw(size, seed) for seed, size in enumerate(SIZES)]
X, Y = draw(6, 9)  # the public samples


def simulation(method, clients=CLIENTS, **settings):
    data = FederatedData.from_clients(clients, test=clients, public=(X, Y), classes=CLASSES)
    return Simulation(method, data, MODEL, rounds=ROUNDS, **settings)


def sgd(w, x, y, steps):
    """Steps on the cross-entropy: its gradient is xᵀ(softmax(xw) − one_hot(y))/n."""
    for _ in range(steps):
        odds = np.exp(x @ w)
        w = w - RATE * x.T @ (odds / odds.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]) / len(y)
    return w


def rounds_by_hand(w, clients):
    """Every round's models and consensus, from one start."""
    models, consensus = [sgd(w, X, Y, START_STEPS) for _ in clients], None
    for _ in range(ROUNDS):
        for i, (x, y) in enumerate(clients):
            # digest: ½ mean ‖x·w − s̄(x)‖² over the public x; in the first round there is no s̄
            for _ in range(DIGEST_STEPS if consensus is not None else 0):
                models[i] = models[i] - DIGEST_RATE * X.T @ (X @ models[i] - consensus) / len(X)
            models[i] = sgd(models[i], x, y, STEPS)  # revisit
        consensus = np.mean([X @ w for w in models], axis=0)  # whatever the clients' sizes
        yield models, consensus


METHOD = FedMD(digest_rate=DIGEST_RATE, digest_steps=DIGEST_STEPS, start_steps=START_STEPS, **COMMON)


def test_by_hand():
    sim = simulation(METHOD)
    state, w = sim.start(), np.asarray(sim.task.initial["w"], float)
    for t, (models, consensus) in enumerate(rounds_by_hand(w, CLIENTS)):
        state, _, _ = sim.advance(state, t, t + 1)
        np.testing.assert_allclose(state.clients["w"], models, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.server.logits, consensus, rtol=1e-5, atol=1e-5)
    for i in range(3):
        np.testing.assert_allclose(sim.personal(state, i)["w"], models[i], rtol=1e-5, atol=1e-5)
    # what travels is one number a public sample and class (and, down, whether there is a consensus)
    traffic = sim.traffic()
    assert traffic.upload == 4 * len(X) * CLASSES
    assert traffic.message == traffic.upload + 4


def test_clients_that_agree_learn_nothing_from_each_other():
    """Identical clients: the consensus is what each says itself, so a digest does not move them."""
    x, y = CLIENTS[0]
    clients = [(x, y)] * 3
    sim = simulation(METHOD, clients)
    state, _, _ = sim.advance(sim.start(), 0, ROUNDS)
    w = sgd(sgd(np.asarray(sim.task.initial["w"], float), X, Y, START_STEPS), x, y, STEPS)
    digested = sgd(w, x, y, (ROUNDS - 1) * STEPS)
    for i in range(3):
        np.testing.assert_allclose(state.clients["w"][i], digested, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.server.logits, X @ digested, rtol=1e-5, atol=1e-5)


def test_without_start_and_digest_it_is_local():
    fedmd, local = simulation(FedMD(digest_steps=0, start_steps=0, **COMMON)), simulation(Local(**COMMON))
    a, _, _ = fedmd.advance(fedmd.start(), 0, ROUNDS)
    b, _, _ = local.advance(local.start(), 0, ROUNDS)
    np.testing.assert_allclose(a.clients["w"], b.clients["w"], atol=1e-6)


def test_own_start():
    """Clients start from everybody's model, or each from its own."""
    same = simulation(FedMD(start_steps=0)).start().clients["w"]
    own = simulation(FedMD(start_steps=0, own_start=True)).start().clients["w"]
    assert np.ptp(same, axis=0).max() == 0
    assert all(np.abs(own[i] - own[j]).max() > 0.1 for i, j in ((0, 1), (0, 2), (1, 2)))


def test_who_does_not_answer_has_no_say():
    """Answers 1 and 5 of clients of other sizes, and one that did not come; then a round without answers."""
    none = Consensus(jnp.zeros((1, 2)), jnp.float32(0))
    uploads = jnp.asarray([[[1.0, 2]], [[5, 4]], [[99, 99]]])
    server = METHOD.aggregate(none, uploads, Cohort(jnp.arange(3), jnp.asarray([2, 7, 0])), jax.random.key(0))
    np.testing.assert_allclose(server.logits, [[3, 3]])
    assert server.known == 1
    silent = METHOD.aggregate(server, uploads, Cohort(jnp.arange(3), jnp.zeros(3)), jax.random.key(0))
    np.testing.assert_array_equal(silent.logits, server.logits)
    assert silent.known == 1
    assert METHOD.aggregate(none, uploads, Cohort(jnp.arange(3), jnp.zeros(3)), jax.random.key(0)).known == 0
