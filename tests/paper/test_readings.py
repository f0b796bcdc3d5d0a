"""Both readings of the rates: which seeds, which rates, and cells of their own."""

import dataclasses
import re

import jax
import pytest
from choices import best_at, given, tried

from cgpfl.paper import PARTS
from cgpfl.paper.plan import of_seeds, shown
from cgpfl.paper.readings import FIRST, READINGS, TUNED, family_cell, k_cell, swept_seeds, table_1_cell
from cgpfl.paper.settings import FULL, at_k, family
from cgpfl.paper.table1 import ROWS
from handmade import lost, plan, runs

MNIST, CIFAR = FULL["mnist-mlr"], FULL["cifar10-cnn"]


@pytest.fixture(scope="module")
def known():
    """CGPFL-Heur's best is 2β/N = 1, η = 0.1, everybody else's the first that is tried."""
    found = given(FULL)
    for setting in FULL.values():
        found |= tried(setting, "cgpfl-heur", best_at(setting.budget, setting.budget - 1))
    return found


@pytest.fixture
def full(tmp_path, by_hand, known):
    """All settings, five seeds."""
    return plan(tmp_path, known, FULL, seeds=5)


def test_the_first_reading_is_the_one_without_a_choice(full):
    assert table_1_cell(full, MNIST, "cgpfl-heur", FIRST).method == family(MNIST)["cgpfl-heur"]
    assert family_cell(full, MNIST, "pfedme", 15.0, FIRST).method == family(MNIST, 15.0)["pfedme"]
    assert k_cell(full, MNIST, 7, FIRST).method == at_k(MNIST, 7)


def test_every_k_has_the_rates_chosen_for_heur(full):
    for k in (1, 4, 20):
        method = k_cell(full, MNIST, k).method
        assert (method.context_rate, method.personal_rate, method.k) == (1.0, 0.1, k)
    assert table_1_cell(full, MNIST, "cgpfl-4").method.context_rate == 0.06  # its own


def test_lambda_is_the_only_thing_that_changes_over_table_2(full):
    """In the first reading 2β/N = λ·lr goes with it."""
    low, high = (family_cell(full, MNIST, "cgpfl-heur", prox).method for prox in (11.0, 19.0))
    assert dataclasses.replace(low, prox=19.0) == high
    assert [family_cell(full, MNIST, "cgpfl-4", p, FIRST).method.context_rate for p in (11.0, 19.0)] == [
        pytest.approx(0.055),
        pytest.approx(0.095),
    ]


def test_seeds(full):
    assert table_1_cell(full, MNIST, "local").seeds == table_1_cell(full, CIFAR, "local").seeds == (0, 1, 2, 3, 4)
    assert table_1_cell(full, MNIST, "local", FIRST).seeds == (0, 1, 2, 3, 4)
    assert table_1_cell(full, CIFAR, "local", FIRST).seeds == (0,)
    assert (swept_seeds(full), swept_seeds(full, FIRST)) == ((0, 1, 2), (0,))
    assert family_cell(full, MNIST, "cgpfl-4", 11.0).seeds == k_cell(full, MNIST, 2).seeds == (0, 1, 2)
    assert family_cell(full, MNIST, "cgpfl-4", 11.0, FIRST).seeds == k_cell(full, MNIST, 2, FIRST).seeds == (0,)


def test_lambda_12_is_table_1s_row(full):
    for reading in READINGS:
        for label in ("pfedme", "cgpfl-4", "cgpfl-heur"):
            assert family_cell(full, MNIST, label, 12.0, reading) == table_1_cell(full, MNIST, label, reading)


def test_each_cell_has_its_own_file(full):
    cells = {}
    for part in PARTS.values():
        for cell in part.needs(full):
            assert cells.setdefault(cell.name, cell) == cell
    assert all(re.fullmatch(r"[a-z0-9./-]+", name) for name in cells)
    table = {f"{s}/{r}-{label}" for s in FULL for r in READINGS for label in ROWS}
    assert table <= set(cells)
    assert {f"{s}/tuned-cgpfl-heur-warm" for s in FULL} <= set(cells)


def test_both_readings_of_a_method_are_one_program(full):
    for label in (*ROWS, "cgpfl-2"):
        shapes = {
            jax.tree.structure(family_cell(full, MNIST, label, p, r).method)
            for r in READINGS
            for p in ((11.0, 12.0) if label in family(MNIST) else (12.0,))
        }
        assert len(shapes) == 1
    assert len({jax.tree.structure(k_cell(full, MNIST, 3, r).method) for r in (FIRST, TUNED)}) == 1


def test_some_of_the_seeds():
    five = dataclasses.replace(runs(90.0, 91.0, 92.0, diverged=[2]), answers=[5, 6, 7])
    two = of_seeds(five, (0, 2))
    assert two.seeds == [0, 2]
    assert two.answers == [5, 7]
    assert two.accuracy()[0] == 0.9
    assert two.diverged == [None, 3]
    assert of_seeds(five, range(9)).seeds == [0, 1, 2]


def test_how_a_cell_is_shown():
    assert shown(runs(90.0, 92.0)) == "91.0 ± 1.4"
    assert shown(runs(90.0)) == "90.0"
    assert shown(runs(90.0, 92.0, 93.0, diverged=[1])) == "diverged 1/3"
    assert shown(lost()) == "diverged"
