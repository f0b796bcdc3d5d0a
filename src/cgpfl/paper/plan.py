"""What is asked for: which settings, which seeds, and the cells that hold the runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cgpfl.experiment.run import Stopped
from cgpfl.experiment.table import Runs
from cgpfl.paper.cells import Cell, Cells
from cgpfl.paper.section import Section
from cgpfl.paper.settings import PROX, Setting, at_k, competitors, family


@dataclass(frozen=True)
class Plan:
    """A reproduction in a folder."""

    out: Path
    quick: bool
    settings: dict[str, Setting]
    cells: Cells

    @property
    def seeds(self) -> list[int]:
        """The seeds of every run."""
        return self.cells.seeds

    @property
    def swept(self) -> list[Setting]:
        """The settings of Table 2 and of the figures over K."""
        return [s for s in self.settings.values() if s.lambdas]

    def runs(self, cell: Cell) -> Runs:
        """A finished cell."""
        return self.cells.get(cell)

    def pause(self, what: str) -> None:
        """A moment before ``what`` at which a reproduction may be stopped: everything so far is on disk."""
        if self.cells.stop():
            raise Stopped(what)


@dataclass(frozen=True)
class Part:
    """A table or figure: the cells it needs, and how it is made from them."""

    name: str
    meaning: str
    needs: Callable[[Plan], list[Cell]]
    make: Callable[[Plan], Section]


def family_cell(setting: Setting, label: str, prox: float = PROX) -> Cell:
    """A method of the paper's own family at one λ."""
    return Cell(setting, f"{label}-lambda-{prox:g}", family(setting, prox)[label])


def table_1_cell(setting: Setting, label: str) -> Cell:
    """A row of Table 1 in one setting."""
    others = competitors(setting)
    return Cell(setting, label, others[label]) if label in others else family_cell(setting, label)


def k_cell(setting: Setting, k: int) -> Cell:
    """CGPFL with K contexts, as a point of the sweep over K."""
    return Cell(setting, f"cgpfl-k-{k}", at_k(setting, k))


def percent(runs: Runs) -> tuple[float, float]:
    """Mean and standard deviation over seeds of the pooled accuracy, in percent; NaN where a seed diverged."""
    each = 100 * runs.accuracy()
    return float(each.mean()), float(each.std(ddof=1)) if len(each) > 1 else 0.0


def with_spread(mean: float, std: float, seeds: int) -> str:
    """As text: 95.2 ± 0.3."""
    if np.isnan(mean):
        return "diverged"
    return f"{mean:.1f} ± {std:.1f}" if seeds > 1 else f"{mean:.1f}"
