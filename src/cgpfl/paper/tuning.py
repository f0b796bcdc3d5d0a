"""The rates that the paper does not state, chosen for every method from equally many settings.

Each setting of a method is one run on a seed that no table uses, with samples held out for validation. The one with the
best validation accuracy in the last round is taken; one that diverges is out. The runs of the paper's own family are at
the same time the sweep over 2β/N and η.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cgpfl.algorithms import METHODS, get_method
from cgpfl.experiment.table import Runs
from cgpfl.hyperparameters import replace
from cgpfl.paper.cells import Cell, federation
from cgpfl.paper.plan import Plan
from cgpfl.paper.settings import PROX, Rates, Setting, competitors, family, l2sgd_coin

SEED = 100
"""Of the runs that choose; the tables' are others."""
HELD_OUT = 0.2
"""Share of a client's training samples held out for validation."""
RATES = (0.002, 0.5)
"""Where a method with a single rate is looked for, evenly on a logarithmic scale."""
GRID = ("pfedme", "cgpfl-4", "cgpfl-heur")
"""The methods of the grid 2β/N × η."""
OURS = "cgpfl-auto"
"""A method of this project, shown beside the paper's where it exists."""
SAME_AS = {"cgpfl-2": "cgpfl-4", "cgpfl-heur-warm": "cgpfl-heur"}
"""Rows without a choice of their own, and whose they have."""
COINS = (0.0, 0.1, 0.3, 0.6)
"""L2SGD's p, from the smallest that αλ/(np) ≤ 1/2 allows at a local step (0) to always (1)."""
SYMBOLS = {
    "context_rate": "2β/N",
    "global_rate": "2β/N",
    "personal_rate": "η",
    "adapt_rate": "α",
    "rate": "lr",
    "coin": "p",
}


def tuned_labels(setting: Setting) -> tuple[str, ...]:
    """The methods whose rates are chosen; ours, too, where it exists and its warm-up leaves rounds for contexts."""
    others = ("local", "fedavg", "ifca", "l2sgd", "apfl", "pfedme", "per-fedavg", "ditto", "cgpfl-4", "cgpfl-heur")
    there = OURS in METHODS and getattr(METHODS[OURS], "warmup", 0) < min(setting.rounds, held_out(setting).rounds)
    return (*others, *((OURS,) if there else ()))


def base(setting: Setting, label: str, prox: float = PROX) -> Any:
    """A method as first read; our own at its defaults."""
    return get_method(OURS, {}) if label == OURS else _read(setting, label, prox)


@lru_cache(maxsize=1024)
def _read(setting: Setting, label: str, prox: float) -> Any:
    """A method of the paper as first read: asked for by each of its cells, of which there are hundreds."""
    own = family(setting, prox)
    if label == "cgpfl-heur-warm":
        warmup = min(5, setting.rounds // 2)  # 5, but of the few rounds of a quick run
        return replace(own["cgpfl-heur"], {"warmup": warmup})
    return own[label] if label in own else competitors(setting)[label]


def spaced(low: float, high: float, n: int) -> list[float]:
    """``n`` values from ``low`` to ``high``, evenly on a logarithmic scale."""
    return [float(f"{math.exp(v):.3g}") for v in np.linspace(math.log(low), math.log(high), n)]


def grid(setting: Setting, label: str) -> list[dict[str, float]]:
    """The settings of a method that are tried: ``setting.budget`` of them."""
    outer, etas = setting.context_rates, setting.etas
    rates = spaced(0.005, RATES[1], len(outer))
    if label in GRID:
        name = "global_rate" if label == "pfedme" else "context_rate"
        return [{name: rate, "personal_rate": eta} for rate in outer for eta in etas]
    if label in ("ditto", OURS):
        return [{"rate": rate, "personal_rate": eta} for rate in rates for eta in etas]
    if label == "per-fedavg":
        return [{"rate": rate, "adapt_rate": a} for rate in rates for a in spaced(0.01, 0.3, len(etas))]
    if label == "l2sgd":
        found = []
        for step in spaced(0.005, 0.1, len(outer)):
            least = l2sgd_coin(step)
            coins = [round(least + share * (1 - least), 4) for share in COINS[: len(etas)]]
            found += [{"rate": step * (1 - coin), "coin": coin} for coin in coins]
        return found
    return [{"rate": rate} for rate in spaced(*RATES, setting.budget)]


def held_out(setting: Setting) -> Setting:
    """The setting in which rates are chosen: with validation samples, evaluated in its last round alone."""
    data = dataclasses.replace(setting.data, validation=round(HELD_OUT * (1 - setting.data.test), 6))
    rounds = setting.tune_rounds or setting.rounds
    return dataclasses.replace(setting, name=f"{setting.name}-tuning", data=data, rounds=rounds, evaluations=1)


def tuning_cell(setting: Setting, label: str, values: dict[str, float]) -> Cell:
    """One of the settings of a method that are tried."""
    named = [f"{key.replace('_', '-')}-{value:.4g}" for key, value in values.items()]
    method = replace(base(setting, label), values)
    return Cell(held_out(setting), "-".join([label, *named]), method, (SEED,))


def tuning_cells(setting: Setting, label: str) -> list[Cell]:
    """All of them."""
    return [tuning_cell(setting, label, values) for values in grid(setting, label)]


class Tried(NamedTuple):
    """A setting of a method, and what it came to on seed 100."""

    values: dict[str, float]
    validation: float
    """Accuracy, in percent, of the validation samples in the last round; NaN if it diverged."""
    test: float


class Choice(NamedTuple):
    """What was tried of a method, and which of it was taken."""

    tried: list[Tried]
    best: int

    @property
    def taken(self) -> Tried:
        return self.tried[self.best]


def best_of(validation: Sequence[float]) -> int:
    """The place of the best validation accuracy, the first of equals; NaN is worse than anything."""
    return int(np.argmax(np.where(np.isnan(validation), -1.0, validation)))


def validated(runs: Runs, setting: Setting) -> float:
    """Validation accuracy in percent in the last round of a tuning cell's one run; NaN if it diverged."""
    if runs.diverged[0] is not None:
        return float("nan")
    held = federation(setting, SEED).validation
    assert held is not None
    return float(100 * runs.records[0].values["validation_correct"][-1].sum() / held.counts.sum())


def choice(plan: Plan, setting: Setting, label: str) -> Choice:
    """The rates of a method, from its finished tuning cells."""
    tried = []
    for values in grid(setting, label):
        cell = tuning_cell(setting, label, values)
        runs = plan.runs(cell)
        tried.append(Tried(values, validated(runs, cell.setting), 100 * float(runs.accuracy()[0])))
    return Choice(tried, best_of([t.validation for t in tried]))


def tuned(plan: Plan, setting: Setting, label: str, prox: float = PROX) -> Any:
    """A method with the rates that were chosen for it at λ = 12."""
    values = choice(plan, setting, SAME_AS.get(label, label)).taken.values
    return replace(base(setting, label, prox), values)


def tuned_rates(plan: Plan, setting: Setting, label: str) -> Rates:
    """2β/N and η that were chosen for one of the paper's family."""
    values = choice(plan, setting, label).taken.values
    return Rates(values.get("context_rate", values.get("global_rate", float("nan"))), values["personal_rate"])


def words(values: dict[str, float]) -> str:
    """A setting as text: 2β/N 1, η 0.1."""
    if "coin" in values:  # what a reader can compare is the local step
        return f"step {values['rate'] / (1 - values['coin']):.3g}, p {values['coin']:.3g}"
    return ", ".join(f"{SYMBOLS[name]} {value:g}" for name, value in values.items())
