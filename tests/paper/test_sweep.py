"""Both rates that the paper leaves open, as a grid."""

import csv

import pytest
from choices import given, tried

from cgpfl.paper.settings import FULL
from cgpfl.paper.sweep import SWEEP
from cgpfl.paper.tuning import GRID
from handmade import plan, tiny

pytestmark = pytest.mark.usefixtures("by_hand")
SMALL = {"context_rates": (0.06, 1.0), "etas": (0.005, 0.1)}


def test_the_grid_is_every_settings_and_every_methods_of_the_family(tmp_path):
    assert SWEEP.tunes(plan(tmp_path, {}, FULL)) == [(s, label) for s in FULL.values() for label in GRID]


def test_the_grid_as_tables(tmp_path):
    settings = tiny(**SMALL)
    known = given(settings, GRID)
    known |= tried(settings["fmnist-mlr"], "cgpfl-heur", [80.0, 81.0, float("nan"), 85.0], test=77.0)
    where = plan(tmp_path, known, settings, quick=True)
    assert SWEEP.needs(where) == []  # the runs that choose rates are enough
    made = SWEEP.make(where)
    assert len(made.tables) == 2 * 3
    heur = made.tables[-1]
    assert heur.title == f"FMNIST-MLR, CGPFL-Heur: validation / test accuracy (%); published {95.18}"
    assert heur.columns == ["2β/N", "η = 0.005", "η = 0.1"]
    assert heur.rows == [["0.06", "80.0 / 77.0", "81.0 / 77.0"], ["1", "diverged", "85.0 / 77.0"]]
    assert heur.strong == [[1, 2]]  # what Table 1 takes
    with (tmp_path / "sweep" / "sweep.csv").open(newline="", encoding="utf-8") as file:
        facts = list(csv.DictReader(file))
    assert len(facts) == 2 * 3 * 4
    assert facts[-1] == {
        **{"setting": "FMNIST-MLR", "method": "cgpfl-heur", "context_rate": "1.0"},
        **{"personal_rate": "0.1", "seed": "100", "rounds": "4", "validation_%": "85.0", "accuracy_%": "77.0"},
    }
    assert len(made.text) == 1


def test_a_grid_after_fewer_rounds_says_so(tmp_path):
    settings = tiny("cifar10-cnn", rounds=6, tune_rounds=2, **SMALL)
    made = SWEEP.make(plan(tmp_path, given(settings, GRID), settings))
    assert [t.title for t in made.tables] == [
        f"CIFAR10-CNN, {name}: validation / test accuracy (%), after 2 of 6 rounds; published {number}"
        for name, number in (("pFedMe (PM)", "68.88"), ("CGPFL (K=4)", "72.78"), ("CGPFL-Heur", "74.75"))
    ]
