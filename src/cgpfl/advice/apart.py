"""What sets contexts apart: columns, labels, and how they go together, by standardised differences.

The effect of a column on a context is the difference of its mean there and elsewhere, in standard deviations inside
both (Cohen's d). Differences that the clients of a context do not share are left out: a t-test over clients must tell
them, at 5 % for all columns together (Bonferroni).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cgpfl.advice.folds import everything
from cgpfl.data import FederatedData

LEAST = 0.2
"""Effects below are not told."""
MOST_SAMPLES = 400
"""Of a client that are looked at."""
MOST_CLASSES = 30
"""Up to so many classes the samples of each are compared, too."""
SIZES = ((0.8, "much"), (0.5, "clearly"), (LEAST, "a little"))
"""Effects from which on a difference is called so (after Cohen, 1988)."""


@dataclass(frozen=True)
class Difference:
    """One thing that differs between a context and the others."""

    context: int
    what: str
    """A column, or a label."""
    given: str
    """The label of the samples it is of; empty: of all samples."""
    effect: float
    """In standard deviations."""
    here: float
    """Mean in the context,"""
    elsewhere: float
    share: bool
    """Whether the means are shares of samples."""

    def words(self) -> str:
        size = next(word for least, word in SIZES if abs(self.effect) >= least)
        more = "more" if self.share else "higher"
        less = "less" if self.share else "lower"
        direction = f"{size} {more if self.effect > 0 else less}"
        means = [f"{100 * v:.0f} %" if self.share else f"{v:.4g}" for v in (self.here, self.elsewhere)]
        of = f", of samples with {self.given}" if self.given else ""
        return f"{self.what}{of}: {direction} ({means[0]} here, {means[1]} elsewhere; effect {self.effect:+.1f})"


def differences(data: FederatedData, assignment: np.ndarray) -> list[Difference]:
    """Of every context, the largest effect first; contexts of one client are compared as they are."""
    draw = np.random.default_rng(0)
    parts = [p if len(p) <= MOST_SAMPLES else draw.choice(p, MOST_SAMPLES, replace=False) for p in everything(data)]
    rows = np.concatenate(parts)
    owner = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    x = data.x[rows].reshape(len(rows), -1).astype(np.float64)
    names, shares = input_names(data)
    found: list[Difference] = []
    labels, targets = label_columns(data, rows)
    for k in np.unique(assignment):
        here = assignment == k
        found += _between(int(k), x, owner, here, names, shares)
        if targets is not None:
            found += _between(int(k), targets, owner, here, labels, [data.task != "regression"] * len(labels))
        if data.task == "regression" and targets is not None:
            for j, label in enumerate(labels):
                both = [f"correlation of {name} and {label}" for name in names]
                products = _standard(x) * _standard(targets[:, [j]])
                found += _between(int(k), products, owner, here, both, [False] * len(names))
        if data.task == "classification" and data.classes <= MOST_CLASSES:
            for c in range(data.classes):
                own = data.y[rows] == c
                found += _between(int(k), x[own], owner[own], here, names, shares, labels[c])
    if data.task == "classification" and data.classes == 2:  # what one label gains the other loses
        found = [d for d in found if d.what != labels[0]]
    return sorted(found, key=lambda d: -abs(d.effect))


def _standard(x: np.ndarray) -> np.ndarray:
    """Columns ``[n, p]`` with mean 0 and deviation 1."""
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def input_names(data: FederatedData) -> tuple[list[str], list[bool]]:
    """What a model's inputs are called, and whether they are yes or no."""
    if data.columns is not None:
        names = list(data.columns.inputs)
        return names, [" = " in n or n.endswith(" missing") for n in names]
    if len(data.shape) in (2, 3):
        places = np.indices(data.shape[:2]).reshape(2, -1).T
        repeats = 1 if len(data.shape) == 2 else data.shape[2]
        names = [f"pixel in row {r + 1}, column {c + 1}" for r, c in places for _ in range(repeats)]
        return names, [False] * len(names)
    size = int(np.prod(data.shape))
    return [f"input {i}" for i in range(size)], [False] * size


def label_columns(data: FederatedData, rows: np.ndarray) -> tuple[list[str], np.ndarray | None]:
    """Labels as columns ``[n, labels]`` with their names; none of tokens."""
    if data.task == "next-token":
        return [], None
    if data.task == "classification":
        names = data.labels or tuple(range(data.classes))
        return [f"label {v}" for v in names], np.eye(data.classes)[data.y[rows]]
    label = data.columns.label if data.columns is not None and data.columns.label else "target"
    names = data.labels or ((label,) if data.y.shape[1] == 1 else tuple(range(data.y.shape[1])))
    return [str(v) if data.task == "regression" else f"label {v}" for v in names], data.y[rows].astype(np.float64)


def _between(
    k: int, x: np.ndarray, owner: np.ndarray, here: np.ndarray, names: list[str], shares: list[bool], given: str = ""
) -> list[Difference]:
    """Effects of samples ``x [n, p]`` of clients ``owner [n]``, of which ``here [N]`` are in the context."""
    from scipy.stats import t as student

    inside = here[owner]
    if inside.sum() < 2 or (~inside).sum() < 2:
        return []
    a, b = x[inside], x[~inside]
    apart = a.mean(axis=0) - b.mean(axis=0)
    freedom = len(x) - 2
    spread = np.sqrt((a.var(axis=0) * len(a) + b.var(axis=0) * len(b)) / freedom)
    floor = 1e-9 + 1e-6 * np.abs(x).max(axis=0)
    effect = np.divide(apart, spread, out=np.sign(apart) * 10.0, where=spread > floor)
    effect[np.abs(apart) <= floor] = 0.0
    limit = student.isf(0.025 / x.shape[1], max(len(np.unique(owner)) - 2, 1))
    told = (np.abs(effect) >= LEAST) & (np.abs(apart) > limit * _error(x, owner, here, spread))
    return [
        Difference(k, names[j], given, float(effect[j]), float(a[:, j].mean()), float(b[:, j].mean()), shares[j])
        for j in np.flatnonzero(told)
    ]


def _error(x: np.ndarray, owner: np.ndarray, here: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Standard error ``[p]`` of the difference of means: that from the clients' means, or from samples if larger."""
    clients = np.unique(owner)
    means = np.stack([x[owner == i].mean(axis=0) for i in clients])
    inside = here[clients]
    parts = [
        means[side].var(axis=0, ddof=1) / side.sum()
        if side.sum() > 1
        else np.square(spread) / max(int((here[owner] == side_is).sum()), 1)
        for side, side_is in ((inside, True), (~inside, False))
    ]
    sizes = here[owner].sum(), (~here[owner]).sum()
    return np.maximum(np.sqrt(parts[0] + parts[1]), spread * np.sqrt(1 / sizes[0] + 1 / sizes[1]))
