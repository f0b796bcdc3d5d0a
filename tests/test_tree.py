import jax.numpy as jnp
import numpy as np

from cgpfl import tree


def test_mix_is_a_matrix_product_and_weighted_mean_ignores_absent():
    stacked = {"a": jnp.arange(6.0).reshape(3, 2), "b": jnp.asarray([1.0, 2.0, 4.0])}
    p = jnp.asarray([[0.5, 0], [0.5, 0], [0, 1.0]])
    mixed = tree.mix(stacked, p)
    np.testing.assert_allclose(mixed["a"], [[1, 2], [4, 5]])
    np.testing.assert_allclose(mixed["b"], [1.5, 4])
    mean = tree.weighted_mean(stacked, jnp.asarray([1.0, 0, 3]), fallback={"a": jnp.zeros(2), "b": jnp.float32(0)})
    np.testing.assert_allclose(mean["b"], (1 + 12) / 4)


def test_weighted_mean_of_nobody_is_the_fallback():
    stacked = {"a": jnp.ones((2, 3))}
    out = tree.weighted_mean(stacked, jnp.zeros(2), {"a": jnp.full(3, 7.0)})
    np.testing.assert_allclose(out["a"], 7)


def test_sizes():
    value = {"a": jnp.zeros((3, 4)), "b": jnp.zeros(5, jnp.int8)}
    assert tree.size(value) == 17
    assert tree.nbytes(value) == 53


def test_all_finite_sees_one_bad_number():
    good = {"a": jnp.ones(4), "n": jnp.ones(2, jnp.int32)}
    assert bool(tree.all_finite(good))
    for bad in (jnp.nan, jnp.inf, -jnp.inf):
        assert not bool(tree.all_finite({**good, "a": good["a"].at[2].set(bad)}))
