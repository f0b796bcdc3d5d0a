"""Figures over K, and CGPFL-Heur's, from runs whose curves are given."""

import csv

import numpy as np
import pytest
from choices import best_at, given, tried

from cgpfl.paper import figures, heur
from cgpfl.paper.figures import BESIDE, FIGURE_K, _chosen, losses, reached, shown
from cgpfl.paper.heur import FIGURE_HEUR
from cgpfl.paper.plan import of_seeds
from cgpfl.paper.readings import FIRST, READINGS, k_cell, table_1_cell
from cgpfl.paper.settings import FULL, small
from handmade import lost, plan, runs, tiny

pytestmark = pytest.mark.usefixtures("by_hand")

HEUR = {"k": [3, 3], "complexity": [[1.0, 2.0, 3.0, 4.0]] * 2, "cost": [[4.0, 2.0, 1.0, 0.5]] * 2, "mu": [2.0, 2.0]}
"""After the first and the second evaluation: e = 9, 6, 5, 5."""


def cells(at_k, *, ks=(1, 2, 4), heur=(90.0, 91.0), beside=None, names=("mnist-mlr", "fmnist-mlr")):
    """Settings, and every cell the figures ask for; ``at_k``: K → runs, ``beside``: label → runs.

    As first read everything has the accuracy of the first seed.
    """
    settings = tiny(*names, ks=ks, context_rates=(0.06, 1.0), etas=(0.005, 0.1))
    known = given(settings)
    for setting in settings.values():
        known |= tried(setting, "cgpfl-heur", best_at(4, 3))
    where = plan(None, known, settings)
    for setting in settings.values():
        rows = {label: runs((70.0, 80.0), (72.0, 82.0)) for label in BESIDE} | (beside or {})
        rows |= {"pfedme": at_k[1], "cgpfl-4": at_k[4]}
        rows["cgpfl-heur"] = runs(*([v - 10, v] for v in heur), **HEUR) if isinstance(heur, tuple) else heur
        for reading in READINGS:
            own = {k_cell(where, setting, k, reading).name: at_k[k] for k in ks}
            own |= {table_1_cell(where, setting, label, reading).name: of for label, of in rows.items()}
            known |= {name: of_seeds(of, [0]) if reading == FIRST else of for name, of in own.items()}
    return settings, known


def cell_of(given, name, k):
    """The name of the cell of K, tuned, in a setting."""
    settings, known = given
    return k_cell(plan(None, known, settings), settings[name], k).name


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
    monkeypatch.setattr(figures, "save_picture", lambda *_: None)
    monkeypatch.setattr(heur, "save_picture", lambda *_: None)
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
    assert [tuple(f.values()) for f in facts[:6]] == [
        ("MNIST-MLR", "first", "1", "80.0", "0.0"),
        ("MNIST-MLR", "first", "2", "90.0", "0.0"),
        ("MNIST-MLR", "first", "4", "85.0", "0.0"),
        ("MNIST-MLR", "tuned", "1", "81.0", "1.414"),
        ("MNIST-MLR", "tuned", "2", "91.0", "1.414"),
        ("MNIST-MLR", "tuned", "4", "85.5", "0.707"),
    ]
    assert list(facts[0]) == ["setting", "reading", "K", "accuracy_%", "std"]
    assert "Every K has the rates chosen for CGPFL-Heur" in made.text[0]
    assert {p.name for p in (tmp_path / "figure-k").iterdir()} == {
        "accuracy-over-k.csv",
        *(f"{name}.{kind}" for name in ("accuracy-over-k", "curves") for kind in ("png", "svg", "pdf")),
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
    both = cells(INNER)
    both[1][cell_of(both, "fmnist-mlr", 1)] = runs([95, 99], [95, 99])
    inside, _ = make(FIGURE_K, tmp_path, both).verdicts
    assert inside.verdict == "partly"


def test_a_k_that_is_no_better_than_one_is_not_inside(tmp_path, undrawn):
    """K = 2 is ahead of K = 1 by 1 and -0.5."""
    one = at(k1=[(60, 89), (60, 92.5)])
    inside, _ = make(FIGURE_K, tmp_path, cells(INNER | one)).verdicts
    assert inside.verdict == "not"


def test_the_seeds_of_the_sweep_over_k_are_those_of_everything_beside_it(tmp_path, undrawn):
    """Table 1's rows have five seeds, the sweep three: what is compared is the same three."""
    three = {k: runs(*([v, v] for v in (80.0, 80.0, 80.0))) for k in (1, 2, 4)}
    five = runs(*([v, v] for v in (80.0, 80.0, 80.0, 10.0, 10.0)), **HEUR)
    given = cells(three, beside=dict.fromkeys(BESIDE, five), heur=five)
    best, speed = make(FIGURE_K, tmp_path, given, seeds=5).tables
    assert best.rows[0][5:] == ["3 3 3", "80.0 ± 0.0", "80.0 ± 0.0"]
    assert speed.rows[0] == ["MNIST-MLR", "80.0", *["5"] * 6]
    (verdict,) = make(FIGURE_HEUR, tmp_path, given, seeds=5).verdicts
    assert "MNIST-MLR +0.0 of 0.0" in verdict.evidence


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


@pytest.mark.pictures
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
    known["fmnist-mlr/tuned-cgpfl-heur"] = runs([80, 88.0], [80, 88.0], **HEUR)
    made = make(FIGURE_HEUR, tmp_path, (settings, known))
    (verdict,) = made.verdicts
    assert verdict.verdict == "partly"
    assert "in points: MNIST-MLR +0.5 of 10.0, FMNIST-MLR +3.0 of 10.0. Close is up to a tenth." in verdict.evidence
    with (tmp_path / "figure-heur" / "heur.csv").open(newline="") as file:
        facts = [(f["reading"], f["method"], f["accuracy_%"]) for f in csv.DictReader(file)]
    names = ("Local", "pFedMe", "K = 4", "best K = 2", "Heur")
    assert facts[:5] == [("first", *pair) for pair in zip(names, ("80.0", "80.0", "85.0", "90.0", "90.0"), strict=True)]
    assert facts[5:10] == [
        ("tuned", *pair) for pair in zip(names, ("81.0", "81.0", "85.5", "91.0", "90.5"), strict=True)
    ]
    assert make(FIGURE_HEUR, tmp_path, cells(INNER)).verdicts[0].verdict == "reproduced"
    assert make(FIGURE_HEUR, tmp_path, cells(INNER, heur=(50.0, 50.0))).verdicts[0].verdict == "not"
    assert make(FIGURE_HEUR, tmp_path, cells(INNER), quick=True).verdicts == []
