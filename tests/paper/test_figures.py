"""Figures over K, and CGPFL-Heur's, from runs whose curves are given."""

import csv

import numpy as np
import pytest

from cgpfl.paper import figures
from cgpfl.paper.figures import BESIDE, FIGURE_HEUR, FIGURE_K, _chosen, losses, reached, shown
from cgpfl.paper.plan import family_cell, k_cell, table_1_cell
from cgpfl.paper.settings import FULL, small
from handmade import lost, plan, runs, tiny

HEUR = {"k": [3, 3], "complexity": [[1.0, 2.0, 3.0, 4.0]] * 2, "cost": [[4.0, 2.0, 1.0, 0.5]] * 2, "mu": [2.0, 2.0]}
"""After the first and the second evaluation: e = 9, 6, 5, 5."""


def cells(at_k, *, ks=(1, 2, 4), heur=(90.0, 91.0), beside=None, names=("mnist-mlr", "fmnist-mlr")):
    """Settings, and every cell the figures ask for; ``at_k``: K → runs, ``beside``: label → runs."""
    settings = tiny(*names, ks=ks)
    known = {}
    for setting in settings.values():
        known |= {k_cell(setting, k).name: at_k[k] for k in ks}
        others = {label: runs((70.0, 80.0), (72.0, 82.0)) for label in BESIDE} | (beside or {})
        known |= {table_1_cell(setting, label).name: others[label] for label in BESIDE}
        heur_runs = runs(*([v - 10, v] for v in heur), **HEUR) if isinstance(heur, tuple) else heur
        known[family_cell(setting, "cgpfl-heur").name] = heur_runs
        known[family_cell(setting, "pfedme").name] = at_k[1]
        known[family_cell(setting, "cgpfl-4").name] = at_k[4]
    return settings, known


def at(**curves):
    """``k1=…, k2=…``: K → runs with those curves."""
    return {int(name[1:]): runs(*seeds) for name, seeds in curves.items()}


INNER = at(k1=[(60, 80), (60, 82)], k2=[(70, 90), (70, 92)], k4=[(75, 85), (85, 86)])
"""Best at K = 2 by more than its spread, 1.4."""


def make(part, tmp_path, given, **more):
    settings, known = given
    where = plan(tmp_path, known, settings, **more)
    assert {c.name for c in part.needs(where)} <= set(known)
    return part.make(where)


@pytest.fixture
def undrawn(monkeypatch):
    """Only what is said of the runs: nothing is drawn into files."""
    monkeypatch.setattr(figures, "save", lambda *_: None)
    monkeypatch.setattr(figures, "_draw_curves", lambda plan: None)
    monkeypatch.setattr(figures, "_draw_k", lambda plan: None)


def test_losses_are_means_over_clients_of_the_seeds_that_did_not_diverge():
    three = runs([0.0, 1.0], [3.0, 9.0], [50.0, 50.0], diverged=[2])
    # of the clients: 1/(1 + accuracy) and twice that
    np.testing.assert_allclose(losses(three), [[1.5, 0.75], [0.375, 0.15]])
    assert losses(lost()).shape == (0, 0)


def test_the_chosen_k_of_each_seed():
    assert _chosen(runs([80.0, 90.0], [80.0, 90.0], k=[7, 5])).tolist() == [5, 5]
    assert _chosen(lost()).tolist() == []


def test_rounds_to_a_target():
    two = runs([70, 81, 90], [70, 75, 85])  # evaluated in rounds 5, 10, 15
    assert reached(two, np.array([0.80, 0.80])) == 12.5
    assert reached(two, np.array([0.85, 0.70])) == 10  # each seed has its own
    assert np.isnan(reached(two, np.array([0.80, 0.86])))
    assert np.isnan(reached(two, np.array([0.80, np.nan])))
    assert np.isnan(reached(runs([70, 81], [70, 90], diverged=[1]), np.array([0.80, 0.80])))
    assert np.isnan(reached(lost(), np.array([0.80, 0.80])))


def test_shown_ks():
    assert shown(FULL["mnist-mlr"]) == [1, 2, 4, 10, 20]
    assert shown(small(FULL["mnist-mlr"])) == [1, 2, 4, 10]
    assert shown(tiny("mnist-mlr")["mnist-mlr"]) == [1, 2, 4]


def test_accuracy_over_k(tmp_path):
    made = make(FIGURE_K, tmp_path, cells(INNER))
    best, speed = made.tables
    assert best.columns == [
        "setting",
        "K = 1",
        "best K",
        "at the best K",
        "K = 4",
        "Heur's K, each seed",
        "Heur",
        "Local",
    ]
    assert best.rows[0] == ["MNIST-MLR", "81.0", "2", "91.0", "85.5", "3 3", "90.5 ± 0.7", "81.0 ± 1.4"]
    # pFedMe ends with 80 and 82: K = 4 has that in rounds 10 and 5, the others in the second evaluation.
    assert speed.columns[2:] == ["CGPFL (K=4)", "pFedMe", "Ditto", "Per-FedAvg (HF)", "Local", "FedAvg"]
    assert speed.rows[0] == ["MNIST-MLR", "81.0", "8", "10", "10", "10", "10", "10"]
    with (tmp_path / "figure-k" / "accuracy-over-k.csv").open(newline="") as file:
        facts = list(csv.DictReader(file))
    assert [(f["setting"], f["K"], f["accuracy_%"], f["std"]) for f in facts[:3]] == [
        ("MNIST-MLR", "1", "81.0", "1.414"),
        ("MNIST-MLR", "2", "91.0", "1.414"),
        ("MNIST-MLR", "4", "85.5", "0.707"),
    ]
    assert {p.name for p in (tmp_path / "figure-k").iterdir()} == {
        *("accuracy-over-k.csv", "accuracy-over-k.png", "accuracy-over-k.svg", "curves.png", "curves.svg"),
    }


