"""One client's own data from files: what a node, or a new client, brings.

A file is a NumPy archive (.npz) with x and y, or a table (.csv, .parquet) with a column label (or y) and the
features, or an image's pixels row by row, in the other columns. A folder holds train and test files, or one file.
Values are raw, in the units of the experiment's data: models scale them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cgpfl.data.federated import FederatedData, _arrays
from cgpfl.errors import CgpflError

LABELS = ("label", "y")
"""What a table's column of labels may be called."""


class Samples(NamedTuple):
    """Raw samples ``x [n, *shape]`` and, where they are known, labels ``y [n]``."""

    x: np.ndarray
    y: np.ndarray | None


class Files(NamedTuple):
    """A client's files; ``test`` is None where the one file holds everything."""

    train: Path
    test: Path | None


def load_local(
    path: Path,
    shape: tuple[int, ...],
    classes: int,
    *,
    test: float = 0.25,
    seed: int = 0,
    scale: float,
    shift: float,
) -> FederatedData:
    """The federation of one client (id 0) whose data is the file or folder ``path``.

    Inputs must have ``shape`` (or be flat, ``[n, features]``) and labels be 0..``classes``-1. ``test`` is the share
    held out, drawn by ``seed``, unless the folder has a test file. Model inputs are x * ``scale`` + ``shift``.
    """
    files = files_of(Path(path))
    more: dict[str, Any] = {"classes": classes, "scale": scale, "shift": shift}
    more["about"] = {"source": str(path), "split": "local"}
    own = _labelled(files.train, shape, classes)
    if files.test is not None:
        return FederatedData.from_clients([own], [_labelled(files.test, shape, classes)], **more)
    try:
        return FederatedData.from_clients([own], test, seed=seed, **more)
    except CgpflError as error:  # too few samples to cut, or no share
        raise CgpflError(f"data {path}: {error}") from error


def files_of(path: Path) -> Files:
    """The file ``path``, or the files of the folder ``path``: train and test, or one."""
    if not path.is_dir():
        return Files(path, None)
    found = sorted(p for p in path.iterdir() if p.suffix.lower() in READERS)
    if len(found) == 1:
        return Files(found[0], None)
    named = {p.stem: p for p in found}
    if len(found) == 2 and set(named) == {"train", "test"}:
        return Files(named["train"], named["test"])
    there = ", ".join(p.name for p in found) or "none"
    raise CgpflError(f"data {path}: has files {there}; must have train and test, or one file ({_suffixes()})")


def read_samples(path: Path, shape: tuple[int, ...], classes: int) -> Samples:
    """The samples of one file, checked; labels are optional."""
    if not path.exists():
        raise CgpflError(f"data {path}: no such file or folder")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise CgpflError(f"data {path}: unknown kind of file {path.suffix or path.name!r}; must be {_suffixes()}")
    x, y = reader(path)
    if len(x) == 0:
        raise CgpflError(f"data {path}: has no samples")
    size = math.prod(shape)
    if x.shape[1:] not in (shape, (size,)):
        must = f"{size} features" if len(shape) == 1 else f"shape {shape}, or {size} features in that order"
        has = f"{x.shape[1]} features" if x.ndim == 2 else f"shape {x.shape[1:]}"
        raise CgpflError(f"data {path}: a sample has {has}; must have {must}")
    known = np.zeros(len(x), np.int64) if y is None else _labels(y, classes, path)
    x, labels = _arrays(x.reshape(len(x), *shape), known, f"data {path}")
    return Samples(x, None if y is None else labels)


def _labelled(path: Path, shape: tuple[int, ...], classes: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = read_samples(path, shape, classes)
    if y is None:
        raise CgpflError(f"data {path}: has no labels; a table needs a column label (or y), an .npz an array y")
    return x, y


def _npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:
        raise CgpflError(f"data {path}: cannot be read as NumPy arrays ({type(error).__name__})") from error
    if "x" not in arrays or arrays["x"].ndim < 2:
        there = ", ".join(f"{k} {v.shape}" for k, v in arrays.items()) or "none"
        raise CgpflError(f"data {path}: has arrays {there}; must have x [n, ...], and y [n] where labels are known")
    return arrays["x"], arrays.get("y")


def _table(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    import pandas as pd

    try:
        frame = pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except Exception as error:
        raise CgpflError(f"data {path}: cannot be read as a table ({type(error).__name__})") from error
    frame.columns = [str(c).strip() for c in frame.columns]
    named = [c for c in LABELS if c in frame.columns]
    if len(named) > 1:
        raise CgpflError(f"data {path}: has the columns label and y; only one can be the labels")
    features = frame.drop(columns=named)
    for place, name in enumerate(features.columns if len(frame) else []):  # without rows there are no types
        kind = features.dtypes.iloc[place]
        if not (pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind)):
            raise CgpflError(f"data {path}: column {name!r} has type {kind}; features must be numbers")
    return features.to_numpy(np.float32, na_value=np.nan), frame[named[0]].to_numpy() if named else None


READERS: dict[str, Callable[[Path], tuple[np.ndarray, np.ndarray | None]]] = {
    ".npz": _npz,
    ".csv": _table,
    ".parquet": _table,
}


def _labels(y: np.ndarray, classes: int, path: Path) -> np.ndarray:
    """Labels as integers; whole numbers of another type are taken as such."""
    must = f"labels must be whole numbers 0..{classes - 1}"
    try:
        values = np.asarray(y, np.float64)
    except (TypeError, ValueError) as error:
        raise CgpflError(f"data {path}: {must}, found type {y.dtype}") from error
    bad = ~((values >= 0) & (values < classes) & (values == np.round(values)))  # NaN is bad, too
    if values.ndim == 1 and bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise CgpflError(f"data {path}: {must}, found {values[first]:g} at sample {first}")
    return values.astype(np.int64)


def _suffixes() -> str:
    return ", ".join(READERS)
