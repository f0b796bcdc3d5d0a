"""Robust means: worked by hand, against NumPy and SciPy, against byzfl where it is there, and as groups."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import build
from cgpfl.rounds import (
    MEANS,
    AutoMean,
    Bucketing,
    CentredClipping,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
    WeightedMean,
)
from cgpfl.rounds.robust import noted

RNG = np.random.default_rng(3)
POINTS = RNG.normal(size=(10, 7)).astype(np.float32)
LIED = POINTS.copy()
LIED[[2, 5]] = 1e3
ONES = np.ones(10, np.float32)
NAMES = [name for name in MEANS.ours if name != "weighted"]


@jax.jit
def mean(rule, stacked, weights, fallback, seed=0):
    return rule.drawn(jax.random.key(seed)).mean(stacked, weights, fallback)


def of(rule, points, weights=None, fallback=None):
    points = np.asarray(points, np.float32)
    nothing = np.zeros(points.shape[1], np.float32) if fallback is None else np.asarray(fallback, np.float32)
    weights = np.ones(len(points), np.float32) if weights is None else np.asarray(weights, np.float32)
    found = mean(rule, {"a": points[:, :3], "b": points[:, 3:]}, weights, {"a": nothing[:3], "b": nothing[3:]})
    return np.concatenate([found["a"], found["b"]])


def test_median_by_hand():
    x = [[1.0], [2.0], [10.0], [-7.0]]
    assert of(Median(), x)[0] == 1.5
    assert of(Median(), x, [1, 1, 1, 0])[0] == 2.0  # the last did not answer
    assert of(Median(cap=3.0), x, [1, 1, 3, 1])[0] == 6.0  # half of the weight is at most 2, half at least 10
    assert of(Median(), x, [1, 1, 1000, 1])[0] == 1.5  # nobody counts more than the median client
    assert of(Median(cap=1000.0), x, [1, 1, 1000, 1])[0] == 10.0


def test_trimmed_by_hand():
    x = [[1.0], [2.0], [3.0], [4.0], [1000.0]]
    assert of(TrimmedMean(share=0.2), x)[0] == pytest.approx(3.0)
    assert of(TrimmedMean(share=0.3), x)[0] == pytest.approx((0.5 * 2 + 3 + 0.5 * 4) / 2)  # one and a half at each end
    assert of(TrimmedMean(share=0.0), x)[0] == pytest.approx(202.0)
    # by weight: 1, 2, 2, 3 | of 4 a quarter is cut at each end
    assert of(TrimmedMean(share=0.25, cap=2.0), x[:3], [1, 2, 1])[0] == pytest.approx(2.0)


def test_krum_by_hand():
    x = [[0.0], [1.0], [2.1], [3.5], [100.0]]
    # n = 5, f = 1: two nearest. 0: 1 + 4.41; 1: 1 + 1.21; 2.1: 1.21 + 1.96; 3.5: 1.96 + 6.25
    assert of(Krum(share=0.2), x)[0] == 1.0
    assert of(MultiKrum(share=0.2), x)[0] == pytest.approx((0 + 1 + 2.1 + 3.5) / 4)


def test_centred_clipping_by_hand():
    x = [[1.0], [4.0], [-100.0]]
    step = (1 + 2 - 2) / 3  # from 0, none longer than 2
    assert of(CentredClipping(radius=2.0, steps=1), x)[0] == pytest.approx(step)
    again = step + ((1 - step) + 2 - 2) / 3
    assert of(CentredClipping(radius=2.0, steps=2), x)[0] == pytest.approx(again, rel=1e-5)
    assert of(CentredClipping(radius=2.0, steps=1), x, fallback=[10.0])[0] == pytest.approx(10 - 2)


def test_geometric_median_is_the_minimum():
    weights = np.arange(1.0, 11)
    best = minimize(lambda z: (np.minimum(weights, 11.0) * np.linalg.norm(LIED - z, axis=1)).sum(), np.zeros(7))
    np.testing.assert_allclose(of(GeometricMedian(steps=200, cap=2.0), LIED, weights), best.x, atol=2e-3)


def test_auto_is_the_weighted_mean_where_nobody_lies_and_leaves_liars_out():
    weights = np.linspace(1, 2, 10)
    plain = weights @ POINTS / weights.sum()
    np.testing.assert_allclose(of(AutoMean(cap=2.0, bound=3.0), POINTS, weights), plain, atol=1e-5)
    honest = np.delete(LIED, [2, 5], axis=0).mean(axis=0)
    np.testing.assert_allclose(of(AutoMean(bound=3.0), LIED), honest, atol=1e-4)


def test_auto_sees_the_direction():
    """As long as everybody else's, as far from the middle as some, but backwards."""
    ahead = 0.3 * RNG.normal(size=(12, 400)).astype(np.float32) + 1.0
    ahead[:2] = -0.5 * ahead[2:].mean(axis=0)
    np.testing.assert_allclose(of(AutoMean(bound=3.0), ahead), ahead[2:].mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_liars_do_not_move_it_far(name):
    rule = build(MEANS, name, "mean")
    honest = np.delete(LIED, [2, 5], axis=0)
    points = np.concatenate([LIED, RNG.normal(size=(10, 7))]) if name == "bucketing" else LIED  # 2 of 20, by pairs
    assert np.abs(of(rule, points)).max() < 1.2 * np.abs(honest).max() < np.abs(of(WeightedMean(), LIED)).max()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_is_nobody(name):
    rule = build(MEANS, name, "mean")
    points, weights = POINTS.copy(), np.ones(10)
    weights[[1, 4]] = 0
    points[4] = np.nan
    expected = of(rule, points, weights)
    assert np.isfinite(expected).all()
    if name == "bucketing":
        return  # means of buckets: who shares one with a NaN is lost with it
    points[1] = np.inf
    weights[1] = 1
    np.testing.assert_allclose(of(rule, points, weights), expected, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_groups_are_means_of_their_members(name):
    rule = build(MEANS, name, "mean")
    labels, weights = np.array([0, 2, 0, 0, 2, 2, 0, 2, 2, 0]), np.where(np.arange(10) == 9, 0, ONES)
    fallback = RNG.normal(size=(3, 7)).astype(np.float32)
    found = jax.jit(lambda *them: rule.drawn(jax.random.key(1)).group_means(*them))(LIED, labels, weights, fallback)
    for k in range(3):
        alone = mean(rule, LIED, np.where(labels == k, weights, 0), fallback[k], 1)
        np.testing.assert_allclose(found[k], alone, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found[1], fallback[1])  # nobody is there


def test_it_does_not_matter_where_the_last_mean_was():
    for name in set(NAMES) - {"centred-clipping"}:
        rule = build(MEANS, name, "mean")
        np.testing.assert_allclose(of(rule, LIED), of(rule, LIED, fallback=np.ones(7)), rtol=1e-3, atol=1e-3)


def test_buckets_are_means_of_pairs():
    nothing = np.zeros(7, np.float32)
    found = mean(Bucketing(size=2, inner=WeightedMean()), POINTS, ONES, nothing, 5)
    np.testing.assert_allclose(found, POINTS.mean(axis=0), atol=1e-6)
    one = mean(Bucketing(size=1), POINTS, ONES, nothing, 5)
    np.testing.assert_allclose(one, np.median(POINTS, axis=0), atol=1e-6)
    pairs = [mean(Bucketing(size=2), POINTS, ONES, nothing, k) for k in (5, 6)]
    assert not np.allclose(*pairs)


def test_against_byzfl():
    byzfl = pytest.importorskip("byzfl")
    points = np.concatenate([LIED, RNG.normal(size=(10, 7))]).astype(np.float32)
    for ours, theirs in [
        (Median(), byzfl.Median()),
        (TrimmedMean(share=0.2), byzfl.TrMean(f=4)),
        (Krum(share=0.2), byzfl.Krum(f=4)),
        (MultiKrum(share=0.2), byzfl.MultiKrum(f=4)),
        (GeometricMedian(steps=100), byzfl.GeometricMedian(nu=1e-4, T=100)),
        (CentredClipping(radius=2.0, steps=3), byzfl.CenteredClipping(L=3, tau=2.0)),
    ]:
        np.testing.assert_allclose(of(ours, points), theirs(points), rtol=2e-3, atol=2e-3, err_msg=ours.name)


def test_auto_counts_what_is_the_same_once():
    x = [[0.0], [1.0], [2.0], [3.0], [4.0], [2.5], [2.5], [2.5]]
    assert of(AutoMean(bound=100.0), x)[0] == pytest.approx((0 + 1 + 2 + 3 + 4 + 2.5) / 6)
    assert of(AutoMean(bound=100.0), x[:5])[0] == pytest.approx(2.0)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bucketing"])
def test_what_has_no_square_is_nobody(name):
    """Two updates whose distance is not finite in float32, by a method whose updates nobody bounds before."""
    rule, points, weights = build(MEANS, name, "mean"), POINTS.copy(), np.ones(10)
    weights[[1, 4]] = 0
    expected = of(rule, points, weights)
    points[[1, 4], 0] = 1.6e19, 1.7e19
    np.testing.assert_allclose(of(rule, points), expected, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_one_two_and_many_alike(name):
    rule = build(MEANS, name, "mean")
    alike = np.tile(POINTS[:1], (10, 1))
    np.testing.assert_allclose(of(rule, alike, np.full(10, 1e9)), POINTS[0], rtol=1e-5)  # as many samples as that
    np.testing.assert_allclose(of(rule, POINTS, np.eye(10)[3]), POINTS[3], rtol=1e-5)
    if name not in ("krum", "bucketing", "centred-clipping"):  # one of the two; a bucket of both; on the way there
        np.testing.assert_allclose(of(rule, POINTS, np.eye(10)[3] + np.eye(10)[5]), POINTS[[3, 5]].mean(0), atol=2e-3)


def test_auto_never_leaves_everybody_out():
    """With the smallest bound somebody counts, however few there are: else the model would stay where it is."""
    with pytest.raises(CgpflError, match=r"bound = 0.3: must be a number >= 1"):
        build(MEANS, {"name": "auto", "bound": 0.3}, "mean")
    shares = jax.jit(lambda x: AutoMean(bound=1.0).shares(x @ x.T, jnp.ones(len(x))).sum())
    for n in (2, 3, 4):
        for _ in range(30):
            assert float(shares(RNG.standard_cauchy(size=(n, 2)).astype(np.float32))) == pytest.approx(1)


# What auto remembers

ALL = np.arange(8)
begin = jax.jit(lambda rule, clients: rule.begin(clients), static_argnums=1)
learn = jax.jit(lambda rule, *seen: rule.learned(*seen))
note = jax.jit(noted)


def learned(*rounds, rule=None, same=True, ids=ALL, clients=8, present=None):
    """What auto knows after these rounds' updates ``[C, d]``, and the rule then."""
    rule = rule or AutoMean()
    known = begin(rule, clients)
    for x in rounds:
        here = np.ones(len(x), np.float32) if present is None else np.asarray(present, np.float32)
        known, now = learn(rule, known, {"w": np.asarray(x, np.float32)}, np.bool_(same), ids[: len(x)], here)
    return np.asarray(known), now


def going(*along, aside=0.5):
    """Updates that go so far along the first number, each aside in a number of its own."""
    return np.concatenate([np.array(along)[:, None], aside * np.eye(len(along))], axis=1)


def test_what_is_noted_by_hand():
    start, here = np.zeros((2, 4), np.float32), np.ones(4, bool)
    four, ones = np.arange(4), np.ones(4, np.float32)
    found = note(start, np.array([0.5, 0.5, 0.5, -0.25], np.float32), ones, four, four != 1)
    np.testing.assert_allclose(found, [[0.5, 0, 0.5, -0.25], [0.5, 0, 0.5, 0.5]])
    # median 1, median deviation 0.1: three standard errors of 0.14826 / 2 are 0.22
    clear = 1 - 3 * 1.4826 * 0.1 / 2
    spread = note(start, np.array([0.9, 1.1, 1.1, 0.9], np.float32), ones, four, here)
    np.testing.assert_allclose(spread, [clear * np.array([0.9, 1.1, 1.1, 0.9]), [clear] * 4], rtol=1e-5)
    for rest in ([-0.5, -0.1, 0.1, 0.05], [-1.0, 1.0, 2.0, -1.5]):  # nobody goes along; nobody knows
        np.testing.assert_array_equal(note(start, np.array(rest, np.float32), ones, four, here), start)


def test_how_far_clients_are_trusted_by_hand():
    known = np.array([[1.0, -0.2, -0.5, -3.0, 0.0], [2.0, 2.0, 2.0, 2.0, 0.0]])  # ratios 0.5, −0.1, −0.25, −1.5; none
    standing = jax.jit(lambda rule, known, ids: rule.standing(known, ids))
    found = standing(AutoMean(against=0.1), known, np.arange(5))
    np.testing.assert_allclose(found, [1, 1, 0.5, 0, 1], atol=1e-6)
    np.testing.assert_allclose(standing(AutoMean(against=0.25), known, np.array([2, 3])), [1, 0], atol=1e-6)


def test_auto_remembers_who_was_against_the_others():
    """In the second round nobody goes anywhere, and the last is as near to the middle as anybody."""
    clear, rest = going(1, 1, 1, 1, 1, 1, 1, -1), going(0, 0, 0, 0, 0, 0, 0, 0)
    _, fresh = learned(rest)
    np.testing.assert_allclose(of(fresh, rest), rest.mean(axis=0), atol=1e-6)
    known, rule = learned(clear, rest)
    assert (known[:, 0, 7] < 0).all()
    assert (known[:, 0, :7] > 0).all()
    np.testing.assert_allclose(of(rule, rest), rest[:7].mean(axis=0), atol=1e-6)
    _, never = learned(clear, rest, rule=AutoMean(against=1e9))
    np.testing.assert_allclose(of(never, rest), rest.mean(axis=0), atol=1e-6)


def test_memory_changes_nothing_where_nobody_is_against_the_others():
    _, rule = learned(going(1, 0.9, 1.2, 1, 0.8, 1, 1.1, 0.7), going(1, 1, 1, 1, 1, 1, 1, 1))
    np.testing.assert_array_equal(rule.trust, 1)
    points, weights = going(1, 1, 1, 1, 1, 1, 1, 1), np.linspace(1, 1.2, 8)
    rule = dataclasses.replace(rule, cap=2.0)
    np.testing.assert_array_equal(of(rule, points, weights), of(AutoMean(cap=2.0), points, weights))
    np.testing.assert_allclose(of(AutoMean(cap=2.0), points, weights), weights @ points / weights.sum(), atol=1e-6)


def test_those_who_merely_differ_are_trusted():
    """Two of eight go elsewhere, a little against the six; and once there is a liar among the six, not he."""
    x = np.concatenate([going(1, 1, 1, 1, 1, 1, -0.05, -0.05), np.zeros((8, 1))], axis=1)
    x[6:, -1] = 1.0
    _, rule = learned(x, x, x)
    np.testing.assert_array_equal(rule.trust, 1)
    x[5] = -x[4]
    _, rule = learned(x, x, x)
    np.testing.assert_array_equal(rule.trust, [1, 1, 1, 1, 1, 0, 1, 1])


def test_a_context_of_many_liars_does_not_turn_its_honest_clients_into_some():
    """Two contexts a little against each other, and three liars of one: minus their own is a little with the other."""
    rng = np.random.default_rng(0)
    one, other = np.eye(12)[0], np.array([-0.3, 0.95] + [0.0] * 10)
    x = np.stack([one] * 10 + [other] * 10) + 0.1 * rng.normal(size=(20, 12))
    x[10:13] *= -1
    _, rule = learned(x, x, x, ids=np.arange(20), clients=20)
    np.testing.assert_array_equal(rule.trust, [1] * 10 + [0] * 3 + [1] * 7)


def test_what_tells_nothing_is_not_remembered():
    """Rounds in which not all were sent the same, clients who did not answer, uploads with a number that is none."""
    x = going(1, 1, 1, 1, 1, 1, 1, -1)
    known, rule = learned(x, same=False)
    np.testing.assert_array_equal(known, 0)
    known, _ = learned(x)
    _, rule = learn(AutoMean(), known, {"w": x.astype(np.float32)}, np.bool_(False), ALL, np.ones(8, np.float32))
    np.testing.assert_array_equal(rule.trust, 1)  # nor does it count there: contexts are a defence of their own
    bad = x.copy()
    bad[0], bad[1] = np.nan, 3e38
    present = [1, 1, 0, 1, 1, 1, 1, 1]
    bad[2] = 77.0
    known, rule = learned(bad, present=present)
    np.testing.assert_array_equal(known[:, :, :3], 0)
    assert np.isfinite(known).all()
    np.testing.assert_array_equal(rule.trust, [1, 1, 1, 1, 1, 1, 1, 0])


def test_a_round_that_nobody_answered_is_forgotten():
    known, rule = learned(going(1, 1, 1, 1, 1, 1, 1, -1))
    nobody = np.zeros(8, np.float32)
    after, rule = learn(AutoMean(), known, {"w": np.ones((8, 9), np.float32)}, np.bool_(True), ALL, nobody)
    np.testing.assert_array_equal(after, known)
    assert np.isfinite(rule.trust).all()


def test_what_is_known_is_each_clients_own():
    """Four of a federation of eight answered, in another order."""
    known, _ = learned(going(1, 1, 1, -1), ids=np.array([6, 1, 4, 3]))
    assert (known[:, 0, 3] < 0).all()
    assert (known[:, 0, [6, 1, 4]] > 0).all()
    np.testing.assert_array_equal(known[:, :, [0, 2, 5, 7]], 0)
