"""One client's own data from files: what a node, or a new client, brings.

A file is a NumPy archive (.npz) with x and y, or a table (.csv, .parquet): columns are matched by name with those that
the models were trained on, or, where those were arrays, are the features (an image's pixels) in order, with a column
label (or y). A folder holds train and test files, or one file. Values are raw, in the units of the experiment's data.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cgpfl.data.federated import FederatedData
from cgpfl.data.form import Form
from cgpfl.data.samples import samples
from cgpfl.data.tables import LABELS, SUFFIXES, read_arrays, read_table
from cgpfl.errors import CgpflError
from cgpfl.files import regular

KINDS = (".npz", *SUFFIXES)


class Samples(NamedTuple):
    """Raw samples ``x [n, *shape]`` and, where they are known, labels ``y [n, ...]`` as codes."""

    x: np.ndarray
    y: np.ndarray | None


class Files(NamedTuple):
    """A client's files; ``test`` is None where the one file holds everything."""

    train: Path
    test: Path | None


def load_local(path: Path, form: Form, *, test: float = 0.25, seed: int = 0) -> FederatedData:
    """The federation of one client (id 0) whose data is the file or folder ``path``.

    Inputs must be of the ``form``'s columns or shape (or flat, ``[n, features]``), labels of its kinds. ``test`` is the
    share held out, drawn by ``seed``, unless the folder has a test file.
    """
    files = files_of(Path(path))
    own = _labelled(files.train, form)
    held = None if files.test is None else _labelled(files.test, form)
    return one_client(own, form, held=held, test=test, seed=seed, source=str(path))


def one_client(
    own: tuple[np.ndarray, np.ndarray],
    form: Form,
    *,
    held: tuple[np.ndarray, np.ndarray] | None = None,
    test: float = 0.25,
    seed: int = 0,
    source: str = "",
) -> FederatedData:
    """The federation of one client with these samples, encoded and labels as codes."""
    more: dict[str, Any] = {"scale": form.scale, "shift": form.shift}
    more |= {"classes": form.classes, "task": form.objective.task, "about": {"source": source, "split": "local"}}
    if held is not None:
        data = FederatedData.from_clients([own], [held], **more)
    else:
        try:
            data = FederatedData.from_clients([own], test, seed=seed, **more)
        except CgpflError as error:  # too few samples to cut, or no share
            raise CgpflError(f"data {source}: {error}") from error
    return data.with_form(form)


def files_of(path: Path) -> Files:
    """The file ``path``, or the files of the folder ``path``: train and test, or one."""
    if not path.is_dir():
        return Files(path, None)
    found = sorted(p for p in path.iterdir() if p.suffix.lower() in KINDS)
    if len(found) == 1:
        return Files(found[0], None)
    named = {p.stem: p for p in found}
    if len(found) == 2 and set(named) == {"train", "test"}:
        return Files(named["train"], named["test"])
    there = ", ".join(p.name for p in found) or "none"
    raise CgpflError(f"data {path}: has files {there}; must have train and test, or one file ({', '.join(KINDS)})")


def read_samples(path: Path, form: Form) -> Samples:
    """The samples of one file, checked; labels are optional."""
    if not path.exists():
        raise CgpflError(f"data {path}: no such file or folder")
    regular(path, f"data {path}")
    if path.suffix.lower() not in KINDS:
        raise CgpflError(f"data {path}: unknown kind of file {path.suffix or path.name!r}; must be {', '.join(KINDS)}")
    where = f"data {path}"
    if path.suffix.lower() == ".npz":
        x, y = _npz(path)
        x = _shaped(x, form, where)
    else:
        x, y = _table(path, form, where)
    return Samples(samples(x, where), None if y is None else form.answers(y, where))


def _labelled(path: Path, form: Form) -> tuple[np.ndarray, np.ndarray]:
    x, y = read_samples(path, form)
    if y is None:
        column = f"column {form.columns.label}" if form.columns is not None else "column label (or y)"
        raise CgpflError(f"data {path}: has no labels; a table needs a {column}, an .npz an array y")
    return x, y


def _npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    arrays = read_arrays(path)
    if "x" not in arrays or arrays["x"].ndim < 2:
        there = ", ".join(f"{k} {v.shape}" for k, v in arrays.items()) or "none"
        raise CgpflError(f"data {path}: has arrays {there}; must have x [n, ...], and y [n] where labels are known")
    return arrays["x"], arrays.get("y")


def _shaped(x: np.ndarray, form: Form, where: str) -> np.ndarray:
    """Arrays ``[n, *shape]``, or flat, as ``[n, *shape]``."""
    if form.columns is not None:
        raise CgpflError(f"{where}: has arrays; the models take a table with columns {', '.join(form.columns.names)}")
    if len(x) == 0:
        raise CgpflError(f"{where}: has no samples")
    shape, size = form.shape, math.prod(form.shape)
    if x.shape[1:] not in (shape, (size,)):
        must = f"{size} features" if len(shape) == 1 else f"shape {shape}, or {size} features in that order"
        has = f"{x.shape[1]} features" if x.ndim == 2 else f"shape {x.shape[1:]}"
        raise CgpflError(f"{where}: a sample has {has}; must have {must}")
    return x.reshape(len(x), *shape)


def _table(path: Path, form: Form, where: str) -> tuple[np.ndarray, Any]:
    import pandas as pd

    frame = read_table(path)
    if form.columns is not None:
        targets = [c.strip() for c in form.columns.label.split(",")]
        there = [c for c in targets if c in frame.columns]
        known = there == targets and not frame[there].isna().all(axis=None)
        y = (frame[there].to_numpy() if len(targets) > 1 else frame[there[0]].to_numpy()) if known else None
        return form.columns.encode(frame.drop(columns=there), where), y
    named = [c for c in LABELS if c in frame.columns]
    if len(named) > 1:
        raise CgpflError(f"{where}: has the columns label and y; only one can be the labels")
    features = frame.drop(columns=named)
    for place, name in enumerate(features.columns):
        kind = features.dtypes.iloc[place]
        if not (pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind)):
            raise CgpflError(f"{where}: column {name!r} has type {kind}; features must be numbers")
    x = features.to_numpy(np.float32, na_value=np.nan)
    return _shaped(x, form, where), frame[named[0]].to_numpy() if named else None
