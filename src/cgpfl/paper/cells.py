"""The runs behind tables and figures: each computed once, kept on disk, as many as possible in one program.

A cell is one method in one setting, over its seeds. Cells that differ only in numbers (λ, K, rates), in seeds and in
who holds what are stacked and run as one program. A finished cell is a file; a run that is stopped goes on with the
others.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax

from cgpfl.data import FederatedData, Reading
from cgpfl.engine import Settings
from cgpfl.engine.together import Run
from cgpfl.experiment.batch import Batch, as_runs, compiling, run_batch
from cgpfl.experiment.compared import load, save
from cgpfl.experiment.config import DataConfig
from cgpfl.experiment.records import Records
from cgpfl.experiment.run import Progress, checked, fingerprint
from cgpfl.experiment.table import Runs
from cgpfl.files import write
from cgpfl.models import Model, as_model
from cgpfl.paper.settings import Setting

KEPT = ("correct", "validation_correct", "train_loss", "context", "k", "complexity", "cost", "mu")
"""Records that a table or figure is made of; the others, of thousands of runs, would only fill the disk."""


class Cell(NamedTuple):
    """One method in one setting."""

    setting: Setting
    label: str
    method: Any
    seeds: tuple[int, ...] | None = None
    """None: all of the plan's."""

    @property
    def name(self) -> str:
        """Of its file, without the ending."""
        return f"{self.setting.name}/{self.label}"


def federation(setting: Setting, seed: int) -> FederatedData:
    """The federation of a setting and a seed; the same object each time, so that runs share it."""
    return _federation(setting.data, setting.pixels, seed)


@lru_cache(maxsize=64)
def _federation(recipe: DataConfig, pixels: tuple[float, float] | None, seed: int) -> FederatedData:
    data = recipe.build(seed)
    if pixels is None:
        return data
    black, white = pixels
    return dataclasses.replace(data, scale=(white - black) / 255, shift=black)


@lru_cache(maxsize=64)
def _digest(recipe: DataConfig, pixels: tuple[float, float] | None, seed: int) -> str:
    return _federation(recipe, pixels, seed).digest


def made_with(setting: Setting, method: Any, seeds: list[int], **more: Any) -> dict[str, Any]:
    """What a result must have been made with to be this one: the data themselves, not only their recipe."""
    run = Settings(rounds=setting.rounds, eval_every=setting.eval_every)
    facts = fingerprint(method, model_of(setting), run)
    usual = vars(Reading())  # how tables are read is no matter of the paper's
    data = {k: v for k, v in dataclasses.asdict(setting.data).items() if k != "given" and (k, v) not in usual.items()}
    data = {"data": data, "pixels": setting.pixels and list(setting.pixels)}
    splits = [_digest(setting.data, setting.pixels, s) for s in seeds]
    return {**facts, "seeds": seeds, **data, "splits": splits, **more}


def model_of(setting: Setting) -> Model:
    """The setting's model."""
    data = federation(setting, 0)
    return as_model(setting.model, data.shape, data.classes)


@dataclass
class Cells:
    """The finished cells of a folder, and how to finish others."""

    folder: Path
    seeds: list[int]
    on_progress: Callable[[Progress], None] | None = None
    stop: Callable[[], bool] = lambda: False
    _loaded: dict[str, Runs] = field(default_factory=dict)

    def finish(self, cells: Iterable[Cell]) -> None:
        """Run every cell that has no file yet; a file that was made otherwise is refused before anything runs."""
        wanted: dict[str, Cell] = {c.name: c for c in cells}
        for cell in wanted.values():
            if self.has(cell):
                self.get(cell)
        missing = {name: c for name, c in wanted.items() if not self.has(c)}
        groups: dict[Any, list[Cell]] = {}
        for cell in missing.values():
            groups.setdefault(_program(cell), []).append(cell)
        batches = [self._batch(group) for group in groups.values()]
        with compiling(batches) as wait:
            for i, (batch, group) in enumerate(zip(batches, groups.values(), strict=True)):
                began = time.perf_counter()
                wait(i)
                self._run(batch, group)
                self.add_seconds(batch.label, time.perf_counter() - began)

    def has(self, cell: Cell) -> bool:
        return self._file(cell).exists()

    def get(self, cell: Cell) -> Runs:
        """A finished cell; an error where its file was made with other settings or data."""
        if cell.name not in self._loaded:
            samples = [federation(cell.setting, s).test.counts for s in self._seeds(cell)]
            self._loaded[cell.name] = load(self._file(cell), self._made_with(cell), samples)
        return self._loaded[cell.name]

    def seconds(self) -> dict[str, float]:
        """Wall-clock time of every program run so far, compilation included."""
        file = self.folder / "times.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def add_seconds(self, name: str, seconds: float) -> None:
        """Note what something took, to be told with the results."""
        times = self.seconds()
        times[name] = round(times.get(name, 0.0) + seconds, 2)
        write(self.folder / "times.json", (json.dumps(times, indent=2) + "\n").encode())

    def _batch(self, group: list[Cell]) -> Batch:
        """The runs of cells that share a program: cell after cell, its seeds in order."""
        setting = group[0].setting
        first = federation(setting, self._seeds(group[0])[0])
        ready = {c.name: checked(c.method, first, Settings(rounds=setting.rounds)) for c in group}
        todo = [Run(ready[c.name], federation(c.setting, s), s) for c in group for s in self._seeds(c)]
        name = f"{setting.name} {group[0].label}" + (f" (+{len(group) - 1})" if len(group) > 1 else "")
        engine = {"rounds": setting.rounds, "eval_every": setting.eval_every}
        return Batch(name, todo, model_of(setting), engine)

    def _run(self, batch: Batch, group: list[Cell]) -> None:
        """Run a group and keep each of its cells."""
        began = time.perf_counter()
        done = run_batch(batch, on_progress=self.on_progress, stop=self.stop)
        seconds = (time.perf_counter() - began) / len(batch.todo)
        start = 0
        for cell in group:
            n = len(self._seeds(cell))
            own = slice(start, start + n)
            needed = [{k: v for k, v in d.records.values.items() if k in KEPT} for d in done[own]]
            kept = [d._replace(records=Records(d.records.rounds, v)) for d, v in zip(done[own], needed, strict=True)]
            runs = as_runs(batch._replace(label=cell.label, todo=batch.todo[own]), kept, seconds=n * seconds)
            self._file(cell).parent.mkdir(parents=True, exist_ok=True)
            save(self._file(cell), runs, self._made_with(cell))
            start += n

    def _file(self, cell: Cell) -> Path:
        return self.folder / "cells" / f"{cell.name}.safetensors"

    def _made_with(self, cell: Cell) -> dict[str, Any]:
        return made_with(cell.setting, cell.method, self._seeds(cell))

    def _seeds(self, cell: Cell) -> list[int]:
        return self.seeds if cell.seeds is None else list(cell.seeds)


def _program(cell: Cell) -> tuple[Any, ...]:
    """What cells of one program share: samples, model, rounds and everything of the method that is no number."""
    of = cell.setting
    samples = dataclasses.replace(of.data, split="cyclic", spread=0.0)
    return (samples, of.pixels, of.model, of.rounds, of.eval_every, jax.tree.structure(cell.method))
