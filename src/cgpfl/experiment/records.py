"""Evaluation records: what the engine measured, as tables and as the figures people quote."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.engine.drive import Recorded
from cgpfl.metrics import METRICS, Metric, reduced

PER_CLIENT = (
    "correct",
    "loss",
    "train_loss",
    "validation_correct",
    "shared_correct",
    "shared_loss",
    "distance",
    "context",
)
"""Records with one value a client, beside the metrics'; the others have one a round."""
POOLED = "/pooled"
"""After a metric's name: its value over all clients' samples."""


def pull(prox: Any) -> float:
    """λ of a method; NaN where it has none for all clients, but measures each one's."""
    return float("nan") if isinstance(prox, str) else float(prox)


def scores(correct: np.ndarray, n: np.ndarray) -> dict[str, float]:
    """Accuracies of N clients, ``correct [N]`` of ``n [N]`` (see :func:`~cgpfl.metrics.reduced`)."""
    known = np.isfinite(correct)
    if not known.any():  # nobody has told: nodes whose uploads are private
        return dict.fromkeys(reduced(np.zeros(1), 0.0), math.nan)
    correct, n = np.asarray(correct, float)[known], n[known]
    return reduced(correct / n, correct.sum() / n.sum())


def pooled_curve(correct: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Pooled accuracy ``[E]`` of ``correct [E, N]`` of ``n [N]``, over clients of whom it is known."""
    known = np.isfinite(correct)
    return np.where(known, correct, 0).sum(axis=1) / np.maximum(np.where(known, n, 0).sum(axis=1), 1)


class Records(Recorded):
    """Everything recorded of one method, evaluation by evaluation."""

    def metrics(self) -> list[Metric]:
        """What was measured beside right answers and the loss."""
        return [METRICS[k] for k in self.values if f"{k}{POOLED}" in self.values]

    def scores(self, metric: Metric, n: np.ndarray, e: int = -1) -> dict[str, float] | None:
        """A metric in evaluation ``e`` (see :func:`~cgpfl.metrics.reduced`); None where there is nothing.

        ``n [N]``: test samples of each client.
        """
        values = self.values.get(metric.recorded or metric.name)
        if values is None or not len(values):
            return None
        each = np.asarray(values[e], float)
        if not np.isfinite(each).any():
            return None
        if metric.recorded == "correct":
            return scores(each, n)
        if metric.recorded:
            known = np.isfinite(each)
            return reduced(each, np.average(each[known], weights=n[known]), metric.higher)
        return reduced(each, self.values[f"{metric.name}{POOLED}"][e], metric.higher)

    def undefined(self) -> list[str]:
        """A line for each metric that some clients, evaluated last, have no value of."""
        lines = []
        for m in self.metrics() if self.rounds else []:
            there = np.isfinite(self.values["correct"][-1])
            missing = int((there & ~np.isfinite(self.values[m.name][-1])).sum())
            if missing:
                lines.append(f"{m.title}: not defined for {missing} of {there.sum()} clients, who are not in its mean")
        return lines

    def row(self, e: int, n: np.ndarray, prox: float, cost: Cost) -> dict[str, Any]:
        """The figures of evaluation ``e``, over the clients whose values are known. ``n [N]``: test samples of each.

        ``prox``: λ, see :func:`pull`.
        """
        known, t = np.isfinite(self.values["correct"][e]), self.rounds[e]
        v = {k: x[e][known] if k in PER_CLIENT else x[e] for k, x in self.values.items()}
        every, n = n, n[known]
        row: dict[str, Any] = {"round": t}
        row |= {("accuracy" if k == "pooled" else k): s for k, s in scores(v["correct"], n).items()}
        row["loss"] = float(np.average(v["loss"], weights=n))
        row["train_loss"] = float(v["train_loss"].mean())
        if "shared_correct" in v:
            row["shared_accuracy"] = float(v["shared_correct"].sum() / n.sum())
            row["shared_loss"] = float(np.average(v["shared_loss"], weights=n))
            # The paper's objectives: mean F_i = f_i + (λ/2)‖θ_i − ω‖², and G, k-means' own.
            if np.isfinite(prox):
                row["objective_personal"] = float((v["train_loss"] + prox / 2 * v["distance"]).mean())
            row["objective_context"] = float(v["distance"].mean())
        else:
            row["objective_personal"] = row["train_loss"]
        for m in self.metrics():
            found = self.scores(m, every, e) or {}
            row |= {m.name if k == "pooled" else f"{m.name}/{k}": s for k, s in found.items()}
        row |= {k: v[k].item() for k in ("k", "kmeans_iterations") if k in v}
        return row | cost.after(t, int(v["answers"]))

    def history(self, n: np.ndarray, prox: float, cost: Cost) -> pd.DataFrame:
        """One row an evaluated round. ``n [N]``: test samples of each client."""
        known = [e for e in range(len(self.rounds)) if np.isfinite(self.values["correct"][e]).any()]
        return pd.DataFrame([self.row(e, n, prox, cost) for e in known])

    def at_most(self, values: int) -> Records:
        """These evaluations; or the last and others evenly before it, so that no record has over ``values`` values."""
        each = len(self.values["correct"][0]) if self.rounds else 1
        count, there = max(1, values // each), len(self.rounds)
        if there <= count:
            return self
        kept = np.linspace(there - 1, 0, count).round().astype(int)[::-1]
        return Records([self.rounds[e] for e in kept], {k: v[kept] for k, v in self.values.items()})

    def clients(self, n: np.ndarray, label: str) -> pd.DataFrame:
        """One row a client and evaluated round, in long form; none where a node could not be evaluated."""
        each = len(n)
        frame: dict[str, Any] = {
            "method": pd.Categorical.from_codes(np.zeros(each * len(self.rounds), np.int8), pd.Index([label])),
            "round": np.repeat(np.asarray(self.rounds, np.int32), each),
            "client": np.tile(np.arange(each, dtype=np.int32), len(self.rounds)),
            "n": np.tile(n.astype(np.int32), len(self.rounds)),
        }
        known = np.isfinite(self.values["correct"].reshape(-1)) if self.rounds else np.zeros(0, bool)
        frame = {name: column if known.all() else column[known] for name, column in frame.items()}
        for name in (*PER_CLIENT, *(m.name for m in self.metrics())):
            if name in self.values:
                flat = self.values[name].reshape(-1)
                flat = flat if known.all() else flat[known]
                whole = name.endswith("correct") and bool((flat == np.round(flat)).all())
                frame[name] = flat.astype(np.int32) if whole else flat
        return pd.DataFrame(frame)


@dataclass(frozen=True)
class Cost:
    """What a round costs, to turn counts into bytes and gradients."""

    message: int
    upload: int
    gradients: float
    asked: int
    """Clients asked in a round."""

    @classmethod
    def of(cls, simulation: Any) -> Cost:
        """What a round of an engine costs."""
        traffic = simulation.traffic()
        return cls(traffic.message, traffic.upload, traffic.gradients, simulation.static.cohort)

    def after(self, rounds: int, answers: int) -> dict[str, int]:
        """Totals after ``rounds`` in which ``answers`` uploads came back."""
        return {
            "bytes_down": rounds * self.asked * self.message,
            "bytes_up": answers * self.upload,
            "gradients": round(answers * self.gradients),
        }
