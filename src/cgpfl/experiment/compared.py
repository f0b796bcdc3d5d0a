"""What a comparison leaves behind.

A comparison's folder holds

    config.toml          complete and re-runnable, with a section [compare]
    table.csv, .md, .tex the methods, best first
    summary.json         the same with everything behind it: each seed, settings, what a search tried
    history.csv          one row a method, seed and evaluated round
    figures/             each as .png, .svg and .pdf
    methods/NAME.safetensors   records of each finished method: a comparison that was stopped goes on after them
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.engine.settings import differences
from cgpfl.errors import CgpflError
from cgpfl.experiment.folder import finite
from cgpfl.experiment.records import Cost, Records, pull
from cgpfl.experiment.table import Runs, default_target, ranking, shown
from cgpfl.files import load_arrays, save_arrays, summed, write
from cgpfl.report.columns import PLAIN
from cgpfl.tables import Table


@dataclass(frozen=True)
class Compared:
    """A finished comparison."""

    folder: Path
    table: pd.DataFrame
    """One row a method, best first (see :func:`cgpfl.experiment.table.ranking`)."""
    target: float
    runs: dict[str, Runs]
    notes: list[str]
    data: dict[str, Any]
    diverged: list[str]
    """A line for each method that diverged, with the likely cause."""

    def _repr_html_(self) -> str:
        table = self.shown("table")
        return table.notebook([*self.notes, *self.diverged, table.note])

    def shown(self, view: str) -> Table:
        """The table as text (see :mod:`cgpfl.report.columns`)."""
        seeds = max(len(of.seeds) for of in self.runs.values())
        return shown(self.table, view, self.target, seeds, self.data.get("task", PLAIN))


def save(file: Path, runs: Runs, made_with: dict[str, Any]) -> None:
    """A finished method."""
    plain = ("label", "seeds", "answers", "rounds", "diverged", "seconds", "settings", "tried", "ari")
    facts: dict[str, Any] = {name: getattr(runs, name) for name in plain}
    facts["cost"] = dataclasses.asdict(runs.cost)
    facts["evaluated"] = [r.rounds for r in runs.records]
    facts["run"] = made_with
    arrays = {f"{i}/{k}": v for i, r in enumerate(runs.records) for k, v in r.values.items()}
    save_arrays(file, arrays, facts)


def check_made_with(file: Path, was: dict[str, Any], wanted: dict[str, Any]) -> None:
    """An error where a file was made with other settings or data than are wanted."""
    for name, then, now in differences(was, wanted):
        raise CgpflError(
            f"comparison {file}: was run with {name} = {then!r}, now {now!r}; delete this file to run the method anew"
        )


def load(file: Path, made_with: dict[str, Any], samples: list[np.ndarray]) -> Runs:
    """A finished method's runs; refused where they were made with other settings or data."""
    arrays, facts = load_arrays(file, "delete this file to run the method anew")
    check_made_with(file, facts.pop("run"), made_with)
    records = [
        Records(rounds, {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(f"{i}/")})
        for i, rounds in enumerate(facts.pop("evaluated"))
    ]
    return Runs(records=records, samples=samples, cost=Cost(**facts.pop("cost")), **facts)


def finish(
    path: Path, runs: dict[str, Runs], facts: dict[str, Any], *, target: float, notes: list[str], diverged: list[str]
) -> Compared:
    """Write table, summary, history and figures; ``facts`` of data, model, seeds and rounds go into the summary."""
    target = target or default_target(runs)
    table = ranking(runs, target)
    with summed(path, "history.csv", "summary.json", "table.csv"):
        write(path / "table.csv", table.to_csv(index=False).encode())
        text = shown(table, "table", target, len(facts["seeds"]), facts["data"].get("task", PLAIN))
        write(path / "table.md", replace(text, strong=[]).markdown().encode())
        write(path / "table.tex", text.latex().encode())
        histories = [h for h in (r.history(pull(r.settings.get("prox", 0.0))) for r in runs.values()) if len(h)]
        history = pd.concat(histories, ignore_index=True) if histories else pd.DataFrame(columns=["round", "accuracy"])
        columns = ["method", "seed", *(c for c in history.columns if c not in ("method", "seed"))]
        write(path / "history.csv", history.reindex(columns=columns).to_csv(index=False).encode())
        methods: dict[str, Any] = {}
        for row in table.to_dict("records"):
            of = runs[str(row["method"])]
            behind = {"each_seed": of.accuracy().tolist(), "k": of.contexts(), "ari": of.ari}
            behind |= {"settings": of.settings, "tried": of.tried}
            methods[of.label] = {**{k: v for k, v in row.items() if k != "method"}, **behind}
        notes = notes + [line for of in runs.values() for line in of.undefined()]
        measured = {m.name: m.about() for of in runs.values() for m in of.metrics()}
        about = {"metrics": measured} if measured else {}
        summary = {**facts, "target": target, "notes": notes, **about, "methods": methods}
        write(path / "summary.json", (json.dumps(finite(summary), indent=2, allow_nan=False) + "\n").encode())
    from cgpfl.report.comparison import draw

    draw(path)
    return Compared(path, table, target, runs, notes, facts["data"], diverged)
