"""Long and wide records made small enough for a page."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_POINTS, MOST_CLIENTS = 400, 2000
"""Evaluations and clients that are drawn; of more, so many evenly spread ones."""


def thin(count: int, most: int = MOST_POINTS) -> np.ndarray:
    """Positions of at most ``most`` of ``count`` things, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)) if count else np.zeros(0, int)


def spread(clients: int) -> np.ndarray:
    """The clients that are drawn."""
    return thin(clients, MOST_CLIENTS)


def run_lengths(labels: np.ndarray) -> list[int]:
    """Run lengths: [0, 0, 0, 2] → [0, 3, 2, 1]."""
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    lengths = np.diff(np.r_[starts, len(labels)])
    return np.stack([labels[starts], lengths], axis=1).ravel().tolist()


def compact(value: Any) -> Any:
    """Plain values for JSON: arrays as lists, five digits, null for what is not finite."""
    if isinstance(value, dict):
        return {k: compact(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [compact(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.5g}") if np.isfinite(value) else None
    return value
