"""Table 1 from runs whose accuracy is given: both readings, what was chosen, what is said of the claims."""

import csv

import numpy as np
import pytest
from choices import best_at, given, tried

from cgpfl.paper.plan import NotRunError, percent, with_spread
from cgpfl.paper.readings import FIRST, TUNED, table_1_cell
from cgpfl.paper.section import grade as grade_of
from cgpfl.paper.settings import FULL
from cgpfl.paper.table1 import ROWS, TABLE1, rows, verdicts
from handmade import lost, plan, runs, tiny

pytestmark = pytest.mark.usefixtures("by_hand")
SMALL = {"context_rates": (0.06, 1.0), "etas": (0.005, 0.1)}


def rows_of(file):
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def made(tmp_path, tuned, first=None, settings=None, known=None, **more):
    """Table 1 where a method has the accuracies ``tuned[label]`` and ``first[label]``, the same in each setting."""
    settings = tiny(**SMALL) if settings is None else settings
    known = given(settings) | (known or {})
    where = plan(tmp_path, known, settings, **more)
    for setting in settings.values():
        for reading, accuracy in ((TUNED, tuned), (FIRST, first or {})):
            for label in rows(setting, reading):
                own = accuracy.get(label, (50.0, 52.0))
                cell = table_1_cell(where, setting, label, reading)
                known[cell.name] = runs(*own) if isinstance(own, tuple) else own
    assert {c.name for c in TABLE1.needs(where)} <= set(known)
    return TABLE1.make(where), rows_of(tmp_path / "table1" / "table1.csv")


@pytest.mark.pictures
def test_both_readings_stand_beside_the_published_number(tmp_path):
    tuned = {
        "local": (90.0, 94.0),
        "cgpfl-4": (95.0, 95.5),
        "cgpfl-heur": (97.0, 96.0),
        "cgpfl-heur-warm": (96.0, 96.2),
    }
    section, facts = made(tmp_path, tuned, first={"local": (89.0, 89.0), "cgpfl-heur": (95.0, 96.0)})
    table = section.tables[0]
    assert table.columns == [
        "method",
        *("MNIST-MLR, first", "tuned", "paper"),
        *("FMNIST-MLR, first", "tuned", "paper"),
    ]
    assert [row[0] for row in table.rows] == [
        *("Local", "FedAvg", "IFCA (K=4)", "L2SGD", "APFL", "pFedMe (PM)", "Per-FedAvg (HF)", "Ditto"),
        *("CGPFL (K=4)", "CGPFL-Heur", "CGPFL-Heur, warm-up 5 (ours)"),
    ]
    assert table.rows[0] == ["Local", *("89.0 ± 0.0", "92.0 ± 2.8", "–") * 2]
    assert table.rows[1] == ["FedAvg", *("51.0 ± 1.4", "51.0 ± 1.4", "88.63"), *("51.0 ± 1.4", "51.0 ± 1.4", "82.44")]
    both = ("95.5 ± 0.7", "96.5 ± 0.7")
    assert table.rows[9] == ["CGPFL-Heur", *both, "97.41", *both, "95.18"]
    assert table.rows[10][1:4] == ["–", "96.1 ± 0.1", "–"]  # ours, and never as first read
    assert table.strong == [[9, 2], [9, 5]]  # the best of the tuned
    assert len(facts) == 2 * (10 + 11)
    heur = {f["reading"]: f for f in facts if f["setting"] == "FMNIST-MLR" and f["method"] == "cgpfl-heur"}
    assert (heur["first"]["accuracy_%"], heur["tuned"]["accuracy_%"]) == ("95.5", "96.5")
    assert (heur["first"]["difference"], heur["tuned"]["difference"]) == ("0.32", "1.32")
    assert heur["tuned"]["each_seed_%"] == "97.00 96.00"
    assert heur["tuned"]["diverged"] == "0"
    local = next(f for f in facts if f["method"] == "local")
    assert local["published"] == local["difference"] == ""
    files = {"table1.csv", "tuning.csv", "table1.png", "table1.svg", "table1.pdf"}
    assert {p.name for p in (tmp_path / "table1").iterdir()} == files


def test_heur_beside_its_published_number_and_beside_local_training(tmp_path):
    section, _ = made(tmp_path, {"local": (96.0, 96.0), "cgpfl-heur": (97.0, 97.0)})
    assert section.tables[1].columns == ["setting", "minus published", "minus local, tuned"]
    assert section.tables[1].rows == [["MNIST-MLR", "-0.41", "+1.00"], ["FMNIST-MLR", "+1.82", "+1.00"]]


