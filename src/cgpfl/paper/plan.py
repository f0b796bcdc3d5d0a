"""What is asked for: which settings, which seeds, and the cells that hold the runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.engine.drive import Stopped
from cgpfl.errors import CgpflError
from cgpfl.experiment.table import Runs
from cgpfl.paper.cells import Cell, Cells
from cgpfl.paper.section import Section
from cgpfl.paper.settings import Setting


class NotRunError(CgpflError):
    """A run that has not been computed, where nothing is to be."""


@dataclass(frozen=True)
class Plan:
    """A reproduction in a folder."""

    out: Path
    quick: bool
    settings: dict[str, Setting]
    cells: Cells
    as_is: bool = False
    """Draw what there is; compute nothing."""

    @property
    def seeds(self) -> list[int]:
        """The seeds of the tables."""
        return self.cells.seeds

    @property
    def swept(self) -> list[Setting]:
        """The settings of Table 2 and of the figures over K."""
        return [s for s in self.settings.values() if s.lambdas]

    def runs(self, cell: Cell) -> Runs:
        if not self.cells.has(cell):
            raise NotRunError(f"{cell.name}: has not been run")
        return self.cells.get(cell)

    def begin(self, what: str) -> None:
        """Asked before ``what``, which is not on disk, is computed."""
        if self.as_is:
            raise NotRunError(f"{what}: has not been run")
        self.pause(what)

    def pause(self, what: str) -> None:
        """A moment before ``what`` at which a reproduction may be stopped: everything so far is on disk."""
        if self.cells.stop():
            raise Stopped(what)


def swept(plan: Plan) -> list[Setting]:
    """The settings of Table 2 and of the figures over K."""
    return plan.swept


@dataclass(frozen=True)
class Part:
    """A table or figure: what it needs, and how it is made from that.

    ``tunes`` are settings and methods whose rates must be chosen first; ``needs`` are cells, which may have those
    rates; ``prepare`` computes what is not kept in cells (``make`` does, where that was not done). All three are asked
    for the plan's settings alone. ``over`` are settings that can be left out where they are not finished; none: the
    part is made of what there is, or not at all.
    """

    name: str
    meaning: str
    needs: Callable[[Plan], list[Cell]]
    make: Callable[[Plan], Section]
    tunes: Callable[[Plan], list[tuple[Setting, str]]] = lambda plan: []
    prepare: Callable[[Plan], Any] = lambda plan: None
    over: Callable[[Plan], list[Setting]] = lambda plan: []


def of_seeds(runs: Runs, seeds: Sequence[int]) -> Runs:
    """The runs of some of the seeds."""
    kept = [i for i, seed in enumerate(runs.seeds) if seed in seeds]
    lists = ("seeds", "records", "samples", "answers", "rounds", "diverged", "ari")
    fewer: dict[str, Any] = {name: [getattr(runs, name)[i] for i in kept] for name in lists}
    return replace(runs, **fewer)


def percent(runs: Runs) -> tuple[float, float]:
    """Mean and standard deviation over seeds of the pooled accuracy, in percent; NaN where a seed diverged."""
    each = 100 * runs.accuracy()
    return float(each.mean()), float(each.std(ddof=1)) if len(each) > 1 else 0.0


def with_spread(mean: float, std: float, seeds: int) -> str:
    """As text: 95.2 ± 0.3."""
    if np.isnan(mean):
        return "diverged"
    return f"{mean:.1f} ± {std:.1f}" if seeds > 1 else f"{mean:.1f}"


def shown(runs: Runs) -> str:
    """A cell's accuracy as text; where only some seeds diverged, how many."""
    bad, seeds = sum(d is not None for d in runs.diverged), len(runs.seeds)
    return f"diverged {bad}/{seeds}" if 0 < bad < seeds else with_spread(*percent(runs), seeds)
