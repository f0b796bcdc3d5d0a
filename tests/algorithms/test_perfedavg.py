"""Per-FedAvg on parabolas, where both orders have a closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import FedAvg, PerFedAvg
from cgpfl.algorithms.base import ClientData, Task
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, simulate
from helpers import quadratic

# f_i(w) = (k/2)·mean (w − x)²: with curvature k, ∇f_i(w) = k(w − c_i), where c_i is the mean of client i's points
CURVATURE = 3.0
POINTS = [[0.0, 1.0, 2.0], [4.0, 6.0]]
MEANS, SIZES = (1.0, 5.0), (3, 2)


def federation(test):
    train = [(np.float32(p)[:, None], np.zeros(len(p), int)) for p in POINTS]
    data = FederatedData.from_clients(train, test=[(np.float32([[t]]), np.zeros(1, int)) for t in test])
    return data, quadratic(data, curvature=CURVATURE)


@pytest.mark.parametrize("order", ["fo", "hf"])
def test_three_rounds_by_hand(order):
    """α = 0.1, β = 0.2, R = 2. The gradients' difference is exact here whatever δ is: h = k·g."""
    data, model = federation(test=(1, 5))
    alpha, beta, k = 0.1, 0.2, CURVATURE
    method = PerFedAvg(order=order, rate=beta, adapt_rate=alpha, delta=0.5, local_rounds=2, batch_size=0)
    w = 0.0
    for t in (1, 2, 3):
        ends = []
        for c in MEANS:
            end = w
            for _ in range(2):
                u = end - alpha * k * (end - c)
                g = k * (u - c)
                end = end - beta * (g if order == "fo" else g - alpha * k * g)
            # in closed form: one step multiplies the distance to c by 1 − βk(1 − αk), or 1 − βk(1 − αk)²
            factor = 1 - beta * k * (1 - alpha * k) ** (1 if order == "fo" else 2)
            assert end - c == pytest.approx((w - c) * factor**2)
            ends.append(end)
        w = sum(n * end for n, end in zip(SIZES, ends, strict=True)) / sum(SIZES)
        state, _, _ = simulate(method, data, model, rounds=t, eval_every=t)
        np.testing.assert_allclose(state.server["w"], [w], rtol=1e-5)
    # the paper's δ = 0.001 costs some of float32's digits, no more
    if order == "hf":
        fine, _, _ = simulate(
            PerFedAvg(rate=beta, adapt_rate=alpha, local_rounds=2, batch_size=0), data, model, rounds=3, eval_every=3
        )
        np.testing.assert_allclose(fine.server["w"], [w], rtol=1e-3)


@pytest.mark.parametrize("order", ["fo", "hf"])
def test_without_adaptation_it_is_fedavg(order):
    data, model = federation(test=(1, 5))
    settings = {"rate": 0.2, "local_rounds": 2, "batch_size": 0}
    method = PerFedAvg(order=order, adapt_rate=1e-7, delta=0.5, **settings)
    simulation = Simulation(method, data, model, rounds=3, eval_every=3)
    state, _, _ = simulation.advance(simulation.start(), 0, 3)
    fedavg, _, _ = simulate(FedAvg(**settings), data, model, rounds=3, eval_every=3)
    np.testing.assert_allclose(state.server["w"], fedavg.server["w"], rtol=1e-5)
    np.testing.assert_allclose(simulation.personal(state, 1)["w"], fedavg.server["w"], rtol=1e-5)


def test_the_personal_model_is_one_full_step_on_training_samples():
    """Trained on single samples, adapted on all of a client's; other test samples change the loss alone."""
    method = PerFedAvg(rate=0.05, adapt_rate=0.1, local_rounds=2, batch_size=1)
    seen = []
    for test in (1, 5), (-70, 80):
        data, model = federation(test)
        simulation = Simulation(method, data, model, rounds=2)
        state, records, _ = simulation.advance(simulation.start(), 0, 2)
        w = float(state.server["w"][0])
        for i, c in enumerate(MEANS):
            adapted = w - 0.1 * CURVATURE * (w - c)
            np.testing.assert_allclose(simulation.personal(state, i)["w"], [adapted], rtol=1e-5)
            # this is the model whose loss is recorded; the shared one is w itself
            np.testing.assert_allclose(records["loss"][-1, i], CURVATURE / 2 * (adapted - test[i]) ** 2, rtol=1e-4)
            np.testing.assert_allclose(records["shared_loss"][-1, i], CURVATURE / 2 * (w - test[i]) ** 2, rtol=1e-4)
        seen.append(w)
    assert seen[0] == seen[1] != 0


def test_the_two_gradients_of_a_step_see_different_minibatches():
    """One step from w = 0 on samples of points 0 and 1: u = αk·x, then w⁺ = −βk(u − x'), x and x' drawn apart."""
    alpha, beta, k = 0.1, 0.2, CURVATURE
    _, model = federation(test=(1, 5))
    samples = ClientData(
        jnp.array([[0.0], [1.0]]), jnp.zeros(2, int), jnp.arange(2), jnp.int32(2), jnp.float32(1), jnp.float32(0)
    )
    task = Task({"w": jnp.zeros(1)}, model, 1)
    method = PerFedAvg(order="fo", rate=beta, adapt_rate=alpha, local_rounds=1, batch_size=1)
    keys = jax.random.split(jax.random.key(0), 100)
    ends = jax.jit(jax.vmap(lambda key: method.train(task, task.initial, (), samples, key)[0]["w"][0]))(keys)
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1)]
    found = np.unique(np.round(np.asarray(ends, float), 5))
    np.testing.assert_allclose(found, sorted(-beta * k * (alpha * k * x - x_) for x, x_ in pairs), atol=1e-5)
