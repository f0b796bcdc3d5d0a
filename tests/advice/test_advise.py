"""A small study, against runs of the methods by themselves."""

import pytest
from typer.testing import CliRunner

import cgpfl
from cgpfl.advice.advice import concluded, prepare
from cgpfl.advice.study import NAMES, study
from cgpfl.cli import app
from made_advice import advice

ROUNDS, FOLDS = 12, 3


@pytest.fixture(scope="module")
def plan():
    data = cgpfl.make_data("digits", "rotation", contexts=2, clients=6, share=0.12, seed=1)
    return prepare(data, folds=FOLDS, rounds=ROUNDS, seed=1)


@pytest.fixture(scope="module")
def found(plan):
    return study(plan.folds, plan.model, ROUNDS, 1)


def right(plan, fold, method):
    """Right answers ``[N]`` of a method by itself, on one outer fold."""
    return cgpfl.run(method, plan.folds.outer[fold], rounds=ROUNDS, seed=1).records.values["correct"][-1]


@pytest.mark.slow
def test_a_study_has_the_numbers_of_the_runs(plan, found):
    for name, method in (
        ("alone", cgpfl.Local(rate=found.rates["alone"][1])),
        ("one model", cgpfl.FedAvg(rate=found.rates["one model"][1])),
    ):
        assert found.correct[name][1].tolist() == right(plan, 1, method).tolist(), name


@pytest.mark.slow
def test_its_parts_fit(plan, found):
    cuts = plan.folds.cuts
    samples = plan.folds.data.summary()["samples"]
    for c in range(cuts):  # every sample is tested once in each cut
        assert found.counts[c * FOLDS : (c + 1) * FOLDS].sum() == samples
    for name in NAMES:
        assert (found.correct[name] <= found.counts).all()
    assert found.costs["alone"]["bytes"] == 0
    assert found.costs["one model"]["bytes"] == 2 * 4 * 650 * 6 * ROUNDS
    assert found.trained[:, 0].tolist() == sorted(found.trained[:, 0])
    assert found.assignments.shape == (cuts * FOLDS, 6)


@pytest.mark.slow
def test_advice_of_it(plan, found):
    advice = concluded(plan, found, 1.0)
    assert advice.table["way"].tolist() == list(NAMES)
    score = found.correct["alone"].sum() / found.counts.sum()
    assert advice.table["score"][0] == pytest.approx(score)
    assert "Fewer than 8 clients" in " ".join(advice.notes)
    assert max(map(len, str(advice).splitlines())) <= 80


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["digits", "--folds", "2"], "folds = 2: must be at least 3"),
        (["digits", "--split", "iid", "--clients", "1"], "advise: there is one client"),
        (["digits", "--rounds", "5"], "cgpfl-auto"),
        (["digits", "--set", "participation=0.5"], "must be data.KEY=VALUE or model.KEY=VALUE"),
        (["digits", "--folds", "50"], "0 clients have at least 50 samples"),
    ],
)
def test_mistakes_are_one_line_before_any_training(flags, said):
    error = CliRunner().invoke(app, ["advise", *flags]).exception
    assert isinstance(error, cgpfl.CgpflError)
    assert said in str(error)
    assert "\n" not in str(error)


def test_the_command_says_what_it_will_take_and_what_was_found(tmp_path, monkeypatch):
    monkeypatch.setattr("cgpfl.advice.advice.conclude", lambda plan, tell: advice())
    flags = ["advise", "digits", "--split", "iid", "--clients", "10", "--out", str(tmp_path / "out")]
    said = CliRunner().invoke(app, flags).stdout.splitlines()
    assert said[0].startswith("10 clients, 2 times 5 folds, 240 short trainings: about ")
    assert said[2] == "2 contexts: clients that are alike share a model."
    assert max(map(len, said[:-1])) <= 80
    assert (tmp_path / "out" / "advice.html").exists()
    again = CliRunner().invoke(app, flags).exception
    assert str(again).endswith("exists; name a folder that is not there")


def test_what_it_may_take_grows_with_clients_and_rounds(plan):
    small = plan.seconds
    more = prepare(cgpfl.make_data("digits", "iid", clients=30, share=0.3), folds=FOLDS, rounds=ROUNDS).seconds
    longer = prepare(plan.data, folds=FOLDS, rounds=10 * ROUNDS).seconds
    assert 30 < small < min(more, longer)
