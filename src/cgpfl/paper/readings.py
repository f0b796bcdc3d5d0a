"""The cells of the tables and of the figures over K, in both readings of what the paper does not state.

first       2β/N = λ·lr and η = lr, every other method at lr: what this reproduction assumed at first
tuned       the rates chosen for each method on validation samples (:mod:`cgpfl.paper.tuning`)
"""

from __future__ import annotations

from cgpfl.paper.cells import Cell
from cgpfl.paper.plan import Plan
from cgpfl.paper.settings import PROX, Setting, at_k
from cgpfl.paper.tuning import base, tuned, tuned_rates

FIRST, TUNED = "first", "tuned"
READINGS = (FIRST, TUNED)
SWEPT = {FIRST: 1, TUNED: 3}
"""How many of the plan's seeds Table 2 and the figures over K take."""
K_RATES = "cgpfl-heur"
"""Whose rates the sweep over K has: one pair for every K, so that K alone differs, and Heur's star is among equals."""


def table_seeds(plan: Plan, setting: Setting, reading: str) -> tuple[int, ...]:
    """Seeds of Table 1."""
    return tuple(plan.seeds[: setting.first_seeds if reading == FIRST else setting.seeds])


def swept_seeds(plan: Plan, reading: str = TUNED) -> tuple[int, ...]:
    """Seeds of Table 2 and of the figures over K."""
    return tuple(plan.seeds[: SWEPT[reading]])


def table_1_cell(plan: Plan, setting: Setting, label: str, reading: str = TUNED) -> Cell:
    """A row of Table 1 in one setting."""
    method = base(setting, label) if reading == FIRST else tuned(plan, setting, label)
    return Cell(setting, f"{reading}-{label}", method, table_seeds(plan, setting, reading))


def family_cell(plan: Plan, setting: Setting, label: str, prox: float, reading: str = TUNED) -> Cell:
    """A method of the paper's own family at one λ; at Table 1's it is its row, which may have more seeds."""
    if prox == PROX and label != "cgpfl-2":
        return table_1_cell(plan, setting, label, reading)
    method = base(setting, label, prox) if reading == FIRST else tuned(plan, setting, label, prox)
    return Cell(setting, f"{reading}-{label}-lambda-{prox:g}", method, swept_seeds(plan, reading))


def k_cell(plan: Plan, setting: Setting, k: int, reading: str = TUNED) -> Cell:
    """CGPFL with K contexts, as a point of the sweep over K."""
    rates = None if reading == FIRST else tuned_rates(plan, setting, K_RATES)
    return Cell(setting, f"{reading}-cgpfl-k-{k}", at_k(setting, k, rates), swept_seeds(plan, reading))
