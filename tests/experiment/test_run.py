import dataclasses
import gc
import json
import re
import weakref

import jax
import numpy as np
import pandas as pd
import pytest

import cgpfl
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import from_dict
from cgpfl.experiment.folder import RunFolder
from cgpfl.experiment.records import Records, scores
from cgpfl.experiment.run import Interrupted, Settings, run_method
from helpers import points, quadratic


@pytest.fixture(scope="module")
def result(digits):
    return cgpfl.run(cgpfl.CGPFL(contexts="auto", batch_size=0), digits, model="mlr", rounds=20, eval_every=3, seed=0)


def test_scores_by_hand():
    correct, n = np.array([1, 9, 10, 4]), np.array([10, 10, 20, 4])
    s = scores(correct, n)
    assert s["pooled"] == 24 / 44
    assert s["mean"] == pytest.approx((0.1 + 0.9 + 0.5 + 1) / 4)
    assert s["worst_tenth"] == pytest.approx(0.1)
    assert scores(np.arange(20), np.full(20, 20))["worst_tenth"] == pytest.approx((0 + 0.05) / 2)


def test_history_is_derived_from_the_clients(result, digits):
    assert isinstance(result.history, pd.DataFrame)
    assert result.history["round"].tolist() == [3, 6, 9, 12, 15, 18, 20]
    last = result.clients[result.clients["round"] == 20]
    assert result.accuracy == last["correct"].sum() / last["n"].sum() == result.history["accuracy"].iloc[-1]
    row = result.history.iloc[-1]
    assert row["shared_accuracy"] == last["shared_correct"].sum() / last["n"].sum()
    assert row["objective_context"] == pytest.approx(last["distance"].mean())
    assert row["objective_personal"] == pytest.approx((last["train_loss"] + 0.5 * last["distance"]).mean(), rel=1e-6)
    assert row["bytes_up"] == row["bytes_down"] == 20 * 8 * 650 * 4
    assert row["gradients"] == 20 * 8 * 50


def test_contexts(result, digits):
    found = result.contexts
    assert found.k == len(np.unique(found.assignment))
    assert found.history.shape == (7, 8)
    assert found.curve["k"].tolist() == [1, 2, 3, 4]
    assert found.k == found.curve["k"][found.curve["error"].idxmin()]
    assert found.ari == 1.0
    np.testing.assert_allclose(found.J() @ found.P(), np.eye(found.k))
    np.testing.assert_allclose(found.Q(), np.eye(found.k))
    assert found.P(0).shape == (8, found.k)  # the warm-up: everyone in context 0
    assert cgpfl.run(cgpfl.Local(), digits, rounds=1).contexts is None


def test_personal_models_give_the_accuracy(result, digits):
    correct = 0
    for i in range(8):
        rows = digits.test.parts()[i]
        correct += (result.personal_model(i).predict(digits.x[rows]) == digits.y[rows]).sum()
    assert correct / digits.test.counts.sum() == result.accuracy
    a, b = result.personal_model(0).params, result.personal_model(1).params
    assert not np.allclose(a["weight"], b["weight"])
    with pytest.raises(IndexError, match=r"clients 0\.\.7"):
        result.personal_model(8)


def test_save_is_a_run_folder(result, tmp_path):
    folder = result.save(tmp_path / "saved")
    summary = json.loads((folder / "summary.json").read_text())
    method = summary["methods"]["cgpfl"]
    assert method["accuracy"]["pooled"] == result.accuracy
    assert method["contexts"]["assignment"] == result.contexts.assignment.tolist()
    assert summary["data"]["split_hash"] == result.data.digest == (folder / "split.txt").read_text().strip()
    metrics = pd.read_parquet(folder / "metrics.parquet")
    assert len(metrics) == 7 * 8
    assert metrics["correct"].sum() == result.clients["correct"].sum()
    figures = {p.name for p in (folder / "figures").iterdir()}
    names = ("accuracy", "contexts-cgpfl", "choosing-k-cgpfl")
    assert figures == {f"{name}{suffix}" for name in names for suffix in (".png", ".svg", ".pdf")}
    with pytest.raises(CgpflError, match="exists already"):
        result.save(folder)


