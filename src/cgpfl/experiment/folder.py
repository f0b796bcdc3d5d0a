"""The run folder: everything a run leaves behind, readable without this library.

config.toml        complete and re-runnable
split.txt          hash of samples, labels and tables
federation.safetensors   who holds which labels (see artifacts.py)
events.jsonl       what happened, as it happened (see events.py)
metrics.parquet    one row a method, client and evaluated round (of very many some rounds, the last among them)
history.csv        one row a method and evaluated round
summary.json       the figures people quote
table.md, table.tex      the same as a table
figures/           each as .png, .svg and .pdf
methods/NAME/      state and records of each method (see checkpoint.py)
sha256sums.txt     of metrics, history and summary, checked when they are read; for sha256sum --check, too
run.lock           who writes to it, or did last (see lock.py)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cgpfl.data import FederatedData, Form
from cgpfl.errors import CgpflError
from cgpfl.experiment import artifacts
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.notes import against, spent_by_all
from cgpfl.files import check_new, make_folder, no_link, read_text, save_arrays, summed, write, written
from cgpfl.hyperparameters import parameters as parameters
from cgpfl.metrics import METRICS
from cgpfl.report.columns import summary_table

if TYPE_CHECKING:
    from cgpfl.experiment.result import Outcome, Result

Draw = Callable[[Path], Any]
KEPT = ("history.csv", "metrics.parquet", "summary.json")
"""What is read again of a finished run, beside files of arrays."""


class RunFolder:
    """A run folder on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """A new folder; one that exists is never touched."""
        cls.check_free(path)
        try:
            make_folder(path)
        except OSError as error:
            raise CgpflError(f"out {path}: cannot be created: {error.strerror or error}") from error
        return cls(path)

    @staticmethod
    def check_free(path: Path) -> None:
        """Whether a new folder can be made there, as far as that can be said before."""
        check_new(path)
        if path.is_dir():
            raise CgpflError(f"out {path}: exists already; choose another, or continue it with: cgpfl resume {path}")
        no_link(path)
        if path.exists():
            raise CgpflError(f"out {path}: is a file; must be a folder that is not there yet")

    def method(self, label: str) -> MethodFolder:
        """Where a method's state and records are."""
        return MethodFolder(self.path / "methods" / label)

    def labels(self) -> list[str]:
        """The methods that have a state here."""
        return sorted(p.name for p in self.path.glob("methods/*") if p.is_dir() and MethodFolder(p).exists())

    def check_split(self, data: FederatedData) -> None:
        """Refuse data of another problem than the folder's."""
        note = self.path / "split.txt"
        was = read_text(note, errors="replace").strip() if note.exists() else data.digest
        if was != data.digest:
            raise CgpflError(
                f"run {self.path}: its split is {was!r}, the data now gives {data.digest}; "
                "the data or the split has changed, so start a new run"
            )

    def write_split(self, data: FederatedData) -> None:
        """Note which problem this is; refuse to mix two in one folder."""
        self.check_split(data)
        write(self.path / "split.txt", (data.digest + "\n").encode())
        save_arrays(self.path / "federation.safetensors", artifacts.federation(data), artifacts.FEDERATION)

    def save_result(self, result: Result, run: dict[str, Any]) -> None:
        """State and records of a run that was made in memory; ``run``: its fingerprint."""
        about = {"round": result.rounds, "records": len(result.records.rounds), "seconds": result.seconds, "run": run}
        early = result.diverged is None and result.rounds < getattr(result.simulation, "rounds", result.rounds)
        self.method(result.label).save(result.state, about | ({"stopped": True} if early else {}), result.records)

    def save_models(self, result: Result) -> None:
        """Note where a method's models are, for its report (see artifacts.py)."""
        if (found := artifacts.models(result)) is not None:
            arrays, facts = found
            whose = artifacts.MODELS | {"method": result.label}
            save_arrays(self.method(result.label).path / "models.safetensors", arrays, facts | whose)

    def finish(self, results: Sequence[Outcome], draw: Draw | None = None) -> dict[str, Any]:
        """Write metrics, history, summary, table and figures; returns the summary. ``draw``: who draws else."""
        if not results:
            return {}
        with summed(self.path, *KEPT):
            summary = self._write(results)
        if draw is None:
            from cgpfl.report.figures import draw as draw_here

            draw_here(self.path)
        else:
            draw(self.path)
        return summary

    def _write(self, results: Sequence[Outcome]) -> dict[str, Any]:
        with_label = [r.history.assign(method=r.label) for r in results]
        history = pd.concat(with_label, ignore_index=True)
        columns = ["method", *(c for c in history.columns if c != "method")]
        write(self.path / "history.csv", history[columns].to_csv(index=False).encode())
        metrics = pd.concat([r.clients for r in results], ignore_index=True).astype({"method": "str"})
        with written(self.path / "metrics.parquet") as file:
            metrics.to_parquet(file, index=False)
        summary = summarise(results)
        write(self.path / "summary.json", (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode())
        table = summary_table(summary, "table")
        write(self.path / "table.md", replace(table, strong=[]).markdown().encode())
        write(self.path / "table.tex", table.latex().encode())
        return summary


def summarise(results: Sequence[Outcome]) -> dict[str, Any]:
    """The content of ``summary.json``."""
    data, measured = results[0].data, dict.fromkeys(name for r in results for name in r.summary.get("metrics", {}))
    return {
        "methods": {
            r.label: finite(
                r.summary | {"notes": [*r.summary["notes"], *spent_by_all(r, results), *against(r, results)]}
            )
            for r in results
        },
        "data": data.summary() | form_of(data, results[0].model).facts(),
        "model": {"name": type(results[0].model).__name__.lower(), **results[0].model.settings()},
        "seed": results[0].seed,
        **({"metrics": {name: METRICS[name].about() for name in measured}} if measured else {}),
    }


def form_of(data: Any, model: Any) -> Form:
    """The form of a run's samples, with what its model was trained for."""
    form: Form = data.form()
    return replace(form, objective=getattr(model, "objective", form.objective))


def finite(value: Any) -> Any:
    """JSON has no NaN: null instead."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
