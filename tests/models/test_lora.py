"""Adapters around a model: what they compute, without forming what they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.models import CNN, DNN, MLR, LoRA, as_model
from cgpfl.objectives import Regression
from cgpfl.tree import paths

X = np.random.default_rng(1).standard_normal((5, 6, 6), np.float32)
BATCH = Batch(X, np.array([0, 1, 2, 0, 1], np.int32), np.array([1, 1, 1, 1, 0], np.float32))


def moved(model):
    """Parameters with adapters that do something."""
    params, shake = jax.jit(model.init)(jax.random.key(0)), np.random.default_rng(2)
    lora = jax.tree.map(lambda v: np.float32(0.1) * shake.standard_normal(v.shape, np.float32), params["lora"])
    return {**params, "lora": lora}


def test_it_starts_as_its_base():
    of = DNN((6, 6), 3, hidden=7)
    model = LoRA(of, rank=2)
    params, base = jax.jit(model.init)(jax.random.key(0)), jax.jit(of.init)(jax.random.key(0))
    assert paths(params["lora"]) == [f"{n}.weight.{p}" for n in ("hidden", "output") for p in "ab"]
    assert params["lora"]["hidden.weight"]["a"].shape == (2, 36)
    jax.tree.map(np.testing.assert_array_equal, params["base"], base)
    np.testing.assert_array_equal(jax.jit(model.apply)(params, X), jax.jit(of.apply)(base, X))
    np.testing.assert_array_equal(jax.jit(model.loss)(params, BATCH), jax.jit(of.loss)(base, BATCH))


@pytest.mark.parametrize("of", [MLR((6, 6), 3), DNN((6, 6), 3, hidden=7), CNN((6, 6), 3, channels=(2, 2), kernel=3)])
def test_it_is_its_model_with_effective_matrices(of):
    """The oracle is the model inside on base + (alpha/rank)·b·a, by NumPy; the CNN's kernels have to be formed."""
    model = LoRA(of, rank=2, alpha=3.0)
    params = moved(model)
    whole = jax.tree.map(np.asarray, params["base"])
    for name, pair in params["lora"].items():
        layer, leaf = name.split(".") if "." in name else (None, name)
        at = whole if layer is None else whole[layer]
        at[leaf] = at[leaf] + 1.5 * np.asarray(pair["b"]) @ np.asarray(pair["a"])
    np.testing.assert_allclose(jax.jit(model.apply)(params, X), jax.jit(of.apply)(whole, X), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.jit(model.loss)(params, BATCH), jax.jit(of.loss)(whole, BATCH), rtol=1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), jax.jit(model.effective)(params), whole)


def test_kernels_of_either_orientation():
    """x @ w, x @ w.T, w @ x and a matrix used twice, with gradients."""

    def forward(params, x):
        flat = x.reshape(len(x), -1)
        hidden = jax.nn.relu(jnp.matmul(flat, params["in"]))
        return (params["out"].T @ hidden.T).T + (hidden @ params["out"]) @ (params["out"].T @ params["out"])

    def start(key):
        return {"in": jax.random.normal(key, (36, 4)), "out": jax.random.normal(key, (4, 3))}

    model = LoRA(as_model((start, forward), (6, 6), 3), rank=2, targets="in,out")
    params = moved(model)
    by_layers = jax.jit(lambda p: forward(model.effective(p), X))(params)
    np.testing.assert_allclose(jax.jit(model.apply)(params, X), by_layers, rtol=1e-4, atol=1e-4)
    by_hand = jax.jit(jax.grad(lambda p: model.of.loss(model.effective(p), BATCH)))(params)
    found = jax.jit(jax.grad(model.loss))(params, BATCH)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), found, by_hand)


def test_no_matrix_is_formed():
    """In none of the program's steps, forward or back, is there an array as large as the base's matrix."""
    from cgpfl.engine.blocks import _made

    model = LoRA(DNN((6, 6), 3, hidden=50), rank=2)
    params = moved(model)

    def loss(lora):
        return model.loss({**params, "lora": lora}, BATCH)

    made = _made(jax.make_jaxpr(jax.grad(loss))(params["lora"]).jaxpr)
    assert max(int(np.prod(v.shape)) for v in made if v.shape not in ((36, 50), (50, 36))) < 36 * 50
    clients = jax.tree.map(lambda v: np.stack([v] * 3), params["lora"])
    made = _made(jax.make_jaxpr(jax.vmap(jax.grad(loss)))(clients).jaxpr)
    assert not any(v.shape in ((3, 36, 50), (3, 50, 36)) for v in made)


def test_by_name_and_what_is_refused():
    model = as_model("lora", (6, 6), 3, of="dnn", rank=2, hidden=7, objective=Regression())
    assert model == LoRA(DNN((6, 6), 3, hidden=7, objective=Regression()), rank=2)
    assert model.settings() == {
        **{"of": "dnn", "rank": 2, "alpha": 4.0, "targets": "*weight", "l2": 0.0, "hidden": 7},
    }
    assert as_model("lora", (6, 6), 3, **model.settings(), objective=Regression()) == model
    for wrong, message in (
        ({"targets": "*wait"}, r"targets = '\*wait': matches no parameter; there are hidden.weight, output.weight"),
        ({"targets": ""}, "targets = '': names no matrix"),
        ({"rank": 0}, "rank = 0: must be a positive integer"),
        ({"alpha": -1}, "alpha = -1: must be a number > 0"),
        ({"of": "dnnn"}, "no model 'dnnn'"),
        ({"hiden": 3}, "model dnn: no setting 'hiden'"),
    ):
        with pytest.raises(CgpflError, match=message):
            as_model("lora", (6, 6), 3, **wrong)
