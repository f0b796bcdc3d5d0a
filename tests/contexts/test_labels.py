import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment

from cgpfl.contexts import match, membership, spreading, transition


@jax.jit
def matched(new, old, k):
    return match(new, old, 8, k=k)


def test_matching_is_scipys_optimum():
    rng = np.random.default_rng(0)
    for _ in range(20):
        k = int(rng.integers(2, 9))
        new, old = rng.integers(k, size=40), rng.integers(k, size=40)
        overlap = np.array([[np.sum((new == a) & (old == b)) for b in range(k)] for a in range(k)])
        rows, columns = linear_sum_assignment(-overlap)
        names = np.asarray(matched(new, old, np.int32(k)))[:k]
        assert sorted(names) == list(range(k))
        assert np.sum(names[new] == old) == overlap[rows, columns].sum()


def test_renamed_labels_come_back():
    old = np.array([0, 0, 1, 1, 2, 2, 2])
    new = np.array([2, 2, 0, 0, 1, 1, 1])
    names = np.asarray(match(jnp.asarray(new), jnp.asarray(old), 3))
    np.testing.assert_array_equal(names[new], old)


def test_unused_names_are_not_given():
    """Four slots, two used: even with no overlap at all the two used clusters keep names 0 and 1."""
    new, old = jnp.asarray([1, 1, 1]), jnp.asarray([0, 0, 0])
    names = np.asarray(match(new, old, 4, k=2))
    assert names[1] == 0
    assert names[0] == 1
    assert set(names[2:]) == {2, 3}


def test_p_and_j():
    labels = np.array([0, 1, 0, 1, 1])
    p, j = membership(labels, 2), spreading(labels, 2)
    np.testing.assert_allclose(p, [[1 / 2, 0], [0, 1 / 3], [1 / 2, 0], [0, 1 / 3], [0, 1 / 3]])
    np.testing.assert_allclose(j @ p, np.eye(2))
    np.testing.assert_allclose(p.sum(0), 1)


def test_q_is_identity_when_nobody_moves_and_has_unit_columns():
    labels = np.array([0, 1, 2, 0, 1, 2])
    np.testing.assert_allclose(transition(labels, labels, 3), np.eye(3))
    moved = np.array([0, 1, 2, 1, 1, 2])  # client 3 went from context 0 to 1
    q = transition(labels, moved, 3)
    np.testing.assert_allclose(q.sum(0), 1)
    np.testing.assert_allclose(q[:, 1], [1 / 3, 2 / 3, 0])
    swapped = np.array([1, 0, 2, 1, 0, 2])
    q = transition(labels, swapped, 3)
    np.testing.assert_allclose(membership(labels, 3) @ q, membership(swapped, 3))
