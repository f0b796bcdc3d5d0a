"""A battery in a folder, from wishes to tables.

battery.json         what was asked for: seeds, rounds, quick
cells/PROBLEM/*.json a file each problem and method, kept: a battery that was stopped goes on with the others
battery.csv          every run; regrets.csv, contexts.csv: the tables' numbers
BATTERY.md           the tables; battery.png, .svg, .pdf: the picture
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax

from cgpfl.algorithms import METHODS
from cgpfl.algorithms.wrapper import standing_alone
from cgpfl.battery.cells import Cell, Outcome, Unit, batch_of, check, keep, load, units
from cgpfl.battery.problems import QUICK, chosen
from cgpfl.battery.processes import over_processes
from cgpfl.battery.regret import Regrets, regrets
from cgpfl.engine.drive import Stopped, interrupts
from cgpfl.errors import CgpflError
from cgpfl.experiment.batch import Batch, compiling, run_batch
from cgpfl.experiment.compare import ALWAYS
from cgpfl.experiment.run import Progress
from cgpfl.files import keep_wishes, same_wishes

QUICK_METHODS = ("local", "fedavg", "ditto", "ifca", "cgpfl-heur", "cgpfl-auto")
"""Of a quick battery, as far as there are such."""
CHOOSES = "cgpfl-auto"
"""The method whose contexts are looked at over more seeds."""
FORGET = 16
"""Programs after which compiled ones are forgotten: hundreds in one process exhaust its memory maps."""


@dataclass(frozen=True)
class Wishes:
    """What is asked for."""

    problems: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int
    rounds: int
    quick: bool = False
    more_seeds: int = 0
    """Seeds 0, 1, … over which the contexts of ``CHOOSES`` are looked at; 0: as the others'."""

    def cells(self) -> list[Cell]:
        """Method by method."""
        return [Cell(p, m, tuple(range(self.seeds))) for m in self.methods for p in self.problems]

    def more_cells(self) -> list[Cell]:
        """For the table of contexts alone."""
        first = self.seeds if CHOOSES in self.methods else 0
        more = tuple(range(first, self.more_seeds))
        return [Cell(p, CHOOSES, more) for p in self.problems] if more else []

    @property
    def kept(self) -> dict[str, Any]:
        """What everything in a folder has in common."""
        return {"seeds": self.seeds, "rounds": self.rounds, "quick": self.quick}


@dataclass(frozen=True)
class Battery:
    """A finished battery."""

    folder: Path
    wishes: Wishes
    regrets: Regrets
    outcomes: list[Outcome]
    more: list[Outcome]
    """Further seeds, for the table of contexts."""


def wishes_of(
    problems: Sequence[str] = (),
    methods: str | None = None,
    seeds: int | None = None,
    rounds: int | None = None,
    *,
    quick: bool = False,
    more_seeds: int = 0,
) -> Wishes:
    """Checked wishes, completed; local training and FedAvg are always among the methods."""
    found = chosen(problems or (QUICK if quick else ()))
    names = [m for m in standing_alone() if not quick or m in QUICK_METHODS]
    if methods is not None:
        asked = [m.strip() for m in methods.split(",") if m.strip()]
        for name in asked:
            if name != "all":
                METHODS.find(name)
        names = [m for m in METHODS if ("all" in asked and m in standing_alone()) or m in asked or m in ALWAYS]
        names += [name for name in asked if ":" in name]
    seeds = (2 if quick else 5) if seeds is None else seeds
    rounds = (20 if quick else 150) if rounds is None else rounds
    for name, value, low in (("seeds", seeds, 1), ("rounds", rounds, 1), ("contexts-seeds", more_seeds, 0)):
        if value < low:
            raise CgpflError(f"{name} = {value}: must be at least {low}")
    if more_seeds and CHOOSES not in METHODS:
        raise CgpflError(f"contexts-seeds: is for {CHOOSES}, and there is no such method")
    return Wishes(tuple(p.name for p in found), tuple(names), seeds, rounds, quick, more_seeds)


def run(wishes: Wishes, out: Path, *, jobs: int = 1, on_progress: Callable[[Progress], None] | None = None) -> Battery:
    """Run what is not in ``out`` yet, in ``jobs`` processes, then write tables and picture.

    Ctrl-C raises :class:`Stopped`; what is finished is kept.
    """
    if jobs < 1:
        raise CgpflError(f"jobs = {jobs}: must be at least 1")
    cells = [*wishes.cells(), *wishes.more_cells()]
    if not same_wishes(out / "battery.json", wishes.kept) and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CgpflError(f"out {out}: exists and is no folder of cgpfl battery; choose another")
    there = {cell for cell in cells if cell.file(out).exists()}
    for cell in there:
        load(cell, out, wishes.rounds)
    left = units(cell for cell in cells if cell not in there)
    check((cell for unit in left for cell in unit.cells()), wishes.rounds)
    keep_wishes(out / "battery.json", wishes.kept)
    tally = Tally(left, wishes.rounds, on_progress)
    with interrupts() as stop:
        if jobs == 1 or len(left) < 2:
            _one_by_one(left, out, wishes.rounds, tally.tell, stop)
        elif not over_processes(
            left,
            min(jobs, len(left)),
            out,
            wishes.rounds,
            platforms=jax.config.values["jax_platforms"],
            report=tally.tell,
            stop=stop,
        ):
            raise Stopped("battery")
    outcomes, more = ([load(c, out, wishes.rounds) for c in of] for of in (wishes.cells(), wishes.more_cells()))
    battery = Battery(out, wishes, regrets(outcomes), outcomes, more)
    from cgpfl.battery.files import write_all

    write_all(battery)
    return battery


def run_unit(
    unit: Unit,
    out: Path,
    rounds: int,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    batch: Batch | None = None,
) -> None:
    """Run one program and keep its cells."""
    began = time.perf_counter()
    done = run_batch(batch or batch_of(unit, rounds), on_progress=on_progress, stop=stop)
    keep(unit, done, out, rounds, time.perf_counter() - began)


class Tally:
    """Progress of units as progress of methods: a bar for each of those."""

    def __init__(self, todo: Sequence[Unit], rounds: int, tell: Callable[[Progress], None] | None) -> None:
        self._tell = tell
        self._rounds = dict.fromkeys(todo, 0)
        self._total = {u.method: rounds * sum(other.method == u.method for other in todo) for u in todo}
        self._began: dict[str, float] = {}

    def tell(self, unit: Unit, p: Progress) -> None:
        """A unit has come to ``p``."""
        now = time.perf_counter()
        began = self._began.setdefault(unit.method, now - p.seconds)
        self._rounds[unit] = p.round
        done = sum(n for u, n in self._rounds.items() if u.method == unit.method)
        if self._tell is not None:
            total = self._total[unit.method]
            self._tell(Progress(unit.method, done, total, p.accuracy, now - began, p.rounds_per_second))


def _one_by_one(
    todo: Sequence[Unit], out: Path, rounds: int, tell: Callable[[Unit, Progress], None], stop: Callable[[], bool]
) -> None:
    """The units in this process; on an accelerator, programs are compiled while those before them run."""
    batches = [batch_of(unit, rounds) for unit in todo]
    with compiling(batches) as wait:
        for i, (unit, batch) in enumerate(zip(todo, batches, strict=True)):
            wait(i)
            run_unit(unit, out, rounds, on_progress=partial(tell, unit), stop=stop, batch=batch)
            if i % FORGET == FORGET - 1 and jax.default_backend() == "cpu":
                jax.clear_caches()
