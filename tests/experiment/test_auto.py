"""CGPFL-Auto's choice on its way through a run folder."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import cgpfl
from cgpfl.cli.terminal import show_comparison
from cgpfl.experiment.compared import finish
from cgpfl.experiment.config import DEFAULT_METHODS, from_dict
from cgpfl.experiment.records import Cost, Records
from cgpfl.experiment.result import Result
from cgpfl.experiment.table import Runs
from cgpfl.report.page import html
from cgpfl.report.read import read_run

QUICK = {"name": "cgpfl-auto", "local_rounds": 4, "restarts": 8}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Eight clients of two contexts."""
    values = {
        "rounds": 8,
        "eval_every": 2,
        "data": {"clients": 8, "contexts": 2},
        "method": [{"name": "local"}, QUICK],
    }
    return cgpfl.run_experiment(from_dict(values, "test"), tmp_path_factory.mktemp("auto") / "run")


@pytest.mark.slow
def test_what_a_folder_says_of_the_choice(done):
    opened = done.result("cgpfl-auto")
    found = opened.contexts
    values = opened.records.values
    assert found.k == len(found.sizes)
    assert sum(found.sizes) == 8
    assert found.curve["k"].tolist() == [1, 2, 3, 4, 8]
    np.testing.assert_array_equal(found.curve["score"], values["score"][-1])
    assert found.between + found.within + found.noise == pytest.approx(1, abs=1e-5)
    assert found.sure == values["agreement"][-1]
    assert ((found.trust >= 0) & (found.trust <= 1)).all()
    assert found.heard.all()
    assert found.describe() in opened._repr_html_().replace("&#x27;", "'")
    summary = json.loads((done.folder / "summary.json").read_text())["methods"]
    assert summary["cgpfl-auto"]["contexts"]["sentence"] == found.describe()
    assert summary["cgpfl-auto"]["contexts"]["curve"]["score"] == found.curve["score"].tolist()
    assert summary["cgpfl-auto"]["contexts"]["sizes"] == found.sizes
    assert summary["cgpfl-auto"]["notes"][: len(found.edges())] == found.edges()
    assert summary["local"]["notes"] == []
    page = read_run(done.folder)["methods"][1]["contexts"]
    assert page["sentence"] == found.describe()
    assert page["trust"] == pytest.approx(found.trust.tolist(), rel=1e-4)
    assert (done.folder / "figures" / "choosing-k-cgpfl-auto.png").exists()


@pytest.mark.slow
def test_lambda_is_each_clients_own(done):
    """No objective with one λ for all."""
    history = pd.read_csv(done.folder / "history.csv", index_col="method")
    assert history.loc["cgpfl-auto", "objective_personal"].isna().all()
    assert history.loc["local", "objective_personal"].notna().all()


def runs(label, ks=None, **settings):
    """Two seeds that never ran."""
    records = []
    for seed in range(2):
        values = {name: np.full((1, 4), 1.0 + seed) for name in ("correct", "loss", "train_loss")}
        more = {} if ks is None else {"k": np.array([ks[seed]]), "context": np.zeros((1, 4), int)}
        records.append(Records([5], {**values, "answers": np.array([20]), **more}))
    lists = {"answers": [20, 20], "rounds": [5, 5], "diverged": [None, None], "ari": [None, None], "tried": []}
    samples = [np.full(4, 4)] * 2
    return Runs(label, [0, 1], records, samples, Cost(1, 1, 1, 4), seconds=1.0, settings=settings, **lists)


def test_a_comparison_tells_k_of_every_seed(tmp_path, capsys):
    made = [runs("local"), runs("cgpfl-auto", (3, 4), contexts="auto", prox="auto"), runs("ifca", (2, 2), contexts=2)]
    data = {"clients": 4, "train_samples": 40, "true_contexts": None}
    facts = {"data": data, "model": {"name": "mlr"}, "seeds": [0, 1], "rounds": 5}
    compared = finish(tmp_path, {r.label: r for r in made}, facts, target=0.5, notes=[], diverged=[])
    methods = json.loads((tmp_path / "summary.json").read_text())["methods"]
    assert {label: m["k"] for label, m in methods.items()} == {"local": None, "cgpfl-auto": [3, 4], "ifca": [2, 2]}
    show_comparison(compared)
    assert "contexts found, seed by seed: cgpfl-auto 3, 4\n" in capsys.readouterr().out
    page = html([tmp_path])
    assert all(f"<td>{k}</td>" in page for k in ("3–4", "2"))


def test_it_is_run_by_default():
    assert DEFAULT_METHODS == ("local", "fedavg", "pfedme", "cgpfl", "cgpfl-heur", "cgpfl-auto")


def test_trust_follows_its_client():
    """Reported by client id, told by place in the table."""
    values = {
        "context": np.array([[0, 1, 1, 0]]),
        "k": np.array([2]),
        "score": np.array([[0.9, 0.8, 0.95]]),
        **{f"score_{name}": np.array([[0.0, 0.1, 0.2]]) for name in ("error", "shared", "personal")},
        "spread": np.array([[0.5, 0.25, 0.25]]),
        "agreement": np.array([1.0]),
        "trust": np.array([[0.1, 0.2, 0.3, 0.4]]),
        "heard": np.array([[True, True, False, True]]),
    }
    data = SimpleNamespace(ids=np.array([2, 0, 3, 1]), context=None)
    made = SimpleNamespace(records=Records([5], values), data=data, method=cgpfl.CGPFLAuto())
    found = Result.contexts.fget(made)
    assert found.trust.tolist() == [0.3, 0.1, 0.4, 0.2]
    assert found.heard.tolist() == [False, True, True, True]
    assert found.edges() == [
        "K is at its upper limit, 2: there may be more contexts",
        "no evidence about 1 of 4 clients: too few answers or samples",
    ]
