"""ε against textbook formulas, written out here by themselves."""

import math
import sys

import pytest
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from cgpfl.errors import CgpflError
from cgpfl.rounds import account
from cgpfl.rounds.account import Steps, coarse, noise_of_steps, noise_of_uploads, of_steps, of_uploads, room
from cgpfl.rounds.privacy import ClientLevel, of_all


@pytest.fixture
def counted():
    pytest.importorskip("dp_accounting")


def gaussian(noise, delta, times):
    """The analytic Gaussian mechanism (Balle, Wang, ICML 2018), of the composition: μ = √T/z."""
    mu = math.sqrt(times) / noise

    def left(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return brentq(left, 0, 500)


def subsampled(noise, delta, parts):
    """Rényi divergences of the subsampled Gaussian (Mironov, Talwar, Zhang 2019), of (q, times) one after the other."""
    best = math.inf
    for a in range(2, 400):
        total = 0.0
        for q, times in parts:
            k = range(a + 1)
            chosen = [gammaln(a + 1) - gammaln(j + 1) - gammaln(a - j + 1) for j in k]
            rest = [0.0 if q == 1 and j == a else (a - j) * math.log1p(-q) if q < 1 else -math.inf for j in k]
            terms = [
                c + r + j * math.log(q) + j * (j - 1) / (2 * noise**2) for j, c, r in zip(k, chosen, rest, strict=True)
            ]
            total += times * logsumexp(terms) / (a - 1)
        best = min(best, total + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1))
    return best


@pytest.mark.parametrize(("noise", "times"), [(1.0, 1), (4.0, 20), (30.0, 200)])
def test_uploads_are_the_analytic_gaussian_mechanism(counted, noise, times):
    assert of_uploads(noise, 1e-5, times) == pytest.approx(gaussian(noise, 1e-5, times), rel=0.01)
    assert of_uploads(noise, 1e-5, 0) == 0


@pytest.mark.parametrize(("noise", "samples", "batch", "times"), [(1.1, 600, 20, 500), (6.0, 33, 20, 200)])
def test_gradients_are_the_subsampled_gaussian(counted, noise, samples, batch, times):
    steps = (Steps(times // 10, 10, 1, batch),)
    expected = subsampled(noise, 1e-5, [(batch / samples, times)])
    assert of_steps(noise, 1e-5, steps, samples) == pytest.approx(expected, rel=0.01)


def test_folds_are_seen_seldom_and_with_larger_shares(counted):
    steps = (Steps(10, 4, 1, 20, folds=5), Steps(30, 4, 1, 20))
    expected = subsampled(3.0, 1e-5, [(20 / 40, 2 * 4), (20 / 200, 30 * 4)])
    assert of_steps(3.0, 1e-5, steps, 200) == pytest.approx(expected, rel=0.01)


def test_whole_batches_have_nothing_to_gain_from_sampling(counted):
    for batch in (0, 33, 50):
        assert of_steps(20.0, 1e-5, (Steps(10, 10, 2, batch),), 33) == pytest.approx(
            gaussian(20.0, 1e-5, 200), rel=0.01
        )


def test_several_gradients_on_a_minibatch_are_one_with_less_noise(counted):
    one, four = (Steps(5, 2, 1, 10),), (Steps(5, 2, 4, 10),)
    assert of_steps(4.0, 1e-5, four, 100) == pytest.approx(of_steps(2.0, 1e-5, one, 100))


def test_noise_is_the_way_back(counted):
    assert of_uploads(noise_of_uploads(2.0, 1e-5, 50), 1e-5, 50) == pytest.approx(2.0, rel=1e-3)
    steps = (Steps(20, 10, 1, 20),)
    assert 1.98 < of_steps(noise_of_steps(2.0, 1e-5, steps, 100), 1e-5, steps, 100) <= 2.0


def test_room_is_seldom_too_small():
    from scipy.stats import binom

    for batch, samples in ((1, 1000), (20, 100), (20, 10**6), (200, 10**4)):
        assert binom.sf(room(batch), samples, batch / samples) <= account.OVERFLOW


def test_coarse_counts_are_never_more():
    assert [coarse(n) for n in (1, 7, 8, 9, 33, 63, 64, 1000)] == [1, 7, 8, 8, 32, 56, 64, 896]


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(CgpflError, match=r'privacy: needs dp-accounting; pip install "cgpfl\[privacy\]"'):
        of_uploads(1.2345, 1e-5, 3)


def test_placing_and_sums_are_one_gaussian_mechanism(counted):
    spent = ClientLevel(clip=0.5, noise=4.0, times=30, summed=True, placing=1.5).spent(None, [1] * 9)
    both = 1 / math.sqrt(30 / 4.0**2 + 1 / 1.5**2)
    assert spent["epsilon"] == pytest.approx(gaussian(both, 1e-5, 1), rel=0.01)
    assert spent["epsilon_replaced"] == pytest.approx(gaussian(both / 2, 1e-5, 1), rel=0.01)
    assert spent["parts"] == {
        "sums of updates": pytest.approx(gaussian(4.0, 1e-5, 30), rel=0.01),
        "placing in contexts": pytest.approx(gaussian(1.5, 1e-5, 1), rel=0.01),
    }
    line = of_all([spent, spent])
    assert line.endswith(f"which cost them ε = {of_uploads(both, 1e-5, 2):.3g} at δ = 1e-05 together")


def test_methods_on_the_same_clients_add_up(counted):
    z = noise_of_uploads(8.0, 1e-5, 10)
    one = {"level": "client", "epsilon": 8.0, "delta": 1e-5, "uploads": 10, "noise": z}
    assert of_all([one, one]).endswith(f"which cost them ε = {of_uploads(z, 1e-5, 20):.3g} at δ = 1e-05 together")
    sample = {"level": "sample", "epsilon": 3.0, "delta": 1e-5}
    assert of_all([sample, sample, sample]).endswith("3 methods, which cost them ε = 9 at δ = 3e-05 together")


def test_a_client_with_fewer_samples_than_folds_shows_one_in_all_of_them():
    steps = Steps(10, 3, 1, 0, folds=5)
    assert steps.seen(5) == (1.0, 6)  # each of five folds in two of ten rounds
    assert steps.seen(2) == (1.0, 30)  # which of two is in the other three folds is not told


def test_all_but_a_fold_is_seen_often_and_with_smaller_shares():
    """Of nine samples six at a time, one in two rounds of three; the fourth is one more."""
    assert Steps(6, 3, 1, 2, folds=3, held=2).seen(9) == (2 / 6, 4 * 3)
    assert Steps(4, 3, 1, 2, folds=3, held=2).seen(9) == (2 / 6, 3 * 3)
    assert Steps(2, 3, 1, 2, folds=3, held=2).seen(10) == (2 / 6, 2 * 3)  # of ten, six where four are left out
    assert Steps(6, 3, 1, 2, folds=3, held=2).seen(2) == (1.0, 18)
