"""MOCHA against its equations: min Σ f_i(w_i) + λ₁ tr(WΩWᵀ) + λ₂‖W‖², here f_i(w) = ½‖w − c_i‖² + constant."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import sqrtm

from cgpfl.algorithms import MOCHA, Cohort, Local
from cgpfl.algorithms.mocha import Server, learned
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from helpers import quadratic

N, D = 4, 5
CENTRES = np.random.default_rng(0).normal(size=(N, D)) * 3
START, RATE, STEPS = 1.5, 0.2, 2
COMMON = {"rate": RATE, "local_rounds": STEPS, "batch_size": 0}


def simulation(method, centres=CENTRES, rounds=4):
    """Two samples a client, on both sides of its centre; one evaluation, so that rounds change no program."""
    spread = np.linspace(-1, 1, D)
    pairs = [(np.stack([c - spread, c + spread]), np.zeros(2, int)) for c in centres]
    data = FederatedData.from_clients(pairs, test=pairs)
    return Simulation(method, data, quadratic(data, start=START), rounds=rounds, eval_every=rounds)


def final(method, centres=CENTRES, rounds=4):
    """W, a row a client, after the last round."""
    sim = simulation(method, centres, rounds)
    state, _, _ = sim.advance(sim.start(), 0, rounds)
    W = np.asarray(state.clients["w"], float)
    np.testing.assert_array_equal(sim.personal(state, 1)["w"], state.clients["w"][1])
    np.testing.assert_array_equal(state.server.models["w"], state.clients["w"])
    return W


def covariance(W):
    """Σ = (WᵀW)^½ / tr (WᵀW)^½; rows are clients, so the paper's WᵀW is W @ W.T here."""
    root = np.real(sqrtm(W @ W.T))
    return root / np.trace(root)


def w_step(W, centres, omega, relate, shrink):
    """Each client's steps on its own block, the other blocks as they were sent."""
    after = W.copy()
    for i in range(len(W)):
        for _ in range(STEPS):
            others = sum(omega[i, j] * W[j] for j in range(len(W)) if j != i)
            relation = omega[i, i] * after[i] + others
            after[i] = after[i] - RATE * (after[i] - centres[i] + 2 * relate * relation + 2 * shrink * after[i])
    return after


def test_the_relation_is_the_matrix_root():
    """Over all leaves of the models; Ω = (Σ + εI)⁻¹."""
    W = np.random.default_rng(1).normal(size=(N, 8))
    tree = {"a": jnp.asarray(W[:, :6].reshape(N, 2, 3), jnp.float32), "b": jnp.asarray(W[:, 6:], jnp.float32)}
    omega = np.asarray(learned(tree, 0.1))
    np.testing.assert_allclose(omega, np.linalg.inv(covariance(W) + 0.1 * np.eye(N)), rtol=1e-5, atol=1e-5)


def test_no_covariance_of_trace_one_explains_the_models_better():
    """Σ minimises tr(W Σ⁻¹ Wᵀ) over positive Σ with tr Σ = 1: against 200 others, near and far."""
    rng = np.random.default_rng(2)
    W = rng.normal(size=(N, 8))
    sigma = np.linalg.inv(np.asarray(learned({"w": jnp.asarray(W, jnp.float32)}, 1e-6), float))
    assert np.trace(sigma) == pytest.approx(1, abs=1e-4)

    def penalty(s):
        return np.trace(W.T @ np.linalg.inv(s) @ W)

    for reach in (1e-1, 1.0, 10.0, 100.0):
        for _ in range(50):
            root = rng.normal(size=(N, N))
            other = sigma + reach * root @ root.T
            assert penalty(other / np.trace(other)) > penalty(sigma)


def test_learned_by_hand():
    """Four rounds: W-steps with Ω as it was, then Ω of the new W. It starts from Σ = I/N."""
    relate, shrink, floor = 0.05, 0.1, 0.2
    W, omega = np.full((N, D), START), np.eye(N) / (1 / N + floor)
    for _ in range(4):
        W = w_step(W, CENTRES, omega, relate, shrink)
        omega = np.linalg.inv(covariance(W) + floor * np.eye(N))
    method = MOCHA(relate=relate, shrink=shrink, floor=floor, **COMMON)
    np.testing.assert_allclose(final(method), W, rtol=1e-5, atol=1e-5)


