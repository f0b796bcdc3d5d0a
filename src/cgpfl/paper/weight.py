"""μ, which the paper calls appropriate: the smallest at which validation seeds agree about K.

e(K) weighs how much data a model has against how near it is to its members by μ. The tables' rule is 4/cost(1). Here μ
is looked for without any accuracy, in the first round on seeds that no table uses, with samples held out: for each
multiple of 1/cost(1) the K that e(K) asks for. CGPFL-Heur with that μ then runs on Table 1's seeds, at the rates that
were chosen for it there.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cgpfl.files import save_csv
from cgpfl.hyperparameters import replace
from cgpfl.paper.cells import Cell
from cgpfl.paper.plan import Part, Plan, percent, shown
from cgpfl.paper.published import table_1
from cgpfl.paper.readings import TUNED, table_1_cell, table_seeds
from cgpfl.paper.section import Section, Verdict, grade
from cgpfl.paper.settings import Setting
from cgpfl.paper.table1 import CLOSE, facts_of
from cgpfl.paper.tuning import SEED, held_out, tuned
from cgpfl.tables import Table

HEUR = "cgpfl-heur"
MULTIPLES = (2, 4, 8, 16, 32, 64)
"""Of 1/cost(1): values of μ that are tried."""
SEEDS = tuple(range(SEED, SEED + 6))
"""Of the first rounds by which μ is chosen."""


def _settings(plan: Plan) -> list[Setting]:
    return list(plan.settings.values())


def _first_round(plan: Plan, setting: Setting) -> Cell:
    """CGPFL-Heur's first round on the validation seeds: cost(K) and the first term do not depend on μ."""
    one = dataclasses.replace(held_out(setting), rounds=1)
    return Cell(one, f"first-round-{HEUR}", tuned(plan, setting, HEUR), SEEDS)


def curves(plan: Plan, setting: Setting) -> tuple[float, np.ndarray]:
    """The mean of cost(1) over seeds, and K̂ at each of the multiples of its inverse: ``[seeds, multiples]``."""
    found = [r.values for r in plan.runs(_first_round(plan, setting)).records]
    complexity, cost = (np.stack([v[name][-1] for v in found]) for name in ("complexity", "cost"))
    usual = float(cost[:, 0].mean())
    errors = complexity[:, None] + np.array(MULTIPLES)[:, None] / usual * cost[:, None]
    return usual, errors.argmin(axis=2) + 1


def agreed(ks: np.ndarray) -> int | None:
    """The place of the first multiple at which all seeds have one K, ``ks [seeds, multiples]``; None: there is none."""
    same = (ks == ks[0]).all(axis=0)
    return int(same.argmax()) if same.any() else None


def cell(plan: Plan, setting: Setting) -> Cell | None:
    """CGPFL-Heur on Table 1's seeds with the μ that was found."""
    usual, ks = curves(plan, setting)
    place = agreed(ks)
    if place is None:
        return None
    mu = float(f"{MULTIPLES[place] / usual:.3g}")
    return Cell(
        setting, f"mu-{HEUR}", replace(tuned(plan, setting, HEUR), {"mu": mu}), table_seeds(plan, setting, TUNED)
    )


def _needs(plan: Plan) -> list[Cell]:
    beside = [table_1_cell(plan, s, label) for s in _settings(plan) for label in ("local", HEUR)]
    return [*(_first_round(plan, s) for s in _settings(plan)), *beside]


def _prepare(plan: Plan) -> list[Cell | None]:
    """The runs at the chosen μ, which is known only after the first rounds."""
    cells = [cell(plan, s) for s in _settings(plan)]
    missing = [c for c in cells if c is not None and not plan.cells.has(c)]
    if missing:
        plan.begin(missing[0].name)
        plan.cells.finish(missing)
    return cells


def _tunes(plan: Plan) -> list[tuple[Setting, str]]:
    return [(s, label) for s in _settings(plan) for label in ("local", HEUR)]


def _make(plan: Plan) -> Section:
    asked, came, facts, gaps = [], [], [], []
    for setting, cell in zip(_settings(plan), _prepare(plan), strict=True):
        _, ks = curves(plan, setting)
        place = agreed(ks)
        asked.append([setting.title, *(_span(ks[:, i]) for i in range(len(MULTIPLES)))])
        published = table_1(setting.name, HEUR)
        assert published is not None
        usual = plan.runs(table_1_cell(plan, setting, HEUR))
        runs = usual if cell is None else plan.runs(cell)
        gaps.append(percent(runs)[0] - published)
        local = plan.runs(table_1_cell(plan, setting, "local"))
        named = "4, as in Table 1" if cell is None or place is None else f"{MULTIPLES[place]}"
        last = [int(r.values["k"][-1]) for r in runs.records if r.rounds]
        came.append(
            [setting.title, named, _span(np.array(last)), shown(runs), shown(usual), f"{published:.2f}", shown(local)]
        )
        facts.append({"mu": runs.settings.get("mu", ""), **facts_of(setting, HEUR, TUNED, runs, published)})
    save_csv(plan.out / "mu" / "mu.csv", facts)
    text = (
        "The paper's μ is “appropriate”; Table 1 has 4/cost(1). Here it is the smallest of six multiples of 1/cost(1) "
        f"at which e(K) asks for the same K on each of the seeds {SEEDS[0]} to {SEEDS[-1]}, in the first round, "
        "without the samples held out; no table uses these seeds, and no accuracy is looked at. Rates are those that "
        "Table 1 has."
    )
    tables = [
        Table(
            f"K̂ in the first round over μ·cost(1), seeds {SEEDS[0]} to {SEEDS[-1]}",
            ["setting", *map(str, MULTIPLES)],
            asked,
        ),
        Table(
            "CGPFL-Heur with the μ found: test accuracy (%)",
            ["setting", "μ·cost(1)", "K̂", "CGPFL-Heur", "with 4/cost(1)", "paper", "local, tuned"],
            came,
        ),
    ]
    verdict = Verdict(
        "With a μ at which seeds agree about K, CGPFL-Heur has its published accuracy, or is less than "
        f"{CLOSE:g} points under it.",
        grade(gap >= -CLOSE for gap in gaps),
        "ours minus published: " + ", ".join(f"{s.title} {g:+.2f}" for s, g in zip(_settings(plan), gaps, strict=True)),
    )
    return Section("mu", "The weight of e(K)", [text], tables, [], [] if plan.quick else [verdict])


def _span(ks: np.ndarray) -> str:
    """Numbers of contexts as text: 10, or 7–10."""
    if not ks.size:
        return "–"
    low, high = ks.min(), ks.max()
    return f"{low}" if low == high else f"{low}–{high}"


MU = Part("mu", "CGPFL-Heur with a μ at which seeds agree about K", _needs, _make, _tunes, _prepare, over=_settings)
