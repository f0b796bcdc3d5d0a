from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import KMeans as Oracle

from cgpfl.contexts import best_of, lloyd, prepare, seed, seedings
from cgpfl.contexts import kmeans as eager

program = jax.jit(eager, static_argnames=("k", "restarts"))


def kmeans(x, k, key, weights=None, restarts=8, ids=None):
    """Weights and ids are always given: one program for every test of as many points."""
    weights = np.ones(len(x)) if weights is None else weights
    ids = np.arange(len(x)) if ids is None else ids
    x, weights = np.asarray(x, np.float32), np.asarray(weights, np.float32)
    return program(x, k, key, weights=weights, restarts=restarts, ids=np.asarray(ids, np.int32))


@partial(jax.jit, static_argnames="k")
def from_points(x, chosen, k):
    return lloyd(prepare(x), jax.nn.one_hot(chosen, len(x)).T, k, iterations=300)


def blobs(n, d, k, spread, seed):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((k, d)) * 3
    return (centres[rng.integers(k, size=n)] + spread * rng.standard_normal((n, d))).astype(np.float32)


SHAPES = [(40, 300, 4), (200, 3, 7)]  # fewer points than dimensions, and more: two ways to distances
SHAPES += [pytest.param(*shape, marks=pytest.mark.slow) for shape in ((40, 12, 5), (30, 1000, 2))]


@pytest.mark.parametrize(("n", "d", "k"), SHAPES)
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_same_seeding_same_result_as_scikit_learn(n, d, k, spread):
    for s in range(5):
        x = blobs(n, d, k, spread, s)
        chosen = np.random.default_rng(s).choice(n, k, replace=False)
        oracle = Oracle(k, init=x[chosen], n_init=1, tol=0, max_iter=300).fit(x)
        ours = from_points(jnp.asarray(x), jnp.asarray(chosen), k)
        np.testing.assert_array_equal(np.asarray(ours.labels), oracle.labels_)
        np.testing.assert_allclose(float(ours.inertia), oracle.inertia_, rtol=1e-4)


@pytest.mark.parametrize(("n", "d", "k"), SHAPES)
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_own_seeding_within_one_percent_of_scikit_learn(n, d, k, spread):
    # Overlapping blobs have many local optima: scikit-learn's own ten restarts differ by up to 3 % there.
    for s in range(8):
        x = blobs(n, d, k, spread, 100 + s)
        oracle = Oracle(k, n_init=10, random_state=s).fit(x)
        ours = kmeans(jnp.asarray(x), k, jax.random.key(s), restarts=32)
        assert float(ours.inertia) <= 1.01 * oracle.inertia_
        assert len(np.unique(np.asarray(ours.labels))) == k


def test_inertia_and_distances_are_those_of_the_labels():
    x = blobs(30, 50, 3, 1.0, 0)
    found = kmeans(jnp.asarray(x), 3, jax.random.key(0))
    labels = np.asarray(found.labels)
    centres = np.stack([x[labels == j].mean(0) for j in range(3)])
    each = ((x - centres[labels]) ** 2).sum(1)
    np.testing.assert_allclose(np.asarray(found.distances), each, rtol=1e-3)
    np.testing.assert_allclose(float(found.inertia), each.sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("most", "labels", "inertia", "taken"),
    [
        (0, [0, 1, 1, 1], 438 / 9, 0),  # 0 | 1, 9, 10: around 20/3 that is (17² + 7² + 10²)/9
        (1, [0, 0, 1, 1], 1.0, 1),  # around 1/2 and 19/2, four quarters
        (100, [0, 0, 1, 1], 1.0, 2),  # the second iteration moves nobody
    ],
)
def test_iterations_are_counted_and_distances_are_to_the_last_centres(most, labels, inertia, taken):
    x, seeds = jnp.array([[0.0], [1.0], [9.0], [10.0]]), jnp.eye(4)[:, :2]
    found = lloyd(prepare(x), seeds, 2, iterations=most)
    assert found.labels.tolist() == labels
    assert float(found.inertia) == pytest.approx(inertia, rel=1e-5)
    assert int(found.iterations) == taken


