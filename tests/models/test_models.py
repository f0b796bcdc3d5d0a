import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from sklearn.linear_model import LogisticRegression

from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.models import CNN, DNN, MLR, as_model, nets
from cgpfl.models.nets import gathered_times, max_pool, pooled_times, rows_times
from helpers import Instead


def batch(shape, n=6, classes=10, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, *shape)).astype(np.float32)
    return Batch(x, rng.integers(classes, size=n).astype(np.int32), np.ones(n, np.float32))


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (MLR((28, 28), 10), 7850),
        (DNN((28, 28), 10), 784 * 128 + 128 + 1290),
        (CNN((32, 32, 3), 10), (75 * 6 + 6) + (150 * 16 + 16) + (400 * 120 + 120) + 1210),
    ],
)
def test_sizes_are_the_papers(model, size):
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert sum(p.size for p in jax.tree.leaves(params)) == size
    assert jax.eval_shape(model.apply, params, batch(model.shape).x).shape == (6, 10)


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (32, 32, 3), (9, 7)])
def test_cnn_takes_images_of_many_sizes(shape):
    model = as_model("cnn", shape, 5)
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert jax.eval_shape(model.apply, params, batch(shape).x).shape == (6, 5)


@jax.default_matmul_precision("highest")  # a GPU would round to tf32
@pytest.mark.parametrize("convolve", [gathered_times, rows_times, pooled_times])
@pytest.mark.parametrize("shape", [(9, 7), *(pytest.param(s, marks=pytest.mark.slow) for s in ((10, 10), (8, 9)))])
@pytest.mark.parametrize(("kernel", "colours"), [(5, 3), (3, 1), (4, 2), (2, 1)])
def test_every_form_is_a_convolution(convolve, kernel, colours, shape):
    rng = np.random.default_rng(0)
    images = rng.standard_normal((2, *shape, colours)).astype(np.float32)
    weight = rng.standard_normal((kernel, kernel, colours, 4)).astype(np.float32)
    bias = rng.standard_normal(4).astype(np.float32)
    oracle = jax.lax.conv_general_dilated(images, weight, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    layer = {"weight": weight.reshape(-1, 4).T, "bias": bias}
    expected = np.asarray(oracle) + bias
    if convolve is pooled_times:
        expected = jax.jit(max_pool)(expected)
    np.testing.assert_allclose(jax.jit(convolve, static_argnums=2)(layer, images, kernel), expected, atol=1e-4)


@pytest.mark.slow
@jax.default_matmul_precision("highest")
def test_cnn_learns_the_same_from_every_form(monkeypatch):
    """An accelerator takes other forms of the convolutions: the same loss and gradients, with a model a client too."""
    shape = (8, 9, 2)
    model = CNN(shape, 4, channels=(3, 2), kernel=3, hidden=5)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
    some = batch(shape, classes=4)

    def learn(backend, others):
        with monkeypatch.context() as patch:
            patch.setattr(nets, "jax", Instead(jax, default_backend=lambda: backend))
            for name in others:  # an error, if it were taken
                patch.setattr(nets, name, None)
            return jax.jit(jax.vmap(jax.value_and_grad(model.loss), in_axes=(0, None)))(params, some)

    loss, gradient = learn("gpu", ["pooled_times"])
    expected = learn("cpu", ["gathered_times", "rows_times"])
    np.testing.assert_allclose(loss, expected[0], rtol=1e-5)
    assert all(float(jnp.abs(g).max()) > 1e-3 for g in jax.tree.leaves(gradient))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradient, expected[1])


def test_max_pool():
    image = jnp.arange(20.0).reshape(1, 4, 5, 1)
    np.testing.assert_array_equal(max_pool(image)[0, :, :, 0], [[6, 8], [16, 18]])


def test_loss_and_score_by_hand():
    model = MLR((2,), 2, l2=0.1)
    params = {"weight": jnp.asarray([[1.0, 0], [0, 1]]), "bias": jnp.asarray([0.0, 0])}
    some = Batch(jnp.asarray([[2.0, 0], [0, 1], [5, 5]]), jnp.asarray([0, 0, 1]), jnp.asarray([1.0, 1, 0]))
    # logits (2, 0) and (0, 1), both with label 0; the third sample has weight 0
    entropy = np.array([np.log(1 + np.exp(-2)), np.log(1 + np.exp(1))])
    assert float(model.loss(params, some)) == pytest.approx(entropy.mean() + 0.05 * 2, rel=1e-5)
    correct, loss = model.score(params, some)
    assert float(correct) == 1
    assert float(loss) == pytest.approx(entropy.sum(), rel=1e-5)


