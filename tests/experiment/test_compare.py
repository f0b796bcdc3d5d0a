"""Comparisons: the table's statistics by hand, and a small comparison against runs made one by one."""

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

import cgpfl
from cgpfl.algorithms import L2SGD, METHODS, Ditto, get_method
from cgpfl.engine.together import Run
from cgpfl.errors import CgpflError
from cgpfl.experiment.compare import _choose, _Comparison, from_config, resume_comparison
from cgpfl.experiment.experiment import build
from cgpfl.experiment.notes import spent_by_each
from cgpfl.experiment.records import Cost, Records
from cgpfl.experiment.table import Runs, default_target, holm, paired_p, ranking, rounds_to
from cgpfl.experiment.tune import candidates, space
from cgpfl.hyperparameters import value_of

SMALL = {"rounds": 6, "eval_every": 2}


def runs(label, each, *, diverged=None, rounds=(2, 4)):
    """A method with 4 clients of 10 test samples and the given correct answers: [seeds][evaluations][clients]."""
    records = [Records(list(rounds), {"correct": np.asarray(c, float), "loss": np.ones((2, 4))}) for c in each]
    n = len(each)
    return Runs(
        label=label, seeds=list(range(n)), records=records, samples=[np.full(4, 10)] * n, cost=Cost(1000, 500, 7.5, 4),
        answers=[16] * n, rounds=[4] * n, diverged=diverged or [None] * n, seconds=1.0, settings={}, tried=[],
        ari=[None] * n,
    )  # fmt: skip


def test_ranking_by_hand():
    good = runs("good", [[[5, 5, 5, 5], [8, 8, 8, 0]], [[5, 5, 5, 7], [9, 9, 9, 9]]])
    poor = runs("local", [[[1, 1, 1, 1], [2, 2, 2, 2]], [[1, 1, 1, 1], [4, 4, 4, 4]]])
    lost = runs("lost", [[[1, 1, 1, 1], [2, 2, 2, 2]]] * 2, diverged=[None, 3])
    table = ranking({"local": poor, "lost": lost, "good": good}, target=0.55)
    assert table["method"].tolist() == ["good", "local", "lost"]
    first = table.iloc[0]
    assert first["accuracy"] == pytest.approx((24 / 40 + 36 / 40) / 2)
    assert first["std"] == pytest.approx(np.std([0.6, 0.9], ddof=1))
    assert first["worst_tenth"] == pytest.approx((0.0 + 0.9) / 2)
    assert first["rounds_to_target"] == (4 + 2) / 2  # 0.6 at the second evaluation, 0.55 at the first
    assert first["megabytes"] == pytest.approx((4 * 4 * 1000 + 16 * 500) / 1e6)
    assert first["gradients"] == 16 * 7.5
    assert np.isnan(table["rounds_to_target"][1])
    assert np.isnan(table["accuracy"][2])
    assert table["diverged"].tolist() == [0, 0, 1]


def test_rounds_to_needs_every_seed():
    rounds = np.array([2, 4, 6])
    assert rounds_to(rounds, np.array([[0.1, 0.5, 0.4], [0.5, 0.1, 0.2]]), 0.5) == 3
    assert np.isnan(rounds_to(rounds, np.array([[0.1, 0.5, 0.4], [0.4, 0.1, 0.2]]), 0.5))


