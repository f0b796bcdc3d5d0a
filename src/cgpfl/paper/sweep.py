"""What the paper does not state: 2β/N with η, over a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.files import save_csv
from cgpfl.paper.draw import NAMES
from cgpfl.paper.plan import Part, Plan
from cgpfl.paper.published import table_1
from cgpfl.paper.section import Section
from cgpfl.paper.settings import Setting
from cgpfl.paper.tuning import GRID, SEED, choice, held_out
from cgpfl.tables import Table


def _settings(plan: Plan) -> list[Setting]:
    return list(plan.settings.values())


def _tunes(plan: Plan) -> list[tuple[Setting, str]]:
    return [(s, label) for s in _settings(plan) for label in GRID]


def _grid(plan: Plan, setting: Setting, label: str) -> tuple[Table, list[dict[str, Any]]]:
    """A method's accuracy over 2β/N (rows) and η (columns)."""
    found = choice(plan, setting, label)
    width = len(setting.etas)
    text = ["diverged" if np.isnan(t.validation) else f"{t.validation:.1f} / {t.test:.1f}" for t in found.tried]
    rows = [[f"{rate:g}", *text[i * width : (i + 1) * width]] for i, rate in enumerate(setting.context_rates)]
    facts = [
        {
            "setting": setting.title,
            "method": label,
            "context_rate": setting.context_rates[i // width],
            "personal_rate": setting.etas[i % width],
            "seed": SEED,
            "rounds": held_out(setting).rounds,
            "validation_%": round(t.validation, 3),
            "accuracy_%": round(t.test, 3),
        }
        for i, t in enumerate(found.tried)
    ]
    published = table_1(setting.name, label)
    late = f", after {held_out(setting).rounds} of {setting.rounds} rounds" if setting.tune_rounds else ""
    title = f"{setting.title}, {NAMES[label]}: validation / test accuracy (%){late}; published {published:.2f}"
    strong = [[found.best // width, 1 + found.best % width]]
    return Table(title, ["2β/N", *(f"η = {eta:g}" for eta in setting.etas)], rows, strong=strong), facts


def _make(plan: Plan) -> Section:
    made = [_grid(plan, s, label) for s, label in _tunes(plan)]
    save_csv(plan.out / "sweep" / "sweep.csv", [row for _, facts in made for row in facts])
    text = (
        "The paper states neither 2β/N, the rate of the clients' copies of context models, nor η, that of the inner "
        f"steps. Here is every method of its family over both, λ = 12, one run each, on seed {SEED}, with samples held "
        "out for validation; in bold what Table 1 takes. 2β/N = λ·lr and η = lr are the first reading. 2β/N cannot be "
        "larger than 1: there a client's copy of its context's model is its own model."
    )
    return Section("sweep", "What the paper leaves open: 2β/N and η", [text], [t for t, _ in made])


SWEEP = Part("sweep", "2β/N with η, over a grid", lambda plan: [], _make, _tunes, over=_settings)
