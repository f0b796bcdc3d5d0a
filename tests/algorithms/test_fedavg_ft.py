"""FedAvg with fine-tuning against its equations, its limits and straight NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
from test_transcriptions import LOCAL, D, cohorts_of, everyone_or_some, fedavg, grad, initial, library, same, vectors

from cgpfl.algorithms import FedAvg, FedAvgFT
from cgpfl.algorithms.base import ClientData, Task
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, simulate
from helpers import points, quadratic

POINTS = [[0.0, 1.0, 2.0], [4.0, 6.0]]
MEANS, SIZES = (1.0, 5.0), (3, 2)


def federation(test=(1, 5)):
    """Two clients, f_i(w) = ½·mean (w − x)²: ∇f_i(w) = w − c_i, where c_i is the mean of client i's points."""
    train = [(np.float32(p)[:, None], np.zeros(len(p), int)) for p in POINTS]
    return FederatedData.from_clients(train, test=[(np.float32([[t]]), np.zeros(1, int)) for t in test])


def test_two_rounds_by_hand():
    """η = 0.5, R = 2, from 0: in a round the distance to c quarters. Then T = 3 steps at η_p = 0.2 leave 0.8³ of it."""
    data = federation()
    method = FedAvgFT(rate=0.5, local_rounds=2, batch_size=0, tune_steps=3, tune_rate=0.2)
    simulation = Simulation(method, data, quadratic(data), rounds=2)
    state, records, _ = simulation.advance(simulation.start(), 0, 2)
    # the clients' models: 0.75 and 3.75, their mean 1.95; then 1 + 0.95/4 = 1.2375 and 5 − 3.05/4 = 4.2375
    w = (3 * 1.2375 + 2 * 4.2375) / 5
    np.testing.assert_allclose(state.server["w"], [w], rtol=1e-6)
    for i, c in enumerate(MEANS):
        tuned = c + 0.512 * (w - c)
        np.testing.assert_allclose(simulation.personal(state, i)["w"], [tuned], rtol=1e-6)
        # this is the model whose loss is recorded; the shared one is w itself
        np.testing.assert_allclose(records["loss"][-1, i], (tuned - c) ** 2 / 2, rtol=1e-5)
        np.testing.assert_allclose(records["shared_loss"][-1, i], (w - c) ** 2 / 2, rtol=1e-5)


def test_the_federation_is_fedavgs_and_no_steps_are_fedavg(digits, mlr):
    fedavg, plain, _ = simulate(FedAvg(), digits, mlr, rounds=2)
    for steps in (0, 10):
        state, records, _ = simulate(FedAvgFT(tune_steps=steps), digits, mlr, rounds=2)
        jax.tree.map(np.testing.assert_array_equal, state.server, fedavg.server)
        np.testing.assert_array_equal(records["shared_loss"], plain["shared_loss"])
        if not steps:
            np.testing.assert_array_equal(records["loss"], plain["loss"])
    assert records["train_loss"][-1].mean() < 0.9 * plain["train_loss"][-1].mean()


def test_many_steps_end_at_the_clients_own_minimum():
    centres = np.array([[0.0, 1], [2, 5], [4, -3]])
    data = points(centres)
    simulation = Simulation(FedAvgFT(tune_steps=60, tune_rate=0.3, batch_size=0), data, quadratic(data), rounds=1)
    state, _, _ = simulation.advance(simulation.start(), 0, 1)
    for i, c in enumerate(centres):
        np.testing.assert_allclose(simulation.personal(state, i)["w"], c, atol=1e-5)


def test_test_samples_are_never_used():
    """Other test samples change what is measured and nothing else; the minibatches are the client's own points."""
    seen = []
    for test in (1, 5), (-70, 80):
        data = federation(test)
        method = FedAvgFT(rate=0.05, local_rounds=2, batch_size=1, tune_steps=1, tune_rate=1.0)
        simulation = Simulation(method, data, quadratic(data), rounds=2)
        state, records, _ = simulation.advance(simulation.start(), 0, 2)
        models = [float(simulation.personal(state, i)["w"][0]) for i in range(2)]
        for value, own in zip(models, POINTS, strict=True):  # one step at rate 1 ends at the sample itself
            assert min(abs(value - x) for x in own) < 1e-5
        seen.append((models, records["loss"][-1].tolist()))
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] != seen[1][1]


def test_minibatches_come_from_the_key_given():
    samples = ClientData(
        jnp.arange(4.0)[:, None], jnp.zeros(4, int), jnp.arange(4), jnp.int32(4), jnp.float32(1), jnp.float32(0)
    )
    task = Task({"w": jnp.zeros(1)}, quadratic(points([[0.0]])), 1)
    method = FedAvgFT(tune_steps=1, tune_rate=1.0, batch_size=1)
    keys = jax.random.split(jax.random.key(0), 40)
    tuned = jax.jit(jax.vmap(lambda key: method.personal(task, task.initial, (), samples, key)["w"][0]))(keys)
    assert set(np.asarray(tuned).tolist()) == {0.0, 1.0, 2.0, 3.0}


def test_gradients_are_a_rounds():
    """Steps before use are no part of a round, as with Per-FedAvg's."""
    assert FedAvgFT(local_rounds=7, tune_steps=50).gradients() == FedAvg(local_rounds=7).gradients() == 7


# FedAvg (McMahan et al. 2017, Algorithm 1), then each client fine-tunes its output


def fine_tuned(w, eta, steps):
    models = []
    for data in D:
        theta = w.copy()
        for _ in range(steps):
            theta = theta - eta * grad(theta, data)
        models.append(theta)
    return models


@everyone_or_some
def test_transcription(participation):
    state, personal = library(FedAvgFT(**LOCAL, tune_steps=6, tune_rate=0.2), participation)
    w = fedavg(initial(), cohorts_of(participation), LOCAL["rate"], LOCAL["local_rounds"])
    same(vectors(state.server), w)
    same(personal, fine_tuned(w, 0.2, 6))
