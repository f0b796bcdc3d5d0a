"""Tables 1 and 2 from runs whose accuracy is given: numbers, what is bold, what is said of the paper's claims."""

import csv

import numpy as np
import pytest

from cgpfl.paper import tables
from cgpfl.paper.plan import family_cell, percent, table_1_cell, with_spread
from cgpfl.paper.section import grade as grade_of
from cgpfl.paper.settings import FAMILY
from cgpfl.paper.tables import ROWS, TABLE1, TABLE2, _verdicts_1, _verdicts_2
from handmade import lost, plan, runs, tiny


def rows_of(file):
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


# Table 1


def first_table(tmp_path, accuracy, settings=None, **more):
    """Table 1 where a method has the accuracies ``accuracy[label]``, the same in each setting."""
    settings = tiny() if settings is None else settings
    known = {}
    for setting in settings.values():
        for label in ROWS:
            given = accuracy.get(label, (50.0, 52.0))
            known[table_1_cell(setting, label).name] = given if not isinstance(given, tuple) else runs(*given)
    made = TABLE1.make(plan(tmp_path, known, settings, **more))
    return made, rows_of(tmp_path / "table1" / "table1.csv")


def test_table_1_has_the_runs_accuracy_and_the_published_number_beside_it(tmp_path):
    accuracy = {"local": (90.0, 94.0), "cgpfl-4": (95.0, 95.5), "cgpfl-heur": (97.0, 96.0)}
    made, facts = first_table(tmp_path, accuracy)
    table = made.tables[0]
    assert table.columns == ["method", "MNIST-MLR", "paper", "FMNIST-MLR", "paper"]
    assert [row[0] for row in table.rows] == [
        *("Local", "FedAvg", "IFCA (K=4)", "L2SGD", "APFL", "pFedMe (PM)", "Per-FedAvg (HF)", "Ditto"),
        *("CGPFL (K=4)", "CGPFL-Heur"),
    ]
    assert table.rows[0] == ["Local", "92.0 ± 2.8", "–", "92.0 ± 2.8", "–"]
    assert table.rows[1] == ["FedAvg", "51.0 ± 1.4", "88.63", "51.0 ± 1.4", "82.44"]
    assert table.rows[9] == ["CGPFL-Heur", "96.5 ± 0.7", "97.41", "96.5 ± 0.7", "95.18"]
    assert table.strong == [[9, 1], [9, 3]]  # the best of ours
    assert len(facts) == 20
    heur = next(f for f in facts if f["setting"] == "FMNIST-MLR" and f["method"] == "cgpfl-heur")
    assert heur["accuracy_%"] == "96.5"
    assert heur["std"] == "0.707"
    assert heur["published"] == "95.18"
    assert heur["difference"] == "1.32"
    assert heur["each_seed_%"] == "97.00 96.00"
    assert heur["diverged"] == "0"
    local = next(f for f in facts if f["method"] == "local")
    assert local["published"] == local["difference"] == ""
    assert {p.name for p in (tmp_path / "table1").iterdir()} == {"table1.csv", "table1.png", "table1.svg"}


def test_the_mean_over_clients_and_the_worst_of_them_are_in_the_csv(tmp_path):
    """Half right of 100 samples and all of 300: 87.5 % of all, 75 % of a client, 50 % of the worst."""
    uneven = runs((0.0,), correct=np.array([[50.0, 300.0]]), settings={"prox": 12.0})
    _, facts = first_table(tmp_path, {"ditto": uneven}, seeds=1)
    row = next(f for f in facts if f["method"] == "ditto")
    assert (row["accuracy_%"], row["mean_%"], row["worst_tenth_%"]) == ("87.5", "75.0", "50.0")
    assert row["lambda"] == "12.0"
    assert row["std"] == "0.0"


