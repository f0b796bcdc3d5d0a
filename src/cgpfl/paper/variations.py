"""What else the paper does not state, varied around the first reading: start of θ, batch size, split and pixels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cgpfl.files import save_csv
from cgpfl.hyperparameters import replace
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import NAMES
from cgpfl.paper.plan import Part, Plan, percent, with_spread
from cgpfl.paper.published import table_1
from cgpfl.paper.section import Section
from cgpfl.paper.settings import Setting, competitors, family
from cgpfl.paper.tuning import GRID
from cgpfl.tables import Table

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
class Varied:
    """What is varied in a setting beside the rates."""

    batch: bool = False
    splits: tuple[str, ...] = ("random classes",)
    pixels: tuple[int, int] = (-1, 1)
    """Another range of pixels than the tables'."""


VARIED = {
    "mnist-mlr": Varied(batch=True, splits=tuple(OTHERS)),
    "fmnist-mlr": Varied(batch=True, splits=tuple(OTHERS)),
    "mnist-dnn": Varied(),
    "fmnist-dnn": Varied(),
}
"""Of the CNN, whose runs take longest, only the rates are varied."""


def _variants(plan: Plan, setting: Setting) -> Iterator[tuple[str, Setting, dict[str, Any]]]:
    """Name, setting, and what differs from the setting of the first reading."""
    varied = VARIED[setting.name]
    yield "θ restarts from ω", setting, {"warm_start": False}
    if plan.quick:
        return
    if varied.batch:
        yield f"batch {BATCH}", setting, {"batch_size": BATCH}
    for name in varied.splits:
        data = dataclasses.replace(setting.data, **OTHERS[name])
        yield name, dataclasses.replace(setting, name=f"{setting.name}-{name.partition(' ')[0]}", data=data), {}
    black, white = varied.pixels
    pixels = dataclasses.replace(setting, name=f"{setting.name}-pixels", pixels=varied.pixels)
    yield f"pixels in [{black}, {white}]", pixels, {}


def _varied(plan: Plan) -> list[Setting]:
    """The settings in which more than the rates is varied."""
    return [s for s in plan.settings.values() if s.name in VARIED]


def _cell(plan: Plan, label: str, setting: Setting, change: dict[str, Any]) -> Cell:
    """A method in a variant; its name tells the changes (a variant of the data has its own).

    Evaluated in the last round alone; a cell of its own, whatever is evaluated elsewhere.
    """
    seeds, setting = tuple(plan.seeds[:1]), dataclasses.replace(setting, evaluations=1)
    if label in BESIDE:
        return Cell(setting, f"varied-{label}", competitors(setting)[label], seeds)
    words = {"batch_size": "batch-{}", "warm_start": "restart"}
    name = "-".join(["varied", label, *(words[key].format(value) for key, value in change.items())])
    return Cell(setting, name, replace(family(setting)[label], change), seeds)


def _labels(of: Setting, setting: Setting) -> tuple[str, ...]:
    return GRID if setting.name == of.name else (*GRID, *BESIDE)


def _needs(plan: Plan) -> list[Cell]:
    return [
        _cell(plan, label, setting, change)
        for of in _varied(plan)
        for _, setting, change in _variants(plan, of)
        for label in _labels(of, setting)
    ]


def _table(plan: Plan, of: Setting) -> tuple[Table, list[dict[str, Any]]]:
    """The variations of a setting."""
    columns, facts = (*GRID, *BESIDE), []
    rows = [["published", *(f"{table_1(of.name, label):.2f}" if label != "local" else "–" for label in columns)]]
    for name, setting, change in _variants(plan, of):
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
                "accuracy_%": round(means[label], 3),
            }
            for label, cell in cells.items()
        ]
    title = f"{of.title}: test accuracy (%), varied around the first reading, seed {plan.seeds[0]}"
    return Table(title, ["variant", *(NAMES[c] for c in columns)], rows), facts


def _make(plan: Plan) -> Section:
    made = [_table(plan, s) for s in _varied(plan)]
    save_csv(plan.out / "variations" / "variations.csv", [row for _, facts in made for row in facts])
    text = (
        "Around the first reading: start of θ, batch size (else 20), which classes a client holds and how unequal "
        "clients are, range of pixels."
    )
    return Section("variations", "What else it leaves open", [text], [t for t, _ in made])


VARIATIONS = Part("variations", "start of θ, batch size, split rule and pixels, varied", _needs, _make, over=_varied)
