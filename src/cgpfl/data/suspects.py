"""Suspicious columns: those that give the label away, have other units somewhere, number the samples, say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.data.federated import FederatedData
from cgpfl.data.findings import Finding, Table, client_moments, is_id, named, numbers_of

WILD = 20.0
"""Times by which a client's scale, and standard deviations by which its mean, differ wildly from the others'."""
TELLS = 0.98
"""Share of the labels from which on a column alone tells them."""
FAR = 50.0
"""Inputs beyond this size, as models see them, make the usual rates diverge."""


def given_away(data: FederatedData, table: Table) -> Iterator[Finding]:
    """Columns that are the label in other words."""
    y = data.y[table.rows]
    for name in table.frame.columns:
        values = table.frame[name]
        if data.task == "regression":
            told = float(name in numbers_of(table.frame) and _follows(values.to_numpy(float), y))
        else:
            told = _tells(values, y) if data.task == "classification" else 0.0
        if told >= TELLS:
            yield Finding(
                95,
                f"Column {name!r} gives the label away: it alone tells {100 * told:.4g} % of them",
                f"ignore it ({_ignore(name)}), unless it is known before the label is",
            )


def _follows(values: np.ndarray, y: np.ndarray) -> bool:
    """Whether one of the targets ``[n, k]`` is a multiple of a column."""
    known = np.isfinite(values)
    if known.sum() < 10 or values[known].std() < 1e-12:
        return False
    spreads = y[known].std(axis=0)
    return any(
        abs(np.corrcoef(values[known], y[known, j])[0, 1]) > 0.9999 for j in range(y.shape[1]) if spreads[j] > 1e-12
    )


def _tells(values: pd.Series, y: np.ndarray) -> float:
    """Share of the classes ``[n]`` that a column tells by its few values, or 1 if it does by its order; else 0."""
    known = values.notna().to_numpy()
    total, classes = int(known.sum()), len(np.unique(y[known]))
    if total < 20 or classes < 2 or np.bincount(y[known]).max() > 0.9 * total:
        return 0.0
    codes = pd.factorize(values[known], sort=True)[0]
    distinct = int(codes.max()) + 1
    if distinct <= max(3 * classes, 10) and total >= 5 * distinct:
        counts = np.zeros((distinct, int(y.max()) + 1), np.int64)
        np.add.at(counts, (codes, y[known]), 1)
        return float(counts.max(axis=1).sum() / total)
    if not pd.api.types.is_numeric_dtype(values.dtype) or distinct == total == len(np.unique(y)):
        return 0.0
    mixed = len(np.unique(np.stack([codes, y[known]], axis=1), axis=0)) > distinct
    changes = int((np.diff(y[known][np.argsort(codes, kind="stable")]) != 0).sum())
    return float(not mixed and changes == classes - 1)


def scales(data: FederatedData, table: Table) -> Iterator[Finding]:
    """Columns that one client has in other units, or quite elsewhere."""
    if table.frame.shape[1] == 0 or data.clients < 3:
        return
    names, means, stds = client_moments(table, data.clients)
    for j, name in enumerate(names):
        if is_id(table.frame[name]):
            continue
        mean, std = means[:, j], stds[:, j]
        known = np.isfinite(mean) & np.isfinite(std)
        usual = float(np.median(std[known & (std > 0)])) if (known & (std > 0)).any() else 0.0
        if usual == 0:
            continue
        ratio = np.where(known & (std > 0), std / usual, 1.0)
        away = np.where(known, np.abs(mean - np.median(mean[known])) / usual, 0.0)
        odd = np.flatnonzero((ratio > WILD) | (ratio < 1 / WILD) | (away > WILD))
        if odd.size:
            i = int(odd[np.argmax(np.maximum(np.maximum(ratio, 1 / ratio), away)[odd])])
            yield Finding(
                85,
                f"Column {name!r} is quite different with {named(data, odd.tolist())}: mean {mean[i]:.4g} with "
                f"{data.name(i)}, {np.median(mean[known]):.4g} in the middle",
                "look for other units there, and bring all clients to the same",
            )


def unscaled(data: FederatedData, table: Table) -> Iterator[Finding]:
    """Inputs that are large, as models see them."""
    if np.issubdtype(data.x.dtype, np.integer) and data.task == "next-token":
        return
    seen = data.x[table.rows[:20000]].astype(np.float64) * data.scale + data.shift
    size = float(np.quantile(np.abs(seen), 0.99)) if seen.size else 0.0
    if data.columns is not None and data.columns.encoding == "codes" and data.columns.categories:
        return
    if size <= FAR:
        return
    how = "say standardise=true" if data.columns is not None else "give scale and shift, or divide them"
    yield Finding(80, f"Inputs are not scaled: one in a hundred is beyond {size:.3g}", f"{how}; training may diverge")


def missing(data: FederatedData, table: Table) -> Iterator[Finding]:
    """Cells without a value."""
    gone = table.frame.isna()
    for name in gone.columns:
        share = float(gone[name].mean())
        if share == 0:
            continue
        each = gone[name].groupby(table.owner).mean().to_numpy()
        whole = np.flatnonzero(each == 1)
        more = f"; always with {named(data, whole.tolist())}" if whole.size else ""
        yield Finding(
            65 if share > 0.5 else 35 if whole.size else 25 if share > 0.05 else 10,
            f"Column {name!r}: {share:.1%} missing{more}",
            "an input says where; ignore the column if it is mostly missing"
            if not whole.size
            else "those clients never measured it: it then says who, not what",
        )


def useless(data: FederatedData, table: Table) -> Iterator[Finding]:
    """Columns that are constant, that number the samples, or that name the client."""
    total = len(table.rows)
    for name in table.frame.columns:
        values = table.frame[name]
        distinct = values.nunique(dropna=False)
        if distinct == 1:
            yield Finding(12, f"Column {name!r} is the same everywhere", f"ignore it ({_ignore(name)})")
        elif is_id(values):
            yield Finding(
                70,
                f"Column {name!r} looks like an id: {distinct:,} values in {total:,} samples",
                f"ignore it ({_ignore(name)}): it says which sample, not what",
            )
        elif data.clients > 2 and values.groupby(table.owner).nunique(dropna=False).max() == 1:
            yield Finding(
                40,
                f"Column {name!r} is constant with each client: it says who, not what",
                f"fine for one model that knows who asks; else ignore it ({_ignore(name)})",
            )


def _ignore(name: Any) -> str:
    return f"--set 'data.ignore=[\"{name}\"]'"
