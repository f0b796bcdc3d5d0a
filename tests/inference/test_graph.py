"""ONNX graphs against JAX, and against numbers worked out by hand."""

import jax
import numpy as np
import pytest

from cgpfl.data import Form
from cgpfl.errors import CgpflError
from cgpfl.experiment.result import PersonalModel
from cgpfl.inference import graph
from cgpfl.models import CNN, DNN, MLR

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def written(model, path, seed=0, scale=1 / 6, shift=-0.8):
    """A random model and its graph on disk; parameters are large, so that every one matters."""
    params = jax.tree.map(lambda v: 2 * np.asarray(v), model.init(jax.random.key(seed)))
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
        CNN((9, 11), 4, channels=(3, 5), kernel=3, hidden=6),  # odd sides: the last row is dropped
        CNN((17, 16, 3), 4, channels=(2, 3), kernel=4, hidden=6),  # colours, an even kernel, no padding
        CNN((7, 6, 2), 3, channels=(2, 3), kernel=4, hidden=6),  # an even kernel with padding
    ],
    ids=lambda m: f"{type(m).__name__}{m.shape}",
)
def test_logits_to_five_digits(model, tmp_path):
    made = written(model, tmp_path / "m.onnx")
    x = np.random.default_rng(0).integers(0, 17, (9, *model.shape)).astype(np.uint8)
    found, wanted = graph.onnx_logits(tmp_path / "m.onnx", x), made.logits(x)
    assert found.shape == (9, model.classes)
    assert np.abs(wanted).max() > 0.5
    np.testing.assert_allclose(found, wanted, atol=1e-5 * max(1, np.abs(wanted).max()), rtol=0)
    assert graph.check_graph(tmp_path / "m.onnx", made, x) == np.abs(found - wanted).max()
    assert graph.onnx_logits(tmp_path / "m.onnx", x[:1]).shape == (1, model.classes)  # any number of samples


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
    made = written(MLR((4,), 3), tmp_path / "m.onnx")
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
            graph.optional(name)
