"""ResNet, GRU and transformer against plain NumPy, other libraries' layers and known counts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.models import GRU, ResNet, Transformer, as_model
from cgpfl.models import layers as ours
from cgpfl.objectives import NextToken
from helpers import drawn

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def count(model):
    form = jax.eval_shape(model.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(form))


@jax.default_matmul_precision("highest")
@pytest.mark.parametrize("channels", [3, 32])  # one product; a sum of products
@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 2, 0), (5, 3, 2), (4, 1, 0)])
def test_a_convolution_is_one(channels, size, stride, padding):
    images, kernel = normal(2, 9, 8, channels), normal(size, size, channels, 4)
    sides = ((padding, padding),) * 2
    oracle = jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), sides, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = jax.jit(ours.convolve, static_argnums=(2, 3))(images, kernel, (stride, stride), sides)
    np.testing.assert_allclose(found, oracle, atol=1e-4)


def test_norms_are_flax_s():
    images = 3 + 2 * normal(2, 5, 4, 6)
    layer = {"weight": normal(6), "bias": normal(6)}
    params = {"params": {"scale": layer["weight"], "bias": layer["bias"]}}
    oracle = jax.jit(linen.GroupNorm(num_groups=3, epsilon=1e-5).apply)(params, images)
    np.testing.assert_allclose(jax.jit(ours.group_norm, static_argnums=2)(layer, images, 3), oracle, atol=1e-4)
    oracle = jax.jit(linen.LayerNorm(epsilon=1e-5).apply)(params, images)
    np.testing.assert_allclose(jax.jit(ours.layer_norm)(layer, images), oracle, atol=1e-4)


def test_resnet18_has_its_size():
    """11,173,962 parameters, as everybody's ResNet-18 for CIFAR-10: a norm has two a channel, Group or Batch."""
    assert count(ResNet((32, 32, 3), 10, blocks=(2, 2, 2, 2), width=64)) == 11_173_962


def test_resnet_halves_its_images_and_adds():
    model = ResNet((9, 8), 3, blocks=(1, 2), width=4, groups=2)
    params = drawn(model)
    assert [model._blocks(), sorted(params)] == [
        [(4, 1), (8, 2), (8, 1)],
        ["input", "layer1", "layer2", "layer3", "output"],
    ]
    assert "skip" not in params["layer1"]
    assert params["layer2"]["skip"]["weight"].shape == (1, 1, 4, 8)
    x = normal(2, 9, 8)
    assert jax.eval_shape(model.apply, params, x).shape == (2, 3)
    # a block whose second norm is 0 is the rectified identity
    params["layer3"]["norm2"] = {"weight": np.zeros(8, np.float32), "bias": np.zeros(8, np.float32)}
    without = ResNet((9, 8), 3, blocks=(1, 1), width=4, groups=2)
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), jax.jit(without.apply)(params, x), atol=1e-6)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_gru_by_hand():
    model = GRU((5,), 3, vocabulary=7, hidden=4, embedding=2, per_step=True)
    params = drawn(model)
    p = jax.tree.map(lambda v: np.asarray(v, np.float64), params)
    ids, h, answers = [3, 0, 6, 6, 1], np.zeros(4), []
    for i in ids:
        seen = p["gru"]["input"]["weight"] @ p["embedding"]["weight"][i] + p["gru"]["input"]["bias"]
        past = p["gru"]["hidden"]["weight"] @ h + p["gru"]["hidden"]["bias"]
        r, z = sigmoid(seen[:4] + past[:4]), sigmoid(seen[4:8] + past[4:8])
        h = (1 - z) * np.tanh(seen[8:] + r * past[8:]) + z * h
        answers.append(p["output"]["weight"] @ h + p["output"]["bias"])
    tokens = np.asarray([ids], np.float32)
    np.testing.assert_allclose(jax.jit(model.apply)(params, tokens)[0], answers, atol=1e-5)
    last = GRU((5,), 3, vocabulary=7, hidden=4, embedding=2)
    np.testing.assert_allclose(jax.jit(last.apply)(params, tokens)[0], answers[-1], atol=1e-5)


