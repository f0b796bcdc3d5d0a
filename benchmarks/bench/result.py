"""What was measured."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from benchmarks.bench.counts import Counts, floor
from benchmarks.bench.grid import Grid
from benchmarks.bench.machine import Rates
from benchmarks.bench.work import Case


@dataclass(frozen=True)
class Row:
    """One case. Times are seconds a round, medians."""

    case: Case
    ours: float  # T rounds in one call
    alone: float  # one round in a call
    rounds: int  # T
    compile: float  # seconds, with tracing
    memory: int  # bytes at most while ours was set up and ran first; on a GPU, those of the compiled rounds
    counts: Counts
    rivals: dict[str, float] = field(default_factory=dict)  # "loop", "vmap", scaled to all clients
    timed: dict[str, int] = field(default_factory=dict)  # clients they were timed with
    variants: dict[str, str] = field(default_factory=dict)  # which number of threads was best
    dropped: tuple[str, ...] = ()  # variants not timed: they lost by far in a trial
    difference: float = 0.0  # largest between contestants, as a share of a client's move
    times: dict[str, list[float]] = field(default_factory=dict)  # every timing

    def floor(self, rates: Rates) -> float:
        """Seconds of a round, as it is written, at this machine's own rates."""
        return floor(self.counts, rates.operations, rates.bytes)

    def ratios(self, rates: Rates) -> dict[str, float]:
        """How much longer the others take than ours, and ours than the floor."""
        return {
            **{f"{who}/ours": seconds / self.ours for who, seconds in self.rivals.items()},
            "ours/floor": self.ours / self.floor(rates),
        }


@dataclass(frozen=True)
class Sweep:
    """Many runs in one program against one run. Seconds."""

    runs: int
    rounds: int
    single_first: float  # compilation included
    single_again: float  # compiled already
    sweep_first: float
    sweep_again: float
    bar: float  # what the first ratio should stay below here
    difference: float  # of the single run from the same run inside the sweep, as a share of its move

    @property
    def ratio(self) -> float:
        """Compilation included."""
        return self.sweep_first / self.single_first

    @property
    def ratio_again(self) -> float:
        """Compilation apart."""
        return self.sweep_again / self.single_again


@dataclass(frozen=True)
class Result:
    """A whole benchmark."""

    grid: Grid
    machine: dict[str, Any]
    rates: Rates
    rows: tuple[Row, ...] = ()
    sweep: Sweep | None = None
    notes: tuple[str, ...] = ()  # what was left out, and why

    def as_dict(self) -> dict[str, Any]:
        """For JSON: ratios first."""
        return {
            "rows": [
                {
                    "ratios": row.ratios(self.rates),
                    "floor": row.floor(self.rates),
                    **dataclasses.asdict(row),
                }
                for row in self.rows
            ],
            "sweep": None
            if self.sweep is None
            else {"ratio": self.sweep.ratio, "ratio_again": self.sweep.ratio_again, **dataclasses.asdict(self.sweep)},
            "machine": {**self.machine, "rates": dataclasses.asdict(self.rates)},
            "grid": dataclasses.asdict(self.grid),
            "notes": list(self.notes),
        }
