"""What a model draws in training: from the minibatch's key, in every method and engine; nothing in evaluation."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from cgpfl.algorithms import METHODS, ClientData
from cgpfl.algorithms.base import Task
from cgpfl.algorithms.fedavg import FedAvg
from cgpfl.algorithms.steps import over_batches
from cgpfl.batch import Batch, model_key
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.simulation import simulate
from cgpfl.errors import CgpflError
from cgpfl.models import MLR, as_model
from cgpfl.models.layers import dropout
from golden.frozen import federation, small

SHAPE, CLASSES = (4,), 3


def init(key):
    first, second = jax.random.split(key)
    return {"a": jax.random.normal(first, (4, 16)), "b": jax.random.normal(second, (16, 3))}


def apply(params, x, key=None):
    return dropout(jnp.tanh(x @ params["a"]), 0.5, key) @ params["b"]


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x, train: bool):
        h = linen.Dropout(0.5, deterministic=not train)(jnp.tanh(linen.Dense(16)(x)))
        return linen.Dense(3)(h)


class Deterministic(linen.Module):
    @linen.compact
    def __call__(self, x, deterministic: bool = True):
        return linen.Dense(3)(linen.Dropout(0.5)(jnp.tanh(linen.Dense(16)(x)), deterministic=deterministic))


class Untold(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3)(linen.Dropout(0.5, deterministic=False)(x))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(4, 16, rngs=rngs), nnx.Linear(16, 3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.b(self.drop(jnp.tanh(self.a(x))))


def samples(n=5):
    rng = np.random.default_rng(0)
    return Batch(jnp.asarray(rng.normal(size=(n, 4)), jnp.float32), jnp.arange(n) % 3, jnp.ones(n))


def a_client(x, y):
    """The first nine samples as they are."""
    return ClientData(x, y, jnp.arange(9), jnp.int32(9), jnp.float32(1), jnp.float32(0))


def test_by_hand():
    x = jnp.full((100, 100), 3.0)
    dropped = np.asarray(dropout(x, 0.25, jax.random.key(0)))
    assert set(np.unique(dropped)) == {0.0, 4.0}  # 3 / (1 − 0.25)
    assert (dropped == 0).mean() == pytest.approx(0.25, abs=0.02)
    assert dropout(x, 0.25, None) is x
    assert dropout(x, 0.0, jax.random.key(0)) is x


@pytest.mark.parametrize(
    "given",
    [(init, apply), Linen(), Deterministic(), Nnx(nnx.Rngs(0, dropout=1))],
    ids=["pair", "linen", "deterministic", "nnx"],
)
def test_drawn_in_training_alone(given):
    model = as_model(given, SHAPE, CLASSES)
    params, some = model.init(jax.random.key(0)), samples()
    assert model.stochastic
    resting = model.loss(params, some)
    assert float(resting) == float(model.loss(params, some))
    trained = [float(model.loss(params, some._replace(key=jax.random.key(i)))) for i in (1, 1, 2)]
    assert trained[0] == trained[1]
    assert len({float(resting), trained[0], trained[2]}) == 3
    assert float(model.score(params, some._replace(key=jax.random.key(1)))[1]) == pytest.approx(5 * float(resting))


def test_the_mean_over_masks_is_the_layer_without():
    """E[dropout(h)·W] = h·W, where nothing follows that is not linear."""
    model = as_model((init, apply), SHAPE, CLASSES)
    params, x = model.init(jax.random.key(0)), samples().x
    many = jax.vmap(lambda key: model.apply(params, x, key))(jax.random.split(jax.random.key(1), 4000))
    np.testing.assert_allclose(many.mean(0), model.apply(params, x), atol=0.25)


def test_a_module_that_draws_untold_says_so():
    with pytest.raises(CgpflError, match=r"draws \(dropout\) where nothing may be drawn; its __call__ must take train"):
        as_model(Untold(), SHAPE, CLASSES)


@dataclass(frozen=True)
class Noting(MLR):
    """Writes down which keys its losses are given."""

    stochastic = True
    seen = []  # noqa: RUF012

    def apply(self, params, x, key=None):
        self.seen.append(key is not None)
        return super().apply(params, x)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_trains_with_keys(name):
    """Traced, not computed."""
    data, method, model = federation(), small(name), Noting(SHAPE, CLASSES)

    own = a_client(jnp.asarray(data.x), jnp.asarray(data.y))

    def train(key):
        task = Task(model.init(key), model, data.clients, own)
        server = method.init_server(task, key)
        message = method.send(server, jnp.int32(0))
        model.seen.clear()
        return method.train(task, message, method.init_client(task, key), own, key)

    jax.eval_shape(train, jax.random.key(0))
    assert any(model.seen), name


@pytest.mark.parametrize("size", [0, 4])
def test_each_minibatch_has_its_key(size):
    """The i-th of R has model_key of the i-th of the split; however large it is."""
    data = ClientData(
        jnp.zeros((9, 4)), jnp.zeros(9, jnp.int32), jnp.arange(9), jnp.int32(9), jnp.float32(1), jnp.float32(0)
    )
    key = jax.random.key(3)

    def step(state, batch):
        place, found = state
        return place + 1, found.at[place].set(jax.random.key_data(batch.key))

    _, found = over_batches(step, (0, jnp.zeros((3, 2), jnp.uint32)), data, key, 3, size)
    wanted = [jax.random.key_data(model_key(k)) for k in jax.random.split(key, 3)]
    np.testing.assert_array_equal(found, np.stack(wanted))
    assert data.all().key is None
    assert (jax.random.key_data(data.batch(key, size).key) == jax.random.key_data(model_key(key))).all()


@pytest.mark.slow
def test_engines_agree():
    """All clients in one program draw what they draw one by one, and not each other's."""
    data = federation()
    model, who = as_model((init, apply), SHAPE, CLASSES), {"rounds": 2, "participation": 0.67, "dropout": 0.2}
    method = FedAvg(rate=0.3, local_rounds=3, batch_size=5)
    state, records, _ = simulate(method, data, model, seed=0, **who)
    server, _, expected = simulate_loop(method, data, model, seed=0, **who)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), state.server, server)
    np.testing.assert_allclose(records["train_loss"], expected["train_loss"], rtol=1e-4)
    plain = simulate(method, data, as_model((init, lambda p, x: apply(p, x)), SHAPE, CLASSES), seed=0, **who)[0]
    assert float(jnp.abs(plain.server["a"] - state.server["a"]).max()) > 0.01