def test_transformer_by_hand():
    model = Transformer((4,), 3, vocabulary=5, width=6, heads=2, layers=1, per_step=True)
    params = drawn(model)
    p = jax.tree.map(lambda v: np.asarray(v, np.float64), params)
    ids = [4, 0, 2, 2]

    def affine(layer, x):
        return x @ layer["weight"].T + layer["bias"]

    def norm(layer, x):
        apart = x - x.mean(-1, keepdims=True)
        return apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5) * layer["weight"] + layer["bias"]

    h, layer = p["embedding"]["weight"][ids] + p["embedding"]["places"], p["layer1"]
    q, k, v = np.split(affine(layer["attend"], norm(layer["norm1"], h)), 3, axis=-1)
    mixed = np.zeros((4, 6))
    for head in (slice(0, 3), slice(3, 6)):
        for t in range(4):
            share = np.exp(k[: t + 1, head] @ q[t, head] / np.sqrt(3))
            mixed[t, head] = share / share.sum() @ v[: t + 1, head]
    h = h + affine(layer["attended"], mixed)
    wide = affine(layer["hidden"], norm(layer["norm2"], h))
    from scipy.special import ndtr

    h = h + affine(layer["back"], wide * ndtr(wide))
    h = norm(p["norm"], h)
    tokens = np.asarray([ids], np.float32)
    np.testing.assert_allclose(jax.jit(model.apply)(params, tokens)[0], affine(p["output"], h), atol=1e-4)
    pooled = Transformer((4,), 3, vocabulary=5, width=6, heads=2, layers=1)
    np.testing.assert_allclose(jax.jit(pooled.apply)(params, tokens)[0], affine(p["output"], h.mean(0)), atol=1e-4)


@pytest.mark.parametrize("name", ["gru", "transformer"])
def test_series_of_values(name):
    small = {"width": 8, "heads": 2, "layers": 1} if name == "transformer" else {}
    one = as_model(name, (6,), 2, **small)
    several = as_model(name, (6, 1), 2, **small)
    params, x = drawn(one), normal(3, 6)
    np.testing.assert_array_equal(jax.jit(one.apply)(params, x), jax.jit(several.apply)(params, x[..., None]))
    assert as_model(name, (6, 4), 2, objective=NextToken(), per_step=True, vocabulary=0, l2=0.1).per_step


def test_a_large_vocabulary_is_read_by_places():
    table, ids = normal(ours.LARGEST_TABLE + 1, 3), jnp.asarray([[0.0, 512.0], [7.0, 9999.0]])
    np.testing.assert_array_equal(ours.embed(table, ids), table[jnp.asarray([[0, 512], [7, 512]])])
    np.testing.assert_allclose(ours.embed(table[:99], ids[:, :1]), table[jnp.asarray([[0], [7]])], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape", "settings", "message"),
    [
        ("resnet", (64,), {}, r"model resnet: inputs of shape \(64,\) are not images"),
        ("resnet", (8, 8), {"width": 12}, "width = 12: must be a multiple of groups = 8"),
        ("resnet", (8, 8), {"blocks": 2}, "blocks = 2: must be a list of positive integers"),
        ("resnet", (8, 8), {"blocks": [2, 0]}, r"blocks = \[2, 0\]: must be a positive integer"),
        ("resnet", (8, 8), {"blocks": []}, r"blocks = \[\]: must be a"),
        ("gru", (8, 8, 3), {}, r"model gru: inputs of shape \(8, 8, 3\) are not sequences"),
        ("gru", (8, 8), {"vocabulary": 9}, r"vocabulary = 9: inputs of shape \(8, 8\) are not tokens"),
        ("gru", (8,), {"vocabulary": -1}, "vocabulary = -1: must be a whole number >= 0"),
        ("gru", (8,), {"per_step": 1}, "per_step = 1: must be a truth value"),
        ("gru", (8,), {"hidden": [3]}, r"hidden = \[3\]: must be a positive integer"),
        ("transformer", (8,), {"heads": 3}, "width = 64: must be a multiple of heads = 3"),
        ("transformer", (8,), {"dropout": 1.0}, "dropout = 1.0: must be at least 0 and below 1"),
        ("transformer", (8,), {"dropout": "a"}, "dropout = 'a': must be a number >= 0"),
    ],
)
def test_bad_settings_say_so(name, shape, settings, message):
    with pytest.raises(CgpflError, match=message) as error:
        as_model(name, shape, 3, **settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "model",
    [
        ResNet((8, 8), 3, blocks=(2, 3), width=8, groups=4),
        Transformer((12, 2), 3, width=8, heads=2, layers=6, dropout=0.25),
    ],
    ids=["resnet", "transformer"],
)
def test_what_is_computed_again_is_the_same_in_less_memory(model):
    """Loss and gradients but for rounding; blocks' insides are not kept, and the compiled step takes less memory."""
    params = drawn(model)
    x = normal(64, *model.shape)
    batch = Batch(x, np.arange(64) % 3, np.ones(64, np.float32), jax.random.key(1) if model.stochastic else None)
    both = [jax.jit(jax.value_and_grad(m.loss)) for m in (model, dataclasses.replace(model, recompute=True))]
    kept, less = (step.lower(params, batch).compile() for step in both)
    (loss, gradient), (same, anew) = kept(params, batch), less(params, batch)
    assert float(loss) == pytest.approx(float(same), rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), gradient, anew)
    bytes_kept, bytes_less = (step.memory_analysis().temp_size_in_bytes for step in (kept, less))
    assert bytes_less < 0.6 * bytes_kept
