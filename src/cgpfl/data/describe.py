"""A federation in a few lines: what ``print(data)`` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cgpfl.data.labels import listed
from cgpfl.tables import origin

if TYPE_CHECKING:
    from cgpfl.data.federated import FederatedData

MOST_NAMES = 5
"""Clients whose names are listed; of more, the first ones."""


def described(data: FederatedData) -> str:
    """Clients, samples, shape, classes, contexts and names, without a look at the samples."""
    about, sizes = data.about, data.train.counts
    where = f": {origin(about)}" if "source" in about else ""
    parts = {"training": data.train, "test": data.test, "validation": data.validation}
    held = [f"{int(t.counts.sum()):,} for {name}" for name, t in parts.items() if t is not None]
    held += [] if data.public is None else [f"{len(data.public):,} public"]
    shape = " × ".join(map(str, data.shape))
    lines = [
        f"FederatedData{where}",
        f"clients: {data.clients:,}, with {between(sizes)} training samples each",
        f"samples: {', '.join(held)}; inputs {shape} ({data.x.dtype}), {_answers(data)}",
    ]
    if data.context is not None:
        lines.append(f"true contexts: {len(np.unique(data.context))}")
    names = list(data.names)
    if names:
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        lines.append(f"names: {', '.join(names[:MOST_NAMES])}{more}")
    return "\n  ".join(lines)


def _answers(data: FederatedData) -> str:
    """What models answer."""
    many = "" if data.classes == 1 else "s"
    words = {
        "regression": f"{data.classes} number{many} to predict",
        "multi-label": f"{data.classes} labels, any of them",
    }
    words |= {"next-token": f"next of {data.classes} tokens", "classification": f"{data.classes} classes"}
    named = f": {listed(data.labels)}" if data.labels else ""
    return words[data.task] + named


def between(counts: np.ndarray) -> str:
    """``33 to 34``, or ``33``."""
    return " to ".join(dict.fromkeys(f"{int(v):,}" for v in (counts.min(), counts.max())))
