"""Run one method: blocks of rounds, progress, checkpoints, resume, divergence."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cgpfl.algorithms import Algorithm, get_method
from cgpfl.algorithms.wrapper import seamed
from cgpfl.data import FederatedData
from cgpfl.engine import Engine, State, check_start, engine_for
from cgpfl.engine.placement import check_place
from cgpfl.engine.precision import PRECISIONS
from cgpfl.engine.problem import cohort_size
from cgpfl.engine.processes import agree, by_the_first, gathered, watched
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.events import EVENTS, Callback, JsonLines, Teller, check_callbacks, opening, told
from cgpfl.experiment.folder import RunFolder, parameters
from cgpfl.experiment.records import Records
from cgpfl.experiment.result import Result
from cgpfl.hyper import component, from_values, hyper, normalised
from cgpfl.metrics import DEFAULT, chosen, name_of
from cgpfl.models import as_model
from cgpfl.rounds import MEANS, OUTGOING, SAMPLERS, SGD, Mean, Outgoing, Sampler, Uniform, WeightedMean

PLACE = ("devices", "store")
"""Settings that say where a run is computed."""
SEAMS = ("sampler", "outgoing", "mean")
"""Settings that are rules of a round: they go around every method (see :class:`~cgpfl.algorithms.wrapper.Seamed`)."""
UNSAID: dict[str, Any] = {"precision": "default", "metrics": list(DEFAULT)}
"""Settings that a fingerprint leaves out at these values: runs made before there was a choice stay the same."""
BLOCK_SECONDS = 1.0
"""How long a block of rounds should take: often enough for progress and Ctrl-C, rare enough to cost nothing."""


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


class Pace:
    """How many rounds the next block should have, from how long the last ones took."""

    def __init__(self) -> None:
        self.length = 1
        self.speed: float | None = None
        """Rounds a second; None while only compilation has been seen."""
        self._compiled = False

    def took(self, rounds: int, seconds: float) -> None:
        """A block of ``rounds`` took ``seconds``; nearly all of the first is compilation."""
        if not self._compiled:
            self._compiled, self.length = True, 2
            return
        self.speed = rounds / seconds
        self.length = max(1, min(4 * self.length, round(BLOCK_SECONDS * self.speed)))


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM between two blocks, with something saved to go on from."""


