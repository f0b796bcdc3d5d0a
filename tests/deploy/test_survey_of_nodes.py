"""Tables that only nodes have: they agree on a form by statistics, and no row leaves. Nodes are in this process."""

import json
import shutil
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from in_process import Here, said
from test_faults import happened

from cgpfl.data import FederatedData
from cgpfl.deploy.agreement import read_agreement
from cgpfl.deploy.apps import errand
from cgpfl.deploy.check import compare, settled, together
from cgpfl.deploy.follow import events
from cgpfl.deploy.layout import TRIAL_DATA
from cgpfl.deploy.node import load_node
from cgpfl.deploy.server import run_server
from cgpfl.engine.flower.apps import client_app
from cgpfl.engine.flower.worker import answer
from cgpfl.errors import LostError
from cgpfl.experiment.config import config_of
from cgpfl.experiment.events import EVENTS
from cgpfl.inference.folder import load_model
from helpers import cgpfl

NAMES = ("charité", "mitte", "nord")


def patients(seed, n=60):
    """Raw columns of very different scales, a category, some missing; what is predicted depends on all of them."""
    random = np.random.default_rng(seed)
    age, income = random.normal(55, 15, n), random.normal(4e4, 1.5e4, n)
    code, ward = random.normal(3e-3, 1e-3, n), random.choice(["a", "b", "c"], n)
    risk = (age - 55) / 15 + (income - 4e4) / 1.5e4 - (code - 3e-3) / 1e-3 + (ward == "b")
    frame = pd.DataFrame({"age": age, "income": income, "code": code, "ward": ward})
    frame.loc[random.random(n) < 0.05, "income"] = np.nan
    return frame.assign(outcome=np.where(risk > 0.3, "ill", "well"))


def write(app, frames):
    for i, frame in enumerate(frames):
        place = app / TRIAL_DATA / str(i)
        place.mkdir(parents=True)
        frame[:40].to_csv(place / "train.csv", index=False)
        frame[40:].to_csv(place / "test.csv", index=False)


def make(app, *more, frames=None, label="outcome"):
    rules = [f"deploy.{k}={v}" for k, v in (("deadline", 0.3), ("join", 0.1), ("repeats", 0))]
    settings = [word for rule in rules for word in ("--set", rule)]
    cgpfl("deploy", "init", app, "--label", label, "--names", ",".join(NAMES), "--rounds", 2, *settings, *more)
    write(app, frames or [patients(i) for i in range(3)])
    return app


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return make(tmp_path_factory.mktemp("tables") / "app", "--method", "fedavg", "--method", "cgpfl-heur",
                "--set", "cgpfl-heur.warmup=1", "--set", "cgpfl-heur.batch_size=0")  # fmt: skip


def federation(app, states, behave=None):
    """The app's nodes, with its own ClientApp, each with its own table and nothing more."""
    agreed = settled(read_agreement(app / "experiment.toml"))
    grid = Here(together(agreed), agreed.model(), {}, states, behave=behave)
    for node in grid.online:
        i = node - 1
        grid.apps[node] = client_app(lambda c, order, arrays: answer(load_node, errand(app, c, order), arrays))
        own = {"client": NAMES[i], "data": str(app / TRIAL_DATA / str(i)), "state": str(states / str(i))}
        grid.contexts[node].node_config |= own
    return grid


def told(out):
    return " | ".join(e["line"] for e in happened(out, "say"))


def test_nodes_agree_on_a_form_and_the_numbers_are_a_simulations(app, tmp_path):
    out, grid = tmp_path / "run", federation(app, tmp_path)
    run_server(app, grid, out)
    assert "fedavg, cgpfl-heur: every client's accuracy in every round equal" in compare(app, out)
    form = config_of(out)["form"]
    # The same federation read in one place: other code gathers the samples and cuts them.
    parts = [patients(i).assign(who=NAMES[i], part=["train"] * 40 + ["test"] * 20) for i in range(3)]
    whole = FederatedData.from_frame(pd.concat(parts), client="who", label="outcome", held="part").form()
    assert form["labels"] == list(whole.labels) == ["ill", "well"]
    assert [c["name"] for c in form["columns"]["columns"]] == ["age", "income", "code", "ward"]
    np.testing.assert_allclose(form["scale"], whole.scale, rtol=1e-6)
    np.testing.assert_allclose(form["shift"], whole.shift, rtol=1e-5)
    train = pd.concat([patients(i)[:40] for i in range(3)])
    assert form["columns"]["columns"][0]["mean"] == pytest.approx(train["age"].mean())
    assert form["columns"]["columns"][1]["std"] == pytest.approx(train["income"].std(ddof=0))
    summary = json.loads((out / "summary.json").read_text())
    assert summary["data"]["names"] == list(NAMES)
    assert summary["data"]["columns"]["label"] == "outcome"
    assert "client charité is here" in told(out)
    assert "agreed on 4 columns: age, income, code, ward; 7 inputs; classification; 2 labels: ill, well" in told(out)
    only_statistics(grid, app, tmp_path)


