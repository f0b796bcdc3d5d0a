"""What the paper does not state, varied: 2β/N with η, then start of θ, batch size, split and pixels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgpfl.hyper import replace
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import NAMES
from cgpfl.paper.plan import Part, Plan, percent, with_spread
from cgpfl.paper.published import table_1
from cgpfl.paper.section import Section, Table, save_csv
from cgpfl.paper.settings import Setting, competitors, family
from cgpfl.paper.tuning import GRID, SEED, choice, held_out

BESIDE = ("local", "fedavg")
"""Beside the others on every split; they have no η and no warm start."""
BATCH = 100
OTHERS: dict[str, dict[str, Any]] = {
    "random classes": {"split": "random"},
    "block classes, σ = 0.4": {"split": "block", "spread": 0.4},  # with 0.6 somebody is always out of [400, 5000]
    "equal sizes": {"spread": 0.0},
}
"""Other splits."""


@dataclass(frozen=True)
class Sweep:
    """What is varied in a setting beside the rates."""

    batch: bool = False
    splits: tuple[str, ...] = ("random classes",)
    pixels: tuple[int, int] = (-1, 1)
    """Another range of pixels than the tables'."""


SWEEPS = {
    "mnist-mlr": Sweep(batch=True, splits=tuple(OTHERS)),
    "fmnist-mlr": Sweep(batch=True, splits=tuple(OTHERS)),
    "mnist-dnn": Sweep(),
    "fmnist-dnn": Sweep(),
}
"""Of the CNN, whose runs take longest, only the rates are varied."""


def _variants(setting: Setting) -> Iterator[tuple[str, Setting, dict[str, Any]]]:
    """Name, setting, and what differs from the setting of the first reading."""
    sweep = SWEEPS[setting.name]
    yield "θ restarts from ω", setting, {"warm_start": False}
    if sweep.batch:
        yield f"batch {BATCH}", setting, {"batch_size": BATCH}
    for name in sweep.splits:
        data = dataclasses.replace(setting.data, **OTHERS[name])
        yield name, dataclasses.replace(setting, name=f"{setting.name}-{name.partition(' ')[0]}", data=data), {}
    black, white = sweep.pixels
    pixels = dataclasses.replace(setting, name=f"{setting.name}-pixels", pixels=sweep.pixels)
    yield f"pixels in [{black}, {white}]", pixels, {}


def _varied(plan: Plan) -> list[Setting]:
    """The settings in which more than the rates is varied."""
    return [s for s in plan.settings.values() if s.name in SWEEPS and not plan.quick]


def _last_alone(setting: Setting) -> Setting:
    """Evaluated in the last round alone; a cell of its own, whatever is evaluated elsewhere."""
    return dataclasses.replace(setting, evaluations=1)


def _cell(plan: Plan, label: str, setting: Setting, change: dict[str, Any]) -> Cell:
    """A method in a variant; its name tells the changes (a variant of the data has its own)."""
    seeds, setting = tuple(plan.seeds[:1]), _last_alone(setting)
    if label in BESIDE:
        return Cell(setting, f"sweep-{label}", competitors(setting)[label], seeds)
    words = {"batch_size": "batch-{}", "warm_start": "restart"}
    name = "-".join(["sweep", label, *(words[key].format(value) for key, value in change.items())])
    return Cell(setting, name, replace(family(setting)[label], change), seeds)


def _labels(of: Setting, setting: Setting) -> tuple[str, ...]:
    return GRID if setting.name == of.name else (*GRID, *BESIDE)


def _tunes(plan: Plan) -> list[tuple[Setting, str]]:
    return [(s, label) for s in plan.settings.values() for label in GRID]


def _needs(plan: Plan) -> list[Cell]:
    return [
        _cell(plan, label, setting, change)
        for of in _varied(plan)
        for _, setting, change in _variants(of)
        for label in _labels(of, setting)
    ]


def _grid(plan: Plan, setting: Setting, label: str) -> tuple[Table, list[dict[str, Any]]]:
    """A method's accuracy over 2β/N (rows) and η (columns)."""
    found = choice(plan, setting, label)
    width = len(setting.etas)
    text = ["diverged" if np.isnan(t.validation) else f"{t.validation:.1f} / {t.test:.1f}" for t in found.tried]
    rows = [[f"{rate:g}", *text[i * width : (i + 1) * width]] for i, rate in enumerate(setting.context_rates)]
    facts = [
        {
            "setting": setting.title,
            "variant": "2β/N, η",
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


def _others(plan: Plan, of: Setting) -> tuple[Table, list[dict[str, Any]]]:
    """The other variations of a setting."""
    columns, facts = (*GRID, *BESIDE), []
    rows = [["published", *(f"{table_1(of.name, label):.2f}" if label != "local" else "–" for label in columns)]]
    for name, setting, change in _variants(of):
        cells = {label: _cell(plan, label, setting, change) for label in _labels(of, setting)}
        means = {label: percent(plan.runs(cell))[0] for label, cell in cells.items()}
        rows.append([name, *(with_spread(means[c], 0.0, 1) if c in means else "" for c in columns)])
        facts += [
            {
                "setting": of.title,
                "variant": name,
                "method": label,
                "context_rate": getattr(cell.method, "context_rate", getattr(cell.method, "global_rate", "")),
                "personal_rate": getattr(cell.method, "personal_rate", ""),
                "seed": plan.seeds[0],
                "rounds": setting.rounds,
                "validation_%": "",
                "accuracy_%": round(means[label], 3),
            }
            for label, cell in cells.items()
        ]
    title = f"{of.title}: test accuracy (%), varied around the first reading, seed {plan.seeds[0]}"
    return Table(title, ["variant", *(NAMES[c] for c in columns)], rows), facts


def _make(plan: Plan) -> Section:
    grids = [_grid(plan, s, label) for s in plan.settings.values() for label in GRID]
    made = [*grids, *(_others(plan, s) for s in _varied(plan))]
    save_csv(plan.out / "sweep" / "sweep.csv", [row for _, facts in made for row in facts])
    text = [
        "The paper states neither 2β/N, the rate of the clients' copies of context models, nor η, that of the inner "
        f"steps. Here is every method of its family over both, λ = 12, one run each, on seed {SEED}, with samples held "
        "out for validation; in bold what Table 1 takes. 2β/N = λ·lr and η = lr are the first reading.",
        "The other variations are around the first reading: start of θ, batch size (else 20), which classes a client "
        "holds and how unequal clients are, range of pixels.",
    ]
    return Section("sweep", "What the paper leaves open, swept", text[: 1 if plan.quick else 2], [t for t, _ in made])


SWEEP = Part("sweep", "2β/N with η, start of θ, batch size, split rule and pixels, varied", _needs, _make, _tunes)