def test_far_from_the_origin_keeps_its_digits():
    """Centring: clusters 1 apart, 1000 away from zero, where x·x alone would lose them in float32."""
    x = np.concatenate([np.zeros((5, 40)), np.ones((5, 40)) * 0.15]).astype(np.float32) + 1000
    found = program(x, 2, jax.random.key(0))  # without weights and ids
    np.testing.assert_array_equal(np.asarray(found.labels) == found.labels[0], [True] * 5 + [False] * 5)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_no_empty_clusters_even_from_equal_seeds(k):
    x = jnp.asarray(blobs(12, 20, 2, 0.5, 1))
    same = jnp.zeros((12, k)).at[0].set(1.0)  # every cluster is seeded at point 0
    found = jax.jit(partial(lloyd, prepare(x), k=k))(same)
    assert sorted(np.unique(np.asarray(found.labels))) == list(range(k))


def test_as_many_clusters_as_points():
    x = jnp.asarray(blobs(6, 20, 3, 1.0, 2))
    found = kmeans(x, 6, jax.random.key(0))
    assert sorted(np.asarray(found.labels)) == list(range(6))
    assert float(found.inertia) < 1e-3


def test_fewer_distinct_points_than_clusters_ends():
    found = program(np.ones((5, 3), np.float32), 3, jax.random.key(0))
    assert float(found.inertia) == 0.0


def test_weights_are_multiplicities():
    x = blobs(30, 50, 3, 1.5, 3)
    times = np.random.default_rng(0).integers(1, 4, 30)
    weighted = kmeans(x, 3, jax.random.key(1), weights=times)
    repeated = kmeans(np.repeat(x, times, 0), 3, jax.random.key(1))
    np.testing.assert_allclose(float(weighted.inertia), float(repeated.inertia), rtol=1e-4)


def test_weight_zero_has_no_say_but_gets_a_label():
    x = blobs(29, 50, 3, 0.3, 4)
    odd = np.concatenate([x, x[:1] + 500]).astype(np.float32)
    with_odd = kmeans(odd, 3, jax.random.key(0), weights=np.arange(30) < 29)
    without = kmeans(x, 3, jax.random.key(0))
    np.testing.assert_allclose(float(with_odd.inertia), float(without.inertia), rtol=1e-4)
    assert int(with_odd.labels[29]) in (0, 1, 2)


def test_traced_number_of_clusters_equals_the_fixed_one():
    x = prepare(jnp.asarray(blobs(30, 60, 4, 1.0, 5)))
    seeds = jax.jit(lambda key: seedings(x, 6, key, 4))(jax.random.key(0))
    run = jax.jit(lambda k: best_of(x, seeds, k))
    for k in (1, 4, 6):
        fixed = jax.jit(partial(best_of, x, k=k))(seeds[:, :k])
        traced = run(jnp.int32(k))
        np.testing.assert_array_equal(np.asarray(traced.labels), np.asarray(fixed.labels))


def test_seeding_prefers_far_points():
    """Two far groups: after the first seed the second is in the other group, nearly always."""
    x = jnp.asarray(np.concatenate([np.zeros((10, 5)), np.full((10, 5), 100.0)]) + np.arange(20)[:, None] * 1e-3)
    both = np.asarray(jax.jit(jax.vmap(lambda s: seed(prepare(x), 2, jax.random.key(s))))(jnp.arange(50)))
    assert all((a < 10) != (b < 10) for a, b in both)


def test_seeding_follows_the_distances():
    """Points at 0, 1 and 3 on a line, first seed at 0: second seed at 1 or 3 with odds 1:9."""
    x = prepare(jnp.asarray([[0.0, 0], [1, 0], [3, 0]]))
    draws = np.asarray(jax.jit(jax.vmap(lambda s: seed(x, 2, jax.random.key(s), trials=1)))(jnp.arange(4000)))
    from_zero = draws[draws[:, 0] == 0, 1]
    assert abs(len(from_zero) / 4000 - 1 / 3) < 0.03
    assert abs((from_zero == 2).mean() - 0.9) < 0.03


def test_renumbering_points_renumbers_the_result():
    x = blobs(30, 50, 3, 1.5, 6)
    order = np.random.default_rng(0).permutation(30)
    a = kmeans(x, 3, jax.random.key(3))
    b = kmeans(x[order], 3, jax.random.key(3), ids=order)
    np.testing.assert_array_equal(np.asarray(a.labels)[order], np.asarray(b.labels))


def test_a_clustering_that_cannot_be_improved_stays():
    x = prepare(jnp.asarray(blobs(30, 60, 3, 0.3, 7)))
    run = jax.jit(lambda key, start: best_of(x, seedings(x, 3, key, 8), 3, start=start))
    renamed = (run(jax.random.key(0), None).labels + 1) % 3
    again = run(jax.random.key(1), renamed)
    np.testing.assert_array_equal(np.asarray(again.labels), np.asarray(renamed))