def test_the_choice_is_told_with_everything_that_was_tried(tmp_path):
    settings = tiny("mnist-mlr", **SMALL)
    setting = settings["mnist-mlr"]
    known = tried(setting, "cgpfl-heur", best_at(4, 3)) | tried(setting, "pfedme", [80.0, float("nan"), 80.0, 70.0])
    section, _ = made(tmp_path, {}, settings=settings, known=known)
    chosen = {row[0]: row[1] for row in section.tables[2].rows}
    assert chosen["CGPFL-Heur"] == "2β/N 1, η 0.1 (95.0)"
    assert chosen["pFedMe (PM)"] == "2β/N 0.06, η 0.005 (80.0)"  # the first of equals
    assert chosen["Local"] == "lr 0.002 (90.0)"
    facts = rows_of(tmp_path / "table1" / "tuning.csv")
    methods = [f["method"] for f in facts]
    assert {methods.count(m) for m in methods} == {4}  # equally many of each
    assert set(methods) == set(ROWS)
    pfedme = [f for f in facts if f["method"] == "pfedme"]
    assert [(f["validation_%"], f["chosen"]) for f in pfedme] == [
        ("80.0", "1"),
        ("nan", "0"),
        ("80.0", "0"),
        ("70.0", "0"),
    ]
    assert [(f["global_rate"], f["personal_rate"]) for f in pfedme[:2]] == [("0.06", "0.005"), ("0.06", "0.1")]
    assert sum(int(f["chosen"]) for f in facts) == len(ROWS)


def test_our_own_method_has_a_row_where_it_has_time(tmp_path):
    """Its warm-up takes ten rounds: here in one setting of two."""
    settings = tiny("mnist-mlr", **SMALL) | tiny("fmnist-mlr", rounds=30, **SMALL)
    section, facts = made(tmp_path, {"cgpfl-auto": (99.0, 99.0)}, settings=settings)
    row = section.tables[0].rows[-1]
    assert row == ["CGPFL-auto (ours)", *"–––", "–", "99.0 ± 0.0", "–"]
    assert [f["setting"] for f in facts if f["method"] == "cgpfl-auto"] == ["FMNIST-MLR"]
    assert section.tables[2].rows[-1][:2] == ["CGPFL-auto (ours)", "–"]


def test_the_mean_over_clients_and_the_worst_of_them_are_in_the_csv(tmp_path):
    """Half right of 100 samples and all of 300: 87.5 % of all, 75 % of a client, 50 % of the worst."""
    rates = {"prox": 12.0, "rate": 0.1, "personal_rate": 0.05}
    uneven = runs((0.0,), correct=np.array([[50.0, 300.0]]), settings=rates)
    _, facts = made(tmp_path, {"ditto": uneven}, seeds=1)
    row = next(f for f in facts if f["method"] == "ditto" and f["reading"] == "tuned")
    assert (row["accuracy_%"], row["mean_%"], row["worst_tenth_%"]) == ("87.5", "75.0", "50.0")
    assert (row["lambda"], row["rate"], row["personal_rate"], row["context_rate"]) == ("12.0", "0.1", "0.05", "")
    assert row["std"] == "0.0"


def test_a_diverged_run_is_said_with_its_cause_and_never_bold(tmp_path):
    half = runs(99.0, 99.0, diverged=[1])
    section, facts = made(tmp_path, {"ifca": half, "cgpfl-4": lost(), "local": (60.0, 60.0)})
    table = section.tables[0]
    assert (table.rows[2][2], table.rows[8][2]) == ("diverged 1/2", "diverged")
    assert table.strong == [[0, 2], [0, 5]]
    assert "MNIST-MLR, IFCA (K=4), tuned: diverged (seed 1 in round 3); likely cause: " in table.note
    assert (
        "MNIST-MLR, CGPFL (K=4), tuned: diverged (seed 0 in round 3, seed 1 in round 3); likely cause: " in table.note
    )
    ifca = next(f for f in facts if f["method"] == "ifca" and f["reading"] == "tuned")
    assert (ifca["accuracy_%"], ifca["each_seed_%"], ifca["diverged"]) == ("nan", "99.00 nan", "1")
    assert ifca["mean_%"] == "99.0"
    assert section.verdicts[0].verdict == "reproduced"  # 51 % is better than nothing


def test_where_everything_diverged_nothing_is_bold(tmp_path):
    everybody = [*ROWS, "cgpfl-heur-warm"]
    section, _ = made(tmp_path, dict.fromkeys(everybody, lost()))
    assert section.tables[0].strong == []
    assert section.tables[1].rows[0] == ["MNIST-MLR", "diverged", "diverged"]


def test_one_seed_has_no_spread(tmp_path):
    one = dict.fromkeys([*ROWS, "cgpfl-heur-warm"], (50.0,))
    section, facts = made(tmp_path, one, first=one, seeds=1)
    assert section.tables[0].rows[1][1] == "50.0"
    assert {f["std"] for f in facts} == {"0.0"}
    assert (with_spread(95.24, 0.35, 3), with_spread(95.24, 0.35, 1)) == ("95.2 ± 0.3", "95.2")
    assert with_spread(float("nan"), 0.0, 1) == "diverged"
    assert percent(runs(90.0, 92.0, 94.0)) == pytest.approx((92.0, 2.0))