class Interrupted(Stopped):
    """Ctrl-C between two blocks. ``result`` holds what was computed; with a folder it is saved, too."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result.label}: stopped after round {result.rounds}")
        self.result = result


@dataclass(frozen=True)
class Settings:
    """How a method is run, whatever the method. The ranges are checked by :func:`cgpfl.hyper.validate`."""

    seed: int = hyper(0, "seed of everything random", low=0, high=2**32 - 1)
    rounds: int = hyper(200, "communication rounds", low=1, high=10**9)
    eval_every: int = hyper(0, "rounds between evaluations; 0 = about 100 evaluations", low=0, high=10**9)
    participation: float = hyper(1.0, "share of the clients asked in a round", above=0, high=1)
    dropout: float = hyper(0.0, "chance that a client asked does not answer", low=0, high=0.99)
    clients_per_block: int = hyper(0, "clients computed at once; 0 = what fits", low=0)
    devices: int | str = hyper("auto", "devices that share the clients", kind=int, low=1, words=("auto", "all"))
    store: str = hyper("auto", "where personal states are between rounds", words=("auto", "device", "host", "disk"))
    precision: str = hyper("default", "of the clients' matrix products; default = JAX's own", words=PRECISIONS)
    metrics: tuple[str, ...] = hyper(DEFAULT, "what is measured of clients' models", kind=tuple, labels=str)
    sampler: Sampler = component(Uniform(), "who is asked in a round", SAMPLERS)  # noqa: RUF009
    outgoing: tuple[Outgoing, ...] = component((), "what becomes of an update before it leaves", OUTGOING, many=True)
    mean: Mean = component(WeightedMean(), "how uploads become a mean", MEANS)  # noqa: RUF009

    def engine(self) -> dict[str, Any]:
        """What a run's numbers depend on, as arguments of :class:`Simulation`."""
        others = (*PLACE, *SEAMS)
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(Settings) if f.name not in others}
        values["eval_every"] = self.eval_every or max(1, self.rounds // 100)
        values["metrics"] = list(self.metrics)
        return {name: value for name, value in values.items() if UNSAID.get(name) != value}

    def seams(self) -> dict[str, Any]:
        """The rules of a round that are not the usual ones."""
        usual = {f.name: f.default for f in dataclasses.fields(Settings)}
        return {name: getattr(self, name) for name in SEAMS if getattr(self, name) != usual[name]}

    def place(self) -> dict[str, Any]:
        """Where it is computed; a run may go on elsewhere."""
        return {name: getattr(self, name) for name in PLACE}


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
    prepared = seamed(prepared, settings.seams())
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
    total = settings.rounds
    what = fingerprint(method, model, settings)
    state, t, seconds, records = _begin(simulation, folder, what)
    saved, bad, on_disk = len(records.rounds), _diverged(state), t if t else None
    began, pace = time.perf_counter() - seconds, Pace()
    next_save = time.perf_counter() + checkpoint_seconds
    how = "without out there is nothing to go on from"
    if folder is not None:
        how = f"go on, with as many processes as there are, by: cgpfl resume {folder.path.parent.parent}"

    def now() -> float:
        return time.perf_counter() - began

    def save() -> None:
        nonlocal saved, next_save, on_disk
        if folder is not None and on_disk != t:
            start = time.perf_counter()
            facts = {"round": t, "records": len(records.rounds), "seconds": now(), "run": what}
            new = Records(records.rounds[saved:], {k: v[saved:] for k, v in records.values.items()})
            whole = simulation.whole(state)
            by_the_first(lambda: folder.save(whole, facts, new))
            took = time.perf_counter() - start
            saved, next_save = len(records.rounds), start + took + max(checkpoint_seconds, 5 * took)
            on_disk = t

    def result() -> Result:
        message = None if bad is None else _explain(label, method, bad, total)
        facts = (t, now(), settings.seed, bad, message)
        return Result(label, method, data, model, simulation, simulation.whole(state), records, *facts)

    teller = Teller(callbacks, label, method, data, simulation)
    teller.started(t, total)
    with watched(lambda: f"{label}, after round {t}", how):
        length = pace.length
        while t < total and bad is None:
            end = min(t + length, simulation.furthest(t))
            start = time.perf_counter()
            state, values, evaluated = simulation.advance(state, t, end)
            pace.took(end - t, time.perf_counter() - start)
            records.add(evaluated, values)
            bad = _diverged(state)
            t = end if bad is None else bad
            teller.evaluated(records, len(evaluated), now())
            if on_progress is not None:
                message = None if bad is None else _explain(label, method, bad, total)
                on_progress(Progress(label, t, total, _accuracy(records, data), now(), pace.speed, message))
            if t < total and bad is None:
                asked = gathered(pace.length, stop(), time.perf_counter() >= next_save)
                length = int(asked[0, 0])
                if asked[:, 1].any():
                    save()
                    raise Interrupted(result())
                if asked[0, 2]:
                    save()
        save()
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


def _begin(simulation: Engine, folder: MethodFolder | None, what: dict[str, Any]) -> tuple[State, int, float, Records]:
    """A fresh start, or the checkpoint's (state, rounds done, seconds, records)."""
    there = folder is not None and folder.exists()
    if len(set(gathered(there)[:, 0])) > 1:
        raise CgpflError("out: not all processes see the run's folder; it must be on a file system they share")
    if folder is None or not there:
        return simulation.start(), 0, 0.0, Records()
    state, facts, records = folder.load(simulation.shapes())
    check_same(folder.path, facts["run"], what)
    return simulation.placed(state), facts["round"], facts["seconds"], records


def check_same(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A checkpoint must be of the run that its folder describes (see :func:`fingerprint`)."""
    for name in now | before:
        was, is_ = (of.get(name, UNSAID.get(name)) for of in (before, now))
        if was != is_:
            raise CgpflError(f"checkpoint {path}: was run with {name} = {was!r}, now {is_!r}; start a new run")


def _diverged(state: State) -> int | None:
    """The round (from 1) in which a parameter or a loss stopped being finite, if any."""
    return None if int(state.diverged) < 0 else int(state.diverged) + 1


def _explain(label: str, method: Any, bad: int, total: int) -> str:
    cause = method.likely_cause() if hasattr(method, "likely_cause") else "the rates are too high"
    return f"{label}: diverged in round {bad} of {total} (NaN or infinite); likely cause: {cause}"


def _accuracy(records: Records, data: FederatedData) -> float | None:
    if not records.rounds:
        return None
    return float(records.values["correct"][-1].sum() / data.test.counts.sum())


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C or SIGTERM as a question asked between blocks; a second one stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def handle(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
