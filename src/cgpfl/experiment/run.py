"""Run one method: blocks of rounds, progress, checkpoints, resume, divergence."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.algorithms import Algorithm, Seamed, get_method
from cgpfl.data import FederatedData
from cgpfl.engine import Drive, Settings, check_start, engine_for
from cgpfl.engine.drive import Stopped, interrupts
from cgpfl.engine.placement import check_place
from cgpfl.engine.problem import cohort_size
from cgpfl.engine.processes import agree, by_the_first
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.events import EVENTS, Callback, JsonLines, Teller, check_callbacks, opening, told
from cgpfl.experiment.folder import RunFolder, parameters
from cgpfl.experiment.records import Records
from cgpfl.experiment.result import Result
from cgpfl.hyper import from_values, normalised
from cgpfl.metrics import chosen, name_of
from cgpfl.models import as_model
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


class Interrupted(Stopped):
    """Ctrl-C between two blocks. ``result`` holds what was computed; with a folder it is saved, too."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result.label}: stopped after round {result.rounds}")
        self.result = result


def run(
    method: Any,
    data: FederatedData,
    model: Any = "mlr",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    callbacks: Sequence[Callback] = (),
    label: str | None = None,
    **settings: Any,
) -> Result:
    """Run ``method`` on ``data`` and return its :class:`Result`.

    ``method``: an object of the contract, or a method's name. ``model``: "mlr", "dnn", "cnn", a
    :class:`~cgpfl.models.Model`, a flax module or a pair (init, apply). ``settings`` are those of :class:`Settings`:
    ``rounds`` (200) and ``seed`` (0).
    ``eval_every``: rounds between evaluations (0 = about 100 in the run; the last is always evaluated).
    ``participation``: share of the clients asked in a round. ``dropout``: chance that one asked does not
    answer. ``clients_per_block``: clients computed at once (0 = what fits). ``devices``: how many share the
    clients, "all", or "auto": one, or a CPU's cores if that is faster. ``store``: where personal states are
    between rounds: "device", "host", "disk" (a file in ``out``), or "auto". ``precision``: of the clients'
    matrix products, "float32", "tf32", "bfloat16", or "default": JAX's own. ``metrics``: what is measured, by name or
    yours (see :func:`cgpfl.metrics.get_metric`). ``sampler``: who is asked; ``outgoing``: what becomes of updates
    before they leave a client; ``mean``: how uploads become a mean (:mod:`cgpfl.rounds`).
    ``out``: a run folder, with checkpoints;
    with ``resume=True`` a run there is continued. ``on_progress`` is called after every block; ``callbacks`` with
    every :class:`~cgpfl.experiment.events.Event`.

    >>> import cgpfl
    >>> data = cgpfl.make_data("digits", "rotation", seed=0)
    >>> result = cgpfl.run(cgpfl.CGPFL(contexts="auto"), data, rounds=50, seed=0)
    >>> result.contexts.k
    4
    """
    if "metrics" in settings:
        settings["metrics"] = [name_of(m) for m in settings["metrics"]]
    how = from_values(Settings, settings, "run")
    chosen(how.metrics)
    built = as_model(model, data.shape, data.classes)
    method = checked(get_method(method) if isinstance(method, str) else method, data, how)
    check_start([method], data, built)
    name = label or getattr(method, "name", "") or type(method).__name__.lower()
    check_label(name)
    check_place(how.devices, how.store)
    check_callbacks(callbacks)
    folder = None if out is None else RunFolder(Path(out))
    if folder is not None:
        agree("run", f"{fingerprint(method, built, how)} {data.digest}")
        by_the_first(partial(_prepare, folder, data, name, resume))
    if folder is not None:
        callbacks = (JsonLines(folder.path / EVENTS), *callbacks)
    with told(
        callbacks, opening(name if folder is None else folder.path.resolve().name, how, data, built)
    ) as listening:
        with interrupts() as stop:
            result = run_method(
                method,
                data,
                built,
                how,
                label=name,
                folder=None if folder is None else folder.method(name),
                on_progress=on_progress,
                callbacks=listening,
                stop=stop,
            )
        if folder is not None:
            by_the_first(partial(folder.save_models, result))
            by_the_first(lambda: folder.finish([result.outcome()]))
    return result


