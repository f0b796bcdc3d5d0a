"""The rate check tells sequences of known rate apart."""

import dataclasses

import numpy as np
import pytest

from cgpfl.paper.theory import Constants, Symbols, rate_check, running_mean

T = np.arange(1, 401, dtype=float)
SYMBOLS = Symbols(alpha=1.0, beta=0.1, prox=3.0, local_rounds=2, inner_steps=1, clients=4)
CONSTANTS = Constants(SYMBOLS, contexts=2, L_G=0.5, rho_omega2=8.0, rho_g2=6.0, drop=2.0, delta2=0.25)


def test_running_mean():
    np.testing.assert_allclose(running_mean(np.array([4.0, 2.0, 0.0])), [4, 3, 2])


@pytest.mark.parametrize(
    ("gradient", "slope", "leading"),
    [
        (np.where(T == 1, 9.0, 0.0), -1.0, 0),  # gone after one round: M(T) = 9/T
        (np.diff(np.sqrt(np.arange(401.0))), -0.5, 1),  # sums to sqrt(T): M(T) = 1/sqrt(T)
        (np.full(400, 0.3), 0.0, 2),
    ],
)
def test_pure_shapes_are_recognised(gradient, slope, leading):
    check = rate_check(gradient, CONSTANTS)
    assert check.slope == pytest.approx(slope, abs=1e-6)
    shares = np.array(check.fit) * [1 / 400, 1 / 20, 1]
    assert shares.argmax() == leading
    assert shares[leading] / shares.sum() == pytest.approx(1, abs=1e-5)
    assert check.misfit < 1e-5
    assert check.skip == 40
    if leading != 1:  # at −1/2 rounding decides
        assert ("at least as fast as" in check.explain()) == (leading == 0)


def test_a_mean_above_the_bound_is_seen_even_if_only_at_one_round():
    small = dataclasses.replace(CONSTANTS, rho_omega2=1e-6, rho_g2=1e-6, delta2=1e-9)
    gradient = np.full(400, 1e-12)
    assert rate_check(gradient, small).below
    bad = gradient.copy()
    bad[100] = 2 * 101 * small.bound(101)
    check = rate_check(bad, small)
    assert not check.below
    assert "ABOVE" in check.explain()
    assert check.looseness == pytest.approx(small.bound(400) / bad.mean())