def test_of_very_many_rows_some_rounds_are_kept(result, monkeypatch):
    """Seven evaluations of eight clients."""
    for rows, rounds in ((56, [3, 6, 9, 12, 15, 18, 20]), (55, [3, 6, 9, 15, 18, 20]), (24, [3, 12, 20]), (7, [20])):
        kept = result.records.at_most(rows)
        assert kept.rounds == rounds
        np.testing.assert_array_equal(kept.values["correct"][-1], result.records.values["correct"][-1])
    monkeypatch.setattr("cgpfl.experiment.result.MOST_ROWS", 24)
    outcome = result.outcome()
    assert outcome.clients["round"].unique().tolist() == [3, 12, 20]
    assert outcome.clients["method"].unique().tolist() == ["cgpfl"]
    assert len(outcome.history) == 7
    assert Records().at_most(5).rounds == []


@pytest.mark.slow
def test_a_method_that_has_ended_makes_room(monkeypatch, tmp_path):
    """Nothing keeps its models when the next one runs."""
    ended = []

    def watched(*args, **settings):
        gc.collect()
        assert all(ref() is None for ref in ended)
        result = run_method(*args, **settings)
        ended.append(weakref.ref(result.simulation))
        return result

    monkeypatch.setattr("cgpfl.experiment.experiment.run_method", watched)
    values = {"rounds": 1, "data": {"clients": 4}, "method": [{"name": "local"}, {"name": "local", "label": "again"}]}
    done = cgpfl.run_experiment(from_dict(values, "test"), tmp_path / "run")
    assert [r.label for r in done.results] == ["local", "again"]
    assert len(ended) == 2


def test_repr_reads_well(result):
    assert "accuracy" in repr(result)
    assert "2 contexts" in repr(result)


def test_a_notebook_shows_a_table(result):
    html = result._repr_html_()
    head, cells = (re.findall(rf"<{tag} [^>]*>([^<]*)</{tag}>", html) for tag in ("th", "td"))
    shown = dict(zip(head, cells, strict=True))
    assert shown["accuracy"] == f"{100 * result.accuracy:.1f} %"
    assert shown["worst tenth"] == f"{100 * result.scores['worst_tenth']:.1f} %"
    assert (shown["contexts"], shown["rounds"]) == (str(result.contexts.k), str(result.rounds))
    lost = dataclasses.replace(result, diverged=3, message="a < b")._repr_html_()
    assert "diverged (3)" in lost
    assert "a &lt; b" in lost