def test_paired_test_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=6), rng.normal(size=6)
    assert paired_p(a, b) == pytest.approx(ttest_rel(a, b).pvalue)
    assert paired_p(a, a) == 1.0
    assert paired_p(a, a + 0.1) == pytest.approx(0.0)
    assert np.isnan(paired_p(a[:1], b[:1]))


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.04 → ×3, ×2, ×1, never smaller than the one before."""
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.02])), [0.04, 0.03, 0.04])
    np.testing.assert_allclose(holm(np.array([0.5, np.nan, 0.9])), [1.0, np.nan, 1.0])


def test_target_is_where_local_training_ends():
    poor = runs("local", [[[1, 1, 1, 1], [2, 2, 2, 2]], [[1, 1, 1, 1], [4, 4, 4, 4]]])
    assert default_target({"local": poor}) == pytest.approx(0.3)
    assert default_target({"other": dataclasses.replace(poor, label="other")}) == pytest.approx(0.27)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare") / "c"
    settings = {"seeds": 2, "out": out, "seed": 5, **SMALL}
    return cgpfl.compare(["ditto", "fedmd"], **settings)


@pytest.mark.slow
def test_a_notebook_shows_its_table(compared):
    html = compared._repr_html_()
    rows = re.findall(r"<tr><td[^>]*>([^<]+)</td><td[^>]*>([\d.]+) ±", html)
    table = compared.table
    assert rows == [(m, f"{100 * a:.1f}") for m, a in zip(table["method"], table["accuracy"], strict=True)]
    assert "paired t-test" in html


@pytest.mark.slow
def test_it_is_the_runs_one_by_one(compared):
    """Each seed has its own split; the numbers are those of cgpfl.run with that seed and split."""
    for i, seed in enumerate((5, 6)):
        data = cgpfl.make_data("digits", "rotation", public=0.1, seed=seed)
        for name in ("ditto", "fedavg"):
            alone = cgpfl.run(name, data, seed=seed, **SMALL)
            ours = compared.runs[name]
            assert ours.accuracy()[i] == pytest.approx(alone.accuracy, abs=1.5 / data.test.counts.sum())
            assert ours.cost == alone.cost
            assert ours.records[i].rounds == alone.records.rounds
            np.testing.assert_allclose(ours.records[i].values["loss"], alone.records.values["loss"], rtol=1e-3)


@pytest.mark.slow
def test_local_and_fedavg_are_always_there_and_public_samples_where_needed(compared):
    assert set(compared.runs) == {"local", "fedavg", "ditto", "fedmd"}
    assert any("public, for fedmd" in note for note in compared.notes)
    assert any("local and fedavg added" in note for note in compared.notes)


@pytest.mark.slow
def test_the_folder_holds_everything(compared):
    summary = json.loads((compared.folder / "summary.json").read_text())
    assert list(summary["methods"]) == compared.table["method"].tolist()
    assert len(summary["methods"]["ditto"]["each_seed"]) == 2
    history = (compared.folder / "history.csv").read_text().splitlines()
    assert len(history) == 1 + 4 * 2 * 3  # methods × seeds × evaluations
    assert "| ditto |" in (compared.folder / "table.md").read_text()
    for name in ("ranking", "accuracy"):
        assert (compared.folder / "figures" / f"{name}.png").stat().st_size > 5000


@pytest.mark.slow
def test_runs_that_do_not_fit_in_one_program_take_several(compared, tmp_path, monkeypatch):
    """With memory for one run at a time the table is the same, and progress never goes back."""
    monkeypatch.setattr("cgpfl.engine.together.memory", lambda: 1)
    told = []
    settings = {"seeds": 2, "out": tmp_path / "c", "seed": 5, **SMALL}
    again = cgpfl.compare(["ditto"], {"public": 0.1}, on_progress=told.append, **settings)
    assert len(again.runs["ditto"].records) == 2
    for label in ("local", "ditto"):
        rounds = [p.round for p in told if p.label == label]
        assert rounds == sorted(rounds)
        assert rounds[-1] == 6
        np.testing.assert_allclose(again.runs[label].accuracy(), compared.runs[label].accuracy(), atol=0.005)


@pytest.mark.slow
def test_what_is_finished_is_kept(compared):
    """One method's records are lost: only that method runs again, and the table is the same."""
    before = compared.table.drop(columns="seconds")
    kept = (compared.folder / "methods" / "local.safetensors").read_bytes()
    (compared.folder / "methods" / "ditto.safetensors").unlink()
    (unfinished := compared.folder / "methods" / "local.part" / "00000-2").mkdir(parents=True)  # killed just before
    told = []
    again = resume_comparison(compared.folder, told.append)
    assert {p.label for p in told} == {"ditto"}
    assert again.table.drop(columns="seconds").equals(before)
    assert again.notes == compared.notes
    assert (compared.folder / "methods" / "local.safetensors").read_bytes() == kept
    assert not unfinished.parent.exists()


def test_candidates_are_as_many_for_every_method_and_in_range():
    for name, method in METHODS.items():
        found = candidates(method, 6, lambda m: m)
        assert len(found) == 6, name
        assert found[0] == method
        for other in found[1:]:
            for key, (low, high) in space(method).items():
                assert low * 0.99 <= value_of(other, key) <= high * 1.01
        assert found == candidates(method, 6, lambda m: m)


def test_candidates_that_do_not_fit_are_passed_over():
    def fits(method):
        method.check(40, 1e6, 200)
        return method

    found = candidates(L2SGD(), 8, fits)
    assert len(found) == 8
    assert all(m.rate * m.prox / m.coin <= 0.5 + 1e-6 for m in found)


@pytest.mark.slow
def test_a_search_chooses_by_validation_alone(tmp_path):
    """Among 4 settings the one with the best validation accuracy is taken, and its test accuracy is what is shown."""
    settings = {"tune": 4, "seeds": 2, "rounds": 4, "eval_every": 4}
    compared = cgpfl.compare(["local"], out=tmp_path / "c", **settings)
    assert any("for validation" in note for note in compared.notes)
    local = compared.runs["local"]
    best = max(local.tried, key=lambda t: t["validation_accuracy"])
    assert local.settings["rate"] == best["rate"]
    each = []
    for seed in (0, 1):
        data = cgpfl.make_data("digits", "rotation", validation=0.2, seed=seed)
        result = cgpfl.run(get_method("local", {"rate": best["rate"]}), data, rounds=4, eval_every=4, seed=seed)
        right = result.records.values["validation_correct"][-1].sum() / data.validation.counts.sum()
        each.append((right, result.accuracy))
    assert best["validation_accuracy"] == pytest.approx(np.mean([v for v, _ in each]), abs=0.01)
    np.testing.assert_allclose(local.accuracy(), [a for _, a in each], atol=0.01)


