"""FedOpt's five server optimizers against the paper's Algorithm 2."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import Cohort, FedAvg, FedOpt
from cgpfl.algorithms.fedopt import OPTIMIZERS
from cgpfl.data import FederatedData
from cgpfl.engine import simulate
from helpers import quadratic

ETA, B1, B2, TAU = 2.0, 0.6, 0.5, 0.8
SETTINGS = {"rate": 0.5, "local_rounds": 2, "batch_size": 0, "momentum": B1, "decay": B2, "adaptivity": TAU}


def federation():
    """Two clients, f_i(w) = ½(w − c_i)², c = 1 and 5, with 1 and 3 training samples."""
    train = [(np.full((1, 1), 1.0), np.zeros(1, int)), (np.full((3, 1), 5.0), np.zeros(3, int))]
    return FederatedData.from_clients(train, test=train)


def pseudo_gradient(w):
    """w − Σ (m_i/m) w_i; two steps of w ← w − ½(w − c) quarter the distance to c."""
    return w - (1 * (1 + (w - 1) / 4) + 3 * (5 + (w - 5) / 4)) / 4


def adagrad(v, g):
    return v + g**2


def adam(v, g):
    return B2 * v + (1 - B2) * g**2


def yogi(v, g):
    return v - (1 - B2) * g**2 * (1 if v > g**2 else -1)


@pytest.mark.parametrize("second", [adam, yogi, adagrad])
def test_adaptive_rules_by_hand(second):
    """u ← β₁u + (1 − β₁)g;  v by the rule, from τ²;  w ← w − η·u/(√v + τ), with no correction of the start."""
    data = federation()
    method = FedOpt(optimizer=second.__name__, server_rate=ETA, **SETTINGS)
    w, u, v = 0.0, 0.0, TAU**2
    grew = []
    for t in (1, 2, 3, 4):
        g = pseudo_gradient(w)
        u, v, before = B1 * u + (1 - B1) * g, second(v, g), v
        w = w - ETA * u / (v**0.5 + TAU)
        grew.append(v > before)
        state, _, _ = simulate(method, data, quadratic(data), rounds=t, eval_every=t)
        np.testing.assert_allclose(state.server.model["w"], [w], rtol=1e-5)
    # v both rises and falls in these rounds: both of yogi's signs are met; adagrad's never falls
    assert set(grew) == ({True} if second is adagrad else {True, False})


def test_momentum_by_hand():
    """FedAvgM: u ← β₁u + g;  w ← w − ηu."""
    data = federation()
    method = FedOpt(optimizer="momentum", server_rate=0.4, **SETTINGS)
    w, u = 0.0, 0.0
    for t in (1, 2, 3):
        u = B1 * u + pseudo_gradient(w)
        w = w - 0.4 * u
        state, _, _ = simulate(method, data, quadratic(data), rounds=t, eval_every=t)
        np.testing.assert_allclose(state.server.model["w"], [w], rtol=1e-5)


def test_sgd_by_hand():
    data = federation()
    w = 0.0
    for t in (1, 2, 3):
        w = w - 0.4 * pseudo_gradient(w)
        method = FedOpt(optimizer="sgd", server_rate=0.4, **SETTINGS)
        state, _, _ = simulate(method, data, quadratic(data), rounds=t, eval_every=t)
        np.testing.assert_allclose(state.server.model["w"], [w], rtol=1e-5)


def test_sgd_at_rate_one_is_fedavg(digits, mlr):
    """On the same minibatches, with clients of unequal size."""
    assert len(set(digits.train.counts.tolist())) > 1
    fedavg, _, _ = simulate(FedAvg(), digits, mlr, rounds=2)
    ours, _, _ = simulate(FedOpt(optimizer="sgd", server_rate=1.0), digits, mlr, rounds=2)
    np.testing.assert_allclose(ours.server.model["weight"], fedavg.server["weight"], atol=1e-6)
    np.testing.assert_allclose(ours.server.model["bias"], fedavg.server["bias"], atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_round_without_answers_changes_nothing(name):
    """Neither the model nor what the optimizer remembers, though momentum alone would carry it on."""
    method = FedOpt(optimizer=name)
    model = {"w": jnp.array([1.0, 2.0])}
    uploads = {"w": jnp.array([[2.0, 5.0], [4.0, -3.0]])}
    rest = method.init_server(type("Task", (), {"initial": model})(), None)
    moving = method.aggregate(rest, uploads, Cohort(jnp.arange(2), jnp.array([1, 3])), None)
    after = method.aggregate(moving, uploads, Cohort(jnp.arange(2), jnp.array([0, 0])), None)
    for was, now in zip(jax.tree.leaves(moving), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(was, now)
    assert (moving.model["w"] != model["w"]).all()
    moments = 0 if name == "sgd" else 1 if name == "momentum" else 2
    changed = [bool((a != b).any()) for a, b in zip(jax.tree.leaves(rest), jax.tree.leaves(moving), strict=True)]
    assert changed == [True] * (1 + moments)
