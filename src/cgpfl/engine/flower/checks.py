"""A client's answer as it came, and whether what it measured can be what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from cgpfl.engine.flower.orders import RefusedError


@dataclass(frozen=True)
class Answer:
    """A client's answer as it came, nothing of it checked."""

    train: int
    samples: int
    tests: int
    anew: bool
    metrics: Mapping[str, float | Sequence[float]]
    upload: Callable[[Any], dict[str, np.ndarray]]
    """The named arrays, given the form they must have."""
    told: str = ""
    """What it says of its data, where that was asked."""


def size_of(like: Any) -> int:
    """Numbers in a tree of this form."""
    return sum(leaf.size for leaf in jax.tree.leaves(like))


def check_metrics(answer: Answer, measures: Mapping[str, Any], task: str) -> None:
    """Refuse other measures than those asked for, and numbers that cannot be."""
    found, names = sorted(answer.metrics), sorted(measures)
    if found != names:
        raise RefusedError(f"has measured {', '.join(found) or 'nothing'}, not {', '.join(names)}")
    values = {name: np.atleast_1d(value) for name, value in answer.metrics.items()}
    for name, value in values.items():
        if value.size != size_of(measures[name]):
            raise RefusedError(f"{name} has {value.size} numbers, not {size_of(measures[name])}")
        if not np.isfinite(value).all():
            raise RefusedError(f"{name} is not finite")
    lowest = -np.inf if task == "regression" else 0.0  # a model may be worse than the mean
    for name in values.keys() & {"correct", "shared_correct"}:
        if not lowest <= values[name][0] <= answer.tests:
            raise RefusedError(f"{name} is {values[name][0]:g} of {answer.tests}")
