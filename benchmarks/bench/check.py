"""Before anything is timed: contestants must compute the same."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks.bench.ours import ClientRounds, Ours
from cgpfl.errors import CgpflError

TOLERANCE = 1e-3
"""Of how far the parameters moved: float32 over fifty steps, summed in another order."""
TOLERANCE_ON_A_GPU = 5e-2
"""For PyTorch's convolutions there, which may round to tf32 though they are asked not to."""
CHECKED = 3
"""Clients whose rounds are compared."""


def difference(a: Any, b: Any, start: Any) -> float:
    """The largest difference between trees ``a`` and ``b``, as a share of the largest move of ``a`` from ``start``."""
    apart, moved = 0.0, 0.0
    for u, v, s in zip(*map(jax.tree.leaves, (a, b, start)), strict=True):
        apart = max(apart, float(np.abs(np.asarray(u) - np.asarray(v)).max()))
        moved = max(moved, float(np.abs(np.asarray(u) - np.asarray(s)).max()))
    return apart / moved if moved else float("inf")


def check_round(ours: Ours, expected: ClientRounds) -> float:
    """After its first round the simulation's clients must hold what their own rounds gave."""
    if expected.personal is None:
        return 0.0  # they keep nothing
    clients = len(expected.y)
    held = jax.tree.map(lambda v: np.asarray(v[:clients]), ours.drive.state.clients)
    return agree(ours.case.name, "the compiled round", difference(expected.personal, held, expected.start))


def checked(ours: Ours) -> Ours:
    """What is checked after its first round: on a GPU the same in float32, where ``ours`` is timed in tf32.

    Fifty steps of a network enlarge what tf32 rounds away: up to a fifth of the largest move in a round.
    """
    if jax.default_backend() == "cpu":
        return ours
    exact = Ours(ours.case, "float32")
    exact.advance(1)
    return exact


def agree(case: str, who: str, found: float, tolerance: float = TOLERANCE) -> float:
    """``found``, or an error where it is past the tolerance."""
    if not found < tolerance:
        raise CgpflError(f"{case}: {who} does not compute the client's round: off by {found:.2g} of its move")
    return found