def test_resume_from_python_is_the_run_never_stopped(digits, tmp_path):
    settings = {"rounds": 12, "seed": 3, "participation": 0.6}
    method = cgpfl.CGPFL(contexts=2)
    whole = cgpfl.run(method, digits, **settings)
    folder = RunFolder.create(tmp_path / "run")
    folder.write_split(digits)
    stops = iter([False] * 2 + [True])
    with pytest.raises(Interrupted, match="cgpfl: stopped after round") as stopped:
        run_method(
            method,
            digits,
            whole.model,
            Settings(**settings),
            label="cgpfl",
            folder=folder.method("cgpfl"),
            stop=lambda: next(stops),
        )
    at = folder.method("cgpfl").facts()["round"]
    assert 0 < at < 12
    assert stopped.value.result.history["round"].max() == at
    again = cgpfl.run(method, digits, out=tmp_path / "run", resume=True, **settings)
    pd.testing.assert_frame_equal(whole.history, again.history)
    for a, b in zip(jax.tree.leaves(whole.state.clients), jax.tree.leaves(again.state.clients), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_resume_refuses_other_data(digits, tmp_path):
    cgpfl.run(cgpfl.Local(), digits, rounds=1, out=tmp_path / "run")
    other = cgpfl.make_data("digits", "rotation", clients=8, contexts=2, seed=9)
    with pytest.raises(CgpflError, match="start a new run"):
        cgpfl.run(cgpfl.Local(), other, rounds=1, out=tmp_path / "run", resume=True)
    with pytest.raises(CgpflError, match="was run with seed = 0, now 1"):
        cgpfl.run(cgpfl.Local(), digits, rounds=1, seed=1, out=tmp_path / "run", resume=True)
    with pytest.raises(CgpflError, match="holds local"):
        cgpfl.run(cgpfl.FedAvg(), digits, rounds=1, out=tmp_path / "run", resume=True)


def test_an_infinite_loss_is_divergence_too():
    """The loss overflows before the parameters do; state, records and counts are those of that round."""
    data = points([[1.0], [2.0]])
    result = cgpfl.run(cgpfl.Local(rate=3e3, local_rounds=1, batch_size=0), data, quadratic(data), rounds=40)
    assert result.diverged == result.rounds < 12
    assert np.isfinite(np.asarray(result.state.clients["w"])).all()
    assert result.history["round"].tolist() == list(range(1, result.diverged))
    assert int(result.state.answers) == 2 * result.rounds


def test_divergence_keeps_what_was_recorded():
    data = points([[1.0], [2.0]])
    told = []
    method = cgpfl.PFedMe(prox=50.0, personal_rate=0.1, local_rounds=1, inner_steps=1, batch_size=0)
    result = cgpfl.run(method, data, quadratic(data), rounds=500, on_progress=told.append)
    assert result.diverged is not None
    assert 1 < result.diverged < 500
    assert result.rounds == result.diverged
    assert result.history["round"].max() < result.diverged
    assert np.isfinite(result.history["train_loss"]).all()
    assert "prox x personal_rate = 5, and the inner steps need it below 2" in result.message
    assert f"round {result.diverged} of 500" in result.message
    assert told[-1].message == result.message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds = 0: must be an integer >= 1 and"),
        ({"rounds": 2.5}, "rounds = 2.5"),
        ({"seed": -1}, "seed = -1"),
        ({"participation": 0.0}, "participation = 0.0: must be a number > 0 and <= 1"),
        ({"participation": 1.5}, "participation = 1.5"),
        ({"dropout": 1.0}, "dropout = 1.0: must be a number >= 0 and <= 0.99"),
        ({"eval_every": -1}, "eval_every = -1"),
        ({"participation": "half"}, "participation = 'half'"),
        ({"label": "../up"}, "label '../up'"),
        ({"clients_per_block": -2}, "clients_per_block = -2"),
        ({"model": "resnett"}, "no model 'resnett'"),
    ],
)
def test_bad_settings(digits, settings, message):
    with pytest.raises(CgpflError, match=message):
        cgpfl.run(cgpfl.Local(), digits, **settings)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda: cgpfl.CGPFL(contexts=9), "contexts = 9: must be at most the number of clients, 8"),
        (lambda: cgpfl.CGPFL(contexts=0), "cgpfl: contexts = 0: must be an integer >= 1"),
        (lambda: cgpfl.CGPFL(prox=-1.0), "cgpfl: prox = -1.0: must be a number >= 0"),
        (lambda: cgpfl.CGPFL(mu="big"), "cgpfl: mu = 'big'"),
        (lambda: cgpfl.FedAvg(rate=0.0), "fedavg: rate = 0.0: must be a number > 0"),
        (lambda: cgpfl.FedAvg(rate=float("nan")), "fedavg: rate = nan"),
        (lambda: cgpfl.PFedMe(inner_steps=1.5), "pfedme: inner_steps = 1.5: must be an integer >= 1"),
        (lambda: cgpfl.PFedMe(warm_start=1), "warm_start = 1: must be true or false"),
        (lambda: cgpfl.CGPFL(contexts=(0, 1, 0, 1, 0, 1, 0, 99)), "label 99; labels must be below 8"),
        (lambda: cgpfl.CGPFL(contexts=2, warmup=1), "warmup = 1: takes 8 answers of clients and the run has 8"),
        ("fedprxo", "no method 'fedprxo'"),
        (3, "int does not keep the contract"),
    ],
)
def test_bad_hyper_parameters(digits, method, message):
    with pytest.raises(CgpflError, match=message):
        cgpfl.run(method() if callable(method) else method, digits, rounds=1)


def test_numpys_numbers_and_names_are_fine(digits):
    told = cgpfl.run(cgpfl.CGPFL(contexts=digits.context), digits, rounds=np.int64(1))
    np.testing.assert_array_equal(told.contexts.assignment, digits.context)


@pytest.mark.slow
def test_a_name_is_a_method_with_its_defaults(digits):
    assert cgpfl.run("cgpfl", digits, rounds=6).contexts.k == 4


def test_a_users_own_method_runs(digits):
    """The contract is structural: a class that shares no code with ours works."""
    import dataclasses

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        """Nobody learns anything."""

        def init_server(self, task, key):
            return task.initial

        def init_client(self, task, key):
            return ()

        def send(self, server, client_id):
            return server

        def train(self, task, message, client, data, key):
            return message, ()

        def aggregate(self, server, uploads, cohort, key):
            return server

        def personal(self, task, message, client, data, key):
            return message

        def shared(self, message):
            return message

        def report(self, server):
            return {}

        def gradients(self):
            return 0

    assert isinstance(Frozen(), cgpfl.Algorithm)
    result = cgpfl.run(Frozen(), digits, rounds=3)
    assert result.label == "frozen"
    assert result.history["accuracy"].nunique() == 1
