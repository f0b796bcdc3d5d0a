"""Modules of equinox. Run by ``make test-torch``: equinox is no dependency of the tests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.models import as_model

eqx = pytest.importorskip("equinox")


class Net(eqx.Module):
    first: eqx.nn.Linear
    drop: eqx.nn.Dropout
    rest: list

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.first, self.drop = eqx.nn.Linear(6, 16, key=one), eqx.nn.Dropout(0.5)
        self.rest = [jax.nn.tanh, eqx.nn.Linear(16, 3, key=two)]

    def __call__(self, x, key=None):
        h = self.drop(self.first(x.reshape(-1)), key=key)
        for part in self.rest:
            h = part(h)
        return h


def batch():
    rng = np.random.default_rng(0)
    return Batch(jnp.asarray(rng.normal(size=(5, 2, 3)), jnp.float32), jnp.arange(5) % 3, jnp.ones(5))


def test_a_module_and_its_gradient():
    module, some = Net(jax.random.key(0)), batch()
    model = as_model(module, (2, 3), 3)
    params = model.init(jax.random.key(7))
    assert {k: sorted(v) for k, v in params["rest"].items()} == {"1": ["bias", "weight"]}
    resting = eqx.nn.inference_mode(module)
    np.testing.assert_allclose(model.apply(params, some.x), jax.vmap(resting)(some.x), rtol=1e-5)

    @eqx.filter_grad
    def oracle(net):
        each = -jax.nn.log_softmax(jax.vmap(net)(some.x))[jnp.arange(5), some.y]
        return each.mean()

    gradient, expected = jax.grad(model.loss)(params, some), oracle(resting)
    np.testing.assert_allclose(gradient["first"]["weight"], expected.first.weight, atol=1e-6)
    np.testing.assert_allclose(gradient["rest"]["1"]["bias"], expected.rest[1].bias, atol=1e-6)


def test_dropout_is_each_sample_s_own():
    model = as_model(Net(jax.random.key(0)), (2, 3), 3)
    params = model.init(jax.random.key(0))
    assert model.stochastic
    same = Batch(jnp.ones((4, 2, 3)), jnp.zeros(4, jnp.int32), jnp.ones(4), jax.random.key(1))
    assert len(np.unique(np.asarray(model.outputs(params, same))[:, 0])) == 4
    assert float(model.loss(params, same)) == float(model.loss(params, same))
    assert float(model.loss(params, same)) != float(model.loss(params, same._replace(key=None)))


def test_plain_layers_need_no_key():
    model = as_model(eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0)), (4,), 3)
    assert model.apply(model.init(jax.random.key(0)), jnp.ones((2, 4))).shape == (2, 3)


def test_running_state_is_refused():
    norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")
    with pytest.raises(CgpflError, match=r"equinox state \(StateIndex\) cannot be averaged .* GroupNorm"):
        as_model(eqx.nn.Sequential([norm]), (4,), 4)