def only_statistics(grid, app, states):
    """Nothing that a node says in words is a cell of its table; what it said is kept for whoever runs it."""
    answers = [dict(m.content.config_records["said"]) for m in grid.got if "said" in m.content.config_records]
    texts = [a["told"] for a in answers if a["told"]]
    assert len(texts) == 3
    assert (states / "0" / "told.json").read_text() == texts[0]
    for i, text in enumerate(texts):
        found = json.loads(text)
        assert sorted(found) == ["columns", "counts", "labels", "moments", "task"]
        assert found["counts"] == []
        assert found["columns"]["ward"]["values"] == ["a", "b", "c"]
        numbers = {n for c in found["columns"].values() for n in (c["count"], c["mean"], c["squares"], c["missing"])}
        frame = pd.read_csv(app / TRIAL_DATA / str(i) / "train.csv")
        cells = set(frame[["age", "income", "code"]].to_numpy().ravel().tolist())
        assert not numbers & cells


def test_after_a_deployment_the_models_are_where_they_belong(app, tmp_path):
    out = tmp_path / "run"
    run_server(app, federation(app, tmp_path / "states"), out)
    state, data = tmp_path / "states" / "1", app / TRIAL_DATA / "1"
    several = cgpfl("deploy", "export-node", state, "--data", data, code=2).stderr
    assert "has models of cgpfl-heur, fedavg; choose one by --method" in several
    metrics = pd.read_parquet(out / "metrics.parquet")
    last = metrics[(metrics["round"] == 2) & (metrics["client"] == 1)].set_index("method")
    for label in ("fedavg", "cgpfl-heur"):
        made = tmp_path / label
        cgpfl("deploy", "export-node", state, "--data", data, "--method", label, "--out", made)
        model = load_model(made)
        test = pd.read_csv(data / "test.csv")
        right = (model.predict(test.drop(columns="outcome")) == test["outcome"]).sum()
        assert right == last.loc[label, "correct"]  # the very model that was evaluated in the last round
        assert model.card["of"] == {"client": 1, "name": "mitte"}
        assert model.card["metrics"]["personal"]["accuracy"] == pytest.approx(right / len(test))
        assert str(app) not in (made / "card.json").read_text()
    shared = tmp_path / "shared"
    shown = cgpfl("export", out, "--shared", "--method", "fedavg", "--format", "safetensors", "--out", shared).stdout
    assert "the server of a deployment has no samples" in shown
    everybodys, own = load_model(shared), load_model(tmp_path / "fedavg")
    for name, value in everybodys.params.items():
        np.testing.assert_array_equal(value, own.params[name])  # FedAvg's personal model is the shared one
    assert everybodys.card["of"] == {"shared": True, "clients": 3}
    graph = ",onnx" if find_spec("onnxruntime") else ""
    context = ("export", out, "--context", 0, "--method", "cgpfl-heur", "--format", f"safetensors{graph}")
    cgpfl(*context, "--out", tmp_path / "context")
    assert (tmp_path / "context" / "model.onnx").exists() == bool(graph)
    assert load_model(tmp_path / "context").card["of"]["context"] == 0
    kept = cgpfl("export", out, "--client", 0, "--method", "fedavg", "--format", "safetensors", code=2).stderr
    assert "on the node: cgpfl deploy export-node" in kept


def test_it_goes_on_with_the_form_it_began_with(app, tmp_path):
    """A node that restarts gets the form with its next order; later statistics change nothing."""
    here = shutil.copytree(app, tmp_path / "app")
    lost = dict.fromkeys(range(3), lambda order, answer: None if order["train"] == 1 else answer)
    with pytest.raises(LostError, match="round 2: 0 answers"):
        run_server(here, federation(here, tmp_path, lost), tmp_path / "run")
    before = config_of(tmp_path / "run")["form"]
    late = pd.read_csv(here / TRIAL_DATA / "2" / "train.csv")
    late.assign(age=late["age"] + 1000).to_csv(here / TRIAL_DATA / "2" / "train.csv", index=False)
    grid = federation(here, tmp_path)
    run_server(here, grid, tmp_path / "run")
    assert config_of(tmp_path / "run")["form"] == before
    assert not [m for m in grid.got if dict(m.content.config_records.get("said", {})).get("told")]


def test_a_node_that_comes_after_the_statistics(app, tmp_path):
    grid = federation(app, tmp_path)
    grid.online.remove(3)

    def come(order, answer):
        if order["form"] and 3 not in grid.online:
            grid.online.append(3)
        return answer

    grid.behave = {0: come}
    run_server(app, grid, tmp_path / "run")
    seen = pd.read_parquet(tmp_path / "run" / "metrics.parquet")
    last = seen[(seen["method"] == "fedavg") & (seen["round"] == 2)]
    assert sorted(last["client"]) == [0, 1, 2]
    ages = pd.concat([patients(i)[:40] for i in range(2)])["age"]
    assert config_of(tmp_path / "run")["form"]["columns"]["columns"][0]["mean"] == pytest.approx(ages.mean())


