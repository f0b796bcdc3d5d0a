"""Robust means: worked by hand, against NumPy and SciPy, against byzfl where it is there, and as groups."""

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
