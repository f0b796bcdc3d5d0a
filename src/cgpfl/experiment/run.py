"""Run one method: blocks of rounds, progress, checkpoints, resume, divergence."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cgpfl.algorithms import validate
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, State
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.folder import RunFolder
from cgpfl.experiment.records import Records
from cgpfl.experiment.result import Result
from cgpfl.models import as_model

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


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after the state was saved."""


def check_settings(
    *,
    rounds: int,
    seed: int,
    eval_every: int | None,
    participation: float,
    dropout: float,
    clients_per_block: int,
) -> None:
    """One clear line for each setting out of range."""
    rules = [
        ("rounds", rounds, _whole(rounds, 1), "an integer >= 1"),
        ("seed", seed, _whole(seed, 0) and seed < 2**63, "an integer >= 0"),
        ("eval_every", eval_every, eval_every is None or _whole(eval_every, 1), "an integer >= 1"),
        ("participation", participation, 0 < participation <= 1, "above 0 and at most 1"),
        ("dropout", dropout, 0 <= dropout < 1, "at least 0 and below 1"),
        ("clients_per_block", clients_per_block, _whole(clients_per_block, 0), "an integer >= 1, or 0 = automatic"),
    ]
    for name, value, fine, allowed in rules:
        if not fine:
            raise CgpflError(f"{name} = {value!r}: must be {allowed}")


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= low)


def default_eval_every(rounds: int) -> int:
    """About a hundred evaluations a run."""
    return max(1, rounds // 100)


def run(
    method: Any,
    data: FederatedData,
    model: Any = "mlr",
    *,
    rounds: int = 200,
    seed: int = 0,
    eval_every: int | None = None,
    participation: float = 1.0,
    dropout: float = 0.0,
    clients_per_block: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    label: str | None = None,
) -> Result:
    """Run ``method`` on ``data`` and return its :class:`Result`.

    ``model``: "mlr", "dnn", "cnn", a :class:`~cgpfl.models.Model`, a flax module or a pair (init, apply).
    ``eval_every``: rounds between evaluations (None = about 100 in the run; the last is always evaluated).
    ``participation``: share of the clients asked in a round. ``dropout``: chance that one asked does not
    answer. ``clients_per_block``: clients computed at once (0 = what fits). ``out``: a run folder, with
    checkpoints; with ``resume=True`` a run there is continued. ``on_progress`` is called after every block.

    >>> import cgpfl
    >>> data = cgpfl.make_data("digits", "rotation", seed=0)
    >>> result = cgpfl.run(cgpfl.CGPFL(contexts="auto"), data, rounds=50, seed=0)
    >>> result.contexts.k
    4
    """
    settings: dict[str, Any] = {
        "rounds": rounds,
        "seed": seed,
        "eval_every": eval_every,
        "participation": participation,
        "dropout": dropout,
        "clients_per_block": clients_per_block,
    }
    check_settings(**settings)
    built = as_model(model, data.shape, data.classes)
    simulation = prepare(method, data, built, settings)
    name = label or getattr(method, "name", "") or type(method).__name__.lower()
    folder = None
    if out is not None:
        folder = RunFolder.open(Path(out)) if resume and Path(out).exists() else RunFolder.create(Path(out))
        folder.write_split(data)
    with interrupts() as stop:
        result = run_method(
            simulation,
            data,
            built,
            label=name,
            seed=seed,
            folder=None if folder is None else folder.method(name),
            on_progress=on_progress,
            stop=stop,
        )
    if folder is not None:
        folder.finish([result])
    return result


def prepare(method: Any, data: FederatedData, model: Any, settings: dict[str, Any]) -> Simulation:
    """A checked simulation."""
    validate(method)
    if hasattr(method, "slots"):
        method.slots(data.clients)  # K against N, before anything is compiled
    every = settings["eval_every"] or default_eval_every(settings["rounds"])
    return Simulation(method, data, model, **{**settings, "eval_every": every})


def run_method(
    simulation: Simulation,
    data: FederatedData,
    model: Any,
    *,
    label: str,
    seed: int,
    folder: MethodFolder | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 10.0,
) -> Result:
    """Advance a simulation to its last round; continue from ``folder``'s checkpoint where there is one.

    When ``stop()`` turns true the state is saved and :class:`Interrupted` raised.
    """
    total = simulation.rounds
    state, t, seconds, records, saved, bad = _begin(simulation, folder)
    began, last_save, speed, length = time.perf_counter() - seconds, time.perf_counter(), None, 1

    def now() -> float:
        return time.perf_counter() - began

    def save(done: bool) -> None:
        nonlocal saved, last_save
        if folder is not None:
            facts = {"round": t, "seconds": now(), "done": done, "diverged": bad}
            new = Records(records.rounds[saved:], {k: v[saved:] for k, v in records.values.items()})
            folder.save(state, facts, new)
            saved, last_save = len(records.rounds), time.perf_counter()

    while t < total and bad is None:
        end = min(t + length, simulation.furthest(t))
        start = time.perf_counter()
        state, values, evaluated = simulation.advance(state, t, end)
        took = time.perf_counter() - start
        compiled = speed is None and length == 1
        records.add(evaluated, values)
        bad = _divergence(state, records)
        if not compiled:
            speed = (end - t) / took
        length = 2 if compiled else max(1, min(4 * length, round(BLOCK_SECONDS * (end - t) / took)))
        t = end if bad is None else bad
        if bad is not None:
            records = records.until(sum(r < bad for r in records.rounds))
            saved = min(saved, len(records.rounds))
        message = None if bad is None else _explain(label, simulation.method, bad, total)
        if on_progress is not None:
            on_progress(Progress(label, t, total, _accuracy(records, data), now(), speed, message))
        if t < total and bad is None:
            if stop():
                save(done=False)
                raise Interrupted
            if time.perf_counter() - last_save >= checkpoint_seconds:
                save(done=False)
    save(done=True)
    message = None if bad is None else _explain(label, simulation.method, bad, total)
    return Result(label, simulation.method, data, model, simulation, state, records, t, now(), seed, bad, message)


def _begin(simulation: Simulation, folder: MethodFolder | None) -> tuple[State, int, float, Records, int, int | None]:
    """A fresh start, or the checkpoint's (state, round, seconds, records, records saved, diverged)."""
    facts = None if folder is None else folder.facts()
    if facts is None or folder is None:
        return simulation.start(), 0, 0.0, Records(), 0, None
    like = jax.eval_shape(simulation.start)
    state, facts, records = folder.load(like)
    return state, facts["round"], facts["seconds"], records, len(records.rounds), facts["diverged"]


def _divergence(state: State, records: Records) -> int | None:
    """The round (from 1) in which a parameter or a loss stopped being finite, if any."""
    if int(state.diverged) >= 0:
        return int(state.diverged) + 1
    first = records.first_bad()
    return None if first is None else records.rounds[first]


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