def test_a_diverged_run_is_said_and_never_bold(tmp_path):
    half = runs(99.0, 99.0, diverged=[1])
    made, facts = first_table(tmp_path, {"ifca": half, "apfl": lost(), "local": (60.0, 60.0)})
    table = made.tables[0]
    assert table.rows[2][1] == table.rows[4][1] == "diverged"
    assert table.strong == [[0, 1], [0, 3]]
    ifca, apfl = (next(f for f in facts if f["method"] == m) for m in ("ifca", "apfl"))
    assert (ifca["accuracy_%"], ifca["each_seed_%"], ifca["diverged"]) == ("nan", "99.00 nan", "1")
    assert ifca["mean_%"] == "99.0"
    assert (apfl["each_seed_%"], apfl["mean_%"], apfl["diverged"]) == ("nan nan", "", "2")
    # 51 % is better than nobody's 51 %, but than those two that diverged
    assert [v.verdict for v in made.verdicts] == ["not", "partly"]


def test_one_seed_has_no_spread(tmp_path):
    made, facts = first_table(tmp_path, dict.fromkeys(ROWS, (50.0,)), seeds=1)
    assert made.tables[0].rows[1][1] == "50.0"
    assert {f["std"] for f in facts} == {"0.0"}
    assert (with_spread(95.24, 0.35, 3), with_spread(95.24, 0.35, 1)) == ("95.2 ± 0.3", "95.2")
    assert with_spread(float("nan"), 0.0, 1) == "diverged"
    assert percent(runs(90.0, 92.0, 94.0)) == pytest.approx((92.0, 2.0))


def test_a_quick_run_has_no_verdicts(tmp_path):
    made, _ = first_table(tmp_path, {}, quick=True)
    assert made.verdicts == []


@pytest.mark.parametrize(
    ("holds", "grade"),
    [([True], "reproduced"), ([True, False], "partly"), ([True, False, False], "partly"), ([False], "not")],
)
def test_grades(holds, grade):
    assert grade_of(np.array(holds)) == grade


def verdicts_1(four, heur, rival, local=0.0):
    """Two settings; each argument one value or one a setting."""
    settings = list(tiny().values())
    means = np.zeros((len(ROWS), 2))
    means[:] = np.broadcast_to(rival, 2)
    for label, value in (("local", local), ("cgpfl-4", four), ("cgpfl-heur", heur)):
        means[ROWS.index(label)] = value
    return _verdicts_1(settings, means)


def test_table_1_reproduced():
    heur, all_ = verdicts_1(95.0, [96.0, 97.5], 90.0)
    assert (heur.verdict, all_.verdict) == ("reproduced", "reproduced")
    assert heur.evidence == "in 2 of 2 settings; by +1.0, +2.5 points."
    assert all_.evidence == (
        "28 of 28 comparisons won (in the paper's own table 69 of 70). Local training, which the paper does not show, "
        "is better than both on: none."
    )


def test_table_1_partly():
    heur, all_ = verdicts_1(95.0, [96.0, 94.0], [90.0, 94.5], local=[99.0, 94.7])
    assert (heur.verdict, all_.verdict) == ("partly", "partly")
    assert heur.evidence == "in 1 of 2 settings; by +1.0, -1.0 points."
    assert all_.evidence.startswith(
        "21 of 28 comparisons won (in the paper's own table 69 of 70). CGPFL-Heur loses to FedAvg on FMNIST-MLR; "
    )
    assert "CGPFL (K=4) loses" not in all_.evidence
    assert all_.evidence.endswith("is better than both on: MNIST-MLR.")


def test_table_1_not():
    heur, all_ = verdicts_1(80.0, 79.0, 90.0, local=85.0)
    assert (heur.verdict, all_.verdict) == ("not", "not")
    assert all_.evidence.startswith("0 of 28 comparisons won ")
    assert "CGPFL (K=4) loses to FedAvg on MNIST-MLR, FMNIST-MLR; " in all_.evidence
    assert all_.evidence.endswith("is better than both on: MNIST-MLR, FMNIST-MLR.")


# Table 2


def second_table(tmp_path, accuracy, **more):
    """Table 2 where a method at λ has the accuracies ``accuracy(label, λ)``; also which cells were asked for."""
    settings = tiny()
    known = {
        family_cell(s, label, prox).name: runs(*accuracy(label, prox))
        for s in settings.values()
        for label in FAMILY
        for prox in s.lambdas
    }
    known |= {table_1_cell(s, "local").name: runs(98.0, 98.0) for s in settings.values()}
    where = plan(tmp_path, known, settings, **more)
    assert {c.name for c in TABLE2.needs(where)} == set(known)
    return TABLE2.make(where), rows_of(tmp_path / "table2" / "table2.csv")


