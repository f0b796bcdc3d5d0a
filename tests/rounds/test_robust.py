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
ONES = jnp.ones(10)
NAMES = [name for name in MEANS.ours if name != "weighted"]


def of(rule, points, weights=None, fallback=None):
    points = jnp.asarray(points, jnp.float32)
    tree = {"a": points[:, :3], "b": points[:, 3:]}
    nothing = jnp.zeros(points.shape[1]) if fallback is None else jnp.asarray(fallback, jnp.float32)
    weights = jnp.ones(len(points)) if weights is None else jnp.asarray(weights, jnp.float32)
    found = rule.drawn(jax.random.key(0)).mean(tree, weights, {"a": nothing[:3], "b": nothing[3:]})
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
    rule = build(MEANS, name, "mean").drawn(jax.random.key(1))
    labels, weights = jnp.array([0, 2, 0, 0, 2, 2, 0, 2, 2, 0]), ONES.at[9].set(0.0)
    fallback = jnp.asarray(RNG.normal(size=(3, 7)), jnp.float32)
    found = rule.group_means(jnp.asarray(LIED), labels, weights, fallback)
    for k in range(3):
        alone = rule.mean(jnp.asarray(LIED), jnp.where(labels == k, weights, 0.0), fallback[k])
        np.testing.assert_allclose(found[k], alone, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found[1], fallback[1])  # nobody is there


def test_it_does_not_matter_where_the_last_mean_was():
    for name in set(NAMES) - {"centred-clipping"}:
        rule = build(MEANS, name, "mean")
        np.testing.assert_allclose(of(rule, LIED), of(rule, LIED, fallback=np.ones(7)), rtol=1e-3, atol=1e-3)


def test_buckets_are_means_of_pairs():
    key = jax.random.key(5)
    found = Bucketing(size=2, inner=WeightedMean()).drawn(key).mean(POINTS, ONES, jnp.zeros(7))
    np.testing.assert_allclose(found, POINTS.mean(axis=0), atol=1e-6)
    one = Bucketing(size=1).drawn(key).mean(POINTS, ONES, jnp.zeros(7))
    np.testing.assert_allclose(one, np.median(POINTS, axis=0), atol=1e-6)
    pairs = [Bucketing(size=2).drawn(jax.random.key(k)).mean(POINTS, ONES, jnp.zeros(7)) for k in (5, 6)]
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
            assert float(shares(jnp.asarray(RNG.standard_cauchy(size=(n, 2)), jnp.float32))) == pytest.approx(1)


# What auto remembers

ALL = jnp.arange(8)


def learned(*rounds, rule=None, same=True, ids=ALL, clients=8, present=None):
    """What auto knows after these rounds' updates ``[C, d]``, and the rule then."""
    rule = rule or AutoMean()
    known = rule.begin(clients)
    for x in rounds:
        x = jnp.asarray(x, jnp.float32)
        here = jnp.ones(len(x)) if present is None else jnp.asarray(present, jnp.float32)
        known, now = rule.learned(known, {"w": x}, jnp.bool_(same), ids[: len(x)], here)
    return np.asarray(known), now


def going(*along, aside=0.5):
    """Updates that go so far along the first number, each aside in a number of its own."""
    return np.concatenate([np.array(along)[:, None], aside * np.eye(len(along))], axis=1)


def test_what_is_noted_by_hand():
    start, here = jnp.zeros((2, 4)), jnp.ones(4, bool)
    four, ones = jnp.arange(4), jnp.ones(4)
    found = noted(start, jnp.array([0.5, 0.5, 0.5, -0.25]), ones, four, here.at[1].set(False))
    np.testing.assert_allclose(found, [[0.5, 0, 0.5, -0.25], [0.5, 0, 0.5, 0.5]])
    # median 1, median deviation 0.1: three standard errors of 0.14826 / 2 are 0.22
    clear = 1 - 3 * 1.4826 * 0.1 / 2
    spread = noted(start, jnp.array([0.9, 1.1, 1.1, 0.9]), ones, four, here)
    np.testing.assert_allclose(spread, [clear * np.array([0.9, 1.1, 1.1, 0.9]), [clear] * 4], rtol=1e-5)
    for rest in ([-0.5, -0.1, 0.1, 0.05], [-1.0, 1.0, 2.0, -1.5]):  # nobody goes along; nobody knows
        np.testing.assert_array_equal(noted(start, jnp.array(rest), ones, four, here), start)


def test_how_far_clients_are_trusted_by_hand():
    known = jnp.array([[1.0, -0.2, -0.5, -3.0, 0.0], [2.0, 2.0, 2.0, 2.0, 0.0]])  # ratios 0.5, −0.1, −0.25, −1.5; none
    found = AutoMean(against=0.1).standing(known, jnp.arange(5))
    np.testing.assert_allclose(found, [1, 1, 0.5, 0, 1], atol=1e-6)
    np.testing.assert_allclose(AutoMean(against=0.25).standing(known, jnp.array([2, 3])), [1, 0], atol=1e-6)


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
    _, rule = learned(x, x, x, ids=jnp.arange(20), clients=20)
    np.testing.assert_array_equal(rule.trust, [1] * 10 + [0] * 3 + [1] * 7)


def test_what_tells_nothing_is_not_remembered():
    """Rounds in which not all were sent the same, clients who did not answer, uploads with a number that is none."""
    x = going(1, 1, 1, 1, 1, 1, 1, -1)
    known, rule = learned(x, same=False)
    np.testing.assert_array_equal(known, 0)
    known, _ = learned(x)
    _, rule = AutoMean().learned(jnp.asarray(known), {"w": jnp.asarray(x)}, jnp.bool_(False), ALL, jnp.ones(8))
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
    after, rule = AutoMean().learned(jnp.asarray(known), {"w": jnp.ones((8, 9))}, jnp.bool_(True), ALL, jnp.zeros(8))
    np.testing.assert_array_equal(after, known)
    assert np.isfinite(rule.trust).all()


def test_what_is_known_is_each_clients_own():
    """Four of a federation of eight answered, in another order."""
    known, _ = learned(going(1, 1, 1, -1), ids=jnp.array([6, 1, 4, 3]))
    assert (known[:, 0, 3] < 0).all()
    assert (known[:, 0, [6, 1, 4]] > 0).all()
    np.testing.assert_array_equal(known[:, :, [0, 2, 5, 7]], 0)
