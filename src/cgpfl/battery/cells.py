"""What is run, and what is kept of it: one file a problem and method, written when it is finished."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax

from cgpfl import __version__
from cgpfl.algorithms import get_method
from cgpfl.battery.problems import PROBLEMS, digest, federation
from cgpfl.data import FederatedData
from cgpfl.engine import Settings
from cgpfl.engine.together import Run
from cgpfl.errors import CgpflError
from cgpfl.experiment.batch import Batch, Done
from cgpfl.experiment.compared import check_made_with
from cgpfl.experiment.records import scores
from cgpfl.experiment.run import checked, fingerprint
from cgpfl.files import write
from cgpfl.metrics import agreement
from cgpfl.models import Model, as_model

EVALUATIONS = 5
"""Of a run: its last round is what counts."""


class Cell(NamedTuple):
    """One method on one problem, over some seeds."""

    problem: str
    method: str
    seeds: tuple[int, ...]

    def file(self, out: Path) -> Path:
        return out / "cells" / self.problem / f"{self.method}.{self.seeds[0]}-{self.seeds[-1]}.json"


class Unit(NamedTuple):
    """Cells of one method on problems of one form: one program."""

    method: str
    seeds: tuple[int, ...]
    problems: tuple[str, ...]

    def cells(self) -> list[Cell]:
        """One a problem."""
        return [Cell(problem, self.method, self.seeds) for problem in self.problems]


@dataclass(frozen=True)
class Outcome:
    """How the seeds of a cell ended."""

    problem: str
    method: str
    seeds: list[int]
    accuracy: list[float]
    """Pooled over clients, after the last round; 0 where the run diverged."""
    diverged: list[int | None]
    """The round (from 1) in which it did."""
    k: list[int | None]
    """Contexts in use, of methods that have contexts."""
    ari: list[float | None]
    """Agreement with the true contexts, where there are any."""
    seconds: float
    """The cell's share of its program's time, compilation included."""
    machine: str


def settings(rounds: int) -> Settings:
    """How every run is made."""
    return Settings(rounds=rounds, eval_every=max(1, rounds // EVALUATIONS))


def model_of(problem: str) -> Model:
    """Multinomial logistic regression for a problem."""
    form = PROBLEMS[problem].form
    return as_model("mlr", form.shape, form.classes)


def check(cells: Iterable[Cell], rounds: int) -> None:
    """Raise what a method has to say against a problem's size or the number of rounds, before anything runs."""
    for cell in {(PROBLEMS[c.problem].form, c.method): c for c in cells}.values():
        checked(get_method(cell.method), federation(cell.problem, cell.seeds[0]), settings(rounds))


def units(cells: Iterable[Cell]) -> list[Unit]:
    """The cells as programs: those of one method, one form and the same seeds together."""
    groups: dict[Any, list[str]] = {}
    for cell in cells:
        groups.setdefault((cell.method, cell.seeds, PROBLEMS[cell.problem].form), []).append(cell.problem)
    return [Unit(method, seeds, tuple(problems)) for (method, seeds, _), problems in groups.items()]


def batch_of(unit: Unit, rounds: int) -> Batch:
    """The unit's runs, problem by problem."""
    data = [(federation(problem, seed), seed) for problem in unit.problems for seed in unit.seeds]
    engine = settings(rounds).engine()
    del engine["seed"]
    method = checked(get_method(unit.method), data[0][0], settings(rounds))
    return Batch(unit.method, [Run(method, d, s) for d, s in data], model_of(unit.problems[0]), engine)


def keep(unit: Unit, done: Sequence[Done], out: Path, rounds: int, seconds: float) -> None:
    """Write a finished unit's cells."""
    device, n = jax.devices()[0], len(unit.seeds)
    software = f"cgpfl {__version__}, JAX {jax.__version__}, Python {platform.python_version()}"
    machine = f"{software}, on {device.device_kind} ({device.platform})"
    for i, cell in enumerate(unit.cells()):
        ends = done[i * n : (i + 1) * n]
        facts = [_end(e, federation(cell.problem, s)) for e, s in zip(ends, cell.seeds, strict=True)]
        accuracy, k, ari = (list(column) for column in zip(*facts, strict=True))
        ended = (list(cell.seeds), accuracy, [e.diverged for e in ends], k, ari)
        found = Outcome(cell.problem, cell.method, *ended, round(seconds / len(unit.problems), 3), machine)
        file = cell.file(out)
        file.parent.mkdir(parents=True, exist_ok=True)
        values = {**dataclasses.asdict(found), "made_with": made_with(cell, rounds)}
        write(file, (json.dumps(values, indent=1) + "\n").encode())


def load(cell: Cell, out: Path, rounds: int) -> Outcome:
    """A finished cell; refused where it was made with other settings or data."""
    file = cell.file(out)
    try:
        values = json.loads(file.read_text())
        made, found = values.pop("made_with"), Outcome(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CgpflError(f"{file}: cannot be read ({type(error).__name__}); delete it to run it anew") from error
    check_made_with(file, made, made_with(cell, rounds))
    return found


def made_with(cell: Cell, rounds: int) -> dict[str, Any]:
    """What a result must have been made with to be this one: the data themselves, and the method's parameters."""
    facts = fingerprint(get_method(cell.method), model_of(cell.problem), settings(rounds))
    del facts["seed"]
    return {**facts, "seeds": list(cell.seeds), "splits": [digest(cell.problem, s) for s in cell.seeds]}


def _end(done: Done, data: FederatedData) -> tuple[float, int | None, float | None]:
    """Accuracy, K and ARI of one run."""
    if done.diverged is not None or not done.records.rounds:
        return 0.0, None, None
    last = {name: values[-1] for name, values in done.records.values.items()}
    accuracy = scores(last["correct"], data.test.counts)["pooled"]
    if "k" not in last or "context" not in last:
        return accuracy, None, None
    return accuracy, int(last["k"]), agreement(data.context, last["context"])
