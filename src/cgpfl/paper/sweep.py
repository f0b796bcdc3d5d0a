"""What the paper does not state, varied around the tables' setting: η, batch size, start of θ, split, pixels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from cgpfl.hyper import replace
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import NAMES
from cgpfl.paper.plan import Part, Plan, percent, with_spread
from cgpfl.paper.published import table_1
from cgpfl.paper.section import Section, Table, save_csv
from cgpfl.paper.settings import Setting, competitors, family

SWEPT = ("pfedme", "cgpfl-4", "cgpfl-heur")
BESIDE = ("local", "fedavg")
"""Beside them on every split; they have no η and no warm start."""
ETAS = (0.005, 0.02, 0.05, 0.1)
BATCHES = (5, 100)


def _variants(setting: Setting, quick: bool) -> Iterator[tuple[str, Setting, dict[str, Any]]]:
    """Name, setting, and what differs from the setting of the tables."""
    for eta in ETAS[1::2] if quick else ETAS:
        yield f"η = {eta:g}", setting, {"personal_rate": eta}
    if quick:
        return
    for eta in ETAS:
        yield f"η = {eta:g}, θ restarts from ω", setting, {"personal_rate": eta, "warm_start": False}
    for batch in BATCHES:
        yield f"batch {batch}", setting, {"batch_size": batch}
    for name, change in (
        ("random classes", {"split": "random"}),
        ("block classes", {"split": "block"}),
        ("equal sizes", {"spread": 0.0}),
    ):
        data = dataclasses.replace(setting.data, **change)
        yield name, dataclasses.replace(setting, name=f"{setting.name}-{name.partition(' ')[0]}", data=data), {}
    centred = dataclasses.replace(setting, name=f"{setting.name}-centred", centred=True)
    for eta in ETAS:
        yield f"pixels in [-1, 1], η = {eta:g}", centred, {"personal_rate": eta}


def _settings(plan: Plan) -> list[Setting]:
    return [s for s in plan.swept if s.name in (("mnist-mlr",) if plan.quick else ("mnist-mlr", "fmnist-mlr"))]


def _cell(name: str, setting: Setting, label: str, change: dict[str, Any]) -> Cell:
    words = {"η = ": "eta-", "θ restarts from ω": "restart", "pixels in [-1, 1]": "centred", ", ": "-", " ": "-"}
    plain = name
    for word, short in words.items():
        plain = plain.replace(word, short)
    if label in BESIDE:
        return Cell(setting, f"sweep-{label}", competitors(setting)[label])
    return Cell(setting, f"sweep-{label}-{plain}", replace(family(setting)[label], change))


def _labels(setting: Setting, of: Setting) -> tuple[str, ...]:
    return SWEPT if setting.name == of.name else (*SWEPT, *BESIDE)


def _needs(plan: Plan) -> list[Cell]:
    return [
        _cell(name, setting, label, change)
        for of in _settings(plan)
        for name, setting, change in _variants(of, plan.quick)
        for label in _labels(setting, of)
    ]


def _make(plan: Plan) -> Section:
    tables, facts = [], []
    for of in _settings(plan):
        rows = [
            [
                "published",
                *(f"{table_1(of.name, label):.2f}" for label in SWEPT),
                "–",
                f"{table_1(of.name, 'fedavg'):.2f}",
            ]
        ]
        for name, setting, change in _variants(of, plan.quick):
            cells = {label: plan.runs(_cell(name, setting, label, change)) for label in _labels(setting, of)}
            text = {label: with_spread(*percent(runs), len(plan.seeds)) for label, runs in cells.items()}
            rows.append([name, *(text.get(label, "") for label in (*SWEPT, *BESIDE))])
            facts += [
                {
                    "setting": of.title,
                    "variant": name,
                    "method": label,
                    "accuracy_%": round(percent(runs)[0], 3),
                    "std": round(percent(runs)[1], 3),
                }
                for label, runs in cells.items()
            ]
        columns = ["variant", *(NAMES[label] for label in (*SWEPT, *BESIDE))]
        tables.append(Table(f"{of.title}: test accuracy (%), varied around the tables' setting", columns, rows))
    save_csv(plan.out / "sweep" / "sweep.csv", facts)
    remark = [
        "The tables use η = lr = 0.005, batches of 20, a warm start of θ and the cyclic split with unequal sizes. Here "
        "they are varied: η with each start of θ and each range of pixels, the others alone."
    ]
    return Section("sweep", "What the paper leaves open, swept", remark, tables)


SWEEP = Part("sweep", "η, batch size, start of θ, split rule and pixels, varied", _needs, _make)
