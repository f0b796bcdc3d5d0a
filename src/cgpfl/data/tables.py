"""Tables: a frame, a CSV or Parquet file, with a column that says whose a row is."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cgpfl.data.columns import ENCODINGS, cells
from cgpfl.data.federated import FederatedData
from cgpfl.data.labels import guess_task, one_kind
from cgpfl.data.samples import owners
from cgpfl.errors import CgpflError
from cgpfl.files import regular
from cgpfl.hyperparameters import hyper
from cgpfl.objectives import TASKS

SUFFIXES = (".csv", ".parquet")
LABELS = ("label", "y")
"""What a table's column of labels may be called, where nobody says."""
CLIENTS = ("client", "client_id")
"""The same for the column that says whose a row is."""
TEST = {"test": True, "train": False, "true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
"""What a column that says which rows are for testing may hold."""


@dataclass(frozen=True)
class Reading:
    """How a table, a folder or a text of the user's is read: settings of ``[data]``."""

    client: str = hyper("", "a table's column that says whose a row is")
    label: str = hyper("", "a table's column that is predicted; several of numbers as a,b")
    task: str = hyper("auto", "what is learned", words=("auto", *TASKS))
    time: str = hyper("", "a table's column by which each client's latest samples are its test part")
    held: str = hyper("", "a table's column that says which rows are for testing: test or train")
    ignore: tuple[str, ...] = hyper((), "a table's columns that are no features", kind=tuple, labels=str)
    categorical: tuple[str, ...] = hyper((), "a table's columns of numbers that are names", kind=tuple, labels=str)
    encoding: str = hyper("one-hot", "of a table's categories", words=ENCODINGS)
    standardise: bool = hyper(True, "whether a table's numbers get mean 0 and deviation 1", kind=bool)
    size: int = hyper(0, "side to which images in folders are brought; 0 = as they are", low=0, high=4096)
    length: int = hyper(64, "characters of a sequence, of texts in folders", low=2, high=65536)

    def chosen(self) -> dict[str, Any]:
        """What is not as usual."""
        usual = Reading()
        return {k: v for k, v in vars(self).items() if v != getattr(usual, k)}


class Source(NamedTuple):
    """Samples before any split."""

    x: Any
    """``[n, ...]``, or a table's cells (:func:`cgpfl.data.columns.cells`)."""
    y: np.ndarray
    """Labels of any kind, or codes where ``classes`` says so."""
    classes: int | None = None
    scale: float = 1.0
    """Model inputs are x * scale + shift."""
    shift: float = 0.0
    client: np.ndarray | None = None
    """``[n]``: whose sample it is, where the source knows; numbers or names."""
    labels: tuple[Any, ...] = ()
    task: str = "auto"
    held: np.ndarray | None = None
    """``[n]``: which are test samples, where the source says."""
    time: np.ndarray | None = None
    """``[n]``: in which order they were taken, where that decides what is tested."""
    table: tuple[str, tuple[str, ...]] | None = None
    """Of a table: its column of labels, and those that are no features."""


def read_table(path: Path) -> Any:
    """A CSV or Parquet file as a frame, its columns' names without blanks around."""
    import pandas as pd

    if not path.exists():
        raise CgpflError(f"data {path}: no such file or folder")
    regular(path, f"data {path}")
    try:
        frame = pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except Exception as error:
        raise CgpflError(f"data {path}: cannot be read as a table ({type(error).__name__})") from error
    frame.columns = pd.Index([str(c).strip() for c in frame.columns])
    if not len(frame):
        raise CgpflError(f"data {path}: has no samples")
    return frame


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file; nothing in it is unpickled."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:
        raise CgpflError(f"data {path}: cannot be read as NumPy arrays ({type(error).__name__})") from error


def source_of(frame: Any, reading: Reading, where: str) -> Source:
    """A frame as samples."""
    frame = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    if isinstance(frame, type) or not hasattr(frame, "columns"):
        raise CgpflError(f"{where}: {type(frame).__name__} is no table; give a pandas or Polars frame")
    frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
    there = list(frame.columns)
    label = reading.label or _only(there, LABELS, where)
    targets = [part.strip() for part in label.split(",")]
    client = reading.client or _only(there, CLIENTS, where, needed=False)
    said = {"for client": [client], "for time": [reading.time], "for held": [reading.held], "for label": targets}
    wanted = [(what, c) for what, columns in said.items() for c in columns if c]
    for what, column in [*wanted, *(("to ignore", c) for c in reading.ignore)]:
        if column not in there:
            raise CgpflError(f"{where}: has no column {column!r} {what}; it has {', '.join(there)}")
    twice = next((c for c in there if there.count(c) > 1), None)
    if twice is not None:
        raise CgpflError(f"{where}: column {twice!r} is there {there.count(twice)} times")
    aside = [c for c in (client, reading.time, reading.held, *reading.ignore) if c]
    features = frame.drop(columns=[*dict.fromkeys([*aside, *targets])])
    if features.shape[1] == 0:
        raise CgpflError(f"{where}: has no columns beside {', '.join([*targets, *aside])}; features are needed")
    y = frame[targets].to_numpy() if len(targets) > 1 else one_kind(frame[label].to_numpy())
    task = guess_task(y) if reading.task == "auto" else reading.task
    if task == "next-token":
        raise CgpflError(f"{where}: next-token is learned from texts or arrays of tokens, not from a table")
    whose = None
    if client:
        if frame[client].isna().any():
            raise CgpflError(
                f"{where}: column {client!r}: row {int(frame[client].isna().to_numpy().argmax())} has no client"
            )
        whose = frame[client].to_numpy()
    return Source(
        x=cells(features, reading.categorical, where),
        y=y,
        client=whose,
        task=task,
        labels=tuple(targets) if task == "multi-label" else (),
        held=_tested(frame[reading.held], where) if reading.held else None,
        time=_ordered(frame[reading.time], where) if reading.time else None,
        table=(label, tuple(dict.fromkeys(aside))),
    )


def of_frame(
    frame: Any,
    *,
    client: str,
    label: str,
    test: float = 0.25,
    validation: float = 0.0,
    seed: int = 0,
    smallest: int = 0,
    **reading: Any,
) -> FederatedData:
    """See :meth:`FederatedData.from_frame`."""
    unknown = [k for k in reading if k not in vars(Reading())]
    if unknown:
        raise CgpflError(f"from_frame: no setting {unknown[0]!r}; it has {', '.join(vars(Reading()))}")
    label = label if isinstance(label, str) else ",".join(map(str, label))
    named = {k: reading[k] for k in ("ignore", "categorical") if k in reading}
    lists: dict[str, Any] = {k: (v,) if isinstance(v, str) else tuple(v) for k, v in named.items()}
    settings = Reading(**{"client": client, "label": label, **reading, **lists})
    source = source_of(frame, settings, "frame")
    return federation(source, settings, test=test, validation=validation, seed=seed, smallest=smallest)


def federation(
    source: Source,
    reading: Reading,
    *,
    test: float,
    validation: float,
    seed: int,
    smallest: int = 0,
    about: dict[str, Any] | None = None,
) -> FederatedData:
    """A source with clients of its own as a federation; clients with fewer than ``smallest`` samples are left out."""
    if source.client is None:
        raise CgpflError("client: the data does not say whose a sample is; name its column by client")
    owner, names = owners(source.client, len(source.y))
    sizes = np.bincount(owner)
    kept = np.flatnonzero(sizes >= smallest)
    if not kept.size:
        raise CgpflError(f"smallest = {smallest}: no client has so many samples; the largest has {sizes.max()}")
    named = (
        tuple((names or tuple(map(str, range(len(sizes)))))[i] for i in kept) if names or len(kept) < len(sizes) else ()
    )
    about = dict(about or {})
    if len(kept) < len(sizes):
        about["left_out"] = f"{len(sizes) - len(kept)} of {len(sizes)} clients, with fewer than {smallest} samples"
    more: dict[str, Any] = {"held": source.held, "time": source.time, "names": named, "about": about}
    if source.task != "auto":
        more["task"] = source.task
    more |= {"classes": source.classes, "labels": source.labels}
    if isinstance(source.x, dict):
        more |= {"encoding": reading.encoding, "standardise": reading.standardise}
    else:
        more |= {"scale": source.scale, "shift": source.shift}
    parts = [np.flatnonzero(owner == i) for i in kept]
    data = FederatedData.from_parts(source.x, source.y, parts, test=test, validation=validation, seed=seed, **more)
    return with_table(data, source)


def with_table(data: FederatedData, source: Source) -> FederatedData:
    """The federation's columns with the names of those that are no features."""
    if data.columns is None or source.table is None:
        return data
    label, aside = source.table
    return replace(data, columns=replace(data.columns, label=label, aside=aside))


def _only(there: list[str], usual: Iterable[str], where: str, needed: bool = True) -> str:
    """The one of the ``usual`` columns that is there."""
    found = [c for c in usual if c in there]
    if len(found) > 1:
        raise CgpflError(f"{where}: has the columns {' and '.join(found)}; say which one is meant")
    if not found and needed:
        raise CgpflError(f"{where}: say by label which column is predicted; it has {', '.join(there)}")
    return found[0] if found else ""


def _tested(series: Any, where: str) -> np.ndarray:
    """A column of test and train as ``[n]`` bool."""
    found = [TEST.get(str(v).strip().lower().removesuffix(".0")) for v in series]
    if None in found:
        row = found.index(None)
        raise CgpflError(f"{where}: column {series.name!r}: row {row} is {series.iloc[row]!r}; must be test or train")
    return np.array(found, bool)


def _day_first(series: Any, where: str) -> bool:
    """Whether dates such as 13/02/2020 begin with the day; where no day is above 12, nobody can tell."""
    numbered = [m for v in series if (m := re.match(r"\s*(\d{1,2})[/.-](\d{1,2})[/.-]\d", str(v)))]
    if not numbered:
        return False
    first, second = (max(int(m[k]) for m in numbered) > 12 for k in (1, 2))
    if first == second:
        raise CgpflError(
            f"{where}: column {series.name!r}: {numbered[0].string!r}: day or month first? write 2020-01-31"
        )
    return first


def _ordered(series: Any, where: str) -> np.ndarray:
    """A column of times as ranks ``[n]``."""
    if series.isna().any():
        raise CgpflError(f"{where}: column {series.name!r}: row {int(series.isna().to_numpy().argmax())} has no time")
    import pandas as pd

    if series.dtype == object or pd.api.types.is_string_dtype(series.dtype):
        day_first = _day_first(series, where)
        try:
            with warnings.catch_warnings(action="ignore"):  # what cannot be read is an error
                series = pd.to_datetime(series, dayfirst=day_first)
        except (ValueError, TypeError) as error:
            raise CgpflError(f"{where}: column {series.name!r}: is no time: {series.iloc[0]!r}, …") from error
    return np.unique(series.to_numpy(), return_inverse=True)[1]
