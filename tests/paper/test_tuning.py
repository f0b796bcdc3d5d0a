"""How the rates that the paper does not state are chosen: what is tried, and which of it is taken."""

import dataclasses
import itertools
import re

import jax
import numpy as np
import pytest
from choices import best_at, tried

from cgpfl.algorithms import get_method
from cgpfl.hyperparameters import normalised
from cgpfl.paper import tuning
from cgpfl.paper.cells import Cells, federation
from cgpfl.paper.plan import Plan
from cgpfl.paper.settings import FULL, PROX, first_rates, settings
from cgpfl.paper.tuning import (
    GRID,
    base,
    best_of,
    choice,
    grid,
    held_out,
    spaced,
    tuned,
    tuned_labels,
    tuned_rates,
    tuning_cell,
    tuning_cells,
    validated,
    words,
)
from handmade import plan, runs, tiny

NAN = float("nan")
ALL = [(s, label) for quick in (False, True) for s in settings(quick).values() for label in tuned_labels(s)]


# What is tried


def test_every_method_has_equally_many_settings():
    for setting, label in ALL:
        values = grid(setting, label)
        assert len(values) == setting.budget
        assert len({tuple(v.items()) for v in values}) == setting.budget  # all different
    assert [s.budget for s in FULL.values()] == [20, 20, 20, 20, 20]
    assert {s.budget for s in settings(quick=True).values()} == {4}


@pytest.mark.parametrize(
    ("name", "contexts", "etas"),
    [
        ("mnist-mlr", (0.06, 0.1, 0.3, 0.6, 1.0), (0.005, 0.02, 0.05, 0.1)),
        ("fmnist-dnn", (0.06, 0.1, 0.3, 0.6, 1.0), (0.005, 0.02, 0.05, 0.1)),
        ("cifar10-cnn", (0.1, 0.3, 0.36, 0.6, 1.0), (0.01, 0.03, 0.06, 0.1)),
    ],
)
def test_the_family_has_a_grid_of_both_rates(name, contexts, etas):
    for label, rate in (("pfedme", "global_rate"), ("cgpfl-4", "context_rate"), ("cgpfl-heur", "context_rate")):
        values = [(v[rate], v["personal_rate"]) for v in grid(FULL[name], label)]
        assert values == list(itertools.product(contexts, etas))
        assert first_rates(FULL[name]) in [(pytest.approx(a), b) for a, b in values]  # the first reading is one of them
        assert (1.0, 0.1) in values


def test_a_quick_run_tries_the_first_reading_and_the_other_corner():
    small = settings(quick=True)["mnist-mlr"]
    assert [tuple(v.values()) for v in grid(small, "cgpfl-4")] == [(0.06, 0.005), (0.06, 0.1), (1.0, 0.005), (1.0, 0.1)]


def test_methods_with_one_rate_are_tried_over_its_range():
    for label in ("local", "fedavg", "ifca", "apfl"):
        rates = [v["rate"] for v in grid(FULL["mnist-mlr"], label)]
        assert (rates[0], rates[-1]) == (0.002, 0.5)
        np.testing.assert_allclose(np.diff(np.log(rates)), np.log(250) / 19, atol=0.01)
    assert spaced(0.01, 1.0, 3) == [0.01, 0.1, 1.0]


def test_competitors_with_two_rates():
    ditto = grid(FULL["mnist-mlr"], "ditto")
    assert {v["personal_rate"] for v in ditto} == {0.005, 0.02, 0.05, 0.1}
    assert len({v["rate"] for v in ditto}) == 5
    meta = grid(FULL["cifar10-cnn"], "per-fedavg")
    assert (len({v["rate"] for v in meta}), len({v["adapt_rate"] for v in meta})) == (5, 4)
    for setting in FULL.values():
        for v in grid(setting, "l2sgd"):
            assert v["rate"] * PROX / v["coin"] <= 0.5  # else it overshoots


def test_every_setting_that_is_tried_may_be_run_and_one_program_serves_all():
    for setting, label in ALL:
        cells = tuning_cells(setting, label)
        assert len({jax.tree.structure(c.method) for c in cells}) == 1
        for cell in cells:
            normalised(cell.method)
            clients, rounds = cell.setting.data.clients, cell.setting.rounds
            if hasattr(cell.method, "check"):
                cell.method.check(clients, float(clients * rounds), rounds)
            if "prox" in dir(cell.method) and label != tuning.OURS:
                assert cell.method.prox == PROX


def test_rates_are_chosen_on_a_seed_of_its_own_with_samples_held_out():
    cells = [c for s in FULL.values() for label in tuned_labels(s) for c in tuning_cells(s, label)]
    assert len({c.name for c in cells}) == len(cells) == 5 * 20 * len(tuned_labels(FULL["mnist-mlr"]))
    assert {c.seeds for c in cells} == {(100,)}
    assert all(re.fullmatch(r"[a-z0-9./-]+", c.name) for c in cells)
    for name, setting in FULL.items():
        held = held_out(setting)
        assert held.data.validation == pytest.approx(0.2 * 0.75)  # a fifth of what is trained on
        assert held.eval_every == held.rounds == (100 if name == "cifar10-cnn" else 200)
        assert dataclasses.replace(held.data, validation=0.0) == setting.data


