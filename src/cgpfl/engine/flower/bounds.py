"""What the cohort itself tells of an answer: counts and updates that are far from everybody else's are refused.

A client's weight is a number it says, and an update's length is its own choice. Both are bounded by the median of what
all said, generously: honest clients differ by a few times, and a run in which nobody lies is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from cgpfl.algorithms.wrapper import Sent
from cgpfl.engine.flower.orders import RefusedError

TIMES = 10
"""How many times the cohort's median a count, or an update's norm, may be."""
FEW = 3
"""Clients without which there is no median to speak of."""
AUTO = "auto"


def median(values: Sequence[float] | np.ndarray) -> float | None:
    """The lower median; None of fewer than :data:`FEW`."""
    return None if len(values) < FEW else float(np.sort(np.asarray(values, float))[(len(values) - 1) // 2])


def check_counts(name: str, now: int, was: int, everybody: Sequence[int], most: int, limit: int) -> None:
    """Refuse a number of samples: none, ``limit``, another than before, over ``most`` (0: :data:`TIMES` the median)."""
    if not 1 <= now < limit or (was and was != now):
        raise RefusedError(f"says it has {now} {name} samples" + (f", before {was}" if was else ""))
    middle = median(everybody)
    if most and now > most:
        raise RefusedError(f"says it has {now} {name} samples, over the bound of {most} (deploy.most)")
    if not most and middle is not None and now > TIMES * middle:
        raise RefusedError(
            f"says it has {now} {name} samples, over {TIMES} times the median of {middle:.0f}; "
            "where that is so, set deploy.most"
        )


def check_choice(arrays: Mapping[str, np.ndarray], contexts: int | None) -> None:
    """Refuse a context that a client chose and that there is not."""
    for name, value in arrays.items():
        if contexts is not None and name.endswith(".choice") and not ((value >= 0) & (value < contexts)).all():
            raise RefusedError(f"chose context {int(np.ravel(value)[0])}; there are 0..{contexts - 1}")


def norms(method: Any, message: Any, upload: Any) -> tuple[float, float]:
    """Norm of what an upload has moved away from what the client was sent, and of the upload itself."""
    upload = upload.upload if isinstance(upload, Sent) else upload
    leaves, structure = jax.tree.flatten(upload)
    anchor = method.anchor(message, upload) if leaves and hasattr(method, "anchor") else None
    form: Any = structure
    anchors = [None] * len(leaves) if anchor is None else form.flatten_up_to(anchor)
    moved = whole = 0.0
    for value, start in zip(leaves, anchors, strict=True):
        if np.issubdtype(np.asarray(value).dtype, np.floating):
            own = np.asarray(value, np.float64)
            whole += float(np.vdot(own, own))
            if start is not None or anchor is None:
                step = own if start is None else own - np.asarray(start, np.float64)
                moved += float(np.vdot(step, step))
    return moved**0.5, whole**0.5


def outliers(found: Mapping[int, tuple[float, float]]) -> dict[int, str]:
    """Of each client's :func:`norms`: whose update is too large to be honest, and why.

    An update may have :data:`TIMES` the median norm of the cohort's, and always that of a whole model: one who comes
    late moves more than those who have arrived.
    """
    moved, whole = (median([pair[part] for pair in found.values()]) for part in (0, 1))
    if moved is None or whole is None or not moved:
        return {}
    bound = max(TIMES * moved, whole)
    return {
        i: f"its update has norm {own:.4g}, over {bound:.4g}: {TIMES} times the median of this round's "
        "(deploy.largest = 0: any)"
        for i, (own, _) in found.items()
        if own > bound
    }
