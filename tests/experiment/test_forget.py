"""A client is forgotten: the run is, bit for bit, one that never had it."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

import cgpfl
from cgpfl.data import FederatedData
from cgpfl.experiment.checkpoint import STATE
from cgpfl.experiment.config import Experiment, from_dict
from cgpfl.experiment.experiment import build
from cgpfl.experiment.folder import RunFolder
from cgpfl.experiment.forget import plan
from cgpfl.files import load_arrays
from cgpfl.tree import named
from helpers import cgpfl as command

SMALL = {"source": "digits", "split": "rotation", "clients": 6, "contexts": 2, "share": 0.1, "seed": 0}
METHODS = [{"name": "fedavg"}, *({"name": name, "batch_size": 0} for name in ("ditto", "cgpfl-auto"))]
"""One draws minibatches, which are its clients' own; the others' programs compile in half the time."""


def test_what_is_left_by_hand():
    pairs = {"a": ([[1.0], [2.0]], [0, 1]), "b": ([[3.0], [4.0], [5.0]], [1, 0, 1]), "c": ([[6.0]], [0])}
    given = {k: (np.array(x), np.array(y)) for k, (x, y) in pairs.items()}
    data = FederatedData.from_clients(given, test=given, context=[0, 1, 2])
    data = dataclasses.replace(data, ids=np.array([2, 0, 1], np.int32))
    left = data.without("b")
    assert (left.names, left.context.tolist(), left.ids.tolist()) == (("a", "c"), [0, 2], [1, 0])
    assert [left.inputs(i)[0].ravel().tolist() for i in (0, 1)] == [[1, 2], [6]]
    assert not np.isin([3.0, 4.0, 5.0], left.x).any()
    assert left.about["without"] == ["b"]
    assert left.recipe is None
    with pytest.raises(cgpfl.CgpflError, match="nobody is left"):
        data.without("a", "b", "c")
    with pytest.raises(cgpfl.CgpflError, match="client d: there are clients a, b, c"):
        data.without("d")


def test_what_was_fitted_is_fitted_again():
    rows = [(who, size, kind, label) for who, size, kind, label in [
        ("a", 1.0, "x", "no"), ("a", 3.0, "y", "yes"), ("a", 1.0, "x", "yes"), ("a", 3.0, "y", "no"),
        ("b", 100.0, "secret", "rare"), ("b", 200.0, "x", "no"), ("b", 300.0, "x", "rare"),
        ("c", 1.0, "x", "no"), ("c", 3.0, "y", "yes"), ("c", 2.0, "x", "no"),
    ]]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["who", "size", "kind", "label"])
    data = FederatedData.from_frame(frame, client="who", label="label")
    left = data.without("b")
    size, kind = left.columns.columns
    train = np.concatenate([left.client(i)[0]["size"] for i in (0, 1)])
    assert kind.values == ("x", "y")
    assert size.mean == pytest.approx(train.mean())
    assert size.mean < 3.1
    assert left.labels == ("no", "yes")
    assert left.classes == 2
    assert left.client(0)[1].tolist() == data.client(0)[1].tolist()
    pd.testing.assert_frame_equal(left.client(1)[0], data.client(2)[0])


def test_made_data_says_how_it_is_made_again():
    data = cgpfl.make_data("digits", clients=6, contexts=2, share=0.1).without(2)
    assert data.names == ("0", "1", "3", "4", "5")
    assert data.place("3") == 2
    again = cgpfl.make_data(**{"split_by" if k == "split" else k: v for k, v in data.recipe.items()})
    assert (again.digest, again.names) == (data.digest, data.names)
    assert data.without("4").recipe["without"] == ["2", "4"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run's folder (begun, which is enough), and the run after client 2 was forgotten by the command line."""
    where = tmp_path_factory.mktemp("forget")
    experiment = from_dict({"rounds": 10, "data": SMALL, "method": METHODS, "participation": 0.7}, "test")
    build(experiment).begin(RunFolder.create(where / "old"))
    for name in ("methods/fedavg/state", "figures/a.png", "samples-0.safetensors", "metrics.parquet", "report.html"):
        (where / "old" / name).parent.mkdir(parents=True, exist_ok=True)
        (where / "old" / name).touch()
    (where / "old" / "sha256sums.txt").write_text(f"{'0' * 64}  metrics.parquet\n{'1' * 64}  config.toml\n")
    done = command("forget", where / "old", "--client", "2", "--delete")
    return where / "old", where / "old-without-2", done.stdout


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m["name"])
def test_bit_equal_to_a_run_without(runs, method):
    data = cgpfl.make_data(**{"split_by" if k == "split" else k: v for k, v in SMALL.items()}).without("2")
    never = cgpfl.run(method, data, rounds=10, participation=0.7, progress=False)
    state, _ = load_arrays(runs[1] / "methods" / method["name"] / STATE)
    expected = {name: np.asarray(value) for name, value in named(never.state).items()}
    assert state.keys() == expected.keys()
    assert len(state) > 3
    for name, value in expected.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)


