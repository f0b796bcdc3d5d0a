"""Several steps on one minibatch: one by one as written, and by products that are formed once."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import Task, moreau
from cgpfl.batch import Batch
from cgpfl.models import CNN, DNN, MLR, base
from helpers import drawn

KEY = jax.random.key(0)
SHAPE = (3, 4)


def problem(model):
    """A task, ω, θ and a minibatch of six samples, one of which is padding."""
    first, omega, theta = (drawn(model, seed=seed) for seed in range(3))
    x = np.random.default_rng(3).standard_normal((6, *SHAPE), np.float32)
    batch = Batch(x, np.array([0, 1, 2, 1, 0, 2], np.int32), np.array([1, 1, 1, 1, 1, 0], np.float32))
    return Task(initial=first, model=model, clients=1), omega, theta, batch


@pytest.mark.parametrize(
    "model", [MLR(SHAPE, 3), MLR(SHAPE, 3, l2=0.3), DNN(SHAPE, 3, hidden=7), DNN(SHAPE, 3, l2=0.1)]
)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_both_ways_are_the_same_steps(model, steps, monkeypatch):
    task, omega, theta, batch = problem(model)
    monkeypatch.setattr(base, "shorter", lambda *sizes: True)
    fast = jax.jit(lambda *given: model.proximal_steps(*given, steps))(theta, omega, batch, 12.0, 0.05)
    monkeypatch.setattr(base, "shorter", lambda *sizes: False)
    slow = jax.jit(lambda *given: task.proximal_steps(*given, steps))(theta, omega, batch, 12.0, 0.05)
    assert jax.tree.structure(slow) == jax.tree.structure(fast)
    for a, b, old in zip(*map(jax.tree.leaves, (slow, fast, theta)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
        assert np.abs(a - old).max() > 1e-3  # something was done


@pytest.mark.parametrize("by_products", [True, False])
def test_one_step_by_hand(by_products, monkeypatch):
    """One feature, two classes, one sample x = 2 of class 0, W = 0, ω = (1, -1): p = (½, ½), so D = (-½, ½).

    W ← 0 − η(D·x + λ(0 − ω)) = ∓η(-1 − λ): with η = 0.1, λ = 3 that is (0.4, -0.4); the bias ← −η·D = (0.05, -0.05).
    """
    model = MLR((1,), 2, l2=0.0)
    zero = {"weight": jnp.zeros((2, 1)), "bias": jnp.zeros(2)}
    omega = {"weight": jnp.array([[1.0], [-1.0]]), "bias": jnp.zeros(2)}
    batch = Batch(jnp.array([[2.0]]), jnp.array([0]), jnp.ones(1))
    monkeypatch.setattr(base, "shorter", lambda *sizes: by_products)
    after = Task(zero, model, 1).proximal_steps(zero, omega, batch, 3.0, 0.1, 1)
    np.testing.assert_allclose(after["weight"], [[0.4], [-0.4]], rtol=1e-6)
    np.testing.assert_allclose(after["bias"], [0.05, -0.05], rtol=1e-6)


@dataclass(frozen=True)
class Other(MLR):
    """A logistic regression with a loss of its own."""

    def loss(self, params, batch):
        return jnp.sum(params["weight"] ** 2) + jnp.sum(params["bias"])


def test_it_is_used_where_it_pays_and_only_where_it_is_right():
    batch = Batch(jnp.zeros((20, 784)), jnp.zeros(20, int), jnp.ones(20))

    def used(model, steps=5, samples=20):
        part = Batch(batch.x[:1].repeat(samples, 0), batch.y[:1].repeat(samples), batch.weight[:1].repeat(samples))
        params = drawn(model)
        shortcut = getattr(model, "proximal_steps", lambda *args: None)
        return shortcut(params, params, part, 1.0, 0.1, steps) is not None

    assert used(MLR((784,), 10))  # 3 + 20/10 = 5 products instead of 10
    assert used(DNN((784,), 10))
    assert not used(MLR((784,), 10), steps=1)
    assert not used(MLR((784,), 10), steps=2)
    assert not used(MLR((784,), 10), samples=80)  # 3 + 80/10 = 11
    assert not used(Other((784,), 10))
    assert not used(CNN((28, 28), 10))


@pytest.mark.parametrize("model", [MLR(SHAPE, 3), Other(SHAPE, 3)])
def test_a_client_takes_the_same_steps_either_way(model, monkeypatch):
    """Through moreau_rounds, where the choice is made."""
    from cgpfl.algorithms.base import ClientData

    task, omega, theta, batch = problem(model)
    data = ClientData(batch.x, batch.y, jnp.arange(5), jnp.int32(5), jnp.float32(1), jnp.float32(0))
    method = moreau.MoreauMethod(prox=12.0, personal_rate=0.05, local_rounds=3, inner_steps=5, batch_size=4)
    found = []
    for choose in (base.shorter, lambda *sizes: False):
        monkeypatch.setattr(base, "shorter", choose)
        found.append(jax.jit(lambda *given: method.moreau_rounds(task, *given, 0.3))(omega, theta, data, KEY))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
