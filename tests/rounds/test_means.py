import dataclasses

import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms import Cohort, algorithm
from cgpfl.rounds import Mean, WeightedMean
from cgpfl.tree import where


@algorithm
class Median(Mean):
    """A robust mean as a user writes it: one class, one function."""

    name = "median"

    def mean(self, stacked, weights, fallback):
        here = weights > 0
        middle = {k: jnp.nanmedian(jnp.where(here[:, None], v, jnp.nan), axis=0) for k, v in stacked.items()}
        return where(here.any(), middle, fallback)


UPLOADS = {"w": jnp.array([[1.0, 0.0], [3.0, 0.0], [100.0, 8.0], [-9.0, -9.0]])}
COHORT = Cohort(jnp.arange(4), jnp.array([1, 3, 4, 0]))  # the last did not answer
NOTHING = {"w": jnp.array([7.0, 7.0])}


def test_by_samples_and_equally():
    np.testing.assert_allclose(COHORT.mean(UPLOADS, NOTHING)["w"], [(1 + 9 + 400) / 8, 4.0])
    np.testing.assert_allclose(COHORT.mean(UPLOADS, NOTHING, equally=True)["w"], [104 / 3, 8 / 3], rtol=1e-6)


def test_nobody_answered():
    nobody = dataclasses.replace(COHORT, weights=jnp.zeros(4, int))
    np.testing.assert_array_equal(nobody.mean(UPLOADS, NOTHING)["w"], NOTHING["w"])


def test_groups_and_one_that_is_empty():
    fallback = {"w": jnp.arange(6.0).reshape(3, 2)}
    found = COHORT.group_means(UPLOADS, jnp.array([0, 0, 2, 1]), fallback)
    np.testing.assert_allclose(found["w"], [[2.5, 0.0], [2.0, 3.0], [100.0, 8.0]])


def test_a_rule_with_a_mean_has_group_means():
    fallback = {"w": jnp.arange(6.0).reshape(3, 2)}
    labels = jnp.array([0, 0, 2, 1])
    by_rule = Mean.group_means(WeightedMean(), UPLOADS, labels, COHORT.weights.astype(jnp.float32), fallback)
    np.testing.assert_allclose(by_rule["w"], COHORT.group_means(UPLOADS, labels, fallback)["w"], rtol=1e-6)


def test_a_users_own_mean():
    cohort = dataclasses.replace(COHORT, rule=Median())
    np.testing.assert_array_equal(cohort.mean(UPLOADS, NOTHING)["w"], [3.0, 0.0])
    two = cohort.group_means(UPLOADS, jnp.array([0, 0, 0, 1]), {"w": jnp.zeros((2, 2))})
    np.testing.assert_array_equal(two["w"], [[3.0, 0.0], [0.0, 0.0]])
