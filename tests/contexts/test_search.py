"""k-means of many points: starts compete in a few directions, Lloyd's on the points decides. Tried with few points."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import CGPFL
from cgpfl.contexts import best_of, lloyd, members_of, prepare, search, seedings
from cgpfl.engine.simulation import simulate
from cgpfl.models import as_model

KEY = jax.random.key(3)
N, D, SLOTS, RESTARTS = 60, 70, 4, 4
"""Of all points here, so that all tests share a few programs."""


@pytest.fixture(scope="module", autouse=True)
def few():
    """Twenty points are many, and a sketch has few numbers."""
    module = sys.modules[prepare.__module__]  # its name is a function's, too
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"GRAM": 20, "SKETCH": 13, "SLABS": 2, "SPARE": 2}.items():
            patch.setattr(module, name, value)
        jax.clear_caches()  # these numbers are no part of a program's key
        yield module
    jax.clear_caches()


def blobs(k, spread, seed, shares=None, n=N, d=D):
    rng = np.random.default_rng(seed)
    own = rng.choice(k, size=n, p=shares)
    own[:k] = np.arange(k)
    x = 3 * rng.standard_normal((k, d))[own] + spread * rng.standard_normal((n, d))
    return x.astype(np.float32), own


@jax.jit
def looked(x, weights, k, key, start):
    return search(prepare(x, weights=weights), SLOTS, k, key, RESTARTS, start=start)


@jax.jit
def exact_starts(x, k, key):
    points = prepare(x)
    return best_of(points, seedings(points, SLOTS, key, RESTARTS), k)


@jax.jit
def gone_on(x, start):
    points = prepare(x)
    return lloyd(points, members_of(start, SLOTS, points.weights), SLOTS)


def found(x, k, weights=None, start=None, key=KEY):
    weights = np.ones(len(x)) if weights is None else weights
    start = None if start is None else np.asarray(start, np.int32)
    return looked(x, np.asarray(weights, np.float32), np.int32(k), key, start)


def centres(x, labels, weights, k):
    return np.stack([np.average(x[labels == j], axis=0, weights=weights[labels == j]) for j in range(k)])


def same_groups(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return ((a[:, None] == a) == (b[:, None] == b)).all()


@pytest.mark.parametrize("spread", [0.5, 4.0, 20.0])
def test_what_is_found_is_a_fixed_point_on_the_points(spread):
    x, own = blobs(4, spread, 0)
    weights = np.where(np.arange(N) % 5 == 4, 0.0, 1.0 + np.arange(N) % 3)
    for start in (None, own):
        result = found(x, 4, weights, start)
        labels, exact = np.asarray(result.labels), x.astype(np.float64)
        squared = ((exact[:, None] - centres(exact, labels, weights, 4)) ** 2).sum(-1)
        np.testing.assert_array_equal(labels, squared.argmin(1))  # of weight 0, too
        np.testing.assert_allclose(np.asarray(result.distances), squared.min(1), rtol=1e-3)
        np.testing.assert_allclose(float(result.inertia), weights @ squared.min(1), rtol=1e-4)


@pytest.mark.parametrize("shares", [None, [0.7, 0.2, 0.1]])
def test_separated_contexts_are_those_that_exact_starts_find(shares):
    x, own = blobs(3, 0.5, 1, shares)
    exact, result = exact_starts(x, np.int32(3), KEY), found(x, 3)
    assert same_groups(exact.labels, own)
    assert same_groups(result.labels, own)
    np.testing.assert_allclose(float(result.inertia), float(exact.inertia), rtol=1e-5)


@pytest.mark.parametrize("spread", [2.0, 6.0, 30.0])
def test_never_worse_than_the_clustering_that_is_there(spread):
    for s in range(4):
        x, own = blobs(4, spread, 10 + s)
        alone = gone_on(x, own.astype(np.int32))
        assert float(found(x, 4, start=own).inertia) <= float(alone.inertia) * (1 + 2e-5)


def test_a_clustering_that_cannot_be_improved_keeps_its_names():
    x, own = blobs(3, 0.3, 2)
    start = (own + 1) % 3
    result = found(x, 3, start=start)
    np.testing.assert_array_equal(np.asarray(result.labels), start)
    assert int(result.iterations) == 1


def test_a_poor_clustering_is_left():
    """Two groups as one and one as two, from which Lloyd's alone does not come away."""
    x, own = blobs(3, 0.2, 3)
    split = np.where(own == 0, np.arange(N) % 2, 2)
    assert same_groups(found(x, 3, start=split).labels, own)


