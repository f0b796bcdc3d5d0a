"""ONNX graphs against JAX, and against numbers worked out by hand."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from cgpfl.data import Form
from cgpfl.data.columns import Statistics, fitted
from cgpfl.errors import CgpflError
from cgpfl.experiment.result import PersonalModel
from cgpfl.inference import graph, nodes
from cgpfl.models import CNN, DNN, GRU, MLR, ResNet, Transformer, as_model
from cgpfl.objectives import Regression
from helpers import drawn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def written(model, path, seed=0, scale=1 / 6, shift=-0.8, large=2.0):
    """A random model and its graph on disk; parameters are large, so that every one matters."""
    params = drawn(model, large, seed)
    made = PersonalModel(params, model, Form(model.shape, model.classes, scale, shift))
    path.write_bytes(graph.onnx_bytes(made))
    return made


@pytest.mark.parametrize(
    "model",
    [
        MLR((8, 8), 10),
        MLR((5,), 2),
        DNN((8, 8), 10, hidden=7),
        CNN((8, 8), 10),  # small images are padded
        pytest.param(
            CNN((9, 11), 4, channels=(3, 5), kernel=3, hidden=6), marks=pytest.mark.slow
        ),  # odd sides: the last row is dropped
        CNN((17, 16, 3), 4, channels=(2, 3), kernel=4, hidden=6),  # colours, an even kernel, no padding
        pytest.param(
            CNN((7, 6, 2), 3, channels=(2, 3), kernel=4, hidden=6), marks=pytest.mark.slow
        ),  # an even kernel with padding
        ResNet((9, 8), 4, blocks=(1, 1), width=8, groups=4),
        pytest.param(
            ResNet((8, 8, 2), 4, blocks=(1, 1), width=32), marks=pytest.mark.slow
        ),  # wide: a convolution is a sum of products
        ResNet((9, 8), 4, blocks=(2,), width=8, groups=4, recompute=True),
        GRU((5,), 4, vocabulary=17, hidden=6, embedding=3),
        pytest.param(GRU((5, 2), 4, hidden=6, embedding=3), marks=pytest.mark.slow),
        Transformer((5,), 4, vocabulary=17, width=8, heads=2, layers=1, dropout=0.5),
        Transformer((5,), 4, vocabulary=17, width=8, heads=2, layers=2, recompute=True),
        Transformer((5,), 4, vocabulary=600, width=8, heads=2, layers=1),  # a large table
        pytest.param(Transformer((5, 2), 4, width=8, heads=2, layers=1), marks=pytest.mark.slow),
    ],
    ids=lambda m: f"{type(m).__name__}{m.shape}",
)
def test_logits_to_five_digits(model, tmp_path):
    tokens = getattr(model, "vocabulary", 0) > 0
    units = {"scale": 1.0, "shift": 0.0} if tokens else {}
    made = written(model, tmp_path / "m.onnx", **units)
    x = np.random.default_rng(0).integers(0, 17, (9, *model.shape)).astype(np.uint8)
    found, wanted = graph.onnx_logits(tmp_path / "m.onnx", x), made.logits(x)
    assert found.shape == (9, model.classes)
    assert np.abs(wanted).max() > 0.5
    np.testing.assert_allclose(found, wanted, atol=1e-5 * max(1, np.abs(wanted).max()), rtol=0)
    assert graph.check_graph(tmp_path / "m.onnx", made, x) == np.abs(found - wanted).max()
    assert graph.onnx_logits(tmp_path / "m.onnx", x[:1]).shape == (1, model.classes)  # any number of samples


class Net(linen.Module):
    """What flax's layers come down to: convolutions, windows, tables, sums."""

    @linen.compact
    def __call__(self, x):
        h = linen.gelu(linen.Conv(4, (3, 3), strides=2, feature_group_count=2)(x))
        h = linen.max_pool(h, (2, 2), (1, 1), "SAME") + linen.avg_pool(h, (2, 2), (1, 1), "SAME")
        h = linen.LayerNorm()(h.reshape(len(h), -1, 4))
        h = linen.MultiHeadDotProductAttention(2)(h)
        places = linen.Embed(9, 4)(jnp.argmax(h, axis=-1))
        h = jnp.stack([h.max(axis=1), places.sum(axis=1), jnp.cumsum(h, axis=1)[:, -2]], axis=1)
        return linen.log_softmax(linen.Dense(3)(jnp.flip(h, axis=2).reshape(len(h), -1)))


