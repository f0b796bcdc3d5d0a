"""Contestants timed in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.bench.machine import seconds


@dataclass(frozen=True)
class Contestant:
    """Something to time. ``run`` does ``units`` rounds' worth of work (below one: a part of the clients)."""

    name: str
    run: Callable[[], object]
    units: float = 1.0


def interleaved(contestants: list[Contestant], repeats: int, limit: float) -> dict[str, list[float]]:
    """Seconds a round, ``repeats`` of each contestant, one after the other in turn.

    What else the machine does then meets all alike. Past ``limit`` seconds no further turn begins.
    """
    times: dict[str, list[float]] = {c.name: [] for c in contestants}
    start = time.perf_counter()
    for turn in range(repeats):
        if turn and time.perf_counter() - start > limit:
            break
        for c in contestants:
            times[c.name].append(seconds(c.run) / c.units)
    return times


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """The middle of each contestant's."""
    return {name: median(values) for name, values in times.items()}