@pytest.mark.slow
def test_methods_and_data_with_settings_of_their_own(tmp_path):
    """λ of the history is the chosen one's, and a diverged seed does not count answers after its end."""
    stiff = {"name": "ditto", "label": "stiff", "prox": 5.0}
    lost = {"name": "local", "label": "lost", "rate": 1e38}
    small = {"source": "digits", "split": "rotation", "clients": 8, "contexts": 2}
    compared = cgpfl.compare(["ditto", stiff, lost], small, seeds=2, rounds=4, eval_every=2, out=tmp_path / "c")
    assert set(compared.runs) == {"local", "fedavg", "ditto", "stiff", "lost"}
    history = pd.read_csv(compared.folder / "history.csv")
    for label, prox in (("ditto", 1.0), ("stiff", 5.0)):
        rows = history[history["method"] == label]
        expected = rows["train_loss"] + prox / 2 * rows["objective_context"]
        np.testing.assert_allclose(rows["objective_personal"], expected, rtol=1e-5)
    assert compared.runs["lost"].answers == [8, 8]  # one round of eight clients
    assert compared.diverged[0].startswith("lost: diverged (seed 0 in round 1")


def test_bad_requests_write_nothing(tmp_path):
    for change, message in (
        ({"methods": ["nobody"]}, "no method 'nobody'"),
        ({"seeds": 0}, "compare: seeds = 0: must be an integer >= 1"),
        ({"target": 2.0}, "target = 2.0: must be"),
        ({"split": "sideways"}, "no split 'sideways'"),
    ):
        with pytest.raises(CgpflError, match=message):
            cgpfl.compare(**{"methods": ["ditto"], "out": tmp_path / "c", **change})
    assert not (tmp_path / "c").exists()


def test_out_of_range_hyper_parameters_name_method_and_range():
    for name, key, value in (
        ("ditto", "prox", -1.0),
        ("apfl", "mixture", 1.5),
        ("fedadam", "optimizer", "lion"),
        ("ifca", "contexts", 0),
        ("fl-hc", "linkage", "centroid"),
        ("l2sgd", "coin", 0.0),
        ("mocha", "floor", 0.0),
    ):
        with pytest.raises(CgpflError, match=f"{key} = {value!r}: must be ") as error:
            get_method(name, {key: value})
        assert str(error.value).startswith(f"{name}: ")
        assert "\n" not in str(error.value)
    with pytest.raises(CgpflError, match="ditto: no hyper-parameter 'mu'; it has rate, local_rounds"):
        get_method("ditto", {"mu": 1.0})
    assert Ditto().prox > 0


def test_all_seeds_and_settings_have_the_noise_of_the_most_asked(monkeypatch):
    """Of every seed, not of the first alone; and it is said what it cost."""
    pytest.importorskip("dp_accounting")
    monkeypatch.setattr("cgpfl.engine.privacy.most_often", lambda sampler, seed, *asked: 2 + seed)
    data = {"source": "digits", "clients": 4, "share": 0.1, "validation": 0.2}
    own = {"rounds": 6, "participation": 0.5, "epsilon": 8.0, "data": data, "method": [{"name": "fedavg"}]}
    experiment, comparing = from_config(own | {"compare": {"seeds": 3, "tune": 3}}, "test")
    problem = build(experiment, [0, 1, 2])
    todo = _Comparison(problem, comparing, [], None, ()).batch("fedavg").todo
    assert len(todo) == 9
    assert {run.method.privacy for run in todo} == {problem.methods["fedavg"].privacy}
    assert problem.methods["fedavg"].privacy.times == 4
    said = spent_by_each(problem.methods, problem.federations)
    assert said[0].startswith("fedavg: privacy of clients against the server: ε = 8 at δ = 1e-05")
    assert said[0].endswith("× clip, in each of 3 seeds")


def test_a_search_under_attack_counts_honest_clients_alone():
    """Two clients with 10 validation samples each, of whom one lies: 4 and 6 of 10 are right, not of 20."""
    data = SimpleNamespace(validation=SimpleNamespace(counts=np.array([10, 10])))
    values = [
        {"validation_correct": np.array([[right, 0.0]]), "correct": np.array([[1.0, np.nan]])} for right in (4, 6)
    ]
    done = [SimpleNamespace(diverged=None, records=SimpleNamespace(values=own)) for own in values]
    methods = [get_method("fedavg", {"rate": rate}) for rate in (0.1, 0.2)]
    best, tried = _choose(methods, [Run(method, data, 0) for method in methods], done, 1)
    assert (best, [t["validation_accuracy"] for t in tried]) == (1, [0.4, 0.6])
