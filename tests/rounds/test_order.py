"""Order statistics by weight: against NumPy, and the network against the search."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.rounds import order, robust

SHARE = 0.2


@functools.partial(jax.jit, static_argnames=("network",))
def both(x, labels, members, share, *, network):
    """Medians and trimmed means ``[K, d]``."""
    if not network:
        return order.searched_medians(x, labels, members), order.searched_trimmed(x, labels, members, share)
    medians = [order.sorted_medians(x, own) for own in members]
    return jnp.concatenate(medians), jnp.concatenate([order.sorted_trimmed(x, own, share) for own in members])


def plain(values, weights, share=SHARE):
    """The weighted median and the trimmed mean of some numbers; 0 of none."""
    values, weights = values[weights > 0].astype(np.float64), weights[weights > 0].astype(np.float64)
    if not len(values):
        return 0.0, 0.0
    by = np.argsort(values, kind="stable")
    values, upto = values[by], weights[by].cumsum()
    total, near = upto[-1], 1e-5 * upto[-1]
    lower = values[np.argmax(upto >= total / 2 - near)]
    upper = lower if weights[by][values <= lower].sum() >= total / 2 + near else values[values > lower][0]
    ends = np.clip(np.concatenate([[0.0], upto]), share * total, (1 - share) * total)
    parts = np.where(np.diff(ends) > 1e-6 * total, np.diff(ends), 0.0)  # what is cut off counts for nothing at all
    return np.float32(lower) / 2 + np.float32(upper) / 2, parts @ values / ((1 - 2 * share) * total)


def cohort(count, groups, seed):
    """Numbers, some of them the same, some of them huge; some clients of no weight."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 40)).astype(np.float32)
    x[:, :12] = x[:, :12].round()
    x[:, 12], x[:, 13], x[0, 14:20], x[:, 20] = 1.5, 0.0, 1e17, np.where(x[:, 20] > 0, 0.0, -0.0)
    labels, weights = rng.integers(0, groups, count), rng.choice([0.0, 1.0, 2.0, 2.0, 3.0, 0.7], count)
    return x, labels, (np.eye(groups)[labels].T * weights).astype(np.float32)


@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize(("count", "groups"), [(1, 1), (2, 1), (7, 1), (12, 3), (17, 2)])
def test_against_numpy(count, groups, network):
    for seed in range(20):
        x, labels, members = cohort(count, groups, seed)
        medians, trimmed = both(x, labels, members, SHARE, network=network)
        expected = np.array([[plain(column, own) for column in x.T] for own in members])
        np.testing.assert_array_equal(medians, expected[..., 0])
        np.testing.assert_allclose(trimmed, expected[..., 1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("count", "groups"), [(40, 1), (13, 4)])
def test_the_network_finds_what_the_search_finds(count, groups):
    for seed in range(20):
        found = [both(*cohort(count, groups, seed), SHARE, network=network) for network in (True, False)]
        np.testing.assert_array_equal(found[0][0], found[1][0])
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=2e-6, atol=2e-6)


def test_who_is_cut_off_counts_for_nothing():
    """Not even for a rounding error's worth: of five, a fifth at either end."""
    x = np.array([[1.0], [2.0], [3.0], [3e17], [-3e17]], np.float32)
    for network in (True, False):
        for weight in (1.0, 0.1, 7.3, 1e9):
            found = both(x, np.zeros(5, int), np.full((1, 5), weight, np.float32), SHARE, network=network)[1]
            np.testing.assert_allclose(found, 2.0, rtol=1e-5)


@pytest.mark.parametrize("count", range(1, 14))
def test_comparators_sort(count):
    """Whatever zeros and ones they are given, and so anything (Knuth's 0-1 principle)."""
    given = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    for i, j in order.comparators(count):
        given[:, [i, j]] = np.sort(given[:, [i, j]], axis=1)
    assert (np.diff(given, axis=1) >= 0).all()


def test_so_many_comparators():
    assert [len(order.comparators(n)) for n in (1, 2, 4, 8, 10, 16, 40, 64)] == [0, 1, 5, 19, 32, 63, 305, 543]


def test_when_there_is_a_network():
    cpu = jax.default_backend() == "cpu"
    assert [order.by_network(*of) for of in [(2, 1), (15, 2), (16, 2), (40, 40), (order.FEW + 1, 1)]] == [
        cpu,
        False,
        cpu,
        cpu,
        False,
    ]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="networks are for CPUs")
@pytest.mark.parametrize("rule", [robust.Median(), robust.TrimmedMean()], ids=lambda rule: rule.name)
def test_groups_have_one_kernel(rule):
    """XLA would compute what kernels of several groups share again, a hundred times as much in all."""

    def minima(groups):
        stacked, fallback = np.zeros((24, 10000), np.float32), np.zeros((groups, 10000), np.float32)
        labels = np.arange(24) % groups
        compiled = jax.jit(rule.group_means).lower(stacked, labels, np.ones(24, np.float32), fallback).compile()
        return compiled.as_text().count(" minimum(")

    alone = minima(1)
    assert len(order.comparators(24)) <= alone < 400
    assert minima(4) <= 1.2 * alone


@pytest.mark.parametrize("count", [1, 2, 9, 40])
def test_pairs_compared_are_values_sorted(count):
    compared, ranked = jax.jit(order._compared), jax.jit(order._ranked)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = (rng.normal(size=count) if seed % 2 else rng.integers(0, 4, count)).astype(np.float32)
        weights = rng.choice([0.0, 1.0, 2.0, 0.3], count).astype(np.float32)
        weights[0] = 1.0
        values[weights == 0] = rng.choice([np.nan, np.inf, -1.0])
        expected = plain(values, weights)[0]
        lower, upper = compared(values, weights, weights.sum())
        assert [lower, upper] == [*ranked(values, weights, weights.sum())]
        assert 0.5 * (lower + upper) == pytest.approx(expected, rel=1e-6)
    assert jax.jit(order.median_of)(values, np.zeros(count, np.float32)) == 0


def test_what_is_no_number_is_above_all_others():
    """Of few values and of many."""
    for count in (10, order.FEW + 2):
        values = np.arange(count, dtype=np.float32)
        values[count // 2 :] = np.nan
        weights = np.ones(count, np.float32)
        assert jax.jit(order.median_of)(values, weights) == np.inf
        weights[0] = 2.0
        assert jax.jit(order.median_of)(values, weights) == count // 2 - 1


def test_leaves_together_and_each_by_itself(monkeypatch):
    """Of any model, in pieces or not: the same numbers."""
    from cgpfl.rounds import Median, TrimmedMean

    rng = np.random.default_rng(2)
    stacked = {"a": rng.normal(size=(9, 5, 3)), "b": rng.normal(size=(9, 1)), "c": rng.normal(size=9)}
    stacked = {name: v.astype(np.float32) for name, v in stacked.items()}
    weights, fallback = np.array([1, 2, 0, 1, 1, 2, 1, 1, 2], np.float32), {n: v[1] for n, v in stacked.items()}
    for rule in (Median(cap=2.0), TrimmedMean(cap=2.0)):
        found = []
        for name, value in [("PIECE", 2**13), ("PIECE", 4), ("JOINED", 0)]:
            with monkeypatch.context() as changed:
                changed.setattr(robust, name, value)
                found.append(jax.jit(lambda *seen, rule=rule: rule.mean(*seen))(stacked, weights, fallback))
        jax.tree.map(np.testing.assert_array_equal, found[0], found[1])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found[0], found[2])
