"""A table of samples whose rows say whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class Table(NamedTuple):
    """Samples as rows, before any split; columns that are not named here are features."""

    frame: pd.DataFrame
    """Columns as they were recorded: numbers, or strings for categories."""
    client: str
    """The column that says whose row it is."""
    label: str
    """The column to predict."""
    task: str
    """classification or regression."""
    time: str = ""
    """The column that orders a client's rows, where there is one."""
