"""A finished run or comparison, opened again from its folder: what was measured at once, models on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cgpfl.errors import CgpflError, did_you_mean
from cgpfl.report.clients import names_of
from cgpfl.report.columns import accuracy, ranked, summary_table
from cgpfl.report.files import read_history, reading, whole
from cgpfl.tables import Table

if TYPE_CHECKING:
    from cgpfl.experiment.result import PersonalModel, Result


@dataclass(frozen=True, eq=False)
class SavedMethod:
    """One method of a saved run."""

    label: str
    facts: dict[str, Any]
    """Its entry in ``summary.json``."""
    of: Saved

    @property
    def accuracy(self) -> float:
        """Pooled test accuracy of the personal models after the last round; NaN if the method diverged."""
        found = accuracy(self.facts)
        return float("nan") if found is None else found

    @property
    def history(self) -> pd.DataFrame:
        """One row an evaluated round (of a comparison: and seed)."""
        return self._rows(self.of.history)

    @property
    def clients(self) -> pd.DataFrame:
        """One row a client and evaluated round; a comparison keeps none."""
        return self._rows(self.of.clients)

    def result(self) -> Result:
        """Everything, with its models: the federation is built again, once, and must be the one it was."""
        return self._result

    def personal_model(self, i: int) -> PersonalModel:
        """The model client ``i`` uses."""
        return self.result().personal_model(i)

    @cached_property
    def _result(self) -> Result:
        from cgpfl.experiment.reload import load_result

        return load_result(self.of.folder, self.label)

    def _rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["method"] == self.label].drop(columns="method").reset_index(drop=True)

    def __repr__(self) -> str:
        return f"<{self.label} in {self.of.folder}: accuracy {self.accuracy:.1%}>"


@dataclass(frozen=True, eq=False)
class Saved(Mapping[str, SavedMethod]):
    """What a run or a comparison left in its folder; its methods by label, best first."""

    folder: Path
    summary: dict[str, Any]
    """``summary.json``."""

    @property
    def is_comparison(self) -> bool:
        """Whether figures are means over several seeds."""
        return "seeds" in self.summary

    @property
    def best(self) -> SavedMethod:
        """The most accurate method."""
        return next(iter(self.values()))

    @property
    def names(self) -> list[str]:
        """The clients' names; empty where they have none."""
        return names_of(self.summary["data"])

    @cached_property
    def history(self) -> pd.DataFrame:
        """The curves: one row a method, evaluated round and, in a comparison, seed."""
        return read_history(self.folder)

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row a method, client and evaluated round, with the client's ``name`` where it has one."""
        if self.is_comparison:
            raise CgpflError(f"run {self.folder}: is a comparison, which keeps no values of each client; use a run")
        with reading(self.folder / "metrics.parquet"):
            found = pd.read_parquet(self.folder / "metrics.parquet")
        return found.assign(name=np.asarray(self.names)[found["client"]]) if self.names else found

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a method, best first."""
        if self.is_comparison:
            with reading(self.folder / "table.csv"):
                return pd.read_csv(
                    self.folder / "table.csv", dtype={"method": str}, keep_default_na=False, na_values=""
                )
        return pd.DataFrame([{"method": m.label, **_row(m.facts)} for m in self.values()])

    def shown(self, view: str = "table") -> Table:
        """The table as text: ``.markdown()``, ``.latex()``, ``.text()``."""
        return summary_table(self.summary, view)

    def markdown(self) -> str:
        return self.shown().markdown()

    def latex(self) -> str:
        """The table as LaTeX, which needs no package."""
        return self.shown().latex()

    def __getitem__(self, label: str) -> SavedMethod:
        if label not in self._methods:
            there = f"{did_you_mean(label, self._methods)}it has {', '.join(self._methods)}"
            raise CgpflError(f"run {self.folder}: no method {label!r}; {there}")
        return self._methods[label]

    @cached_property
    def _methods(self) -> dict[str, SavedMethod]:
        return {label: SavedMethod(label, facts, self) for label, facts in self.summary["methods"].items()}

    def __contains__(self, label: object) -> bool:
        return label in self.summary["methods"]

    def __iter__(self) -> Iterator[str]:
        return iter(ranked(self.summary["methods"]))

    def __len__(self) -> int:
        return len(self.summary["methods"])

    def __repr__(self) -> str:
        return f"{self.folder}\n{self.shown('terminal').text()}"

    def _repr_html_(self) -> str:
        shown = self.shown()
        return shown.notebook([shown.note])


def open_saved(folder: Path) -> Saved:
    """A finished run or comparison; a folder that is none is one clear line."""
    if not folder.is_dir():
        raise CgpflError(f"run {folder}: no such folder")
    if not (folder / "summary.json").exists():
        begun = (folder / "config.toml").exists()
        no = "has no summary.json; is it a run folder?"
        raise CgpflError(f"run {folder}: {f'is not finished; go on by: cgpfl resume {folder}' if begun else no}")
    with reading(folder / "summary.json"):
        summary = dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    with whole(folder):
        saved = Saved(folder, summary)
        saved.shown()
    return saved


def _row(facts: dict[str, Any]) -> dict[str, Any]:
    """A method's figures on one level."""
    own, contexts = facts["accuracy"] or {}, facts["contexts"] or {}
    row = {"accuracy": own.get("pooled"), **{k: own.get(k) for k in ("mean", "worst_tenth", "std")}}
    row["shared_accuracy"] = (facts["shared_accuracy"] or {}).get("pooled")
    row |= {name: scores["pooled"] for name, scores in facts.get("metrics", {}).items()}
    row |= {"contexts": contexts.get("k"), "ari": contexts.get("ari")}
    return row | {k: facts.get(k) for k in ("rounds", "diverged", "bytes_up", "bytes_down", "gradients", "seconds")}