def test_table_2_has_the_runs_accuracy_and_the_published_number_under_it(tmp_path):
    base = {"pfedme": 90.0, "cgpfl-2": 92.0, "cgpfl-4": 94.0, "cgpfl-heur": 96.0}
    made, facts = second_table(tmp_path, lambda label, prox: (base[label] + prox / 10, base[label] + prox / 10 + 1))
    assert [t.title for t in made.tables] == [
        "Table 2, MNIST-MLR: test accuracy (%)",
        "Table 2, FMNIST-MLR: test accuracy (%)",
    ]
    mnist, fashion = made.tables
    assert mnist.columns == ["MNIST-MLR, λ =", "12", "13"]
    assert mnist.rows[:2] == [["pFedMe (PM)", "91.7 ± 0.7", "91.8 ± 0.7"], ["  paper", "91.90", "92.19"]]
    assert mnist.rows[6:] == [["CGPFL-Heur", "97.7 ± 0.7", "97.8 ± 0.7"], ["  paper", "97.41", "96.27"]]
    assert fashion.rows[4:6] == [["CGPFL (K=4)", "95.7 ± 0.7", "95.8 ± 0.7"], ["  paper", "92.65", "92.63"]]
    assert len(facts) == 16
    row = facts[5]  # MNIST-MLR, K = 4, λ = 13
    assert (row["method"], row["accuracy_%"], row["published"], row["difference"]) == (
        "cgpfl-4",
        "95.8",
        "95.19",
        "0.61",
    )
    assert [v.verdict for v in made.verdicts] == ["reproduced", "reproduced"]
    own = " In the paper's own table 36 of 36."
    assert made.verdicts[0].evidence == "4 of 4 pairs (setting, λ); +4.0 to +4.0 points." + own


def test_table_2_verdicts():
    flat = {"pfedme": np.full(4, 90.0), "cgpfl-4": np.array([91.0, 91.0, 89.5, 89.0])}
    grid = {"mnist-mlr": {**flat, "cgpfl-heur": np.full(4, 85.0)}}
    four, heur = _verdicts_2(grid)
    assert (four.verdict, heur.verdict) == ("partly", "not")
    assert four.evidence.startswith("2 of 4 pairs (setting, λ); -1.0 to +1.0 points. ")
    assert heur.evidence == "0 of 4 pairs (setting, λ); -6.0 to -4.0 points. In the paper's own table 35 of 36."


def test_a_run_that_diverged_is_worse_than_any_other():
    grid = {"mnist-mlr": {"pfedme": np.array([np.nan]), "cgpfl-4": np.array([90.0]), "cgpfl-heur": np.array([np.nan])}}
    four, heur = _verdicts_2(grid)
    assert (four.verdict, heur.verdict) == ("reproduced", "not")
    beaten, all_ = verdicts_1(95.0, 96.0, np.nan)
    assert (beaten.verdict, all_.verdict) == ("reproduced", "reproduced")


def test_table_2_can_be_drawn_without_local_training(tmp_path, monkeypatch):
    settings = tiny("mnist-mlr")
    (setting,) = settings.values()
    known = {family_cell(setting, label, p).name: runs(90.0, 91.0) for label in FAMILY for p in setting.lambdas}
    lines = []
    monkeypatch.setattr(tables, "legend_below", lambda picture, ax: lines.append(ax.get_legend_handles_labels()[1]))
    TABLE2.make(plan(tmp_path, known, settings))
    known[table_1_cell(setting, "local").name] = runs(98.0, 98.0)
    TABLE2.make(plan(tmp_path, known, settings))
    family = ["pFedMe (PM)", "CGPFL (K=2)", "CGPFL (K=4)", "CGPFL-Heur"]
    assert lines == [family, [*family, "Local"]]
