"""APFL against its equations and its limits."""

import numpy as np
import pytest

from cgpfl.algorithms import APFL, FedAvg, Local
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, simulate
from helpers import points, quadratic


def federation():
    """Two clients, f_i(w) = ½‖w − c_i‖² in the plane, with 1 and 3 training samples."""
    train = [(np.tile(np.float32(c), (n, 1)), np.zeros(n, int)) for c, n in (([1, -1], 1), ([5, 2], 3))]
    return FederatedData.from_clients(train, test=train)


def by_hand(rounds, eta, a0, adaptive):
    """→ w, v_i, a_i after some rounds of R = 2 steps from 0, and whether a_i was ever cut to [0, 1]."""
    centres = [(1.0, -1.0), (5.0, 2.0)]
    w, v, a, cut = (0.0, 0.0), [(0.0, 0.0)] * 2, [a0, a0], False
    for _ in range(rounds):
        ends = []
        for i, c in enumerate(centres):
            x, y, s = w, v[i], a[i]
            for _ in range(2):
                g = [x[k] - c[k] for k in (0, 1)]
                mixed = [s * y[k] + (1 - s) * x[k] - c[k] for k in (0, 1)]
                slope = sum((y[k] - x[k]) * mixed[k] for k in (0, 1))
                # all three from the values before the step
                x, y = [x[k] - eta * g[k] for k in (0, 1)], [y[k] - eta * s * mixed[k] for k in (0, 1)]
                if adaptive:
                    free = s - eta * slope
                    s = min(max(free, 0.0), 1.0)
                    cut |= s != free
            ends.append(x)
            v[i], a[i] = y, s
        w = [(1 * ends[0][k] + 3 * ends[1][k]) / 4 for k in (0, 1)]
    return w, v, a, cut


@pytest.mark.parametrize("adaptive", [True, False])
def test_by_hand(adaptive):
    data = federation()
    method = APFL(rate=0.05, mixture=0.9, adaptive=adaptive, local_rounds=2, batch_size=0)
    w, v, a, cut = by_hand(3, 0.05, 0.9, adaptive)
    assert not cut
    assert (a == [0.9, 0.9]) != adaptive
    simulation = Simulation(method, data, quadratic(data), rounds=3, eval_every=3)
    state, _, _ = simulation.advance(simulation.start(), 0, 3)
    np.testing.assert_allclose(state.server["w"], w, rtol=1e-5)
    np.testing.assert_allclose(state.clients.model["w"], v, rtol=1e-5)
    np.testing.assert_allclose(state.clients.mixture, a, rtol=1e-5)
    for i in range(2):  # the mixture with the new global model
        mixed = [a[i] * v[i][k] + (1 - a[i]) * w[k] for k in (0, 1)]
        np.testing.assert_allclose(simulation.personal(state, i)["w"], mixed, rtol=1e-5)


def test_the_mixture_stays_between_0_and_1():
    """With larger steps the second client's a would leave [0, 1], below from 0.4 and above from 0.9."""
    data = federation()
    for start, bound in (0.4, 0.0), (0.9, 1.0):
        method = APFL(rate=0.2, mixture=start, local_rounds=2, batch_size=0)
        for t in (2, 3):
            w, v, a, cut = by_hand(t, 0.2, start, True)
            assert (cut, a[1]) == (True, bound)
            state, _, _ = simulate(method, data, quadratic(data), rounds=t, eval_every=t)
            np.testing.assert_allclose(state.clients.mixture, a, atol=1e-5)
            np.testing.assert_allclose(state.clients.model["w"], v, rtol=1e-5)
            np.testing.assert_allclose(state.server["w"], w, rtol=1e-5)


def test_fixed_at_0_it_is_fedavg_and_at_1_local_training(digits, mlr):
    """On the same minibatches."""
    fedavg, _, _ = simulate(FedAvg(), digits, mlr, rounds=2)
    local, _, _ = simulate(Local(), digits, mlr, rounds=2)
    for mixture, expected in (0.0, lambda i: fedavg.server["weight"]), (1.0, lambda i: local.clients["weight"][i]):
        simulation = Simulation(APFL(mixture=mixture, adaptive=False), digits, mlr, rounds=2)
        state, _, _ = simulation.advance(simulation.start(), 0, 2)
        for i in (0, 5):
            np.testing.assert_allclose(simulation.personal(state, i)["weight"], expected(i), atol=1e-6)
        np.testing.assert_allclose(state.server["weight"], fedavg.server["weight"], atol=1e-6)


def test_a_client_far_from_the_mean_relies_on_its_own_model():
    """Centres −4, 0 and 4, from 0: the one in the middle has nothing to choose, the others move to a = 1."""
    data = points([[-4.0], [0.0], [4.0]])
    method = APFL(rate=0.05, local_rounds=3, batch_size=0)
    shares = []
    for t in (2, 3, 20):
        state, _, _ = simulate(method, data, quadratic(data), rounds=t, eval_every=t)
        shares.append(np.asarray(state.clients.mixture))
    shares = np.array(shares)
    np.testing.assert_allclose(shares[:, 1], 0.5, atol=1e-6)
    assert (np.diff(shares[:, [0, 2]], axis=0) > 0).all()
    assert (shares[-1, [0, 2]] > 0.95).all()