def test_who_did_not_answer_has_no_say():
    x, _ = blobs(4, 3.0, 4)
    odd = x.copy()
    odd[::7] += 500
    heard = np.arange(N) % 7 > 0
    a, b = (found(v, 4, heard) for v in (x, odd))
    np.testing.assert_array_equal(np.asarray(a.labels)[heard], np.asarray(b.labels)[heard])
    assert float(a.inertia) == pytest.approx(float(b.inertia), rel=1e-5)


def test_only_so_many_slots_are_used():
    x, own = blobs(2, 0.5, 5)
    result = found(x, 2)
    assert same_groups(result.labels, own)
    assert set(np.asarray(result.labels).tolist()) == {0, 1}


def test_equal_points_end():
    same = found(np.ones((N, D), np.float32), 3, start=np.zeros(N))
    assert float(same.inertia) == pytest.approx(0, abs=1e-6)
    twice = np.repeat(np.eye(2, D, dtype=np.float32), N // 2, axis=0)  # two distinct points, three clusters
    assert float(found(twice, 3).inertia) == pytest.approx(0, abs=1e-5)


def test_several_seeds_at_once_are_each_alone():
    x, _ = blobs(3, 0.5, 6)
    keys = jax.random.split(KEY, 3)
    both = jax.jit(jax.vmap(looked, (None, None, None, 0, None)))(x, np.ones(N, np.float32), np.int32(3), keys, None)
    for labels, key in zip(both.labels, keys, strict=True):
        assert same_groups(labels, found(x, 3, key=key).labels)


def test_points_in_place_are_the_centred_ones():
    """Trees in several groups, far from the origin: inner products of what lies side by side, less the mean."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((33, 47)) + 100).astype(np.float32)
    a, weights = rng.standard_normal((33, 2)).astype(np.float32), np.arange(33.0) % 4
    groups = [{"w": x[i][:, :45].reshape(-1, 5, 9), "b": x[i][:, 45:]} for i in (slice(0, 30), slice(30, 33))]

    @jax.jit
    def program(groups, weights, a):
        points = prepare(*groups, weights=weights)
        return points.norms, points.products(a)

    norms, products = program(groups, weights, a)
    centred = x - np.average(x.astype(np.float64), axis=0, weights=weights)
    np.testing.assert_allclose(np.asarray(norms), (centred**2).sum(1), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(products), centred @ (centred.T @ a), rtol=1e-3, atol=0.1)


def test_main_directions_keep_all_there_is_in_them():
    """Points in four dimensions of sixty, one of them hardly there: distances are the points' own."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((40, 4)) * [9, 3, 1, 0.1]) @ np.linalg.qr(rng.standard_normal((60, 4)))[0].T

    @jax.jit
    def program(x, key):
        points, a = prepare(x), jnp.eye(40)
        small = points.principal(key, 8)
        return (small.norms, small.products(a)), (points.norms, points.products(a))

    small, all_there_is = program(x.astype(np.float32), KEY)
    np.testing.assert_allclose(small[0], all_there_is[0], rtol=1e-3)
    np.testing.assert_allclose(small[1], all_there_is[1], atol=1e-2)


def test_few_points_or_dimensions_are_clustered_as_ever():

    @jax.jit
    def program(x, key):
        points = prepare(x)
        assert points.principal is None
        exact = best_of(points, seedings(points, 3, key, RESTARTS), 3)
        return search(points, 3, 3, key, RESTARTS).labels, exact.labels

    for n, d in ((20, 60), (21, 26)):
        np.testing.assert_array_equal(*program(blobs(3, 2.0, 7, n=n, d=d)[0], KEY))


@pytest.mark.parametrize("who", [pytest.param({}, marks=pytest.mark.slow), {"participation": 0.8, "dropout": 0.2}])
def test_a_run_of_cgpfl_finds_the_same_contexts(few, monkeypatch, who):
    rng = np.random.default_rng(0)
    centres = 3 * rng.standard_normal((2, 3, 9))
    y = rng.integers(0, 3, 26 * 12)
    parts = np.arange(26 * 12).reshape(26, 12)
    group = np.repeat(np.arange(26) % 2, 12)
    x = (centres[group, y] + rng.standard_normal((26 * 12, 9))).astype(np.float32)
    data = cgpfl.FederatedData.from_parts(x, y, list(parts), classes=3)
    method = CGPFL(contexts=2, warmup=2)
    contexts = []
    for many in (20, 1024):
        monkeypatch.setattr(few, "GRAM", many)
        monkeypatch.setattr(few, "SKETCH", 7)
        jax.clear_caches()
        state, _, _ = simulate(method, data, as_model("mlr", data.shape, 3), rounds=6, eval_every=6, seed=0, **who)
        contexts.append(np.asarray(state.server.assignment))
    np.testing.assert_array_equal(*contexts)
    assert same_groups(contexts[0], np.arange(26) % 2)
