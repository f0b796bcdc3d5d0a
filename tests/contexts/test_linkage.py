"""Agglomerative clustering against SciPy's."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist, pdist, squareform

from cgpfl.contexts import LINKAGES, agglomerate, distances

N, SEEDS = 12, range(4)
run = jax.jit(agglomerate, static_argnames="linkage")  # one program a linkage: everything else is traced
each_linkage = pytest.mark.parametrize("how", LINKAGES)


def cluster(between, how, *, counts=None, threshold=np.inf, least=1, most=N):
    """Labels [N] and k, on the host."""
    between = jnp.asarray(between, jnp.float32)
    counts = jnp.ones(len(between)) if counts is None else jnp.asarray(counts, jnp.float32)
    found = run(
        between, counts, linkage=how, threshold=jnp.float32(threshold), least=jnp.int32(least), most=jnp.int32(most)
    )
    labels, k = np.asarray(found.labels), int(found.k)
    assert sorted(set(labels[np.asarray(counts) > 0])) == list(range(k))  # labels are 0..k-1, none without a point
    return labels, k


def same_groups(a, b):
    """The same partition, whatever the groups are called."""
    return np.array_equal(np.equal.outer(a, a), np.equal.outer(b, b))


def random_points(seed, n=N):
    return np.random.default_rng(seed).standard_normal((n, 5))


def on_a_line(*at):
    """Distances between N points: those named, and the others far from them and from each other."""
    at = np.array([*at, *(1000.0 * (1 + np.arange(N - len(at))))])
    return abs(at[:, None] - at[None, :])


@each_linkage
def test_cut_at_a_distance(how):
    """Between any two heights at which SciPy merges, the same groups."""
    for seed in SEEDS:
        apart = pdist(random_points(seed))
        tree = linkage(apart, how)
        heights = [0, *tree[:, 2], tree[-1, 2] + 1]
        for low, high in pairwise(heights):
            cut = (low + high) / 2
            labels, _ = cluster(squareform(apart), how, threshold=cut)
            assert same_groups(labels, fcluster(tree, cut, "distance"))


@each_linkage
def test_cut_by_number(how):
    for seed in SEEDS:
        apart = pdist(random_points(seed))
        tree = linkage(apart, how)
        for k in range(1, N + 1):
            labels, found = cluster(squareform(apart), how, least=k)
            assert found == k
            assert same_groups(labels, fcluster(tree, k, "maxclust"))


@each_linkage
def test_more_than_most_are_merged_further(how):
    apart = pdist(random_points(9))
    tree = linkage(apart, how)
    small, large = tree[0, 2] / 2, (tree[-2, 2] + tree[-1, 2]) / 2  # cuts that leave N groups and 2
    labels, k = cluster(squareform(apart), how, threshold=small, most=3)
    assert k == 3
    assert same_groups(labels, fcluster(tree, 3, "maxclust"))
    assert cluster(squareform(apart), how, threshold=large, most=3)[1] == 2  # fewer than most: the threshold holds


@each_linkage
def test_points_that_do_not_count(how):
    """The others are clustered as if those were not there, though they lie between them."""
    points = random_points(3)
    counts = np.arange(N) % 3 > 0
    tree = linkage(pdist(points[counts]), how)
    labels, k = cluster(squareform(pdist(points)), how, counts=counts, least=3)
    assert k == 3
    assert same_groups(labels[counts], fcluster(tree, 3, "maxclust"))
    assert (labels[~counts] == 0).all()


def test_the_threshold_itself_is_near_enough():
    """Points at 0, 2 and 5: at threshold 2 the first two are one group, just below they are not."""
    between = on_a_line(0, 2, 5)
    assert cluster(between, "complete", threshold=2)[1] == N - 1
    assert cluster(between, "complete", threshold=1.99)[1] == N


def test_what_tells_the_linkages_apart():
    """Points at 0, 0.9 and 2: how far the third is from the other two, as the linkages see it."""
    for how, height in {"single": 1.1, "average": 1.55, "ward": 3.2033**0.5, "complete": 2.0}.items():
        assert cluster(on_a_line(0, 0.9, 2), how, threshold=height - 0.01)[1] == N - 1
        assert cluster(on_a_line(0, 0.9, 2), how, threshold=height + 0.01)[1] == N - 2


@each_linkage
def test_ties_and_equal_points(how):
    everywhere = 1.0 - np.eye(N)  # all as far from each other
    assert cluster(everywhere, how, threshold=0.5)[1] == N
    assert cluster(everywhere, how, least=5)[1] == 5
    assert cluster(everywhere, how)[1] == 1
    assert cluster(np.zeros((N, N)), how, threshold=0)[1] == 1  # all the same point


def test_one_point_and_none():
    assert cluster(np.zeros((1, 1)), "complete")[0].tolist() == [0]
    alone = np.arange(N) == 4
    assert cluster(on_a_line(), "complete", counts=alone)[1] == 1
    nobody = run(jnp.zeros((N, N)), jnp.zeros(N), linkage="complete", threshold=jnp.float32(1), least=1, most=N)
    assert int(nobody.k) == 1
    assert not np.asarray(nobody.labels).any()


@pytest.mark.parametrize(
    ("ours", "theirs"), [("cosine", "cosine"), ("euclidean", "euclidean"), ("manhattan", "cityblock")]
)
def test_distances(ours, theirs):
    """Between trees of two leaves, as between the vectors of all their numbers."""
    rng = np.random.default_rng(0)
    tree = {"a": rng.standard_normal((7, 2, 3)), "b": rng.standard_normal((7, 4)) * 5}
    flat = np.concatenate([tree["a"].reshape(7, -1), tree["b"]], axis=1)
    between = jax.jit(distances, static_argnames="metric")(jax.tree.map(jnp.float32, tree), metric=ours)
    off = ~np.eye(7, dtype=bool)  # a point's distance to itself is not used
    np.testing.assert_allclose(np.asarray(between)[off], cdist(flat, flat, theirs)[off], rtol=1e-5, atol=1e-5)


def test_an_update_of_zero_has_no_direction():
    """1 − cos is 1 then, not NaN: as far as at a right angle."""
    between = np.asarray(distances({"w": jnp.asarray([[0.0, 0], [3, 4], [-6, -8]])}, "cosine"))
    np.testing.assert_allclose(between[[0, 0, 1], [1, 2, 2]], [1, 1, 2], atol=1e-6)


@each_linkage
def test_distances_that_are_no_numbers_are_never_merged(how):
    """A client that diverged stays alone, and the others are grouped as without it."""
    points = np.array([[0.0], [0.1], [np.nan], [5.0], [5.2]], np.float32)
    between = np.abs(points - points.T)
    labels, k = cluster(between, how, threshold=1.0)
    assert k == 3
    np.testing.assert_array_equal(labels, [0, 0, 1, 2, 2])
    labels, k = cluster(between, how)  # all that can be merged
    assert k == 2
    np.testing.assert_array_equal(labels, [0, 0, 1, 0, 0])
