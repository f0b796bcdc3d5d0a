"""Steps worked out by hand on parabolas f(w) = ½‖w − x‖², whose gradient is w − x."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cgpfl.algorithms import FedAvg, Task
from cgpfl.engine.problem import keys_of, make_task, on_device
from cgpfl.hyperparameters import replace
from cgpfl.rounds import SGD, Adam, Momentum, Optax
from helpers import points, quadratic


def end(descent, start=1.0, steps=2, rate=0.5, centre=0.0, samples=4, **more):
    """w after a round from ``start``; all of the client's samples are at ``centre``."""
    data = points([[centre]], samples=samples)
    arrays = on_device(data)
    task: Task = make_task(quadratic(data, start=start), keys_of(0), 1)
    method = FedAvg(rate=rate, local_rounds=steps, descent=descent, **more)
    view = arrays.view(arrays.train.rows[0], arrays.train.counts[0])
    upload, _ = method.train(task, task.initial, (), view, jax.random.key(1))
    return float(upload["w"][0])


def rule():
    """Signs of gradients, as somebody's own optax rule."""
    return optax.GradientTransformation(lambda p: (), lambda g, s, p=None: (jax.tree.map(jnp.sign, g), s))


def test_plain_steps():
    assert end(SGD()) == pytest.approx(0.25)  # 1 → 0.5 → 0.25


def test_momentum():
    # g = 1: u = 1, w = 0.5; g = 0.5: u = 0.5·1 + 0.5 = 1, w = 0
    assert end(Momentum(momentum=0.5)) == pytest.approx(0.0, abs=1e-6)


def test_adam_takes_steps_of_its_rate_at_first():
    assert end(Adam(), steps=1, rate=0.1) == pytest.approx(0.9, abs=1e-5)


def test_any_optax_rule():
    assert end(Optax(rule="rounds.test_descent:rule"), rate=0.25) == pytest.approx(0.5)


def test_a_long_gradient_is_clipped():
    assert end(SGD(clip=0.5), start=10.0) == pytest.approx(10 - 2 * 0.25)
    assert end(SGD(clip=100.0), start=10.0) == pytest.approx(2.5)


def test_schedules():
    # linear: rate 0.5, then 0.25: 1 → 0.5 → 0.375
    assert end(SGD(schedule="linear")) == pytest.approx(0.375)
    # cosine: rate 0.5, then 0.5·½(1 + cos ½π) = 0.25
    assert end(SGD(schedule="cosine")) == pytest.approx(0.375)


@pytest.mark.parametrize(("epochs", "batch", "steps"), [(1.0, 2, 2), (2.0, 2, 4), (1.0, 3, 2), (3.0, 0, 3)])
def test_epochs_are_steps_by_the_clients_own_samples(epochs, batch, steps):
    assert end(SGD(epochs=epochs), batch_size=batch) == pytest.approx(0.5**steps)


def test_an_epoch_sees_every_sample_once():
    data = points([[0.0]], samples=4)
    data.x[:4, 0] = [0.0, 8.0, 16.0, 24.0]
    arrays = on_device(data)
    task = make_task(quadratic(data), keys_of(0), 1)
    view = arrays.view(arrays.train.rows[0], arrays.train.counts[0])
    for seed in range(3):
        method = FedAvg(rate=1e-3, batch_size=1, descent=SGD(epochs=1.0))
        upload, _ = method.train(task, task.initial, (), view, jax.random.key(seed))
        assert float(upload["w"][0]) == pytest.approx(48e-3, rel=2e-2)  # the sum, up to second order


def test_gradients_are_counted_with_epochs():
    assert FedAvg(batch_size=20).gradients_of(100) == 10
    assert FedAvg(batch_size=20, descent=SGD(epochs=2.0)).gradients_of(95) == 10


def test_floats_of_a_descent_are_traced():
    methods = [FedAvg(descent=Momentum(momentum=m)) for m in (0.1, 0.9)]
    assert jax.tree.structure(methods[0]) == jax.tree.structure(methods[1])
    assert sorted(np.asarray(v).item() for v in jax.tree.leaves(methods[0])) == pytest.approx([0.1, 0.1])
    assert replace(FedAvg(), {"descent": "momentum", "descent.momentum": 0.3}).descent == Momentum(momentum=0.3)