def test_what_is_said_of_how_rates_were_chosen(tmp_path):
    settings = tiny("cifar10-cnn", rounds=300, tune_rounds=100, lambdas=(), ks=(), **SMALL)
    first = dict.fromkeys(ROWS, (50.0,))
    section, _ = made(tmp_path, {}, first=first, settings=settings)
    text = " ".join(section.text)
    assert "equally many settings (CIFAR10-CNN 4)" in text
    assert "CIFAR10-CNN after 100 of its 300 rounds" in text
    assert "and our own method" in text
    assert "Fewer seeds: CIFAR10-CNN, first: 1." in section.tables[0].note


def test_a_quick_run_has_no_verdicts(tmp_path):
    section, _ = made(tmp_path, {}, quick=True)
    assert section.verdicts == []


@pytest.mark.parametrize(
    ("holds", "grade"),
    [([True], "reproduced"), ([True, False], "partly"), ([True, False, False], "partly"), ([False], "not")],
)
def test_grades(holds, grade):
    assert grade_of(np.array(holds)) == grade


# Of an unfinished reproduction


def test_what_was_not_run_is_a_dash_and_is_named(tmp_path):
    """As of a reproduction whose second setting has CGPFL-Heur alone, and lacks the choice of a method."""
    settings = tiny(**SMALL)
    where = plan(tmp_path, given(settings), settings)
    one, other = settings.values()
    for setting, labels in ((one, rows(one, TUNED)), (other, ("cgpfl-heur",))):
        for reading in (FIRST, TUNED):
            for label in labels:
                where.cells.cells[table_1_cell(where, setting, label, reading).name] = runs(96.0, 97.0)
    for name in tried(other, "ditto"):
        del where.cells.cells[name]
    section = TABLE1.make(where)
    table, gaps, chosen = section.tables
    assert table.rows[0] == ["Local", "96.5 ± 0.7", "96.5 ± 0.7", "–", "–", "–", "–"]
    assert table.rows[9] == ["CGPFL-Heur", *("96.5 ± 0.7", "96.5 ± 0.7", "97.41", "96.5 ± 0.7", "96.5 ± 0.7", "95.18")]
    assert table.strong == [[0, 2]]  # nothing is best of one
    others = "Local, FedAvg, IFCA (K=4), L2SGD, APFL, pFedMe (PM), Per-FedAvg (HF), Ditto, CGPFL (K=4)"
    assert f"Not run: FMNIST-MLR, first: {others}." in table.note
    assert f"Not run: FMNIST-MLR, tuned: {others}, CGPFL-Heur, warm-up 5 (ours)." in table.note
    assert "MNIST-MLR, first" not in table.note.replace("FMNIST-MLR, first", "")
    assert gaps.rows == [["MNIST-MLR", "-0.91", "+0.00"], ["FMNIST-MLR", "+1.32", "–"]]
    assert [row[2] for row in chosen.rows if row[0] == "Ditto"] == ["–"]
    assert len(rows_of(tmp_path / "table1" / "table1.csv")) == 10 + 11 + 2
    heur, all_, published, local = section.verdicts
    assert all(v.evidence.endswith(" Not run: FMNIST-MLR.") for v in (heur, all_, local))
    assert published.evidence.startswith("ours minus published: -0.91, +1.32 points (MNIST-MLR, FMNIST-MLR)")
    assert "Not run" not in published.evidence


def test_nothing_at_all_is_no_table(tmp_path):
    settings = tiny(**SMALL)
    with pytest.raises(NotRunError, match="none of its runs is finished"):
        TABLE1.make(plan(tmp_path, given(settings), settings))
    assert not (tmp_path / "table1").exists()


# What is said of the claims


def means(four, heur, rival, local=0.0):
    """Mean accuracy of every row in two settings; each argument one value or one a setting."""
    found = np.zeros((len(ROWS), 2))
    found[:] = np.broadcast_to(rival, 2)
    for label, value in (("local", local), ("cgpfl-4", four), ("cgpfl-heur", heur)):
        found[ROWS.index(label)] = value
    return found


def judged(*tuned, first=None, missing=(), spread=(0.0, 0.0), **more):
    """``missing``: (reading, method, setting) that were not run."""
    settings = [FULL["mnist-mlr"], FULL["fmnist-mlr"]]  # published: 97.41 and 95.18
    there = {reading: np.ones((len(ROWS), 2), bool) for reading in (FIRST, TUNED)}
    for reading, label, place in missing:
        there[reading][ROWS.index(label), place] = False
    first = means(94.0, 95.0, 90.0, 96.0) if first is None else first
    return verdicts(settings, {TUNED: means(*tuned, **more), FIRST: first}, there, np.array(spread))


