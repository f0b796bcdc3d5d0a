"""Where samples come from: sets by name, or a NumPy file of the user's own."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cgpfl.data.fetch import Tell, get, known, prepared
from cgpfl.data.sets import SETS
from cgpfl.errors import CgpflError, did_you_mean
from cgpfl.registry import Registry


class Source(NamedTuple):
    """Samples before any split."""

    x: np.ndarray
    y: np.ndarray
    classes: int
    scale: float
    """Model inputs are x * scale + shift."""
    shift: float
    client: np.ndarray | None = None
    """``[n]``: whose sample it is, where the source knows."""


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


def load(name: str, tell: Tell | None = None) -> Source:
    """The set called ``name``, or a ``.npz`` file with x, y and perhaps client.

    A set that is not here is fetched (``tell``: see :func:`cgpfl.data.fetch.get`) and kept in the cache folder.
    It is read once a process and cannot be written to: everybody gets the same array x.
    """
    if name == "digits":
        return _digits()
    if name.endswith(".npz"):
        return _npz(Path(name))
    if (found := known(name)) is not None:
        return _images(found, tell)
    if ":" in name or name in SOURCES.installed():
        return _brought(name, SOURCES.find(name))
    raise CgpflError(
        f"no data {name!r}; {did_you_mean(name, SOURCES)}there are {', '.join(SOURCES)}, or give a file NAME.npz "
        "with arrays x and y, or package.module:function"
    )


def _brought(name: str, make: Any) -> Source:
    """A set of somebody else's: a function that returns a Source, or arrays (x, y) or (x, y, client)."""
    try:
        found = make() if callable(make) else make
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise CgpflError(f"data {name}: {reason}") from error
    if isinstance(found, Source):
        return found
    if not (isinstance(found, tuple) and len(found) in (2, 3)):
        raise CgpflError(f"data {name}: must return (x, y) or (x, y, client), not {type(found).__name__}")
    return _of_arrays(f"data {name}", np.asarray(found[0]), np.asarray(found[1]), *map(np.asarray, found[2:]))


def is_here(name: str) -> bool:
    """Whether the set called ``name`` can be loaded without being fetched."""
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
            _kept[path] = Source(x[: spec.used], y[: spec.used], spec.classes, spec.scale, spec.shift)
        return _kept[path]


def _digits() -> Source:
    rows = _digits_file()
    if rows is None:
        from sklearn.datasets import load_digits

        rows = np.column_stack(load_digits(return_X_y=True)).astype(np.uint8)
    images, labels = rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(np.int32)
    return Source(np.ascontiguousarray(images), labels, 10, scale=1 / 6.016, shift=-4.884 / 6.016)


def _digits_file() -> np.ndarray | None:
    """scikit-learn's file of digits ``[1797, 65]``, read without importing scikit-learn: that takes a second."""
    found = importlib.util.find_spec("sklearn")
    for place in (found and found.submodule_search_locations) or ():
        path = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return np.loadtxt(path, delimiter=",", dtype=np.uint8)
    return None


def _npz(path: Path) -> Source:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:
        reason = "does not exist" if not path.exists() else f"cannot be read as NumPy arrays ({type(error).__name__})"
        raise CgpflError(f"data {path}: {reason}") from error
    if "x" not in arrays or "y" not in arrays:
        raise CgpflError(f"data {path}: has arrays {', '.join(arrays) or 'none'}; must have x and y")
    return _of_arrays(f"data {path}", arrays["x"], arrays["y"], arrays.get("client"))


def _of_arrays(where: str, x: np.ndarray, y: np.ndarray, client: np.ndarray | None = None) -> Source:
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or y.size == 0:
        raise CgpflError(f"{where}: y has shape {y.shape} and type {y.dtype}; must be integer labels [n]")
    scale = 1 / 255 if x.dtype == np.uint8 else 1.0
    return Source(x, y, int(y.max()) + 1, scale, 0.0, client)
