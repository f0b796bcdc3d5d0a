"""Normal numbers: their distribution, both of a pair, and one draw for a tree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cgpfl.rounds.normal import _sine, normal, normals

KEY = jax.random.key(5)
program = jax.jit(normal, static_argnums=1)


def test_they_are_normal():
    x = np.asarray(program(KEY, 400_001), float)
    assert x.shape == (400_001,)
    assert stats.kstest(x, "norm").pvalue > 1e-3
    assert (np.abs(x) > 3).mean() == pytest.approx(2 * stats.norm.sf(3), rel=0.15)
    assert np.abs(x).max() < 6


def test_the_two_of_a_pair_say_nothing_of_each_other():
    x = np.asarray(program(KEY, 400_000), float)
    first, second = x[:200_000], x[200_000:]
    for power in (1, 2):
        assert abs(np.corrcoef(first**power, second**power)[0, 1]) < 0.01
        assert abs(np.corrcoef(first[1:] ** power, first[:-1] ** power)[0, 1]) < 0.01


def test_another_key_has_other_numbers_and_the_same_the_same():
    keys = jax.random.split(KEY, 3)
    each = jax.jit(jax.vmap(lambda k: normal(k, 2000)))(keys)
    assert np.abs(np.corrcoef(each) - np.eye(3)).max() < 0.1
    np.testing.assert_allclose(each[1], program(keys[1], 2000), rtol=1e-6, atol=1e-6)


def test_a_tree_has_one_draw():
    tree = {"a": jnp.zeros((3, 5)), "b": jnp.zeros(()), "c": jnp.zeros(0)}
    found = normals(tree, KEY)
    whole = normal(KEY, 16)
    np.testing.assert_array_equal(found["a"].ravel(), whole[:15])
    assert (float(found["b"]), found["c"].shape) == (float(whole[15]), (0,))
    assert normals((), KEY) == ()


def test_a_sine_of_a_turn():
    x = np.linspace(-0.5, 0.5, 1001, dtype=np.float32)
    np.testing.assert_allclose(_sine(jnp.asarray(x)), np.sin(np.pi * x.astype(float)), atol=3e-7)
