"""FedAvg, local training and pFedMe against their equations."""

import numpy as np

from cgpfl.algorithms import FedAvg, Local, PFedMe
from cgpfl.data import FederatedData
from cgpfl.engine import simulate
from helpers import points, quadratic


def federation():
    """Two clients, f_i(w) = ½(w − c_i)², c = 1 and 5, with 1 and 3 training samples."""
    train = [(np.full((1, 1), 1.0), np.zeros(1, int)), (np.full((3, 1), 5.0), np.zeros(3, int))]
    return FederatedData.from_clients(train, test=train)


def test_fedavg_by_hand():
    data = federation()
    state, _, _ = simulate(FedAvg(rate=0.5, local_rounds=2, batch_size=0), data, quadratic(data), rounds=2)
    w = 0.0
    for _ in range(2):
        # two steps of w ← w − ½(w − c): the distance to c quarters; then the mean by 1 and 3 samples
        w = (1 * (1 + (w - 1) / 4) + 3 * (5 + (w - 5) / 4)) / 4
    np.testing.assert_allclose(state.server["w"], [w], rtol=1e-6)


def test_local_by_hand_and_without_traffic():
    data = federation()
    state, records, _ = simulate(Local(rate=0.5, local_rounds=1, batch_size=0), data, quadratic(data), rounds=3)
    np.testing.assert_allclose(state.clients["w"][:, 0], [1 - 1 / 8, 5 - 5 / 8], rtol=1e-6)
    assert "shared_correct" not in records


def test_pfedme_by_hand():
    """λ = 2, η = 0.1, rate 0.5, β = 0.5, R = S = 1, one round from w = θ = 0, uniform mean."""
    data = federation()
    method = PFedMe(
        prox=2.0, personal_rate=0.1, global_rate=0.5, server_rate=0.5, local_rounds=1, inner_steps=1, batch_size=0
    )
    state, _, _ = simulate(method, data, quadratic(data), rounds=1)
    # θ_i = 0 − 0.1((0 − c_i) + 0) = 0.1·c_i;  w̃_i = 0.5·θ_i = 0.05·c_i;  w = 0.5·mean = 0.5·0.05·3
    np.testing.assert_allclose(state.clients["w"][:, 0], [0.1, 0.5], rtol=1e-6)
    np.testing.assert_allclose(state.server["w"], [[0.075]], rtol=1e-6)


def test_pfedme_converges_to_the_envelopes_minimum():
    """Equal parabolas: the minimiser of the mean Moreau envelope is the mean of the c_i, θ_i its prox there."""
    centres = np.array([[0.0, 1], [2, 5], [4, -3]])
    data = points(centres)
    method = PFedMe(prox=1.0, personal_rate=0.3, global_rate=0.3, local_rounds=1, inner_steps=30, batch_size=0)
    state, _, _ = simulate(method, data, quadratic(data), rounds=80)
    np.testing.assert_allclose(state.server["w"][0], centres.mean(0), atol=1e-3)
    np.testing.assert_allclose(state.clients["w"], (centres + centres.mean(0)) / 2, atol=1e-2)


def test_a_client_draws_the_same_alone_and_among_others(digits, mlr):
    """Local training of client 0 is the same in a federation of one: same start, same minibatches."""
    alone = FederatedData.from_clients([digits.inputs(0)], test=[digits.client(0, "test")], classes=10)
    among, _, _ = simulate(Local(), digits, mlr, rounds=2)
    single, _, _ = simulate(Local(), alone, mlr, rounds=2)
    np.testing.assert_allclose(among.clients["weight"][0], single.clients["weight"][0], atol=1e-6)
    # and with one client the mean over clients is that client
    fedavg, _, _ = simulate(FedAvg(), alone, mlr, rounds=2)
    np.testing.assert_allclose(fedavg.server["weight"], single.clients["weight"][0], atol=1e-6)