def test_identity_is_a_ridge_for_each_client():
    """Each trains alone on f_i + (λ₁ + λ₂)‖w‖²."""
    W = np.full((N, D), START)
    for _ in range(4 * STEPS):
        W = W - RATE * (W - CENTRES + 2 * (0.3 + 0.1) * W)
    method = MOCHA(relation="identity", relate=0.3, shrink=0.1, **COMMON)
    np.testing.assert_allclose(final(method), W, rtol=1e-5, atol=1e-5)


def test_mean_converges_to_the_minimiser():
    """w_i − c_i + 2λ₁(w_i − w̄) + 2λ₂w_i = 0: a linear system in W."""
    method = MOCHA(relation="mean", relate=0.3, shrink=0.1, **COMMON)
    to_the_mean = np.eye(N) - np.ones((N, N)) / N
    minimiser = np.linalg.solve((1 + 0.2) * np.eye(N) + 0.6 * to_the_mean, CENTRES)
    np.testing.assert_allclose(final(method, rounds=100), minimiser, rtol=1e-5, atol=1e-5)
    W = np.full((N, D), START)
    for _ in range(3):  # and on the way there
        W = w_step(W, CENTRES, to_the_mean, 0.3, 0.1)
    np.testing.assert_allclose(final(method, rounds=3), W, rtol=1e-5, atol=1e-5)


def test_clients_with_one_optimum_come_closer():
    """Clients 0 and 1 have the same optimum up to noise, 2 and 3 others: a learned Ω keeps less of the noise."""
    rng = np.random.default_rng(3)
    centres = CENTRES.copy()
    centres[1] = centres[0] + 0.3 * rng.normal(size=D)

    def apart(W, i, j):
        return np.linalg.norm(W[i] - W[j]) / np.linalg.norm(W[i] + W[j])

    alone = final(MOCHA(relation="identity", relate=0.1, **COMMON), centres, rounds=60)
    related = final(MOCHA(relate=0.1, floor=0.05, **COMMON), centres, rounds=60)
    assert apart(related, 0, 1) < 0.7 * apart(alone, 0, 1)
    for other in (2, 3):  # strangers do not
        assert apart(related, 0, other) > apart(alone, 0, other)


def test_without_penalties_it_is_local():
    """With minibatches: the same draws, too."""
    common = COMMON | {"batch_size": 1}
    local = simulation(Local(**common))
    state, _, _ = local.advance(local.start(), 0, 4)
    np.testing.assert_allclose(final(MOCHA(relate=0.0, shrink=0.0, **common)), state.clients["w"], atol=1e-6)


def test_who_does_not_answer_keeps_its_block():
    """Client 2 answers, 0 was asked and did not, 1 was not asked; Ω is learned of W as it is now."""
    before = np.array([[1.0, 2, 0], [3, 5, -2], [0, 1, 1]])
    server = Server({"w": jnp.asarray(before, jnp.float32)}, jnp.eye(3))
    cohort = Cohort(jnp.asarray([0, 2]), jnp.asarray([0.0, 4]))
    uploads = {"w": jnp.asarray([[50.0, 50, 50], [7, -3, 1]])}
    method = MOCHA(floor=0.5)
    after = method.aggregate(server, uploads, cohort, jax.random.key(0))
    W = np.array([[1.0, 2, 0], [3, 5, -2], [7, -3, 1]])
    np.testing.assert_array_equal(after.models["w"], W)
    np.testing.assert_allclose(after.relation, np.linalg.inv(covariance(W) + 0.5 * np.eye(3)), rtol=1e-5, atol=1e-5)
    silent = method.aggregate(server, uploads, dataclasses.replace(cohort, weights=jnp.zeros(2)), jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, silent, server)