def test_what_it_cost_and_what_was_removed(runs):
    old, new, said = runs
    about = json.loads((new / "forgotten.json").read_text())
    assert (about["client"], about["of"], about["total"]["rounds"]) == ("2", "old", 30)
    assert about["total"]["gradients"] > 0
    assert about["total"]["seconds"] > 0
    assert "30 rounds" in said
    assert "client 2 is forgotten" in said
    assert sorted(p.name for p in old.iterdir()) == ["config.toml", "deleted.json", "run.lock", "sha256sums.txt"]
    assert (old / "sha256sums.txt").read_text() == f"{'1' * 64}  config.toml\n"  # no line of what is gone
    for read in ("resume", "report"):
        assert f"client 2 was forgotten, and what was learned with it deleted; the run without it is {new}" in " ".join(
            command(read, old, code=2).stderr.split()
        )
    assert json.loads((new / "summary.json").read_text())["data"]["names"] == ["0", "1", "3", "4", "5"]
    assert 'without = [\n    "2",\n]' in (new / "config.toml").read_text()


def test_goes_on_and_forgets_more(runs):
    assert cgpfl.Result.load(runs[1])["fedavg"].result().data.clients == 5
    again = plan(runs[1], "4")
    assert (again.experiment.data.without, again.out.name) == (("2", "4"), "old-without-2-without-4")
    command("forget", runs[1], "--client", "2", code=2)


def test_kept_samples_lose_the_clients(tmp_path):
    rng = np.random.default_rng(0)
    pairs = {n: (rng.normal(size=(4, 2)).astype(np.float32), np.array([0, 1, 0, 1])) for n in "abc"}
    data = FederatedData.from_clients(pairs)
    experiment = Experiment.of(["local", "fedavg"], data, "mlr", {"rounds": 2}, "test")
    build(experiment, [0, 1]).begin(RunFolder.create(tmp_path / "old"), compare={"seeds": 2})
    done = cgpfl.forget(tmp_path / "old", "b", out=tmp_path / "new", progress=False)
    kept = FederatedData.load(tmp_path / "new" / "samples.safetensors")
    assert kept.names == ("a", "c")
    assert not np.isin(pairs["b"][0], kept.x).any()
    assert done.deleted == ()
    assert (tmp_path / "old" / "samples.safetensors").exists()
    assert set(done.cost) == {"local", "fedavg"}
    assert done.total["rounds"] == 4
    never = cgpfl.compare(["fedavg"], data.without("b"), out=tmp_path / "never", seeds=2, rounds=2, progress=False)
    pd.testing.assert_frame_equal(never.table.drop(columns="seconds"), done.finished.table.drop(columns="seconds"))


def test_refused(tmp_path, runs):
    with pytest.raises(cgpfl.CgpflError, match="client 9: there are clients"):
        plan(runs[1], "9")
    (tmp_path / "config.toml").write_text(
        'epsilon = 8.0\ntrusted = "server"\n[[method]]\nname = "cgpfl"\ncontexts = 2\n'
    )
    with pytest.raises(
        cgpfl.CgpflError, match="cgpfl: trusted = server: both runs would have the same noise of the server"
    ):
        plan(tmp_path, "1")
    (tmp_path / "config.toml").write_text("[deploy]\nclients = 3\n")
    with pytest.raises(cgpfl.CgpflError, match="is of a deployment, whose samples are on its nodes; take"):
        plan(tmp_path, "1")