@pytest.mark.parametrize(
    ("text", "why"),
    [("garbage", "cannot be read"), ("{}", "cannot be used (KeyError)"), ("", "cannot be read")],
)
def test_statistics_that_are_none_are_refused(app, tmp_path, text, why):
    garbled = {2: lambda order, answer: answer if order["form"] else said(answer, told=text)}
    run_server(app, federation(app, tmp_path, garbled), tmp_path / "run")
    assert f"client nord: refused, statistics: {why}" in told(tmp_path / "run")
    ages = pd.concat([patients(i)[:40] for i in range(2)])["age"]
    assert config_of(tmp_path / "run")["form"]["columns"]["columns"][0]["mean"] == pytest.approx(ages.mean())


def spoiled(i, change):
    return [change(patients(k)) if k == i else patients(k) for k in range(3)]


@pytest.mark.parametrize(
    ("change", "to_all", "to_itself"),
    [
        (lambda f: f.drop(columns="age"), "lacks column 'age'", "lacks 'age'"),
        (lambda f: f.assign(extra=1), "has column 'extra' more", "has 'extra'"),
        (lambda f: f.assign(age=f["age"].map(lambda v: "old" if v > 50 else "young")),
         "column 'age' has words, the others' numbers", "column 'age': must be numbers, found "),
        (lambda f: f.assign(ward=np.arange(len(f))),
         "column 'ward' has numbers, the others' words", "column 'ward': has numbers; must be words, such as a, b, c"),
        (lambda f: f.assign(outcome=f["outcome"].where(f.index % 7 > 0, "unknown")),
         "label 'unknown' is nobody else's", "labels must be ill, well"),
        (lambda f: f.assign(ward=[f"patient {i}" for i in f.index]),
         "its node cannot take part", "nearly every row has a value of its own"),
    ],
)  # fmt: skip
def test_a_node_that_does_not_fit_refuses_itself(tmp_path, capsys, change, to_all, to_itself):
    app = make(tmp_path / "app", "--method", "fedavg", frames=[patients(i) for i in range(3)])
    grid = federation(app, tmp_path)
    shutil.rmtree(app / TRIAL_DATA)
    write(app, spoiled(0, change))  # even the first client does not decide alone
    run_server(app, grid, tmp_path / "run")
    lines = told(tmp_path / "run")
    assert to_all in lines
    assert "client charité: refused, its node cannot take part; its log says why" in lines
    own = [line for line in capsys.readouterr().err.splitlines() if line.startswith("cgpfl: ")]
    assert own
    assert all(to_itself in line for line in own)
    metrics = pd.read_parquet(tmp_path / "run" / "metrics.parquet")
    assert sorted(set(metrics["client"])) == [1, 2]


def test_raw_scales_are_said_before_the_first_round(tmp_path):
    more = ("--method", "fedavg", "--set", "data.standardise=false", "--set", "data.encoding=codes")
    app = make(tmp_path / "app", *more)
    run_server(app, federation(app, tmp_path), tmp_path / "run")
    lines = [e["values"].get("line", "") or e["kind"] for _, e in events(tmp_path / "run" / EVENTS)]
    at = next(i for i, line in enumerate(lines) if line.startswith("inputs differ in scale: income is about"))
    assert at < lines.index("progress")
    assert config_of(tmp_path / "run")["form"]["scale"] == 1.0


@pytest.mark.slow
def test_numbers_to_predict(tmp_path):
    frames = [patients(i).assign(stay=lambda f: f["age"] / 10) for i in range(3)]
    more = ("--method", "fedavg", "--set", "data.ignore=['outcome']", "--task", "regression")
    app = make(tmp_path / "app", *more, frames=frames, label="stay")
    run_server(app, federation(app, tmp_path), tmp_path / "run")
    objective = config_of(tmp_path / "run")["form"]["objective"]
    stay = pd.concat([f[:40] for f in frames])["stay"]
    assert objective["task"] == "regression"
    assert objective["centre"] == pytest.approx([stay.mean()], rel=1e-6)
    assert objective["spread"] == pytest.approx([stay.std(ddof=0)], rel=1e-6)
    assert "fedavg" in compare(app, tmp_path / "run")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--names", "a,b", "--nodes", 3), "--nodes 3: there are 2 --names"),
        (("--names", "a,a"), "names: 1 different ones for 2 nodes"),
        (("--names", "a,7"), "names: '7': must begin with a letter"),
        ((), "--nodes: how many clients the federation has, with --label"),
        (("--nodes", 2, "--shape", "4", "--classes", 2), "--label, --shape: choose one"),
        (("--nodes", 2, "--set", "data.time=day"), "time: is not for nodes; give a node files train and test"),
        (("--nodes", 2, "--model", "cnn"), "cnn"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(tmp_path, more, message):
    done = cgpfl("deploy", "init", tmp_path / "app", "--label", "outcome", "--method", "fedavg", *more, code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_trial_needs_its_tables(tmp_path):
    cgpfl("deploy", "init", tmp_path / "app", "--label", "outcome", "--nodes", 2, "--method", "fedavg")
    shown = cgpfl("deploy", "up", tmp_path / "app", "--out", tmp_path / "run", code=2).stderr
    assert "trial-data/0: for a trial put the data of each node there" in shown
