"""μ by agreement of seeds: worked out on costs that are given."""

import csv

import numpy as np
import pytest
from choices import given

from cgpfl.paper.plan import NotRunError
from cgpfl.paper.readings import table_1_cell
from cgpfl.paper.weight import HEUR, MU, MULTIPLES, SEEDS, _first_round, agreed, cell, curves
from handmade import plan, runs, tiny

pytestmark = pytest.mark.usefixtures("by_hand")
SMALL = {"context_rates": (0.06, 1.0), "etas": (0.005, 0.1)}
COMPLEXITY = np.array([1.0, 2.0, 4.0])


def first_rounds(setting, where, *costs):
    """The first round of the validation seeds with these costs of K = 1, 2, 3, the last for all that are left."""
    every = [*costs, *[costs[-1]] * (len(SEEDS) - len(costs))]
    found = runs(*[50.0] * len(SEEDS))
    for made, cost in zip(found.records, every, strict=True):
        made.values |= {"complexity": COMPLEXITY[None], "cost": np.array(cost)[None]}
    return {_first_round(where, setting).name: found}


def test_the_smallest_multiple_at_which_all_seeds_agree():
    assert agreed(np.array([[1, 2, 3], [2, 2, 3]])) == 1
    assert agreed(np.array([[1, 2], [2, 3]])) is None


def test_what_the_first_round_asks_for_is_the_error_at_each_multiple(tmp_path):
    settings = tiny("mnist-mlr", **SMALL)
    known = given(settings, ("local", HEUR))
    where = plan(tmp_path, known, settings)
    known |= first_rounds(settings["mnist-mlr"], where, [0.5, 0.25, 0.125])
    usual, ks = curves(where, settings["mnist-mlr"])
    assert usual == 0.5
    # e = complexity + multiple/0.5 · cost: at 2 it is 3, 3, 4.5; at 8 it is 9, 6, 6; at 16 17, 10, 8.
    assert ks.tolist() == [[1, 2, 2, 3, 3, 3]] * len(SEEDS)
    assert MULTIPLES[:3] == (2, 4, 8)


def test_heur_runs_with_the_weight_that_was_found(tmp_path):
    settings = tiny("mnist-mlr", **SMALL)
    (setting,) = settings.values()
    known = given(settings, ("local", HEUR))
    where = plan(tmp_path, known, settings)
    # One seed whose second context gains less: it asks for one context until 4 (5, 5.6), the others for two.
    known |= first_rounds(setting, where, [0.5, 0.45, 0.44], [0.5, 0.2, 0.19])
    _, ks = curves(where, setting)
    assert [set(ks[:, i]) for i in range(5)] == [{1, 2}, {1, 2}, {1, 2}, {2}, {2}]
    found = cell(where, setting)
    assert found.method.mu == pytest.approx(16 / 0.5)
    assert found.method.contexts == "auto"
    assert found.seeds == (0, 1)
    known[table_1_cell(where, setting, "local").name] = runs(90.0, 90.0)
    known[table_1_cell(where, setting, HEUR).name] = runs(96.0, 96.0)
    assert {c.name for c in MU.needs(where)} <= set(known)
    known[found.name] = runs(96.0, 98.0, k=[2], settings={"mu": 32.0})
    section = MU.make(where)
    asked, came = section.tables
    assert asked.rows == [["MNIST-MLR", "1–2", "1–2", "1–2", "2", "2", "2"]]
    assert came.rows == [["MNIST-MLR", "16", "2", "97.0 ± 1.4", "96.0 ± 0.0", "97.41", "90.0 ± 0.0"]]
    (verdict,) = section.verdicts
    assert (verdict.verdict, verdict.evidence) == ("reproduced", "ours minus published: MNIST-MLR -0.41")
    with (tmp_path / "mu" / "mu.csv").open(newline="", encoding="utf-8") as file:
        (fact,) = csv.DictReader(file)
    assert (fact["mu"], fact["difference"], fact["each_seed_%"]) == ("32.0", "-0.41", "96.00 98.00")


def test_where_no_weight_is_agreed_on_the_usual_one_stays(tmp_path):
    settings = tiny("mnist-mlr", **SMALL)
    (setting,) = settings.values()
    known = given(settings, ("local", HEUR))
    where = plan(tmp_path, known, settings)
    known |= first_rounds(setting, where, [0.5, 0.5, 0.5], [0.5, 0.0, 0.0])
    assert cell(where, setting) is None
    known[table_1_cell(where, setting, "local").name] = runs(90.0, 90.0)
    known[table_1_cell(where, setting, HEUR).name] = runs(96.0, 96.0, k=[3])
    section = MU.make(where)
    assert section.tables[1].rows == [
        ["MNIST-MLR", "4, as in Table 1", "3", "96.0 ± 0.0", "96.0 ± 0.0", "97.41", "90.0 ± 0.0"]
    ]
    assert section.verdicts[0].verdict == "not"  # 1.41 under it


def test_what_was_not_run_is_not_made_up(tmp_path):
    settings = tiny("mnist-mlr", **SMALL)
    (setting,) = settings.values()
    known = given(settings, ("local", HEUR))
    where = plan(tmp_path, known, settings)
    known |= first_rounds(setting, where, [0.5, 0.2, 0.19])
    as_is = type(where)(where.out, where.quick, where.settings, where.cells, as_is=True)
    with pytest.raises(NotRunError, match="mu-cgpfl-heur"):
        MU.prepare(as_is)
