"""Frozen parameters and adapters through an experiment: its folder, resuming, models that leave it."""

import tomllib

import jax
import numpy as np
import pytest

import cgpfl
from cgpfl.engine.settings import Settings
from cgpfl.experiment import resume_experiment
from cgpfl.experiment.folder import RunFolder
from cgpfl.experiment.reload import load_published, load_result
from cgpfl.experiment.run import Interrupted, run_method
from cgpfl.models import DNN, LoRA
from golden.frozen import federation
from helpers import cgpfl as command

DATA = federation()
MODEL = LoRA(DNN(DATA.shape, DATA.classes, hidden=5), rank=2)
SETTINGS = {"rounds": 6, "eval_every": 2, "seed": 3}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run from start to end, in a folder."""
    out = tmp_path_factory.mktemp("frozen") / "run"
    return cgpfl.run(cgpfl.Parts(private="lora.output*"), DATA, MODEL, out=out, **SETTINGS), out


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_folder_knows_the_model_inside_and_what_is_frozen(whole):
    config = tomllib.loads((whole[1] / "config.toml").read_text())
    assert config["frozen"] == "base.*"
    assert config["model"] == {
        **{"name": "lora", "of": "dnn", "rank": 2, "alpha": 4.0, "targets": "*weight", "hidden": 5, "l2": 0.0},
    }
    assert config["method"][0]["private"] == "lora.output*"


def test_it_comes_back_from_its_folder(whole):
    """Everything but the trained parameters is derived from the seed again."""
    result, out = whole
    again = load_result(out)
    for i in (0, 3):
        same(again.personal_model(i).params, result.personal_model(i).params)
    base = MODEL.of.init(result.simulation.keys.model)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), again.personal_model(0).params["base"], base)
    assert jax.tree.leaves(load_published(out).task.frozen)


def test_resumed_it_is_the_run_never_stopped(whole, tmp_path):
    result, _ = whole
    folder = RunFolder.create(tmp_path / "run")
    folder.write_split(DATA)
    stops = iter([False, True])
    with pytest.raises(Interrupted):
        run_method(
            result.method,
            DATA,
            result.model,
            Settings(**SETTINGS),
            label="parts",
            folder=folder.method("parts"),
            stop=lambda: next(stops),
        )
    assert 0 < folder.method("parts").facts()["round"] < SETTINGS["rounds"]
    again = cgpfl.run(result.method, DATA, MODEL, out=tmp_path / "run", resume=True, **SETTINGS)
    same(again.state.clients, result.state.clients)
    same(again.state.server.tree, result.state.server.tree)


def test_an_export_and_a_new_client_have_all_parameters(whole, tmp_path):
    result, _ = whole
    cgpfl.export(result, tmp_path / "model", client=1, formats=("safetensors",))
    loaded = cgpfl.load_model(tmp_path / "model")
    same(loaded.params, result.personal_model(1).params)
    assert isinstance(loaded.model, LoRA)
    pairs = [(DATA.client(0, "train")[0], DATA.client(0, "train")[1])]
    newcomer = cgpfl.FederatedData.from_clients(pairs, test=pairs, classes=DATA.classes)
    found = cgpfl.personalize(result, newcomer, steps=2)
    assert jax.tree.structure(found.model.params) == jax.tree.structure(loaded.params)


def test_on_the_command_line(tmp_path):
    out = tmp_path / "run"
    args = ["run", "--method", "parts", "--rounds", "2", "--clients", "4", "--model", "lora", "--set", "model.of=dnn"]
    more = ["--set", "model.hidden=4", "--set", "parts.method.rate=0.2", "--set", "parts.private=*.b"]
    command(*args, *more, "--frozen", "base.*", "--out", str(out))
    config = tomllib.loads((out / "config.toml").read_text())
    assert (config["frozen"], config["method"][0]["method"]["rate"]) == ("base.*", 0.2)
    assert resume_experiment(out).results[0].label == "parts"
    said = command(*args, *more, "--frozen", "bse.*", "--out", str(tmp_path / "no"), code=2).stderr
    assert "frozen = 'bse.*': matches no parameter; there are base.hidden.bias" in said
    assert not (tmp_path / "no").exists()
