"""Theorem 4.1's condition and bound, worked out by hand on parabolas."""

import dataclasses
import math

import numpy as np
import pytest

from cgpfl.algorithms import CGPFL, PFedMe
from cgpfl.engine import Simulation
from cgpfl.paper.theory import (
    Constants,
    Smoothness,
    Symbols,
    approximation,
    bound,
    exact,
    rate_check,
    step_condition,
    watch,
)
from helpers import points, quadratic

CENTRES = np.array([[0, 0], [2, 0], [9, 9], [7, 9]], np.float32)
LABELS = (0, 0, 1, 1)
CURVATURE, PROX, ETA, RATE, R, S = 2.0, 3.0, 0.1, 0.25, 3, 2
METHOD = CGPFL(
    contexts=LABELS, prox=PROX, personal_rate=ETA, context_rate=RATE, local_rounds=R, inner_steps=S, batch_size=0
)


@pytest.fixture(scope="module")
def seen():
    data = points(CENTRES)
    return watch(METHOD, data, quadratic(data, curvature=CURVATURE, start=1.0), rounds=30, exact_every=10)


def prox_point(omega, x):
    return (CURVATURE * x + PROX * omega) / (CURVATURE + PROX)


def test_the_condition_at_the_papers_setting():
    """N = 40, R = 10, α = 1, λ·lr = 0.06: β = 0.06·40/2, and the limit is 1/(2·sqrt(110))."""
    found = step_condition(CGPFL(prox=12.0, context_rate=0.06, local_rounds=10), 40, 5.0)
    assert found.symbols.beta == pytest.approx(1.2)
    assert found.symbols.alpha_hat == pytest.approx(12)
    assert found["step"].step == pytest.approx(0.06)  # the client's rate itself
    assert found["step"].limit == pytest.approx(0.047673, rel=1e-4)
    assert found["step"].proof_limit == pytest.approx(0.0049029, rel=1e-4)
    assert found["printed"].step == pytest.approx(1.2)
    assert found["envelope"].step == pytest.approx(0.06 * 5 / 17)
    assert [r.holds for r in found.readings] == [False, False, True]
    assert not any(r.holds_in_proof for r in found.readings)
    assert "meets the theorem's only" in found.explain()
    assert step_condition(PFedMe(global_rate=0.004), 40)["step"].holds_in_proof


def test_the_envelope_bends_less_than_f_unless_f_is_not_convex():
    def ends(low, high):
        one = np.ones(1)
        return Smoothness(high * one, low * one, 0 * one, one, 1e-3)

    method = CGPFL(prox=12.0)
    assert pytest.approx(0.2 * 4 / 16) == step_condition(method, 10, ends(0.0, 4.0))["envelope"].L_G
    assert pytest.approx(0.2 * 4 / 8) == step_condition(method, 10, ends(-4.0, 4.0))["envelope"].L_G
    assert math.inf == step_condition(method, 10, ends(-12.0, 4.0))["envelope"].L_G


def test_the_envelopes_l_g_is_that_of_the_map(seen):
    """On a parabola ω − θ̂(ω) = c/(c + λ)·(ω − x): its slope, times 2/N, is the reading's L_G."""
    slope = (np.array([5.0]) - prox_point(5.0, 1.0)) - (np.array([2.0]) - prox_point(2.0, 1.0))
    L_G = step_condition(METHOD, 4, CURVATURE)["envelope"].L_G
    assert pytest.approx(2 / 4 * slope[0] / 3) == L_G


CONSTANTS = Constants(
    Symbols(alpha=1.0, beta=0.1, prox=3.0, local_rounds=2, inner_steps=1, clients=4),
    contexts=2,
    L_G=0.5,
    rho_omega2=8.0,
    rho_g2=6.0,
    drop=2.0,
    delta2=0.25,
)


def test_the_three_terms_by_hand():
    """α̂_0² = 1/(416·0.25); then 48·4·104/16, 80·sqrt(26·4·0.25·0.25)/sqrt(4·2·2·16) and 52·0.25/8."""
    assert CONSTANTS.alpha_hat_0**2 == pytest.approx(1 / 104)
    first, second, third = CONSTANTS.terms(16)
    assert first == pytest.approx(1248)
    assert second == pytest.approx(5 * math.sqrt(6.5))
    assert third == pytest.approx(1.625)
    assert CONSTANTS.bound(16) == pytest.approx(first + second + third)
    assert CONSTANTS.floor_from == pytest.approx(16 * 1248 / 1.625)
    np.testing.assert_allclose(CONSTANTS.bound(np.array([16, 64]))[1], 1248 / 4 + second / 2 + third)


@pytest.mark.parametrize(
    ("change", "alpha_hat_0"),
    [
        ({"drop": 1e4}, 8 * 8 / (2 * 1e4)),
        ({"rho_g2": 1e6}, math.sqrt(4 / 3 * 8 / 1e6)),
        ({"drop": -1.0, "rho_g2": 0.0, "L_G": 1e-3}, 1000 / math.sqrt(416)),
    ],
)
def test_each_part_of_alpha_hat_0_can_be_the_smallest(change, alpha_hat_0):
    assert dataclasses.replace(CONSTANTS, **change).alpha_hat_0 == pytest.approx(alpha_hat_0)