def test_reproduced():
    heur, all_, published, local = judged(95.0, [97.0, 97.5], 90.0, local=[96.0, 96.5])
    assert [v.verdict for v in (heur, all_, published, local)] == ["reproduced"] * 4
    assert heur.evidence == "in 2 of 2 settings; by +2.0, +2.5 points; as first read by +1.0, +1.0."
    assert all_.evidence == (
        "28 of 28 comparisons won, as first read 28 of 28 (in the paper's own table 69 of 70). Local training, which "
        "the paper does not show, is better than both on: none."
    )
    assert published.evidence == (
        "ours minus published: -0.41, +2.32 points (MNIST-MLR, FMNIST-MLR); as first read -2.4, -0.2."
    )
    assert local.evidence == (
        "both tuned with the same budget: +1.00 ± 0.00, +1.00 ± 0.00 points (MNIST-MLR, FMNIST-MLR); as first read "
        "-1.0, -1.0."
    )


def test_partly():
    heur, all_, published, local = judged(95.0, [96.0, 94.9], [90.0, 94.95], local=[99.0, 94.7])
    assert [v.verdict for v in (heur, all_, published, local)] == ["partly"] * 4
    assert all_.evidence.startswith(
        "21 of 28 comparisons won, as first read 28 of 28 (in the paper's own table 69 of 70). CGPFL-Heur loses to "
        "FedAvg on FMNIST-MLR; "
    )
    assert "CGPFL (K=4) loses" not in all_.evidence
    assert all_.evidence.endswith("is better than both on: MNIST-MLR.")


def test_not():
    heur, all_, published, local = judged(80.0, 79.0, 90.0, local=85.0)
    assert [v.verdict for v in (heur, all_, published, local)] == ["not"] * 4
    assert all_.evidence.startswith("0 of 28 comparisons won, ")
    assert "CGPFL (K=4) loses to FedAvg on MNIST-MLR, FMNIST-MLR; " in all_.evidence
    assert all_.evidence.endswith("is better than both on: MNIST-MLR, FMNIST-MLR.")


def test_the_tuned_reading_decides():
    good, bad = (95.0, 98.0, 90.0), means(80.0, 79.0, 90.0, 99.0)
    assert [v.verdict for v in judged(*good, first=bad)] == ["reproduced"] * 4
    assert [v.verdict for v in judged(80.0, 79.0, 90.0, 99.0, first=means(*good))] == ["not"] * 4


@pytest.mark.parametrize(("below", "verdict"), [(0.5, "reproduced"), (0.51, "partly")])
def test_half_a_point_under_the_published_number_is_close(below, verdict):
    published = judged(80.0, [97.41 - below + 1e-9, 95.18], 90.0)[2]
    assert published.verdict == verdict


def test_a_run_that_diverged_is_worse_than_any_other():
    beaten, all_, _, local = judged(95.0, 98.0, np.nan, local=np.nan)
    assert (beaten.verdict, all_.verdict, local.verdict) == ("reproduced",) * 3
    heur = judged(95.0, [98.0, np.nan], 90.0, local=50.0)
    assert [v.verdict for v in heur] == ["partly"] * 4


def test_a_claim_is_about_the_settings_that_have_what_it_compares():
    missing = [(TUNED, "local", 1), (TUNED, "ditto", 0), (FIRST, "cgpfl-4", 1)]
    heur, all_, published, local = judged(95.0, [97.0, 97.5], 90.0, local=[96.0, 99.0], missing=missing[:1])
    assert [v.verdict for v in (heur, all_, published, local)] == ["reproduced"] * 4
    assert "14 of 14 comparisons won, as first read 14 of 14 " in all_.evidence
    assert local.evidence == (
        "both tuned with the same budget: +1.00 ± 0.00 points (MNIST-MLR); as first read -1.0. Not run: FMNIST-MLR."
    )
    claims = judged(95.0, 97.0, 90.0, missing=missing)
    assert len(claims) == 3  # no setting has everybody
    assert claims[0].evidence == "in 2 of 2 settings; by +2.0, +2.0 points; as first read by +1.0, –."


def test_ahead_of_local_training_is_beyond_the_spread_over_seeds(tmp_path):
    local = judged(95.0, 97.0, 90.0, local=96.9, spread=(0.05, 0.2))[-1]
    assert local.verdict == "partly"
    assert "+0.10 ± 0.05, +0.10 ± 0.20 points" in local.evidence
    section, _ = made(tmp_path, {"local": (96.0, 94.0), "cgpfl-heur": (97.0, 97.0)})  # ahead by 1 and 3
    assert "+2.00 ± 1.41, +2.00 ± 1.41 points" in section.verdicts[-1].evidence
