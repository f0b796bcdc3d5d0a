"""Where samples come from: sets by name, or files and folders of the user's own."""

from __future__ import annotations

import importlib.util
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.data.federations import FEDERATIONS
from cgpfl.data.fetch import Tell, get, known, prepared
from cgpfl.data.folders import read_folder
from cgpfl.data.sets import SETS
from cgpfl.data.tables import SUFFIXES, Reading, Source, read_arrays, read_table, source_of
from cgpfl.errors import CgpflError, did_you_mean, one_line
from cgpfl.files import a_path, regular
from cgpfl.registry import Registry

SOURCES = Registry(
    "data set",
    {
        "digits": "1,797 images of handwritten digits, 8x8, 10 classes; comes with scikit-learn",
        "mnist": "60,000 images of handwritten digits, 28x28, 10 classes: MNIST's training part",
        "fashion-mnist": "60,000 images of clothes, 28x28, 10 classes: Fashion-MNIST's training part",
        "cifar10": "60,000 colour images, 32x32, 10 classes: CIFAR-10's training and test parts",
    },
)
"""By name, what it is; one of somebody else's is a function."""


PLAIN = Reading()


def is_file(name: str) -> bool:
    """Whether a source is a file or folder of the user's."""
    named = name.lower().endswith((".npz", *SUFFIXES)) or ("/" in name and ":" not in name)
    return named or os.path.isdir(name)  # noqa: PTH112 (which takes a name that is too long for none)


def load(name: str, tell: Tell | None = None, reading: Reading = PLAIN) -> Source:
    """The set called ``name``, or a file or folder of the user's, read as ``reading`` says.

    A file is a table (``.csv``, ``.parquet``) or an ``.npz`` with arrays x, y and perhaps client; of folders see
    :func:`~cgpfl.data.folders.read_folder`.

    A set that is not here is fetched (``tell``: see :func:`cgpfl.data.fetch.get`) and kept in the cache folder.
    It is read once a process and cannot be written to: everybody gets the same array x.
    """
    if is_file(name):
        return _file(a_path(name, "data"), reading)
    if name in FEDERATIONS:
        return _federation(name, reading, tell)
    if said := reading.chosen():
        raise CgpflError(f"{next(iter(said))}: is for tables and folders of yours; data {name} has its own")
    if name == "digits":
        return _digits()
    if (found := known(name)) is not None:
        return _images(found, tell)
    if ":" in name or name in SOURCES.installed():
        return _brought(name, SOURCES.find(name))
    raise CgpflError(
        f"no data {name!r}; {did_you_mean(name, (*SOURCES, *FEDERATIONS))}there are"
        f" {', '.join((*SOURCES, *FEDERATIONS))}, or give a file (.csv, .parquet, or "
        ".npz with arrays x and y), a folder with a file a client, or package.module:function"
    )


def _federation(name: str, reading: Reading, tell: Tell | None) -> Source:
    """A set with clients of its own; a table's time only orders its rows where that is asked for."""
    found = FEDERATIONS[name].load(tell=tell)
    if isinstance(found, Source):
        return found._replace(task="classification")
    own = next((k for k in ("client", "label", "task") if getattr(reading, k) != getattr(PLAIN, k)), None)
    if own is not None:
        raise CgpflError(f"{own}: is for tables and folders of yours; data {name} has its own")
    aside = (*reading.ignore, *([found.time] if found.time and found.time != reading.time else []))
    known = replace(reading, client=found.client, label=found.label, task=found.task, ignore=aside)
    return source_of(found.frame, known, f"data {name}")