def test_the_middle_term_never_leads():
    """α̂_0 ≤ α/(sqrt(416)·L_G) makes first × third at least 6.24·R times the middle one's square, whatever the run."""
    rng = np.random.default_rng(0)
    tightest = math.inf
    for _ in range(200):
        size, g, drop, delta2, L_G = np.exp(rng.uniform(-6, 6, 5))
        counts = dataclasses.replace(
            CONSTANTS.symbols, clients=int(rng.integers(1, 99)), local_rounds=int(rng.integers(1, 20))
        )
        K = int(rng.integers(1, counts.clients + 1))
        c = Constants(counts, K, L_G, rho_omega2=size, rho_g2=g, drop=drop, delta2=delta2)
        first, second, third = c.terms(7)
        ratio = first * third / second**2 / counts.local_rounds
        assert ratio >= 6.2399
        assert not c.middle_leads
        tightest = min(tightest, ratio)
    assert tightest == pytest.approx(6.24)


def test_proximal_points_of_parabolas(seen):
    """All start at ω = (1, 1): G, ∇G and Δ_G follow from θ̂ = (c·x + λω)/(c + λ)."""
    found = exact(seen.simulation, seen.start)
    theta = prox_point(np.ones(2), CENTRES)
    each = ((theta - 1) ** 2).sum(1) / 4
    assert found.objective == pytest.approx(np.mean([each[:2].mean(), each[2:].mean()]), rel=1e-4)
    means = np.array([theta[:2].mean(0), theta[2:].mean(0)])
    assert found.gradient == pytest.approx(((2 / 4 * (1 - means)) ** 2).sum(1).mean(), rel=1e-4)
    assert found.error < 1e-4
    assert exact(seen.simulation, seen.start, most=0).error > 1  # not solved: θ = ω, and said so


def test_the_proximal_point_where_f_bends_more_than_the_prox_term():
    """Curvature 50 against λ = 3: a step of 1/λ would overshoot, and must be shortened."""
    data = points(CENTRES)
    simulation = Simulation(METHOD, data, quadratic(data, curvature=50.0, start=1.0), rounds=1)
    found = exact(simulation, simulation.start())
    assert found.error < 1e-3
    theta = (50 * CENTRES + 3) / 53
    each = ((theta - 1) ** 2).sum(1) / 4
    assert found.objective == pytest.approx(np.mean([each[:2].mean(), each[2:].mean()]), rel=1e-4)


def steps_in_numpy(omega, theta, inner_steps):
    """‖θ̃ − θ̂‖² in each local round of Algorithm 1, full batch."""
    squared = []
    for _ in range(R):
        goal = prox_point(omega, CENTRES)
        for _ in range(inner_steps):
            theta = theta - ETA * (CURVATURE * (theta - CENTRES) + PROX * (theta - omega))
        squared.append(((theta - goal) ** 2).sum(1))
        omega = omega - RATE * (omega - theta)
    return np.array(squared)


@pytest.mark.parametrize("inner_steps", [1, 2, 30])
def test_delta_is_the_distance_left_after_s_steps(seen, inner_steps):
    method = dataclasses.replace(METHOD, inner_steps=inner_steps)
    data = points(CENTRES)
    simulation = Simulation(method, data, quadratic(data, curvature=CURVATURE, start=1.0), rounds=1)
    found = approximation(simulation, seen.start, clients=4)
    expected = steps_in_numpy(np.ones((4, 2)), np.ones((4, 2)), inner_steps)
    np.testing.assert_allclose(found.squared, expected, rtol=1e-3, atol=1e-5)
    assert found.delta2 == pytest.approx(expected.mean(1).max(), rel=1e-3, abs=1e-5)
    contraction = (1 - ETA * (CURVATURE + PROX)) ** (2 * inner_steps)  # of the first local round's distance
    first = ((1 - prox_point(np.ones(2), CENTRES)) ** 2).sum(1)
    np.testing.assert_allclose(found.squared[0], contraction * first, rtol=1e-3, atol=1e-5)
    two = approximation(simulation, seen.start, clients=2)  # the first and the last client
    np.testing.assert_allclose(two.squared, found.squared[:, [0, 3]], rtol=1e-4)


def test_the_bound_of_a_run(seen):
    found = bound(seen, clients=4)
    c = found.constants
    assert (c.contexts, found.rounds, c.L_G) == (2, 30, 0.5)
    assert c.rho_omega2 == pytest.approx(max(seen.omega.max(), 2 * 2.0))
    assert c.rho_g2 == pytest.approx(2 * seen.gradient.max())
    start, end = exact(seen.simulation, seen.start), exact(seen.simulation, seen.state)
    assert c.drop == pytest.approx(start.objective - end.objective)
    assert c.drop > 0
    assert found.end == pytest.approx(end.gradient)
    assert c.delta2 == pytest.approx(steps_in_numpy(np.ones((4, 2)), np.ones((4, 2)), S).mean(1).max(), rel=1e-3)
    assert found.measured == pytest.approx(seen.gradient.mean())
    assert found.measured_exact == pytest.approx(seen.exact_gradient[9::10].mean())
    assert found.personal == pytest.approx((seen.gap**2).mean())
    assert sum(found.terms) == found.total > found.measured
    assert f"{found.total:.3g}" in found.explain()
    assert bound(seen, clients=4, L_G=5.0).constants.L_G == 5.0


def test_contexts_end_at_the_mean_and_the_gradient_vanishes(seen):
    """With K = 2 known contexts of parabolas ω_k goes to its members' mean: ∇G = 0 there, and the rate is 1/T."""
    np.testing.assert_allclose(seen.state.server.models["w"], [[1, 0], [8, 9]], atol=2e-3)
    assert seen.exact_gradient[-1] < 1e-4 * seen.exact_gradient[9]
    check = rate_check(seen.gradient, bound(seen, clients=4).constants)
    assert check.below
    assert check.slope == pytest.approx(-1, abs=0.05)
