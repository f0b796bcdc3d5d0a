"""What the paper does not state, varied around the tables' setting: η, batch size, start of θ, split, pixels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cgpfl.hyper import replace
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import NAMES
from cgpfl.paper.plan import Part, Plan, percent, with_spread
from cgpfl.paper.published import table_1
from cgpfl.paper.section import Section, Table, save_csv
from cgpfl.paper.settings import Setting, competitors, family

BESIDE = ("local", "fedavg")
"""Beside the others on every split; they have no η and no warm start."""
BATCHES = (5, 100)
OTHERS: dict[str, dict[str, Any]] = {
    "random classes": {"split": "random"},
    "block classes, σ = 0.4": {"split": "block", "spread": 0.4},  # with 0.6 somebody is always out of [400, 5000]
    "equal sizes": {"spread": 0.0},
}
"""Other splits."""


@dataclass(frozen=True)
class Sweep:
    """What is varied in a setting, for which methods."""

    etas: tuple[float, ...] = (0.005, 0.02, 0.05, 0.1)
    pixels: tuple[int, int] = (-1, 1)
    """Another range of pixels than the tables'."""
    methods: tuple[str, ...] = ("pfedme", "cgpfl-4", "cgpfl-heur")
    seeds: int | None = None
    """How many of the plan's seeds; None: all."""
    short: bool = True
    """Without batch sizes, and with random classes as the only other split."""


SWEEPS = {
    "mnist-mlr": Sweep(short=False),
    "fmnist-mlr": Sweep(short=False),
    "mnist-dnn": Sweep(seeds=1),
    "fmnist-dnn": Sweep(seeds=1),
    "cifar10-cnn": Sweep(etas=(0.01, 0.03, 0.1), pixels=(-2, 2), methods=("pfedme", "cgpfl-4"), seeds=1),
}
QUICK = ("mnist-mlr",)


def _variants(setting: Setting, quick: bool) -> Iterator[tuple[str, Setting, dict[str, Any]]]:
    """Name, setting, and what differs from the setting of the tables."""
    sweep = SWEEPS[setting.name]
    for eta in sweep.etas[1::2] if quick else sweep.etas:
        yield f"η = {eta:g}", setting, {"personal_rate": eta}
    if quick:
        return
    for eta in sweep.etas:
        yield f"η = {eta:g}, θ restarts from ω", setting, {"personal_rate": eta, "warm_start": False}
    for batch in () if sweep.short else BATCHES:
        yield f"batch {batch}", setting, {"batch_size": batch}
    for name, other in list(OTHERS.items())[: 1 if sweep.short else None]:
        data = dataclasses.replace(setting.data, **other)
        yield name, dataclasses.replace(setting, name=f"{setting.name}-{name.partition(' ')[0]}", data=data), {}
    pixels = dataclasses.replace(setting, name=f"{setting.name}-pixels", pixels=sweep.pixels)
    for eta in sweep.etas:
        black, white = sweep.pixels
        yield f"pixels in [{black}, {white}], η = {eta:g}", pixels, {"personal_rate": eta}


def _settings(plan: Plan) -> list[Setting]:
    names = QUICK if plan.quick else SWEEPS
    return [s for s in plan.settings.values() if s.name in names]


def _cell(of: Setting, label: str, setting: Setting, change: dict[str, Any]) -> Cell:
    """A method in a variant of the setting ``of``; its name tells the changes (a variant of the data has its own)."""
    seeds = SWEEPS[of.name].seeds
    if label in BESIDE:
        return Cell(setting, f"sweep-{label}", competitors(setting)[label], seeds)
    words = {"personal_rate": "eta-{:g}", "batch_size": "batch-{}", "warm_start": "restart"}
    name = "-".join(["sweep", label, *(words[key].format(value) for key, value in change.items())])
    return Cell(setting, name, replace(family(setting)[label], change), seeds)


def _labels(of: Setting, setting: Setting) -> tuple[str, ...]:
    methods = SWEEPS[of.name].methods
    return methods if setting.name == of.name else (*methods, *BESIDE)


def _needs(plan: Plan) -> list[Cell]:
    return [
        _cell(of, label, setting, change)
        for of in _settings(plan)
        for _, setting, change in _variants(of, plan.quick)
        for label in _labels(of, setting)
    ]


def _make(plan: Plan) -> Section:
    tables, facts = [], []
    for of in _settings(plan):
        columns = (*SWEEPS[of.name].methods, *BESIDE)
        seeds = len(plan.seeds[: SWEEPS[of.name].seeds])
        rows = [["published", *(f"{table_1(of.name, label):.2f}" if label != "local" else "–" for label in columns)]]
        for name, setting, change in _variants(of, plan.quick):
            cells = {label: plan.runs(_cell(of, label, setting, change)) for label in _labels(of, setting)}
            rows.append([name, *(with_spread(*percent(cells[c]), seeds) if c in cells else "" for c in columns)])
            facts += [
                {
                    "setting": of.title,
                    "variant": name,
                    "method": label,
                    "accuracy_%": round(percent(runs)[0], 3),
                    "std": round(percent(runs)[1], 3) if seeds > 1 else "",
                }
                for label, runs in cells.items()
            ]
        title = f"{of.title}: test accuracy (%), varied around the tables' setting, "
        title += f"{seeds} seeds" if seeds > 1 else "1 seed"
        tables.append(Table(title, ["variant", *(NAMES[c] for c in columns)], rows))
    save_csv(plan.out / "sweep" / "sweep.csv", facts)
    remark = [
        "The tables use η = lr (0.005; CIFAR-10 0.03), batches of 20, a warm start of θ and the cyclic split with "
        "unequal sizes. Here they are varied: η with each start of θ and each range of pixels, the others alone."
    ]
    return Section("sweep", "What the paper leaves open, swept", remark, tables)


SWEEP = Part("sweep", "η, batch size, start of θ, split rule and pixels, varied", _needs, _make)