def test_mlr_minimum_is_scikit_learns():
    """Gradient descent on our loss ends where scikit-learn's solver does (l2 on the weights alone there)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3)).astype(np.float32)
    y = (x @ rng.standard_normal((3, 4))).argmax(1)
    model = MLR((3,), 4, l2=0.05)
    everything = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(60))
    step = jax.jit(lambda p: jax.tree.map(lambda a, g: a - 0.5 * g, p, jax.grad(model.loss)(p, everything)))
    params = jax.jit(model.init)(jax.random.key(0))
    for _ in range(3000):
        params = step(params)
    # an added column of ones turns our regularised bias into one more weight
    oracle = LogisticRegression(C=1 / (60 * 0.05), fit_intercept=False, tol=1e-8, max_iter=5000)
    oracle.fit(np.c_[x, np.ones(60)], y)
    np.testing.assert_allclose(params["weight"], oracle.coef_[:, :3], atol=2e-3)
    np.testing.assert_allclose(params["bias"], oracle.coef_[:, 3], atol=2e-3)


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(10)(linen.relu(linen.Dense(7)(x.reshape(x.shape[0], -1))))


class WithBatchNorm(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(10)(linen.BatchNorm(use_running_average=True)(x.reshape(x.shape[0], -1)))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(64, 7, rngs=rngs), nnx.Linear(7, 10, rngs=rngs)

    def __call__(self, x):
        return self.second(nnx.relu(self.first(x.reshape(x.shape[0], -1))))


def pair():
    return (
        lambda key: {"w": jax.random.normal(key, (64, 10))},
        lambda params, x: x.reshape(x.shape[0], -1) @ params["w"],
    )


def test_flax_modules_and_pairs():
    nnx_module = Nnx(nnx.Rngs(0))
    for given in (Linen(), nnx_module, pair(), MLR((8, 8), 10)):
        model = as_model(given, (8, 8), 10)
        params = jax.jit(model.init)(jax.random.key(0))
        some = batch((8, 8))
        gradient = jax.jit(jax.grad(model.loss))(params, some)
        assert jax.tree.structure(gradient) == jax.tree.structure(params)
        assert max(np.abs(g).max() for g in jax.tree.leaves(gradient)) > 0
    x = batch((8, 8)).x
    adapted = as_model(nnx_module, (8, 8), 10)
    np.testing.assert_allclose(adapted.apply(jax.jit(adapted.init)(jax.random.key(5)), x), nnx_module(x), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        ("mrl", {}, r"no model 'mrl'; did you mean mlr\? there are mlr, dnn, cnn"),
        ("dnn", {"hiden": 3}, "model dnn: no setting 'hiden'; it has l2, hidden"),
        ("dnn", {"hidden": 0}, "hidden = 0: must be a positive integer"),
        ("mlr", {"l2": -1.0}, "l2 = -1.0: must be a number >= 0"),
        (3, {}, "int is not a model"),
        (MLR((2,), 3), {}, r"built for inputs \(2,\) and 3 classes; the data has \(8, 8\) and 10"),
        (WithBatchNorm(), {}, "flax collections batch_stats cannot be averaged"),
        ((lambda k: {}, lambda p, x: x.reshape(x.shape[0], -1)), {}, r"answers \(64,\) for one input; must be 10"),
        ((lambda k: {}, lambda p, x: x @ jnp.zeros((3, 3))), {}, r"does not take inputs of shape \(8, 8\)"),
    ],
)
def test_bad_models_say_so(given, settings, message):
    with pytest.raises(CgpflError, match=message) as error:
        as_model(given, (8, 8), 10, **settings)
    assert "\n" not in str(error.value)


def test_cnn_needs_images():
    with pytest.raises(CgpflError, match="not images"):
        as_model("cnn", (64,), 10)
