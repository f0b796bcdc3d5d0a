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


@pytest.fixture
def few(monkeypatch):
    """Twenty points are many, and a sketch has few numbers."""
    module = sys.modules[prepare.__module__]  # its name is a function's, too
    for name, value in {"GRAM": 20, "SKETCH": 13, "SLABS": 2, "SPARE": 2}.items():
        monkeypatch.setattr(module, name, value)
    jax.clear_caches()
    yield module
    jax.clear_caches()


def blobs(n, d, k, spread, seed, shares=None):
    rng = np.random.default_rng(seed)
    own = rng.choice(k, size=n, p=shares)
    own[:k] = np.arange(k)
    x = 3 * rng.standard_normal((k, d))[own] + spread * rng.standard_normal((n, d))
    return x.astype(np.float32), own


def found(x, k, weights=None, start=None, restarts=4, slots=None, key=KEY):
    def run(x, start, key):
        return search(prepare(x, weights=weights), slots or k, k, key, restarts, start=start)

    return jax.jit(run)(jnp.asarray(x), start, key)


def centres(x, labels, weights, k):
    return np.stack([np.average(x[labels == j], axis=0, weights=weights[labels == j]) for j in range(k)])


def same_groups(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return ((a[:, None] == a) == (b[:, None] == b)).all()


@pytest.mark.parametrize("spread", [0.5, 4.0, 20.0])
def test_what_is_found_is_a_fixed_point_on_the_points(few, spread):
    x, own = blobs(60, 70, 4, spread, 0)
    weights = np.where(np.arange(60) % 5 == 4, 0.0, 1.0 + np.arange(60) % 3)
    for start in (None, jnp.asarray(own, jnp.int32)):
        result = found(x, 4, jnp.asarray(weights), start)
        labels, exact = np.asarray(result.labels), x.astype(np.float64)
        squared = ((exact[:, None] - centres(exact, labels, weights, 4)) ** 2).sum(-1)
        np.testing.assert_array_equal(labels, squared.argmin(1))  # of weight 0, too
        np.testing.assert_allclose(np.asarray(result.distances), squared.min(1), rtol=1e-3)
        np.testing.assert_allclose(float(result.inertia), weights @ squared.min(1), rtol=1e-4)


@pytest.mark.parametrize("shares", [None, [0.7, 0.2, 0.1]])
def test_separated_contexts_are_those_that_exact_starts_find(few, shares):
    x, own = blobs(80, 90, 3, 0.5, 1, shares)
    points = prepare(jnp.asarray(x))
    exact = best_of(points, seedings(points, 3, KEY, 8), 3)
    result = found(x, 3, restarts=8)
    assert same_groups(exact.labels, own)
    assert same_groups(result.labels, own)
    np.testing.assert_allclose(float(result.inertia), float(exact.inertia), rtol=1e-5)


@pytest.mark.parametrize("spread", [2.0, 6.0, 30.0])
def test_never_worse_than_the_clustering_that_is_there(few, spread):
    for s in range(4):
        x, own = blobs(50, 60, 4, spread, 10 + s)
        start = jnp.asarray(own, jnp.int32)
        points = prepare(jnp.asarray(x))
        alone = lloyd(points, members_of(start, 4, points.weights), 4)
        assert float(found(x, 4, start=start).inertia) <= float(alone.inertia) * (1 + 2e-5)


def test_a_clustering_that_cannot_be_improved_keeps_its_names(few):
    x, own = blobs(40, 60, 3, 0.3, 2)
    start = jnp.asarray((own + 1) % 3, jnp.int32)
    result = found(x, 3, start=start)
    np.testing.assert_array_equal(np.asarray(result.labels), np.asarray(start))
    assert int(result.iterations) == 1


def test_a_poor_clustering_is_left(few):
    """Two groups as one and one as two, from which Lloyd's alone does not come away."""
    x, own = blobs(60, 60, 3, 0.2, 3)
    split = np.where(own == 0, np.arange(60) % 2, 2)
    assert same_groups(found(x, 3, start=jnp.asarray(split, jnp.int32)).labels, own)


def test_who_did_not_answer_has_no_say(few):
    x, _ = blobs(50, 60, 4, 3.0, 4)
    odd = x.copy()
    odd[::7] += 500
    weights = jnp.asarray(np.arange(50) % 7 > 0, jnp.float32)
    a, b = (found(v, 4, weights) for v in (x, odd))
    heard = np.asarray(weights) > 0
    np.testing.assert_array_equal(np.asarray(a.labels)[heard], np.asarray(b.labels)[heard])
    assert float(a.inertia) == pytest.approx(float(b.inertia), rel=1e-5)


def test_only_so_many_slots_are_used(few):
    x, own = blobs(50, 60, 2, 0.5, 5)
    result = found(x, jnp.int32(2), slots=5)
    assert same_groups(result.labels, own)
    assert set(np.asarray(result.labels).tolist()) == {0, 1}


def test_equal_points_end(few):
    same = found(np.ones((30, 60), np.float32), 3, start=jnp.zeros(30, jnp.int32))
    assert float(same.inertia) == pytest.approx(0, abs=1e-6)
    twice = np.repeat(np.eye(2, 60, dtype=np.float32), 15, axis=0)  # two distinct points, three clusters
    assert float(found(twice, 3).inertia) == pytest.approx(0, abs=1e-5)


def test_several_seeds_at_once_are_each_alone(few):
    x, _ = blobs(40, 60, 3, 0.5, 6)
    keys = jax.random.split(KEY, 3)
    both = jax.jit(jax.vmap(lambda key: search(prepare(jnp.asarray(x)), 3, 3, key, 4).labels))(keys)
    for labels, key in zip(both, keys, strict=True):
        assert same_groups(labels, found(x, 3, key=key).labels)


def test_points_in_place_are_the_centred_ones(few):
    """Trees in several groups, far from the origin: inner products of what lies side by side, less the mean."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((33, 47)) + 100).astype(np.float32)
    a, weights = rng.standard_normal((33, 2)).astype(np.float32), np.arange(33.0) % 4
    groups = [{"w": x[i][:, :45].reshape(-1, 5, 9), "b": x[i][:, 45:]} for i in (slice(0, 30), slice(30, 33))]
    points = prepare(*groups, weights=jnp.asarray(weights))
    centred = x - np.average(x.astype(np.float64), axis=0, weights=weights)
    np.testing.assert_allclose(np.asarray(points.norms), (centred**2).sum(1), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(points.products(a)), centred @ (centred.T @ a), rtol=1e-3, atol=0.1)


def test_main_directions_keep_all_there_is_in_them(few):
    """Points in four dimensions of sixty, one of them hardly there: distances are the points' own."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((40, 4)) * [9, 3, 1, 0.1]) @ np.linalg.qr(rng.standard_normal((60, 4)))[0].T
    points = prepare(jnp.asarray(x, jnp.float32))
    small = points.principal(KEY, 8)
    np.testing.assert_allclose(np.asarray(small.norms), np.asarray(points.norms), rtol=1e-3)
    a = np.eye(40, dtype=np.float32)
    np.testing.assert_allclose(np.asarray(small.products(a)), np.asarray(points.products(a)), atol=1e-2)


def test_few_points_or_dimensions_are_clustered_as_ever(few):
    for n, d in ((20, 60), (21, 26)):
        points = prepare(jnp.asarray(blobs(n, d, 3, 2.0, 7)[0]))
        assert points.principal is None
        exact = best_of(points, seedings(points, 3, KEY, 4), 3)
        np.testing.assert_array_equal(np.asarray(search(points, 3, 3, KEY, 4).labels), np.asarray(exact.labels))


@pytest.mark.parametrize("who", [{}, {"participation": 0.8, "dropout": 0.2}])
def test_a_run_of_cgpfl_finds_the_same_contexts(few, who):
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
        few.GRAM, few.SKETCH = many, 7
        jax.clear_caches()
        state, _, _ = simulate(method, data, as_model("mlr", data.shape, 3), rounds=6, eval_every=6, seed=0, **who)
        contexts.append(np.asarray(state.server.assignment))
    np.testing.assert_array_equal(*contexts)
    assert same_groups(contexts[0], np.arange(26) % 2)
