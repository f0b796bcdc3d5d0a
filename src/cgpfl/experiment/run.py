"""Run one method: blocks of rounds, progress, checkpoints, resume, divergence."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgpfl.algorithms.wrapper import seamed, unseamed
from cgpfl.data import FederatedData
from cgpfl.engine import Drive, Settings, engine_for
from cgpfl.engine.drive import Stopped
from cgpfl.engine.privacy import protected
from cgpfl.engine.problem import cohort_size
from cgpfl.engine.settings import SEAMS
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.events import Callback, Teller
from cgpfl.experiment.given import a_method
from cgpfl.experiment.records import Records, scores
from cgpfl.experiment.result import Result
from cgpfl.hyperparameters import parameters
from cgpfl.metrics import headline
from cgpfl.objectives import Classification
from cgpfl.rounds import SGD


@dataclass(frozen=True)
class Progress:
    """Where a run is, told after every block."""

    label: str
    round: int
    rounds: int
    accuracy: float | None
    seconds: float
    """Spent on this method so far."""
    rounds_per_second: float | None
    """None while only compilation has been seen."""
    message: str | None = None
    metric: str = "accuracy"
    """What ``accuracy`` is called: the task's first metric."""


class Interrupted(Stopped):
    """Ctrl-C between two blocks. ``result`` holds what was computed; with a folder it is saved, too."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result.label}: stopped after round {result.rounds}")
        self.result = result


def checked(
    method: Any, data: FederatedData, settings: Settings, federations: Mapping[int, FederatedData] | None = None
) -> Any:
    """``method``, under the rules of its rounds, with its hyper-parameters checked by themselves and here.

    ``federations``: of each seed, where it is for several.
    """
    prepared = seamed(a_method(method), settings.seams())
    prepared = protected(prepared, settings, {settings.seed: data} if federations is None else federations)
    if getattr(prepared, "needs_public", False) and data.public is None:
        name = getattr(prepared, "name", type(prepared).__name__)
        raise CgpflError(f"{name}: needs samples that everybody has; set data.public, for instance to 0.1")
    if hasattr(prepared, "check"):
        asked = cohort_size(settings.participation, data.clients)
        prepared.check(data.clients, settings.rounds * asked * (1 - settings.dropout), settings.rounds)
    return prepared


LONGEST_LABEL = 100
"""Characters; it is part of names of files."""


def check_label(label: Any) -> None:
    """A label is a folder's name."""
    if not isinstance(label, str):
        raise CgpflError(f"method: label {label!r}: must be text")
    if len(label.encode(errors="replace")) > LONGEST_LABEL:
        raise CgpflError(f"method: label {label!r}: must have at most {LONGEST_LABEL} characters")
    if not label.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise CgpflError(f"method: label {label!r}: use letters, digits, '-', '_' and '.'")


def engine_of(method: Any, data: FederatedData, model: Any, settings: Settings, folder: MethodFolder | None) -> Any:
    """The engine of a checked method, where its checkpoint, if there is one, goes on."""
    place = settings.place()
    if place["store"] == "auto" and folder is not None and folder.exists():
        place["store"] = folder.store()  # on a machine with more or less memory, too
    where = None if folder is None else folder.path
    return engine_for(method, data, model, folder=where, **place, **settings.engine())


def run_method(
    method: Any,
    data: FederatedData,
    model: Any,
    settings: Settings,
    *,
    label: str,
    folder: MethodFolder | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    callbacks: tuple[Callback, ...] = (),
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 10.0,
    engine: Any = None,
) -> Result:
    """Run a checked method to its last round; continue from ``folder``'s checkpoint where there is one.

    When ``stop()`` turns true the state is saved and :class:`Interrupted` raised. ``engine``: of :func:`engine_of`,
    if it has been made.
    """
    simulation = engine_of(method, data, model, settings, folder) if engine is None else engine
    what, total = fingerprint(method, model, settings), settings.rounds
    drive = Drive(simulation, Records(), label=label, checkpoints=folder, what=what)
    teller = Teller(callbacks, label, [(method, data)], simulation)
    title = headline(getattr(model, "objective", Classification()).task).title

    def message() -> str | None:
        bad = drive.lost[0]
        return None if bad is None else explain(label, method, f"in round {bad} of {total} (NaN or infinite)")

    def result() -> Result:
        facts = (drive.t, drive.seconds, settings.seed, drive.lost[0], message())
        return Result(label, method, data, model, simulation, simulation.whole(drive.state), drive.records, *facts)

    def on_block(evaluations: int) -> None:
        teller.evaluated([drive.records], drive.newest(evaluations), drive.seconds)
        if on_progress is not None:
            accuracy = mean_accuracy([drive.records], [data])
            on_progress(Progress(label, drive.t, total, accuracy, drive.seconds, drive.pace.speed, message(), title))

    how = "without out there is nothing to go on from"
    if folder is not None:
        how = f"go on, with as many processes as there are, by: cgpfl resume {folder.path.parent.parent}"
    teller.started(drive.t, total)
    try:
        drive.run(on_block, stop, save_every=checkpoint_seconds, how=how)
    except Stopped:
        raise Interrupted(result()) from None
    ended = result()
    teller.ended(ended.rounds, ended.summary)
    return ended


def fingerprint(method: Any, model: Any, settings: Settings) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that continues it."""
    own = unseamed(method)
    hyper_parameters = parameters(own) if dataclasses.is_dataclass(own) else {}
    rules = {} if own is method else {name: parameters(method)[name] for name in SEAMS}
    if rules.get("attack") == {"name": "none"}:
        del rules["attack"]  # runs made before there was a choice stay the same
    if hyper_parameters.get("descent") == {"name": "sgd", **parameters(SGD())}:
        del hyper_parameters["descent"]  # runs made before there was a choice stay the same
    if hyper_parameters.get("smallest") == 1:
        del hyper_parameters["smallest"]
    aim = getattr(model, "objective", Classification())
    objective = {} if aim == Classification() else {"task": aim.task, **parameters(dataclasses.asdict(aim))}
    return {
        "method": type(own).__name__,
        **{f"method.{k}": v for k, v in hyper_parameters.items()},
        **rules,
        "model": type(model).__name__,
        **{f"model.{k}": v for k, v in parameters(model.settings()).items()},
        **({"objective": objective} if objective else {}),
        **({"frozen": model.frozen} if getattr(model, "frozen", "") else {}),
        **settings.engine(),
    }


def explain(label: str, method: Any, where: str) -> str:
    """That a method diverged, and why that may be."""
    cause = method.likely_cause() if hasattr(method, "likely_cause") else "the rates are too high"
    return f"{label}: diverged {where}; likely cause: {cause}"


def mean_accuracy(records: Sequence[Records], data: Sequence[FederatedData]) -> float | None:
    """In the newest evaluation, over runs that have one."""
    found = zip(records, data, strict=True)
    each = [scores(r.values["correct"][-1], d.test.counts)["pooled"] for r, d in found if r.rounds]
    return float(np.mean(each)) if each else None