def test_our_own_method_is_tried_as_often_where_it_exists(monkeypatch):
    assert tuned_labels(FULL["mnist-mlr"])[-1] == "cgpfl-auto"
    values = grid(FULL["mnist-mlr"], "cgpfl-auto")
    assert [list(v) for v in values] == [["rate", "personal_rate"]] * 20
    assert base(FULL["mnist-mlr"], "cgpfl-auto") == get_method("cgpfl-auto")  # else at its defaults
    assert "cgpfl-auto" not in tuned_labels(tiny()["mnist-mlr"])  # four rounds are over before its warm-up
    monkeypatch.setattr(tuning, "METHODS", {})  # not without it alone: what is put back comes last, for other tests
    assert "cgpfl-auto" not in tuned_labels(FULL["mnist-mlr"])


# What is taken


@pytest.mark.parametrize(
    ("validation", "place"),
    [
        ([90.0, 95.0, 93.0], 1),
        ([90.0, 95.0, 95.0], 1),  # the first of equals
        ([NAN, 50.0, NAN], 1),  # what diverged is out
        ([NAN, 0.0], 1),
        ([NAN, NAN], 0),
    ],
)
def test_the_best_validation_accuracy_is_taken(validation, place):
    assert best_of(validation) == place


def two_by_two(**change):
    return tiny("mnist-mlr", context_rates=(0.06, 1.0), etas=(0.005, 0.1), **change)["mnist-mlr"]


def test_a_choice_has_everything_that_was_tried(tmp_path, by_hand):
    setting = two_by_two()
    where = plan(tmp_path, tried(setting, "cgpfl-4", [80.0, NAN, 91.0, 90.0]), {"mnist-mlr": setting})
    found = choice(where, setting, "cgpfl-4")
    assert found.best == 2
    assert found.taken.values == {"context_rate": 1.0, "personal_rate": 0.005}
    assert (found.taken.validation, found.taken.test) == (91.0, 70.0)
    np.testing.assert_equal([t.validation for t in found.tried], [80.0, NAN, 91.0, 90.0])
    np.testing.assert_equal([t.test for t in found.tried], [70.0, NAN, 70.0, 70.0])


def test_methods_get_the_rates_chosen_for_them(tmp_path, by_hand):
    setting = two_by_two()
    places = {"pfedme": 1, "cgpfl-4": 2, "cgpfl-heur": 3}
    known = {k: v for label, place in places.items() for k, v in tried(setting, label, best_at(4, place)).items()}
    known |= tried(setting, "ditto", best_at(4, 1))
    where = plan(tmp_path, known, {"mnist-mlr": setting})
    pfedme = tuned(where, setting, "pfedme")
    assert (pfedme.global_rate, pfedme.personal_rate, pfedme.prox) == (0.06, 0.1, 12.0)
    four = tuned(where, setting, "cgpfl-4", 17.0)
    assert (four.context_rate, four.personal_rate, four.prox, four.contexts) == (1.0, 0.005, 17.0, 4)
    two = tuned(where, setting, "cgpfl-2")  # has no choice of its own
    assert (two.context_rate, two.personal_rate, two.contexts) == (1.0, 0.005, 2)
    heur, warm = (tuned(where, setting, label) for label in ("cgpfl-heur", "cgpfl-heur-warm"))
    assert (heur.context_rate, heur.personal_rate, heur.contexts, heur.warmup) == (1.0, 0.1, "auto", 0)
    assert dataclasses.replace(warm, warmup=0) == heur
    assert base(FULL["mnist-mlr"], "cgpfl-heur-warm").warmup == 5
    ditto = tuned(where, setting, "ditto")
    assert (ditto.rate, ditto.personal_rate, ditto.prox) == (0.005, 0.1, 12.0)
    assert tuned_rates(where, setting, "pfedme") == (0.06, 0.1)
    assert tuned_rates(where, setting, "cgpfl-heur") == (1.0, 0.1)


def test_words():
    assert words({"context_rate": 1.0, "personal_rate": 0.1}) == "2β/N 1, η 0.1"
    assert words({"rate": 0.0126}) == "lr 0.0126"
    assert words({"rate": 0.03 * 0.6, "coin": 0.4}) == "step 0.03, p 0.4"


def test_validation_accuracy_is_that_of_the_samples_held_out(tmp_path, sets):
    """Two tries of local training: the choice's numbers are those of the run, on samples that are neither's."""
    setting = tiny("mnist-mlr", context_rates=(0.06,), etas=(0.005, 0.1))["mnist-mlr"]
    cells = Cells(tmp_path, [0])
    where = Plan(tmp_path, True, {"mnist-mlr": setting}, cells)
    cells.finish(tuning_cells(setting, "local"))
    cell = tuning_cell(setting, "local", {"rate": 0.5})
    data = federation(cell.setting, 100)
    own = cells.get(cell)
    assert own.seeds == [100]
    assert own.records[0].rounds == [4]  # the last round alone
    right = own.records[0].values["validation_correct"]
    assert right.shape == (1, 8)
    assert (right <= data.validation.counts).all()
    found = choice(where, setting, "local")
    assert found.tried[1].validation == pytest.approx(100 * right.sum() / data.validation.counts.sum())
    assert found.tried[1].test == pytest.approx(100 * own.accuracy()[0])
    assert found.best == 1
    held, kept = data.validation.counts, data.train.counts
    np.testing.assert_allclose(held / (held + kept), 0.2, atol=0.01)
    assert np.isnan(validated(runs(50.0, diverged=[0]), cell.setting))


def test_the_grid_is_of_the_family_alone():
    assert GRID == ("pfedme", "cgpfl-4", "cgpfl-heur")
