"""Export folders: what is in them, and that they are enough."""

import dataclasses
import importlib.util
import json
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import cgpfl
from cgpfl.data import Form
from cgpfl.errors import CgpflError
from cgpfl.experiment.reload import published
from cgpfl.experiment.result import PersonalModel
from cgpfl.inference import Score, export, load_model, personalize, predict
from cgpfl.inference.folder import FORMATS, write_export
from cgpfl.inference.predictions import table
from cgpfl.models import as_model

ONE = ("safetensors",)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """Client 3 of cgpfl, from the run folder."""
    return export(run[0], tmp_path_factory.mktemp("export") / "three", client=3, method="cgpfl")


def test_a_clients_model_is_the_one_it_uses(run, exported):
    folder, results = run
    result, data = results["cgpfl"], results["cgpfl"].data
    params = result.personal_model(3).params
    arrays = load_file(exported.path / "model.safetensors")
    assert set(arrays) == {"weight", "bias"}
    jax.tree.map(np.testing.assert_array_equal, arrays, params)
    card = json.loads((exported.path / "card.json").read_text())
    assert card["model"] == {
        "name": "mlr",
        "settings": {"l2": 0.001},
        "parameters": 650,
        "arrays": {"bias": [10], "weight": [10, 64]},
    }
    assert (card["input"]["shape"], card["input"]["scale"], card["classes"]) == ([8, 8], data.scale, 10)
    assert card["of"] == {"client": 3, "context": int(result.contexts.assignment[3])}
    metrics = pd.read_parquet(folder / "metrics.parquet").query("method == 'cgpfl' and client == 3").iloc[-1]
    assert card["metrics"]["personal"]["samples"] == metrics["n"]
    assert card["metrics"]["personal"]["accuracy"] == pytest.approx(metrics["correct"] / metrics["n"])
    assert card["metrics"]["personal"]["loss"] == pytest.approx(metrics["loss"], rel=1e-5)
    assert card["metrics"]["shared"]["accuracy"] == pytest.approx(metrics["shared_correct"] / metrics["n"])
    assert card["training"]["hyper_parameters"]["prox"] == 1.0
    assert card["training"]["data"]["split_hash"] == data.digest
    assert card["cgpfl"] == cgpfl.__version__


def test_the_graph_was_checked(exported):
    pytest.importorskip("onnxruntime")
    card = json.loads((exported.path / "card.json").read_text())
    assert exported.files == ("card.json", "model.onnx", "model.safetensors")
    assert 0 <= exported.difference <= 1e-5
    assert card["onnx"]["checked"] == {
        "samples": card["metrics"]["personal"]["samples"],
        "difference": exported.difference,
    }


def test_the_folder_is_enough(run, exported, tmp_path):
    data, personal = run[1]["cgpfl"].data, run[1]["cgpfl"].personal_model(3)
    moved = shutil.copytree(exported.path, tmp_path / "elsewhere")
    x, y = data.x[:40], data.y[:40]
    np.savez(tmp_path / "some.npz", x=x, y=y)
    z = personal.logits(x).astype(np.float64)
    chances = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    for using, digits in (("safetensors", 12), ("onnx", 5)):
        if using == "onnx":
            pytest.importorskip("onnxruntime")
        found = predict(moved, tmp_path / "some.npz", using=using)
        assert list(found.columns) == ["sample", "class", "probability", "label"]
        np.testing.assert_array_equal(found["class"], chances.argmax(axis=1))
        np.testing.assert_array_almost_equal(found["probability"], chances.max(axis=1), digits)
        np.testing.assert_array_equal(found["label"], y)
    assert list(predict(moved, x).columns) == ["sample", "class", "probability"]
    np.testing.assert_array_equal(load_model(moved).predict(x), personal.predict(x))


def test_probabilities_by_hand():
    found = table(np.array([[0.0, np.log(3.0)], [800.0, -800.0]]), None, Form((1,), 2))
    assert found["class"].tolist() == [1, 0]
    np.testing.assert_allclose(found["probability"], [0.75, 1.0])


def test_many_samples_are_computed_in_chunks(exported, monkeypatch):
    x = np.random.default_rng(0).integers(0, 17, (7, 8, 8)).astype(np.float32)
    whole = predict(exported.path, x)
    monkeypatch.setattr("cgpfl.inference.predictions.CHUNK", 3)
    pd.testing.assert_frame_equal(predict(exported.path, x), whole)


