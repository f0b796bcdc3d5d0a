"""Labels of any kind – words, yes and no, numbers with gaps – as codes 0..classes-1, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from cgpfl.data.columns import Statistics, measure, numbers, shown, word
from cgpfl.errors import CgpflError
from cgpfl.objectives import TASKS

FEW = 50
"""Different whole numbers up to which they are taken for classes, where nobody says."""

LARGEST = 2**64
"""Numbers up to which they may be labels."""


def guess_task(values: Any) -> str:
    """What labels ``[n]`` or ``[n, k]`` are for: words, yes and no, few whole numbers, or 0..C-1 are classes."""
    array = np.asarray(values)
    if array.ndim > 2:
        raise CgpflError(f"y: has shape {array.shape}; must be one label a sample, [n], or several, [n, k]")
    if array.ndim == 2 and array.shape[1] == 1:
        return guess_task(array[:, 0])
    if array.ndim == 2:
        numeric = array.dtype.kind in "biuf" or all(isinstance(v, bool | int | float) for v in array.ravel())
        whole = numeric and bool(np.isin(array, (0, 1)).all())
        return "multi-label" if whole else "regression"
    if array.dtype.kind not in "iuf":
        return "classification"
    found = np.unique(array[np.isfinite(array.astype(float))])
    all_whole = bool((found == np.round(found)).all())
    codes = all_whole and len(found) > 0 and bool(found[0] == 0 and found[-1] == len(found) - 1)
    return "classification" if codes or (all_whole and len(found) <= FEW) else "regression"


def encode(values: Any, where: str, labels: Sequence[Any] = ()) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Labels ``[n]`` as (codes ``[n]`` int32, the values that they stand for, sorted).

    ``labels``: the values there may be; another one is an error.
    """
    found = [_plain(v) for v in np.asarray(values, object).ravel().tolist()]
    for row, value in enumerate(found):
        if value is None:
            raise CgpflError(f"{where}: row {row} has no label; remove it, or fill it in")
        if not isinstance(value, bool | int | float | str):
            raise CgpflError(f"{where}: row {row}: a label is a {type(value).__name__}; must be a word or a number")
        if not isinstance(value, str) and not -LARGEST <= value <= LARGEST:
            raise CgpflError(f"{where}: row {row}: a label is {shown(value)}; must be a word, or at most 2^64")
    if labels:
        found = _as_known(found, labels)
    known = tuple(labels) or _ordered(set(found), where)
    place = {key_of(v): i for i, v in enumerate(known)}
    codes = np.array([place.get(key_of(v), -1) for v in found], np.int32)
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise CgpflError(f"{where}: label {found[row]!r} at sample {row}; labels must be {listed(known)}")
    return codes, known


def one_kind(values: Any) -> np.ndarray:
    """Labels ``[n]`` of several files: where some have words, others' numbers are words, too ("1" and 1 are one)."""
    array = np.asarray(values)
    if array.dtype != object or len({isinstance(v, str) for v in array if _is_named(v)}) < 2:
        return array
    return np.array([word(v) if _is_named(v) else v for v in array], object)


def _is_named(value: Any) -> bool:
    """Whether it is a label that a word may be, too: no truth value, not missing, not too large."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return isinstance(value, str) or (number and -LARGEST <= value <= LARGEST)


def _as_known(found: list[Any], labels: Sequence[Any]) -> list[Any]:
    """Labels as known ones of another kind: the number 1 is the word "1", where only that is known."""
    by_word = {word(v): v for v in labels if not isinstance(v, bool)}
    same = {key_of(v) for v in labels}
    return [v if key_of(v) in same or isinstance(v, bool) else by_word.get(word(v), v) for v in found]


def targets(values: Any, where: str) -> np.ndarray:
    """Numbers to predict ``[n]`` or ``[n, k]`` as ``[n, k]`` float32."""
    import pandas as pd

    array = np.asarray(values)
    columns = [array] if array.ndim == 1 else list(array.T)
    found = np.stack([numbers(pd.Series(c), where) for c in columns], axis=1)
    if np.isnan(found).any():
        raise CgpflError(
            f"{where}: row {int(np.isnan(found).any(axis=1).argmax())} has no target; remove it, or fill it in"
        )
    return found.astype(np.float32)


def moments(y: np.ndarray) -> tuple[Statistics, ...]:
    """What one client says of its targets ``[n, k]``: statistics of each of the k."""
    return tuple(measure({"": column})[""] for column in y.T.astype(np.float64))


def pooled(each: Sequence[tuple[Statistics, ...]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation ``[k]`` of all clients' targets, from :func:`moments`."""
    total = [reduce(Statistics.merge, own) for own in zip(*each, strict=True)]
    return tuple(s.mean for s in total), tuple(s.std for s in total)


def check_task(task: str) -> None:
    """A task by name, or auto."""
    if task not in ("auto", *TASKS):
        raise CgpflError(f"task {task!r}: must be auto, {', '.join(TASKS)}")


def listed(labels: Sequence[Any], most: int = 8) -> str:
    """Labels for a message: a range where they are one."""
    if list(labels) == list(range(len(labels))):
        return f"0..{len(labels) - 1}"
    shown = ", ".join(map(str, labels[:most]))
    return shown if len(labels) <= most else f"{shown}, … ({len(labels)} in all)"


def _plain(value: Any) -> Any:
    """A label as Python has it: 1.0 is 1; None where there is none."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def key_of(value: Any) -> Any:
    """True and 1 are two labels."""
    return (isinstance(value, bool), value)


def _ordered(values: set[Any], where: str) -> tuple[Any, ...]:
    kinds = {isinstance(v, str) for v in values}
    if len(kinds) > 1:
        words, others = (next(v for v in values if isinstance(v, str) is is_word) for is_word in (True, False))
        raise CgpflError(f"{where}: labels are words and numbers ({words!r}, {others!r}); must be of one kind")
    return tuple(sorted(values, key=lambda v: v if isinstance(v, str) else (v, isinstance(v, bool))))