def test_a_flax_module_s_program(tmp_path):
    model = as_model(Net(), (8, 6, 2), 3)
    made = written(model, tmp_path / "m.onnx")
    x = np.random.default_rng(0).integers(0, 17, (7, 8, 6, 2)).astype(np.uint8)
    graph.check_graph(tmp_path / "m.onnx", made, x)  # raises above its tolerance
    assert np.ptp(made.logits(x), axis=0).max() > 1  # samples are told apart
    assert graph.onnx_logits(tmp_path / "m.onnx", x[:1]).shape == (1, 3)


def test_a_program_that_counts_samples_has_no_graph(tmp_path):
    model = as_model((lambda key: jnp.ones((4, 3)), lambda p, x: x @ p + jnp.arange(len(x))[:, None]), (4,), 3)
    with pytest.raises(CgpflError, match="counting samples has no node in ONNX here"):
        written(model, tmp_path / "m.onnx")


def test_raw_samples_in_by_hand(tmp_path):
    """Logits of x = 3: (3·2 − 1)·[1, −2] + [0.5, 0] = [5.5, −10]."""
    params = {"weight": np.float32([[1], [-2]]), "bias": np.float32([0.5, 0])}
    made = PersonalModel(params, MLR((1,), 2), Form((1,), 2, 2.0, -1.0))
    (tmp_path / "m.onnx").write_bytes(graph.onnx_bytes(made))
    np.testing.assert_allclose(graph.onnx_logits(tmp_path / "m.onnx", np.array([[3]])), [[5.5, -10.0]])
    content = onnx.load(tmp_path / "m.onnx")
    assert (content.opset_import[0].version, content.ir_version) == (17, 8)
    assert {a.name for a in content.graph.initializer} == {"scale", "shift", "weight", "bias"}


def test_a_graph_that_is_off_is_refused(tmp_path):
    made = written(MLR((4,), 3), tmp_path / "m.onnx", large=0.5)
    x = np.ones((5, 4), np.float32)
    other = PersonalModel({**made.params, "bias": made.params["bias"] + 1e-3}, made.model, made.form)
    with pytest.raises(CgpflError, match=r"logits are 1.0e-03 from the model's on 5 samples, allowed are 1.*e-05"):
        graph.check_graph(tmp_path / "m.onnx", other, x)
    bad = PersonalModel({**made.params, "bias": made.params["bias"] * np.nan}, made.model, made.form)
    with pytest.raises(CgpflError, match="logits are nan from"):
        graph.check_graph(tmp_path / "m.onnx", bad, x)


def test_without_the_extra(monkeypatch):
    for name in ("onnx", "onnxruntime"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
        with pytest.raises(CgpflError, match=rf"needs {name}, which is not installed; pip install 'cgpfl\[export\]'"):
            nodes.optional(name)


def test_numbers_in_their_units_by_hand(tmp_path):
    """x = 3 is 5 for the model, whose answer 5·1 + 0.5 is 5.5 deviations of 2 from 10; columns' inputs are named."""
    columns = fitted({"size": Statistics(2, 0.5, 0.5)})
    form = Form((1,), 1, (2.0,), (-1.0,), Regression((10.0,), (2.0,)), columns=columns)
    model = MLR((1,), 1, objective=form.objective)
    made = PersonalModel({"weight": np.float32([[1]]), "bias": np.float32([0.5])}, model, form)
    (tmp_path / "m.onnx").write_bytes(graph.onnx_bytes(made))
    session = graph.optional("onnxruntime").InferenceSession(str(tmp_path / "m.onnx"))
    (found,) = session.run(["prediction"], {"x": np.float32([[3]])})
    assert found == made.predict(np.float32([[3]])) == 21
    assert session.get_modelmeta().custom_metadata_map == {"inputs": '["size"]'}
