"""Attacks' figures by hand, and bounds against mechanisms whose ε is known."""

import math

import numpy as np
import pytest

from cgpfl.auditing.bounds import (
    auc,
    contradicted,
    found_at,
    gaussian_epsilon,
    gaussian_noise,
    lower_bound,
    p_value,
)


def test_figures_by_hand():
    members, others = np.array([3.0, 2.0, 2.0]), np.array([1.0, 2.0])
    assert auc(members, others) == pytest.approx((2 + 1.5 + 1.5) / 6)  # pairs won, ties half
    assert auc(others, members) == pytest.approx(1 - 5 / 6)
    assert found_at(members, others, 0.0) == pytest.approx(1 / 3)
    assert found_at(members, others, 0.5) == 1.0


def test_chance_of_guesses_by_hand():
    assert p_value(2, 2, 2, 0.0, 0.0) == pytest.approx(1 / 4)
    assert p_value(2, 2, 2, math.log(3), 0.0) == pytest.approx(9 / 16)
    # δ: 2mδ·max(P[W = 1], P[W <= 1]/2) with m = 2, δ = 0.01, W of two coins
    assert p_value(2, 2, 2, 0.0, 0.01) == pytest.approx(1 / 4 + 4 * 0.01 * 0.5)
    # the same numbers by jax-privacy 2.0's _one_run_p_value
    assert p_value(100, 60, 55, 1.0, 1e-5) == pytest.approx(0.00044728775340671103, rel=1e-9)
    assert p_value(1000, 500, 300, 0.3, 1e-4) == pytest.approx(0.13951763487142077, rel=1e-9)
    all_right = 0.05 ** (1 / 100)
    assert contradicted(100, 100, 100, 0.0) == pytest.approx(math.log(all_right / (1 - all_right)), abs=1e-6)
    assert contradicted(100, 100, 50, 0.0) == 0.0


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_answers_are_bounded_by_their_epsilon(epsilon):
    bounds = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        inside = rng.random(2000) < 0.5
        honest = rng.random(2000) < 1 / (1 + math.exp(-epsilon))  # says its coin truly so often: ε-DP, and no more
        scores = np.where(honest, inside, ~inside) + 0.1 * rng.random(2000)
        bounds.append(lower_bound(scores, inside, 0.0).epsilon)
    assert np.mean(np.array(bounds) > epsilon) <= 0.05  # this is the mechanism for which the bound is exact
    assert np.mean(bounds) > 0.6 * epsilon


def test_nothing_to_guess_from_says_nothing():
    rng = np.random.default_rng(0)
    found = lower_bound(rng.random(1000), rng.random(1000) < 0.5, 1e-5)
    assert (found.epsilon, found.canaries) == (0.0, 1000)


def test_noise_of_an_epsilon():
    for epsilon in (0.5, 2.0, 8.0):
        assert gaussian_epsilon(gaussian_noise(epsilon, 50, 1e-5), 50, 1e-5) == pytest.approx(epsilon)
    assert gaussian_noise(2.0, 50, 1e-5) == pytest.approx(17.68, abs=0.02)
    orders = np.linspace(1.01, 200, 100_000)  # Rényi's ε(α) = αT/(2σ²), turned into (ε, δ) at the best order
    assert gaussian_epsilon(20.0, 50, 1e-5) == pytest.approx(
        (orders * 50 / 800 + math.log(1e5) / (orders - 1)).min(), rel=1e-6
    )
