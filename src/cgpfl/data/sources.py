"""Where samples come from: sets by name, or a NumPy file of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from cgpfl.errors import CgpflError


class Source(NamedTuple):
    """Samples before any split."""

    x: np.ndarray
    y: np.ndarray
    classes: int
    scale: float
    """Model inputs are x * scale + shift: for images, to mean 0 and standard deviation 1."""
    shift: float
    client: np.ndarray | None = None
    """``[n]``: whose sample it is, where the source knows."""


SOURCES = {"digits": "1,797 images of handwritten digits, 8x8, 10 classes; comes with scikit-learn"}


def load(name: str) -> Source:
    """The set called ``name``, or a ``.npz`` file with x, y and perhaps client."""
    if name == "digits":
        return _digits()
    if name.endswith(".npz"):
        return _npz(Path(name))
    raise CgpflError(f"no data {name!r}; there are {', '.join(SOURCES)}, or give a file NAME.npz with arrays x and y")


def _digits() -> Source:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Source(
        digits.images.astype(np.uint8), digits.target.astype(np.int32), 10, scale=1 / 6.016, shift=-4.884 / 6.016
    )


def _npz(path: Path) -> Source:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:
        reason = "does not exist" if not path.exists() else f"cannot be read as NumPy arrays ({type(error).__name__})"
        raise CgpflError(f"data {path}: {reason}") from error
    if "x" not in arrays or "y" not in arrays:
        raise CgpflError(f"data {path}: has arrays {', '.join(arrays) or 'none'}; must have x and y")
    y = arrays["y"]
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or y.size == 0:
        raise CgpflError(f"data {path}: y has shape {y.shape} and type {y.dtype}; must be integer labels [n]")
    x = arrays["x"]
    scale = 1 / 255 if x.dtype == np.uint8 else 1.0
    return Source(x, y, int(y.max()) + 1, scale, 0.0, arrays.get("client"))
