"""The table of a comparison: methods ranked over seeds, and which of them cannot be told from the best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.experiment.records import Cost, Records, pooled_curve, scores
from cgpfl.metrics import METRICS, Metric
from cgpfl.report.columns import comparison_table
from cgpfl.tables import Table

LEVEL = 0.05
"""Of the test that two methods differ."""


@dataclass(frozen=True)
class Runs:
    """One method's runs, a seed each."""

    label: str
    seeds: list[int]
    records: list[Records]
    samples: list[np.ndarray]
    """Test samples of each client ``[N]``, a seed each."""
    cost: Cost
    answers: list[int]
    """Uploads received in all."""
    rounds: list[int]
    """Rounds completed."""
    diverged: list[int | None]
    seconds: float
    """Of all seeds together, compilation included."""
    settings: dict[str, Any]
    tried: list[dict[str, Any]]
    """What a search tried, with its validation accuracy; empty without one."""
    ari: list[float | None]

    @property
    def chosen(self) -> dict[str, Any] | None:
        """What a search chose, with its validation accuracy."""
        known = [t for t in self.tried if t["validation_accuracy"] == t["validation_accuracy"]]
        return max(known, key=lambda t: t["validation_accuracy"]) if known else None

    def scores(self) -> list[dict[str, float] | None]:
        """The last accuracies of each seed; None where the run diverged."""
        return [
            None if bad is not None or not r.rounds else scores(r.values["correct"][-1], n)
            for r, n, bad in zip(self.records, self.samples, self.diverged, strict=True)
        ]

    def metrics(self) -> list[Metric]:
        """What was measured beside right answers and the loss."""
        return next((r.metrics() for r in self.records if r.rounds), [])

    def figures(self, metric: Metric) -> dict[str, float]:
        """A metric at the end, means over seeds and the pooled one's deviation; NaN where a run diverged."""
        ends = [
            r.scores(metric, n) if bad is None and r.rounds else None
            for r, n, bad in zip(self.records, self.samples, self.diverged, strict=True)
        ]
        each = {k: np.array([np.nan if s is None else s[k] for s in ends]) for k in ("pooled", "mean", "worst_tenth")}
        found = {metric.name if k == "pooled" else f"{metric.name}/{k}": float(v.mean()) for k, v in each.items()}
        std = each["pooled"].std(ddof=1) if len(ends) > 1 else each["pooled"][0] * 0
        return found | {f"{metric.name}/std": float(std)}

    def undefined(self) -> list[str]:
        """A line for each metric that some clients have no value of, in the first seed where that is so."""
        lines = {line.partition(":")[0]: line for r in reversed(self.records) for line in r.undefined()}
        return [f"{self.label}: {line}" for line in lines.values()]

    def accuracy(self) -> np.ndarray:
        """Pooled accuracy of each seed, NaN where the run diverged. ``[seeds]``."""
        return np.array([np.nan if s is None else s["pooled"] for s in self.scores()])

    def contexts(self) -> list[int | None] | None:
        """K at the end of each seed's run (None where that diverged); None for a method without contexts."""
        if not any("k" in r.values for r in self.records):
            return None
        ends = zip(self.records, self.diverged, strict=True)
        return [int(r.values["k"][-1]) if bad is None and r.rounds else None for r, bad in ends]

    @property
    def chose(self) -> bool:
        """Whether the method has contexts and chose their number itself."""
        return self.settings.get("contexts", "auto") == "auto" and self.contexts() is not None

    def curves(self) -> tuple[np.ndarray, np.ndarray]:
        """Evaluated rounds ``[E]`` and pooled accuracy over them ``[seeds, E]``, of the seeds that did not diverge."""
        fine = [(r, n) for r, n, bad in zip(self.records, self.samples, self.diverged, strict=True) if bad is None]
        if not fine:
            return np.zeros(0, int), np.zeros((0, 0))
        longest = max((r.rounds for r, _ in fine), key=len)
        each = [pooled_curve(r.values["correct"], n) for r, n in fine]
        curves = [np.pad(c, (0, len(longest) - len(c)), mode="edge") for c in each]  # one that stopped stays as it was
        return np.asarray(longest), np.stack(curves)

    def history(self, prox: float) -> pd.DataFrame:
        """One row a seed and evaluated round."""
        frames = [
            r.history(n, prox, self.cost).assign(method=self.label, seed=seed)
            for r, n, seed in zip(self.records, self.samples, self.seeds, strict=True)
            if r.rounds
        ]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def rounds_to(rounds: np.ndarray, curves: np.ndarray, target: float) -> float:
    """Mean over seeds of the first evaluated round with at least ``target`` accuracy; NaN if one never has it."""
    reached = curves >= target
    if not curves.size or not reached.any(axis=1).all():
        return float("nan")
    return float(rounds[reached.argmax(axis=1)].mean())


