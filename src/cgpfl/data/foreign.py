"""Data sets of other libraries as pairs (x, y): ``torch``, Hugging Face ``datasets``, Flower Datasets' partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.data.labels import listed
from cgpfl.errors import CgpflError


def pair_of(thing: Any, label: str, where: str) -> tuple[Any, Any]:
    """Samples ``[n, ...]`` and labels ``[n]`` of one client's data; ``label``: its column of labels.

    Errors begin with ``where`` it is. A pair (x, y) is itself. Of a Hugging Face data set all other columns are the
    samples: one column of images or lists, or several of numbers. Of a ``torch`` data set each item is a pair.
    """
    if isinstance(thing, tuple | list) and len(thing) == 2 and not hasattr(thing, "column_names"):
        return _array(thing[0]), _array(thing[1])
    if hasattr(thing, "column_names") and hasattr(thing, "features"):
        return _columns(thing, label, where)
    if hasattr(thing, "__getitem__") and hasattr(thing, "__len__"):
        return _items(thing)
    raise CgpflError(f"clients: {type(thing).__name__} is no pair (x, y), torch data set or Hugging Face Dataset")


def class_names(thing: Any, label: str) -> tuple[str, ...]:
    """Names of the classes of a data set's column of labels (a ``ClassLabel``), in their order; () where none has."""
    features = getattr(thing, "features", None) if hasattr(thing, "column_names") else None
    return tuple(getattr(features.get(label), "names", None) or ()) if features else ()


def _columns(dataset: Any, label: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    names = list(dataset.column_names)
    if label not in names:
        raise CgpflError(f"label {label!r}: the data set has columns {', '.join(names)}")
    others = [n for n in names if n != label]
    if not others:
        raise CgpflError(f"label {label!r}: the data set has no other column")
    if not len(dataset[label]):
        raise CgpflError(f"{where}: the data set is empty")
    columns = [np.stack([_array(v) for v in dataset[n]]) for n in others]
    odd = next((n for n, c in zip(others, columns, strict=True) if c.dtype.kind not in "biuf"), None)
    if odd is not None:
        raise CgpflError(f"column {odd!r}: holds no numbers; use FederatedData.from_frame(dataset.to_pandas(), …)")
    if len(columns) == 1:
        x = columns[0]
        return (x if x.ndim > 1 else x[:, None]), _labels(dataset, label, where)
    if any(c.ndim > 1 for c in columns):
        shapes = ", ".join(f"{n} {c.shape[1:]}" for n, c in zip(others, columns, strict=True))
        raise CgpflError(f"clients: the data set has columns {shapes}; keep one of arrays, by select_columns")
    return np.stack(columns, axis=1), _labels(dataset, label, where)


def _labels(dataset: Any, label: str, where: str) -> np.ndarray:
    """The column of labels; numbers of classes that have names as these names."""
    y, names = np.asarray(dataset[label]), class_names(dataset, label)
    if not names or y.dtype.kind not in "iu":
        return y
    wrong = np.flatnonzero((y < 0) | (y >= len(names)))
    if wrong.size:
        first = int(wrong[0])
        said = "is none, remove such samples" if y[first] == -1 else "has no name"
        raise CgpflError(
            f"{where}: label {y[first]} at sample {first} {said}; labels must be 0..{len(names) - 1} ({listed(names)})"
        )
    return np.asarray(names)[y]


def _items(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    pairs = [dataset[i] for i in range(len(dataset))]
    if not pairs or not all(isinstance(p, tuple | list) and len(p) == 2 for p in pairs):
        raise CgpflError(f"clients: items of {type(dataset).__name__} must be pairs (sample, label)")
    return np.stack([_array(x) for x, _ in pairs]), np.asarray([_array(y) for _, y in pairs])


def _array(value: Any) -> np.ndarray:
    """A tensor, an image or a list as an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value)
