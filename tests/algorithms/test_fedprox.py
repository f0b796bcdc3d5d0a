"""FedProx against its equations, its limits and the paper's algorithm."""

import numpy as np
from test_transcriptions import (
    LOCAL,
    D,
    N,
    cohorts_of,
    everyone_or_some,
    grad,
    initial,
    library,
    m,
    same,
    vectors,
    weighted_mean,
)

from cgpfl.algorithms import FedAvg, FedProx
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, simulate
from helpers import quadratic


def federation():
    """Two clients, f_i(w) = ½(w − c_i)², c = 1 and 5, with 1 and 3 training samples."""
    train = [(np.full((1, 1), 1.0), np.zeros(1, int)), (np.full((3, 1), 5.0), np.zeros(3, int))]
    return FederatedData.from_clients(train, test=train)


def test_two_rounds_by_hand():
    """μ = 0.5, η = 0.4, R = 2, from 2."""
    data = federation()
    method = FedProx(rate=0.4, prox=0.5, local_rounds=2, batch_size=0)
    simulation = Simulation(method, data, quadratic(data, start=2.0), rounds=2)
    state, records, _ = simulation.advance(simulation.start(), 0, 2)
    # Round 1, from 2. Client 1 (c = 1): 2 − 0.4(1 + 0) = 1.6; 1.6 − 0.4(0.6 − 0.2) = 1.44.
    # Client 2 (c = 5): 2 − 0.4(−3 + 0) = 3.2; 3.2 − 0.4(−1.8 + 0.6) = 3.68. The mean: (1.44 + 3·3.68)/4 = 3.12.
    # In round 2 the distances to c are 2.12 and −1.88, and the two steps move by 0.56 of them.
    end = (1 * (3.12 - 0.56 * 2.12) + 3 * (3.12 + 0.56 * 1.88)) / 4
    np.testing.assert_allclose(state.server["w"], [end], rtol=1e-6)
    for i, c in enumerate((1, 5)):
        np.testing.assert_allclose(simulation.personal(state, i)["w"], [end], rtol=1e-6)
        np.testing.assert_allclose(records["loss"][-1, i], (end - c) ** 2 / 2, rtol=1e-5)


def test_many_steps_end_at_the_proximal_point():
    """R → ∞: w_i = (c_i + μw)/(1 + μ), the minimum of f_i + μ/2‖w_i − w‖²; here w = 2, μ = 3."""
    data = federation()
    method = FedProx(rate=0.2, prox=3.0, local_rounds=60, batch_size=0)
    state, _, _ = simulate(method, data, quadratic(data, start=2.0), rounds=1)
    np.testing.assert_allclose(state.server["w"], [(1 * (1 + 6) / 4 + 3 * (5 + 6) / 4) / 4], rtol=1e-5)


def test_without_pull_it_is_fedavg_and_with_much_it_stays(digits, mlr):
    """On the same minibatches. ημ = 1: every step starts again from w, so R steps are one step from w at most."""
    fedavg, _, _ = simulate(FedAvg(), digits, mlr, rounds=3)
    free, _, _ = simulate(FedProx(prox=0.0), digits, mlr, rounds=3)
    some, _, _ = simulate(FedProx(), digits, mlr, rounds=3)
    pinned = Simulation(FedProx(rate=1e-4, prox=1e4), digits, mlr, rounds=3)
    held, _, _ = pinned.advance(pinned.start(), 0, 3)
    for leaf in ("weight", "bias"):
        np.testing.assert_allclose(free.server[leaf], fedavg.server[leaf], rtol=0, atol=1e-6)
        np.testing.assert_allclose(held.server[leaf], pinned.task.initial[leaf], rtol=0, atol=2e-3)
    start = np.asarray(pinned.task.initial["weight"])
    moves = [np.linalg.norm(np.asarray(s.server["weight"]) - start) for s in (free, some, held)]
    assert moves[0] > moves[1] + 1e-3 > moves[2]  # the default pull is no small change


def test_a_pull_that_is_too_strong_is_named():
    assert "prox x rate = 3" in FedProx(rate=0.3, prox=10.0).likely_cause()
    assert FedProx().likely_cause() == FedAvg().likely_cause()


# Li et al. 2020, Algorithm 2, with FedAvg's sampling and mean; a client's inexact minimiser of h_k(w; w^t) is R
# gradient steps


def fedprox(w, cohorts, eta, mu, steps):
    for S in cohorts:
        uploads = []
        for i in S:
            w_i = w.copy()
            for _ in range(steps):
                w_i = w_i - eta * (grad(w_i, D[i]) + mu * (w_i - w))
            uploads.append(w_i)
        w = weighted_mean(uploads, m[S])
    return w


@everyone_or_some
def test_transcription(participation):
    state, personal = library(FedProx(**LOCAL, prox=0.7), participation)
    w = fedprox(initial(), cohorts_of(participation), LOCAL["rate"], 0.7, LOCAL["local_rounds"])
    same(vectors(state.server), w)
    same(personal, np.tile(w, (N, 1)))