def _prepare(folder: RunFolder, data: FederatedData, label: str, resume: bool) -> None:
    """Create the folder, or check that it is of this run."""
    if not (resume and folder.path.exists()):
        RunFolder.create(folder.path)
    folder.write_split(data)
    others = [there for there in folder.labels() if there != label]
    if others:
        raise CgpflError(f"run {folder.path}: holds {', '.join(others)}; resume with label={others[0]!r}")


def checked(method: Any, data: FederatedData, settings: Settings) -> Any:
    """``method``, under the rules of its rounds, with its hyper-parameters checked by themselves and here."""
    if not isinstance(method, Algorithm):
        raise CgpflError(f"method: {type(method).__name__} does not keep the contract; see cgpfl.Algorithm")
    prepared: Any = normalised(method) if dataclasses.is_dataclass(method) else method
    if settings.seams():
        prepared = Seamed(prepared, **settings.seams())
    if getattr(prepared, "needs_public", False) and data.public is None:
        name = getattr(prepared, "name", type(prepared).__name__)
        raise CgpflError(f"{name}: needs samples that everybody has; set data.public, for instance to 0.1")
    if hasattr(prepared, "check"):
        asked = cohort_size(settings.participation, data.clients)
        prepared.check(data.clients, settings.rounds * asked * (1 - settings.dropout), settings.rounds)
    return prepared


def check_label(label: str) -> None:
    """A label is a folder's name."""
    if not label.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise CgpflError(f"method: label {label!r}: use letters, digits, '-', '_' and '.'")


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
) -> Result:
    """Run a checked method to its last round; continue from ``folder``'s checkpoint where there is one.

    When ``stop()`` turns true the state is saved and :class:`Interrupted` raised.
    """
    where = None if folder is None else folder.path
    place = settings.place()
    if place["store"] == "auto" and folder is not None and folder.exists():
        place["store"] = folder.store()  # on a machine with more or less memory, too
    simulation = engine_for(method, data, model, folder=where, **place, **settings.engine())
    what, total = fingerprint(method, model, settings), settings.rounds
    drive = Drive(simulation, Records(), label=label, checkpoints=folder, what=what)
    teller = Teller(callbacks, label, method, data, simulation)

    def message() -> str | None:
        bad = drive.lost[0]
        return None if bad is None else explain(label, method, f"in round {bad} of {total} (NaN or infinite)")

    def result() -> Result:
        facts = (drive.t, drive.seconds, settings.seed, drive.lost[0], message())
        return Result(label, method, data, model, simulation, simulation.whole(drive.state), drive.records, *facts)

    def on_block(evaluations: int) -> None:
        teller.evaluated(drive.records, evaluations, drive.seconds)
        if on_progress is not None:
            accuracy = mean_accuracy([drive.records], [data])
            on_progress(Progress(label, drive.t, total, accuracy, drive.seconds, drive.pace.speed, message()))

    how = "without out there is nothing to go on from"
    if folder is not None:
        how = f"go on, with as many processes as there are, by: cgpfl resume {folder.path.parent.parent}"
    teller.started(drive.t, total)
    try:
        drive.run(on_block, stop, save_every=checkpoint_seconds, how=how)
    except Stopped:
        raise Interrupted(result()) from None
    ended = result()
    teller.ended(ended)
    return ended


def fingerprint(method: Any, model: Any, settings: Settings) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that continues it."""
    hyper_parameters = parameters(method) if dataclasses.is_dataclass(method) else {}
    if hyper_parameters.get("descent") == {"name": "sgd", **parameters(SGD())}:
        del hyper_parameters["descent"]  # runs made before there was a choice stay the same
    return {
        "method": type(method).__name__,
        **{f"method.{k}": v for k, v in hyper_parameters.items()},
        "model": type(model).__name__,
        **{f"model.{k}": v for k, v in parameters(model.settings()).items()},
        **settings.engine(),
    }


def explain(label: str, method: Any, where: str) -> str:
    """That a method diverged, and why that may be."""
    cause = method.likely_cause() if hasattr(method, "likely_cause") else "the rates are too high"
    return f"{label}: diverged {where}; likely cause: {cause}"


def mean_accuracy(records: Sequence[Records], data: Sequence[FederatedData]) -> float | None:
    """In the newest evaluation, over runs that have one."""
    each = [r.values["correct"][-1].sum() / d.test.counts.sum() for r, d in zip(records, data, strict=True) if r.rounds]
    return float(np.mean(each)) if each else None