def _file(path: Path, reading: Reading) -> Source:
    if path.is_dir():
        return read_folder(path, reading)
    if not path.exists():
        raise CgpflError(f"data {path}: does not exist")
    regular(path, f"data {path}")
    if path.suffix.lower() in SUFFIXES:
        return source_of(read_table(path), reading, f"data {path}")
    if path.suffix.lower() == ".npz":
        tables = {k: v for k, v in reading.chosen().items() if k != "task"}
        if tables:
            raise CgpflError(f"{next(iter(tables))}: is for tables and folders; data {path} has arrays x, y and client")
        return _npz(path)._replace(task=reading.task)
    raise CgpflError(f"data {path}: unknown kind of file; must be .csv, .parquet or .npz, or a folder")


def _brought(name: str, make: Any) -> Source:
    """A set of somebody else's: a function that returns a Source, or arrays (x, y) or (x, y, client)."""
    try:
        found = make() if callable(make) else make
    except Exception as error:
        raise CgpflError(f"data {name}: {one_line(error)}") from error
    if isinstance(found, Source):
        return found
    if not (isinstance(found, tuple) and len(found) in (2, 3)):
        raise CgpflError(f"data {name}: must return (x, y) or (x, y, client), not {type(found).__name__}")
    return _of_arrays(f"data {name}", np.asarray(found[0]), np.asarray(found[1]), *map(np.asarray, found[2:]))


def is_here(name: str) -> bool:
    """Whether the set called ``name`` can be loaded without being fetched."""
    if name in FEDERATIONS:
        return FEDERATIONS[name].here
    found = known(name)
    return found is None or prepared(found).exists()


_kept: dict[Path, Source] = {}
_one_reader = threading.Lock()


def _images(name: str, tell: Tell | None) -> Source:
    spec, path = SETS[name], prepared(name)
    with _one_reader:
        if path not in _kept:
            x, y = get(name, tell)
            x.flags.writeable = y.flags.writeable = False
            _kept[path] = Source(
                x[: spec.used], y[: spec.used], spec.classes, spec.scale, spec.shift, task="classification"
            )
        return _kept[path]


def _digits() -> Source:
    rows = _digits_file()
    if rows is None:
        from sklearn.datasets import load_digits

        rows = np.column_stack(load_digits(return_X_y=True)).astype(np.uint8)
    images, labels = rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(np.int32)
    return Source(np.ascontiguousarray(images), labels, 10, 1 / 6.016, -4.884 / 6.016, task="classification")


def _digits_file() -> np.ndarray | None:
    """scikit-learn's file of digits ``[1797, 65]``."""
    path = with_sklearn("digits.csv.gz")
    return None if path is None else np.loadtxt(path, delimiter=",", dtype=np.uint8)


def with_sklearn(name: str) -> Path | None:
    """A file of samples that comes with scikit-learn; found without importing scikit-learn: that takes a second."""
    found = importlib.util.find_spec("sklearn")
    places = (found and found.submodule_search_locations) or ()
    files = (Path(place) / "datasets" / "data" / name for place in places)
    return next((file for file in files if file.is_file()), None)


def _npz(path: Path) -> Source:
    arrays = read_arrays(path)
    if "x" not in arrays or "y" not in arrays:
        raise CgpflError(f"data {path}: has arrays {', '.join(arrays) or 'none'}; must have x and y")
    extra = [k for k in arrays if k not in ("x", "y", "client")]
    if extra:
        raise CgpflError(f"data {path}: has an array {extra[0]!r}; there may be x, y and client")
    return _of_arrays(f"data {path}", arrays["x"], arrays["y"], arrays.get("client"))


def _of_arrays(where: str, x: np.ndarray, y: np.ndarray, client: np.ndarray | None = None) -> Source:
    if x.ndim < 1 or y.ndim < 1 or y.size == 0 or len(x) != len(y):
        raise CgpflError(f"{where}: x {x.shape} and y {y.shape}; must be x [n, features...] and y [n]")
    if client is not None and client.shape != (len(y),):
        raise CgpflError(f"{where}: client has shape {client.shape}; must be one client a sample, {(len(y),)}")
    scale = 1 / 255 if x.dtype == np.uint8 else 1.0
    return Source(x, y, None, scale, 0.0, client)