def paired_p(a: np.ndarray, b: np.ndarray) -> float:
    """Two-sided p of a paired t-test over seeds that ``a`` and ``b`` have the same mean."""
    from scipy.stats import ttest_rel

    apart = a - b
    if len(apart) < 2 or not np.isfinite(apart).all():
        return float("nan")
    if np.ptp(apart) < 1e-12:
        return 1.0 if abs(apart[0]) < 1e-12 else 0.0
    return float(ttest_rel(a, b).pvalue)


def holm(p: np.ndarray) -> np.ndarray:
    """p-values corrected for their number (Holm's step-down); NaN stays NaN."""
    out = np.full(len(p), np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, (len(order) - rank) * p[i])
        out[i] = min(largest, 1.0)
    return out


def default_target(runs: dict[str, Runs]) -> float:
    """The accuracy that local training ends with (over seeds), or nine tenths of the best."""
    if "local" in runs and np.isfinite(runs["local"].accuracy()).any():
        return float(np.nanmean(runs["local"].accuracy()))
    ends = [r.accuracy() for r in runs.values() if np.isfinite(r.accuracy()).any()]
    return 0.9 * max((float(np.nanmean(a)) for a in ends), default=1.0)


def ranking(runs: dict[str, Runs], target: float) -> pd.DataFrame:
    """One row a method, best first.

    ``p``: of the paired t-test over seeds against the best method; ``p_holm``: corrected for the number
    of methods (Holm), which few seeds seldom survive; ``tied``: not told apart from the best, p >= 5 %.
    NaN and False with one seed.
    """
    rows = []
    for label, r in runs.items():
        accuracy = r.accuracy()
        done = [s for s in r.scores() if s is not None]
        fine = len(done) == len(r.seeds)
        rounds, curves = r.curves()
        totals = [r.cost.after(t, a) for t, a in zip(r.rounds, r.answers, strict=True)]
        rows.append(
            {
                "method": label,
                "accuracy": float(accuracy.mean()) if fine else np.nan,
                "std": float(accuracy.std(ddof=1)) if fine and len(accuracy) > 1 else 0.0 if fine else np.nan,
                "mean": float(np.mean([s["mean"] for s in done])) if fine else np.nan,
                "worst_tenth": float(np.mean([s["worst_tenth"] for s in done])) if fine else np.nan,
                "rounds_to_target": rounds_to(rounds, curves, target) if fine else np.nan,
                "megabytes": float(np.mean([t["bytes_up"] + t["bytes_down"] for t in totals])) / 1e6,
                "gradients": float(np.mean([t["gradients"] for t in totals])),
                "seconds": r.seconds,
                "diverged": sum(bad is not None for bad in r.diverged),
                **{k: v for m in r.metrics() for k, v in r.figures(m).items()},
            }
        )
    table = pd.DataFrame(rows).sort_values("accuracy", ascending=False, na_position="last", ignore_index=True)
    best = runs[str(table["method"][0])].accuracy()
    others = [str(m) for m in table["method"][1:]]
    p = np.array([paired_p(best, runs[m].accuracy()) for m in others])
    table["p"], table["p_holm"] = [np.nan, *p], [np.nan, *holm(p)]
    table["tied"] = [False, *(bool(v >= LEVEL) for v in p)]
    return table


def shown(table: pd.DataFrame, view: str, target: float, seeds: int, task: str = "classification") -> Table:
    """The ranking as text, for a ``view`` of :mod:`cgpfl.report.columns`."""
    rows = {str(row["method"]): {str(k): v for k, v in row.items()} for row in table.to_dict("records")}
    metrics = {name: METRICS[name].about() for name in METRICS if f"{name}/std" in table}
    made = comparison_table(rows, view, metrics, seeds, target, task)
    return replace(made, note=". ".join(made.legend()) + ".")
