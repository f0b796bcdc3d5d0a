"""Sums with noise by a trusted server, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.rounds.sums import NoisySums, clipped_sums

KEY = jax.random.key(3)
MODELS = {"w": jnp.array([[0.0, 0.0], [10.0, 0.0]])}
UPLOADS = {"w": jnp.array([[3.0, 4.0], [0.3, 0.4], [10.0, -2.0], [jnp.nan, 0.0]])}
LABELS, WEIGHTS = jnp.array([0, 0, 1, 1]), jnp.array([1, 1, 1, 1])


def test_each_update_is_clipped_against_the_model_of_its_group():
    sums = clipped_sums(UPLOADS, LABELS, WEIGHTS > 0, MODELS, 1.0)["w"]
    np.testing.assert_allclose(sums, [[0.6 + 0.3, 0.8 + 0.4], [0.0, -1.0]], rtol=1e-6)


@pytest.mark.parametrize("without", range(4))
def test_neighbours_differ_by_the_clip_in_one_group(without):
    """Zero-out: the client has sent what it was sent, or did not answer."""
    whole = clipped_sums(UPLOADS, LABELS, WEIGHTS > 0, MODELS, 1.0)["w"]
    still = {"w": UPLOADS["w"].at[without].set(MODELS["w"][LABELS[without]])}
    for other in (
        clipped_sums(still, LABELS, WEIGHTS > 0, MODELS, 1.0)["w"],
        clipped_sums(UPLOADS, LABELS, WEIGHTS.at[without].set(0) > 0, MODELS, 1.0)["w"],
    ):
        apart = np.linalg.norm(np.asarray(whole - other), axis=1)
        assert np.linalg.norm(apart) <= 1 + 1e-6
        assert (apart > 0).sum() <= 1


def test_sums_are_divided_by_what_is_told_of_sizes():
    rule = NoisySums(1.0, 0.0, KEY, jnp.array([3.0, 1.0]))
    found = rule.group_means(UPLOADS, LABELS, WEIGHTS, MODELS)["w"]  # four answered: three and one
    np.testing.assert_allclose(found, [[0.9 / 3, 1.2 / 3], [10.0, -1.0]], rtol=1e-6)
    empty = rule.group_means(UPLOADS, jnp.array([0, 0, 2, 2]), jnp.array([1, 1, 0, 0]), MODELS)["w"]
    np.testing.assert_allclose(empty, [[0.9 / 1.5, 1.2 / 1.5], [10.0, 0.0]], rtol=1e-6)  # 2 is no group
    unused = NoisySums(1.0, 9.0, KEY, jnp.array([4.0, 0.0])).group_means(UPLOADS, LABELS, WEIGHTS, MODELS)["w"]
    np.testing.assert_array_equal(unused[1], MODELS["w"][1])


def test_noise_has_its_size():
    models = {"w": jnp.zeros((2, 4000))}
    uploads = {"w": jnp.zeros((8, 4000))}
    rule = NoisySums(2.0, 3.0, KEY, jnp.array([6.0, 2.0]))
    found = rule.group_means(uploads, jnp.array([0] * 6 + [1] * 2), jnp.ones(8), models)["w"]
    assert float(found[0].std()) == pytest.approx(2 * 3 / 6, rel=0.05)
    assert float(found[1].std()) == pytest.approx(2 * 3 / 2, rel=0.05)
    assert abs(float(np.corrcoef(*found)[0, 1])) < 0.1


def test_a_mean_is_that_of_one_group():
    found = NoisySums(1.0, 0.0, KEY).mean(UPLOADS, jnp.array([1, 1, 0, 0]), {"w": jnp.zeros(2)})["w"]
    np.testing.assert_allclose(found, [0.45, 0.6], rtol=1e-6)
    nobody = NoisySums(1.0, 5.0, KEY).mean(UPLOADS, jnp.zeros(4), {"w": jnp.ones(2)})["w"]
    np.testing.assert_array_equal(nobody, [1, 1])
