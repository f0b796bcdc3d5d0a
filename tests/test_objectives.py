"""Objectives: losses and scores by hand, weights, units, and models trained by them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.models import MLR
from cgpfl.objectives import Classification, MultiLabel, NextToken, Regression, objective_of


def test_classes_may_weigh():
    """Balanced: with 3 samples of class 0 and 1 of class 1 these weigh 4/(2·3) and 4/(2·1); an empty class 0."""
    found = objective_of("classification", "balanced", counts=[3, 1, 0])
    np.testing.assert_allclose(found.weights, [4 / 6, 4 / 2, 0])
    logits, y = jnp.zeros((2, 3)), jnp.array([0, 1])
    np.testing.assert_allclose(found.trained(logits, y), np.log(3) * np.array([4 / 6, 2]), rtol=1e-6)
    np.testing.assert_allclose(found.each(logits, y), np.log(3), rtol=1e-6)  # what is reported is not weighted


def test_numbers_by_hand():
    """y = 14 is (14 − 10)/2 = 2 deviations; an answer of 0.5 is 1.5 away."""
    plain, huber = Regression((10.0,), (2.0,)), Regression((10.0,), (2.0,), huber=1.0)
    outputs, y = jnp.array([[0.5]]), jnp.array([[14.0]])
    assert plain.each(outputs, y)[0] == pytest.approx(1.5**2 / 2)
    assert huber.each(outputs, y)[0] == pytest.approx(1.5 - 0.5)
    assert plain.score(outputs, y)[0] == pytest.approx(1 - 1.5**2)
    assert plain.natural(outputs)[0, 0] == pytest.approx(11)
    exact = Regression((1.0, 2.0), (1.0, 3.0))
    assert exact.score(jnp.array([[0.0, 1.0]]), jnp.array([[1.0, 5.0]]))[0] == 1


def test_many_labels_by_hand():
    outputs, y = jnp.array([[0.0, 2.0]]), jnp.array([[1.0, 0.0]])
    assert MultiLabel().each(outputs, y)[0] == pytest.approx((np.log(2) + np.log1p(np.exp(2))) / 2, rel=1e-6)
    assert MultiLabel().score(jnp.array([[1.0, 2.0]]), y)[0] == 0.5


def test_tokens_that_are_missing_do_not_count():
    logits = jnp.log(jnp.array([[[1.0, 3.0], [1.0, 1.0], [5.0, 1.0]]]))
    y = jnp.array([[1, 0, -1]])
    assert NextToken().each(logits, y)[0] == pytest.approx((np.log(4 / 3) + np.log(2)) / 2, rel=1e-6)
    assert NextToken().score(logits, y)[0] == 1.0  # the first of equals
    flat, labels, weight = NextToken().flat(logits, y, jnp.array([2.0]))
    assert (flat.shape, labels.tolist(), weight.tolist()) == ((3, 2), [1, 0, 0], [2, 2, 0])


def test_a_loss_is_of_its_task():
    with pytest.raises(CgpflError, match="loss = 'huber': the data's task is classification; must be auto or cross-"):
        objective_of("classification", "huber")
    with pytest.raises(CgpflError, match="task 'ranking': must be one of classification, regression"):
        objective_of("ranking")
    assert objective_of("regression", "huber", centre=(3.0,), spread=(2.0,)) == Regression((3.0,), (2.0,), 1.0)
    assert objective_of("classification") == Classification()


def test_steps_by_products_are_steps_one_by_one():
    """The shortcut of several steps on one minibatch knows every objective."""
    random = np.random.default_rng(0)
    x = random.standard_normal((6, 4), np.float32)
    for objective, y in (
        (Regression((2.0,), (3.0,)), random.normal(size=(6, 1))),
        (MultiLabel(), random.integers(0, 2, (6, 1))),
        (Classification((0.5,)), np.zeros(6, np.int32)),
    ):
        model = MLR((4,), 1, objective=objective)
        kind = np.int32 if isinstance(objective, Classification) else np.float32
        batch = Batch(x, y.astype(kind), np.ones(6, np.float32))
        params = jax.tree.map(np.asarray, jax.jit(model.init)(jax.random.key(0)))
        anchor, gradient = jax.tree.map(lambda v: v + 1, params), jax.jit(jax.grad(model.loss))
        quick = jax.jit(model.proximal_steps, static_argnums=5)(params, anchor, batch, 0.5, 0.1, 9)
        slow = params
        for _ in range(9):
            g = jax.tree.map(np.asarray, gradient(slow, batch))
            slow = jax.tree.map(lambda p, g, w: p - np.float32(0.1) * (g + np.float32(0.5) * (p - w)), slow, g, anchor)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), quick, slow)