def test_a_best_k_inside(tmp_path, undrawn):
    inside, _ = make(FIGURE_K, tmp_path, cells(INNER)).verdicts
    assert inside.verdict == "reproduced"
    found = "MNIST-MLR: best 91.0 at K = 2, ahead of K = 1 by 10.0 ± 0.0, of K = 4 by 5.5 ± 0.7"
    assert found in inside.evidence


@pytest.mark.parametrize(
    "four",
    [[(75, 95), (75, 96)], [(75, 91), (75, 90)]],  # the last K is the best; the drop is less than the spread
)
def test_no_best_k_inside(tmp_path, undrawn, four):
    inside, _ = make(FIGURE_K, tmp_path, cells(INNER | at(k4=four))).verdicts
    assert inside.verdict == "not"


def test_a_best_k_inside_in_one_setting_only(tmp_path, undrawn):
    settings, known = cells(INNER)
    known[k_cell(settings["fmnist-mlr"], 1).name] = runs([95, 99], [95, 99])
    inside, _ = make(FIGURE_K, tmp_path, (settings, known)).verdicts
    assert inside.verdict == "partly"


def test_a_k_that_is_no_better_than_one_is_not_inside(tmp_path, undrawn):
    """K = 2 is ahead of K = 1 by 1 and -0.5."""
    one = at(k1=[(60, 89), (60, 92.5)])
    inside, _ = make(FIGURE_K, tmp_path, cells(INNER | one)).verdicts
    assert inside.verdict == "not"


def test_speed_is_rounds_until_what_pfedme_ends_with(tmp_path, undrawn):
    """K = 4 has pFedMe's 80 and 82 in rounds 10 and 5; the others both in round 10."""
    _, faster = make(FIGURE_K, tmp_path, cells(INNER)).verdicts
    assert faster.verdict == "reproduced"
    assert "MNIST-MLR: cgpfl-4 8, pfedme 10, ditto 10, per-fedavg 10, local 10" in faster.evidence
    quick_ditto = {"ditto": runs([90, 95], [90, 95])}
    _, partly = make(FIGURE_K, tmp_path, cells(INNER, beside=quick_ditto)).verdicts
    assert partly.verdict == "partly"
    slow = at(k4=[(10, 79), (10, 81)])  # never
    _, slower = make(FIGURE_K, tmp_path, cells(INNER | slow)).verdicts
    assert slower.verdict == "not"


@pytest.mark.parametrize("part", [FIGURE_K, FIGURE_HEUR])
def test_a_method_that_diverged_is_left_out_of_the_figures(tmp_path, part):
    given = cells(INNER | {1: lost(), 4: lost()}, beside=dict.fromkeys(("local", "ditto"), lost()))
    made = make(part, tmp_path, given)
    if part is FIGURE_K:
        best, speed = made.tables
        assert best.rows[0][:5] == ["MNIST-MLR", "diverged", "2", "91.0", "diverged"]
        assert speed.rows[0] == ["MNIST-MLR", "diverged", *"––––––"]
    assert (tmp_path / part.name / f"{made.figures[0].name}.svg").exists()


def test_heur_beside_the_best_k(tmp_path, undrawn):
    settings, known = cells(INNER)
    known[family_cell(settings["fmnist-mlr"], "cgpfl-heur").name] = runs([80, 88.0], [80, 88.0], **HEUR)
    made = make(FIGURE_HEUR, tmp_path, (settings, known))
    (verdict,) = made.verdicts
    assert verdict.verdict == "partly"
    assert "in points: MNIST-MLR +0.5 of 10.0, FMNIST-MLR +3.0 of 10.0. Close is up to a tenth." in verdict.evidence
    with (tmp_path / "figure-heur" / "heur.csv").open(newline="") as file:
        facts = [(f["method"], f["accuracy_%"]) for f in csv.DictReader(file) if f["setting"] == "MNIST-MLR"]
    assert facts == [("Local", "81.0"), ("pFedMe", "81.0"), ("K = 4", "85.5"), ("best K = 2", "91.0"), ("Heur", "90.5")]
    assert make(FIGURE_HEUR, tmp_path, cells(INNER)).verdicts[0].verdict == "reproduced"
    assert make(FIGURE_HEUR, tmp_path, cells(INNER, heur=(50.0, 50.0))).verdicts[0].verdict == "not"
    assert make(FIGURE_HEUR, tmp_path, cells(INNER), quick=True).verdicts == []