def test_a_contexts_model(run, tmp_path):
    _, results = run
    for label in ("cgpfl", "ifca"):
        result = results[label]
        k = int(result.contexts.assignment[5])
        done = export(result, tmp_path / label, context=k, formats=ONE)
        arrays = load_file(done.path / "model.safetensors")
        np.testing.assert_array_equal(arrays["bias"], result.state.server.models["bias"][k])
        card = json.loads((done.path / "card.json").read_text())
        members = np.flatnonzero(result.contexts.assignment == k)
        assert card["of"] == {"context": k, "clients": len(members)}
        right = result.records.values["correct" if label == "ifca" else "shared_correct"][-1][members].sum()
        n = result.data.test.counts[members].sum()
        assert card["metrics"]["context"]["samples"] == n
        assert card["metrics"]["context"]["accuracy"] == pytest.approx(right / n)


@pytest.mark.parametrize(
    ("label", "which", "message"),
    [
        ("cgpfl", {}, "export: give either a client or a context"),
        ("cgpfl", {"client": 1, "context": 1}, "export: give either a client or a context"),
        ("cgpfl", {"client": 8}, "client 8: there are clients 0..7"),
        ("cgpfl", {"context": 2}, "context 2: cgpfl has clients in contexts 0, 1"),
        ("fedavg", {"context": 0}, "context 0: fedavg has no context models"),
        ("local", {"context": 0}, "local: its server sends nothing"),
        ("cgpfl", {"client": 1, "formats": ("torch",)}, "format 'torch': must be safetensors or onnx"),
        ("cgpfl", {"client": 1, "method": "ifca"}, "method 'ifca': this result is of cgpfl"),
    ],
)
def test_what_cannot_be_exported(run, tmp_path, label, which, message):
    with pytest.raises(CgpflError, match=message):
        export(run[1][label], tmp_path / "out", **which)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_and_nothing_half_written(run, tmp_path, monkeypatch):
    result = run[1]["fedavg"]
    (tmp_path / "out").mkdir()
    with pytest.raises(CgpflError, match=r"out .*: exists already"):
        export(result, tmp_path / "out", client=0, formats=ONE)
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("cgpfl.inference.graph.TOLERANCE", -1.0)  # nothing is good enough
    with pytest.raises(CgpflError, match="nothing was written"):
        export(result, tmp_path / "new", client=0)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_without_onnx_the_rest_is_written(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(CgpflError, match="needs onnx, which is not installed"):
        export(run[1]["fedavg"], tmp_path / "out", client=0)
    done = export(run[1]["fedavg"], tmp_path / "out", client=0, formats=ONE)
    assert done.files == ("card.json", "model.safetensors")
    with pytest.raises(CgpflError, match=r"has no model.onnx; export it with"):
        predict(done.path, np.zeros((1, 8, 8)), using="onnx")


def test_a_new_clients_model_is_exported_the_same_way(run, stranger, tmp_path):
    found = personalize(run[0], stranger(0), method="cgpfl")
    done = found.save(tmp_path / "new")
    card = json.loads((done.path / "card.json").read_text())
    assert card["of"] == {"client": "new", "context": found.context, "steps": 20}
    assert card["metrics"]["personal"] == found.score._asdict()
    with np.load(stranger(0)) as file:
        np.testing.assert_array_equal(load_model(done.path).predict(file["x"]), found.model.predict(file["x"]))


@pytest.mark.parametrize("model", ["dnn", "cnn"])
def test_deeper_models_come_back_as_they_were(run, tmp_path, model):
    data = run[1]["cgpfl"].data
    settings = {"hidden": 9} if model == "dnn" else {"channels": (2, 3), "kernel": 3, "hidden": 5}
    built = as_model(model, data.shape, 10, **settings)
    mine = PersonalModel(built.init(jax.random.key(0)), built, data.form())
    score, x = Score(5, 0.5, 1.0), data.x[:5]
    formats = FORMATS if importlib.util.find_spec("onnxruntime") else ONE
    facts = (published(run[1]["cgpfl"]), {"client": 0}, score, None)
    done = write_export(tmp_path / "out", mine, *facts, samples=x, formats=formats)
    loaded = load_model(done.path)
    assert loaded.model == built
    np.testing.assert_array_equal(loaded.logits(x), mine.logits(x))
    names = {"hidden.weight", "hidden.bias", "output.weight", "output.bias"}
    more = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"}
    assert set(load_file(done.path / "model.safetensors")) == names | (more if model == "cnn" else set())


def test_a_model_of_ones_own(run, tmp_path):
    """Its graph is written from its program; without one there is a line why."""
    data = run[1]["cgpfl"].data

    def init(key):
        return [jnp.zeros((64, 10)), {"b": jnp.ones(10)}]

    def forward(params, x):
        return x.reshape(len(x), -1) @ params[0] + params[1]["b"]

    result = cgpfl.run(cgpfl.FedAvg(local_rounds=1), data, (init, forward), rounds=1)
    pytest.importorskip("onnxruntime")
    done = export(result, tmp_path / "out", client=0)
    assert done.files == ("card.json", "model.onnx", "model.safetensors")
    assert done.note is None
    assert done.difference < 1e-5
    assert set(load_file(done.path / "model.safetensors")) == {"0", "1.b"}
    with pytest.raises(CgpflError, match=r"Functions: none of mlr, dnn, cnn, .*; in Python: load_model\("):
        load_model(done.path)
    mine = load_model(done.path, model=(init, forward))
    np.testing.assert_allclose(mine.logits(data.x[:4]), result.personal_model(0).logits(data.x[:4]))

    odd = as_model((init, lambda params, x: jnp.sort(forward(params, x), axis=1)), data.shape, data.classes)
    done = export(dataclasses.replace(result, model=odd), tmp_path / "odd", client=0)
    assert done.files == ("card.json", "model.safetensors")
    assert done.note == (
        "no model.onnx: Functions cannot be written as a graph: JAX's operation sort has none in ONNX here"
    )


def damaged(folder, kind):
    """An export folder that is wrong in one way."""
    card = json.loads((folder / "card.json").read_text())
    if kind == "no card":
        (folder / "card.json").unlink()
    elif kind == "no json":
        (folder / "card.json").write_text("{")
    elif kind == "list":
        (folder / "card.json").write_text("[]")
    elif kind == "no input":
        del card["input"]
        (folder / "card.json").write_text(json.dumps(card))
    elif kind == "no arrays":
        (folder / "model.safetensors").unlink()
    elif kind == "garbage":
        (folder / "model.safetensors").write_bytes(b"garbage")
    elif kind == "shape":
        save_file({"weight": np.zeros((10, 9), np.float32), "bias": np.zeros(10)}, folder / "model.safetensors")
    elif kind == "graph":
        (folder / "model.onnx").write_bytes(b"garbage")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no card", "has no card.json; give a folder made by cgpfl export or personalize"),
        ("no json", "card.json cannot be read"),
        ("list", "card.json is not a model's card"),
        ("no input", "card.json lacks or garbles 'input'"),
        ("no arrays", "model.safetensors cannot be read"),
        ("garbage", "model.safetensors cannot be read"),
        ("shape", r"weight has shape \(10, 9\), the model mlr \(10, 64\)"),
        ("graph", "cannot be read by onnxruntime"),
    ],
)
def test_a_damaged_folder_is_one_line(exported, tmp_path, kind, message):
    folder = shutil.copytree(exported.path, tmp_path / "model")
    damaged(folder, kind)
    with pytest.raises(CgpflError, match=message) as error:
        predict(folder, np.zeros((1, 8, 8)), using="onnx" if kind == "graph" else "safetensors")
    assert "\n" not in str(error.value)


def test_samples_of_another_form(exported):
    with pytest.raises(CgpflError, match=r"data: x has shape \(2, 9\); must be \('n', 8, 8\)"):
        predict(exported.path, np.zeros((2, 9)))
    with pytest.raises(CgpflError, match="using 'torch': must be safetensors or onnx"):
        predict(exported.path, np.zeros((2, 8, 8)), using="torch")


def test_damaged_weights_are_refused(exported, tmp_path):
    folder = shutil.copytree(exported.path, tmp_path / "three")
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 0x40  # an exponent
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CgpflError, match=r"model\.safetensors is damaged: its checksum is another; export the model"):
        load_model(folder)
