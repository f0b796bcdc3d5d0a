"""Findings of an inspection, and the samples as those who look for them see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cgpfl.data.federated import FederatedData

MOST_COLUMNS = 500
"""Inputs of arrays up to which each is looked at by itself; more are pixels, or alike."""
MOST_NAMES = 5
WORDS = ((80, "breaks"), (50, "hurts"), (20, "matters"), (0, "worth knowing"))
"""Harm from which on it is called so."""


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    harm: int
    """0 to 100."""
    what: str
    """In a line,"""
    do: str
    """and what to do about it."""

    @property
    def word(self) -> str:
        """How bad it is."""
        return next(word for least, word in WORDS if self.harm >= least)


@dataclass(frozen=True)
class Table:
    """All samples as columns, whoever holds them."""

    frame: pd.DataFrame
    """``[n]`` rows; empty where there are too many inputs to look at each."""
    rows: np.ndarray
    """Their positions in x ``[n]``,"""
    owner: np.ndarray
    """the client of each ``[n]``,"""
    test: np.ndarray
    """and whether it is a test sample ``[n]``."""


def opened(data: FederatedData) -> Table:
    """The federation's samples side by side."""
    tables = [(data.train, False), (data.test, True), *([(data.validation, False)] if data.validation else [])]
    parts = [(i, part, held) for t, held in tables for i, part in enumerate(t.parts())]
    rows = np.concatenate([part for _, part, _ in parts])
    owner = np.concatenate([np.full(len(part), i) for i, part, _ in parts])
    test = np.concatenate([np.full(len(part), held) for _, part, held in parts])
    if data.columns is not None:
        frame = data.columns.decode(data.x[rows])
    elif int(np.prod(data.shape)) <= MOST_COLUMNS and len(data.shape) == 1:
        frame = pd.DataFrame(data.x[rows], columns=[f"input {i}" for i in range(data.shape[0])])
    else:
        frame = pd.DataFrame(index=range(len(rows)))
    return Table(frame, rows, owner, test)


def named(data: FederatedData, clients: Sequence[int]) -> str:
    """Some clients' names."""
    shown = ", ".join(data.name(int(i)) for i in clients[:MOST_NAMES])
    return shown if len(clients) <= MOST_NAMES else f"{shown}, … ({len(clients)} in all)"


def numbers_of(frame: pd.DataFrame) -> list[str]:
    """Names of the columns of numbers."""
    return [c for c in frame.columns if pd.api.types.is_numeric_dtype(frame[c].dtype)]


def is_id(values: pd.Series) -> bool:
    """Whether a column numbers or names the rows: nearly all differ, and are words, or whole numbers without gaps."""
    if len(values) < 20 or values.nunique(dropna=False) <= 0.9 * len(values):
        return False
    if not pd.api.types.is_numeric_dtype(values.dtype):
        return True
    numbers = values.dropna().to_numpy(float)
    return bool(np.array_equal(numbers, np.round(numbers)) and np.ptp(numbers) < 1.1 * len(numbers))


def class_counts(data: FederatedData, table: Table) -> np.ndarray:
    """Samples of each class at each client ``[N, classes]``."""
    counts = np.zeros((data.clients, data.classes), np.int64)
    np.add.at(counts, (table.owner, data.y[table.rows]), 1)
    return counts


def client_moments(table: Table, clients: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Columns of numbers, and each client's mean and standard deviation of them ``[N, columns]``."""
    names = numbers_of(table.frame)
    grouped = table.frame[names].astype(float).groupby(table.owner)
    everybody = range(clients)
    return names, grouped.mean().reindex(everybody).to_numpy(), grouped.std(ddof=0).reindex(everybody).to_numpy()
