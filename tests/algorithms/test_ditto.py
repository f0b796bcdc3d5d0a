"""Ditto against its equations and its limits."""

import numpy as np

from cgpfl.algorithms import Ditto, FedAvg, Local
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, simulate
from helpers import quadratic


def federation():
    """Two clients, f_i(w) = ½(w − c_i)², c = 1 and 5, with 1 and 3 training samples."""
    train = [(np.full((1, 1), 1.0), np.zeros(1, int)), (np.full((3, 1), 5.0), np.zeros(3, int))]
    return FederatedData.from_clients(train, test=train)


def test_three_rounds_by_hand():
    """λ = 0.8, η = 0.5 for the global model, η_p = 0.3 for the personal ones, R = 2, from 2."""
    data = federation()
    method = Ditto(rate=0.5, personal_rate=0.3, prox=0.8, local_rounds=2, batch_size=0)
    simulation = Simulation(method, data, quadratic(data, start=2.0), rounds=3)
    w, v = 2.0, [2.0, 2.0]
    for _ in range(3):
        ends = []
        for i, c in enumerate((1.0, 5.0)):
            end = w
            for _ in range(2):
                end = end - 0.5 * (end - c)
                v[i] = v[i] - 0.3 * ((v[i] - c) + 0.8 * (v[i] - w))  # w as at the round's start
            ends.append(end)
        w = (1 * ends[0] + 3 * ends[1]) / 4
    state, records, _ = simulation.advance(simulation.start(), 0, 3)
    np.testing.assert_allclose(state.server["w"], [w], rtol=1e-6)
    for i in range(2):
        np.testing.assert_allclose(simulation.personal(state, i)["w"], [v[i]], rtol=1e-5)
    # what is recorded is the personal model's loss, and beside it the global one's
    np.testing.assert_allclose(records["loss"][-1], [(v[0] - 1) ** 2 / 2, (v[1] - 5) ** 2 / 2], rtol=1e-4)
    np.testing.assert_allclose(records["shared_loss"][-1], [(w - 1) ** 2 / 2, (w - 5) ** 2 / 2], rtol=1e-4)


def test_without_pull_it_is_local_training_beside_fedavg(digits, mlr):
    """On the same minibatches, each of the two with its own rate."""
    local, _, _ = simulate(Local(rate=0.2), digits, mlr, rounds=2)
    fedavg, _, _ = simulate(FedAvg(rate=0.05), digits, mlr, rounds=2)
    alone, _, _ = simulate(Ditto(prox=0.0, personal_rate=0.2, rate=0.05), digits, mlr, rounds=2)
    pulled, _, _ = simulate(Ditto(prox=2.0, personal_rate=0.2, rate=0.05), digits, mlr, rounds=2)
    for leaf in ("weight", "bias"):
        np.testing.assert_allclose(alone.clients[leaf], local.clients[leaf], atol=1e-6)
        # the global part is FedAvg whatever the pull
        np.testing.assert_allclose(alone.server[leaf], fedavg.server[leaf], atol=1e-6)
        np.testing.assert_allclose(pulled.server[leaf], fedavg.server[leaf], atol=1e-6)
    assert np.abs(np.asarray(pulled.clients["weight"]) - local.clients["weight"]).max() > 0.01


def test_a_strong_pull_pins_to_the_global_model_of_the_rounds_start():
    """λη_p = 1: a step is v ← w − η_p(v − c_i), so v stays within η_p·5 of the w that was sent."""
    data = federation()
    method = Ditto(rate=0.2, personal_rate=1e-4, prox=1e4, local_rounds=2, batch_size=0)
    simulation = Simulation(method, data, quadratic(data), rounds=3, eval_every=3)
    state = simulation.start()
    for t in range(3):
        sent = float(state.server["w"][0])
        state, _, _ = simulation.advance(state, t, t + 1)
        np.testing.assert_allclose(state.clients["w"][:, 0], [sent, sent], atol=6e-4)
        assert abs(float(state.server["w"][0]) - sent) > 0.3  # the mean of this round is another model
