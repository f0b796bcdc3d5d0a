"""What was recorded of each client, evaluation by evaluation, from a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cgpfl.report.files import recorded
from cgpfl.report.shrink import spread


def clients_of(data: Mapping[str, Any]) -> int:
    """How many clients there are, from the facts of the data in ``summary.json``: a number, or their names."""
    found = data["clients"]
    return len(found) if isinstance(found, list) else found


def names_of(data: Mapping[str, Any]) -> list[str]:
    """The clients' names from the facts of the data, in their order; none where they have none."""
    found: list[Any] = next((data[key] for key in ("names", "clients") if isinstance(data.get(key), list)), [])
    return [str(name) for name in found]


class Clients(NamedTuple):
    """Records of N clients: evaluated rounds ``[E]``, test samples ``n [N]``, ``values[name] [E, N]``.

    A value is NaN where a client could not be evaluated; in each evaluation at least one was.
    """

    rounds: np.ndarray
    n: np.ndarray
    values: dict[str, np.ndarray]

    def accuracy(self) -> np.ndarray:
        """``[N]``: accuracies in the last evaluation, NaN where there is none."""
        correct = np.asarray(self.values["correct"][-1], float)
        return np.divide(correct, self.n, out=np.full(len(self.n), np.nan), where=self.n > 0)

    def last(self) -> dict[str, Any] | None:
        """The clients that are drawn, with what they answered correctly in the last evaluation."""
        known = np.flatnonzero(np.isfinite(self.accuracy()))
        shown = known[spread(len(known))]
        if not len(shown):
            return None
        last = {"client": shown, "correct": self.values["correct"][-1][shown], "n": self.n[shown]}
        shared = self.values.get("shared_correct")
        return last if shared is None else last | {"shared": shared[-1][shown]}


def of_records(folder: Path, n: np.ndarray | None) -> Clients | None:
    """From a method's records, as of its last checkpoint; ``n [N]``: test samples of each client."""
    rounds, values = recorded(folder)
    if n is None or not len(rounds):
        return None
    kept = np.isfinite(values["correct"]).any(axis=1)
    return Clients(np.asarray(rounds)[kept], n, {k: v[kept] for k, v in values.items()}) if kept.any() else None


def of_metrics(rows: pd.DataFrame) -> Clients | None:
    """From a method's rows of metrics.parquet, which has no rows where a client could not be evaluated."""
    if not len(rows):
        return None
    rounds, at = np.unique(rows["round"].to_numpy(), return_inverse=True)
    who = rows["client"].to_numpy()
    n = np.zeros(int(who.max()) + 1, int)
    n[who] = rows["n"].to_numpy()
    values = {}
    for name in ("correct", "shared_correct", "distance", "context"):
        if name in rows and rows[name].notna().any():
            values[name] = np.full((len(rounds), len(n)), np.nan)
            values[name][at, who] = rows[name].to_numpy()
    if "context" in values and np.isnan(values["context"]).any():
        del values["context"]  # nobody knows where they were
    return Clients(rounds, n, values)
