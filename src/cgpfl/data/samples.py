"""What users give – samples, labels, whose they are – checked and as it is stored, and the cut into parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cgpfl.data import labels as naming
from cgpfl.errors import CgpflError


def owners(client: Any, samples: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Whose each sample is: numbers 0..N-1 as they are, anything else as names in order → (``[n]``, names)."""
    owner = np.asarray(client)
    if owner.shape != (samples,) or owner.size == 0:
        raise CgpflError(f"client: has shape {owner.shape}; needs one client a sample, {(samples,)}")
    if np.issubdtype(owner.dtype, np.integer) and owner.min() >= 0 and len(np.unique(owner)) == owner.max() + 1:
        return owner.astype(np.int64), ()
    codes, names = naming.encode(owner, "client")
    return codes.astype(np.int64), tuple(map(str, names))


def pair(x: Any, y: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
    """One client's samples and labels, as many of each."""
    x, y = samples(x, where), np.asarray(y)
    if y.ndim < 1 or len(x) != len(y):
        raise CgpflError(f"{where}: x {x.shape} and y {y.shape}; must be x [n, features...] and y [n]")
    return x, y


def samples(x: Any, where: str = "data") -> np.ndarray:
    """Samples ``[n, ...]`` as they are stored: uint8 or float32."""
    x = np.asarray(x)
    if x.ndim < 2:
        raise CgpflError(f"{where}: x has shape {x.shape}; must be x [n, features...] and y [n]")
    if not (np.issubdtype(x.dtype, np.number) and np.isrealobj(x)):
        raise CgpflError(f"{where}: x has type {x.dtype}; must be numbers")
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        first = int(np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1))[0])
        raise CgpflError(f"{where}: x has NaN or infinite values, first at sample {first}; remove or fill them")
    return x.astype(np.float32) if x.dtype not in (np.uint8, np.float32) else x


MOST_CLASSES = 200_000
"""A model has an output for each, for every client."""


def answers(y: Any, task: str, classes: int | None, labels: Sequence[Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """Labels of any kind as they are stored, and what they are: task, classes, labels."""
    found, known = _answers(y, task, classes, labels)
    if known["classes"] > MOST_CLASSES:
        raise CgpflError(
            f"y: has {known['classes']:,} classes; must have at most {MOST_CLASSES:,} (numbers are task = regression)"
        )
    return found, known


def _answers(y: Any, task: str, classes: int | None, labels: Sequence[Any]) -> tuple[np.ndarray, dict[str, Any]]:
    naming.check_task(task)
    task = naming.guess_task(y) if task == "auto" and classes is None and not labels else task
    if task in ("regression", "multi-label"):
        found = naming.targets(y, "y")
        if task == "multi-label" and not np.isin(found, (0, 1)).all():
            raise CgpflError("y: labels of many must be 0 or 1 each")
        named = tuple(labels) if task == "multi-label" else ()
        return found, {"task": task, "classes": found.shape[1], "labels": named}
    if task == "next-token":
        tokens = np.asarray(y)
        if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
            raise CgpflError(f"y: has shape {tokens.shape} and type {tokens.dtype}; next tokens are integers [n, T]")
        return tokens.astype(np.int32), {
            "task": task,
            "classes": classes or int(tokens.max()) + 1,
            "labels": tuple(labels),
        }
    array = np.asarray(y)
    if array.ndim != 1:
        raise CgpflError(f"y: has shape {array.shape}; must be one label a sample, [n]")
    if classes is not None and not labels:
        if not np.issubdtype(array.dtype, np.integer):
            raise CgpflError(f"y: has type {array.dtype}; must be integer labels 0..{classes - 1}")
        if array.size and (array.min() < 0 or array.max() >= classes):
            worst = int(array.min() if array.min() < 0 else array.max())
            raise CgpflError(f"y: labels out of range: {worst}; must be 0..{classes - 1}")
        return array.astype(np.int32), {"classes": max(classes, 2)}
    codes, known = naming.encode(array, "y", labels)
    usual = known == tuple(range(len(known))) and not any(isinstance(v, bool) for v in known)
    return codes, {"classes": max(len(known), 2), "labels": () if usual else known}


def cut(
    parts: Sequence[np.ndarray],
    test: float,
    validation: float,
    seed: int,
    names: Sequence[str] = (),
    given: np.ndarray | None = None,
    time: np.ndarray | None = None,
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Shuffle each client's samples and cut them into train, test and validation; the test part may be given."""
    if not (0 < test < 1 and 0 <= validation < 1 and test + validation < 1):
        raise CgpflError(
            f"test = {test:g}, validation = {validation:g}: shares must be >= 0 (test > 0) and sum to less than 1"
        )
    cuts = []
    given = None if given is None else np.asarray(given).astype(bool)
    for i, part in enumerate(parts):
        part = np.asarray(part)
        order = np.random.default_rng([seed, 1, i]).permutation(part)
        held = max(round(len(part) * test), 1)
        extra = max(round(len(part) * validation), 1) if validation > 0 else 0
        if given is not None:  # test samples last but for validation, which comes from the others
            held = int(given[part].sum())
            order = np.concatenate([order[~given[order]], order[given[order]]])
            fit, end = len(part) - held - extra, len(part) - held
            order = np.concatenate([order[:fit], order[end:], order[fit:end]])
        elif time is not None:
            early = part[np.argsort(time[part], kind="stable")]
            rest, last = early[: len(part) - held], early[len(part) - held :]
            rest = np.random.default_rng([seed, 1, i]).permutation(rest)
            order = np.concatenate([rest[: len(rest) - extra], last, rest[len(rest) - extra :]])
        if len(part) < held + extra + 1 or held == 0:
            needed = "train and test" if extra == 0 else "train, test and validation"
            who = names[i] if names else i
            raise CgpflError(f"client {who}: has {len(part)} samples; needs at least one each to {needed}")
        train = len(part) - held - extra
        cuts.append((order[:train], order[train : train + held], order[train + held :]))
    return cuts
