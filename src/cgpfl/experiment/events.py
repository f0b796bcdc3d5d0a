"""What happens in a run, as one stream of events for whoever listens: a file, a tracker, your own function.

A callback is any function of one :class:`Event`. The kinds, in the order in which they come:

    opened      the run begins; values: name, seed, rounds, data, model, metrics, config (where there is one)
    started     a method begins, or goes on after ``round``; values: rounds, settings
    evaluated   ``round`` was evaluated; values: its row of history.csv, ari and seconds
    ended       a method is done; values: its entry in summary.json
    closed      the run is over; values: state ("finished" or "stopped"); the last event, whatever happened
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cgpfl.engine.processes import is_first
from cgpfl.errors import CgpflError
from cgpfl.experiment.folder import finite, parameters
from cgpfl.experiment.records import Cost, Records, pull
from cgpfl.metrics import agreement, measured

if TYPE_CHECKING:
    from cgpfl.data import FederatedData
    from cgpfl.engine import Engine
    from cgpfl.experiment.result import Result


@dataclass(frozen=True)
class Event:
    """Something that happened in a run."""

    kind: str
    """opened, started, evaluated, ended or closed."""
    method: str = ""
    """Label of the method, or empty."""
    round: int = 0
    values: dict[str, Any] = field(default_factory=dict)

    def numbers(self) -> dict[str, float]:
        """The finite numbers among the values, those one level down as ``outer/inner``."""
        flat: dict[str, Any] = {}
        for name, value in self.values.items():
            flat |= {f"{name}/{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
        kinds = (int, float, np.integer, np.floating)
        numbers = {k: float(v) for k, v in flat.items() if isinstance(v, kinds) and not isinstance(v, bool)}
        return {k: v for k, v in numbers.items() if np.isfinite(v)}


Callback = Callable[[Event], None]
EVENTS = "events.jsonl"
"""The stream's file in a run folder."""


def opening(
    name: str, settings: Any, data: FederatedData, model: Any, config: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The values of the event "opened"."""
    about = {"name": name, "seed": settings.seed, "rounds": settings.rounds, "data": data.summary()}
    named = {"name": type(model).__name__.lower(), **parameters(model.settings())}
    more = {m.name: m.about() for m in measured(settings.metrics)}
    return {**about, "model": named, "metrics": more, **({} if config is None else {"config": config})}


class JsonLines:
    """Every event as a line of JSON at the end of a file: ``{"time": ..., "kind": ..., ...}``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        """Append a line; a last line that was cut off by a crash is ended first."""
        line = json.dumps(finite({"time": round(time.time(), 3), **dataclasses.asdict(event)}), allow_nan=False)
        with self.path.open("ab+") as file:
            cut = file.seek(0, 2) > 0 and (file.seek(-1, 2), file.read())[1] != b"\n"
            file.write(b"\n" * cut + line.encode() + b"\n")


def check_callbacks(callbacks: Iterable[Callback]) -> None:
    """Callbacks are functions; said before anything is written."""
    for callback in callbacks:
        if not callable(callback):
            raise CgpflError(f"callbacks: {callback!r} is not a function of one event")


@contextmanager
def told(callbacks: Iterable[Callback], values: dict[str, Any]) -> Iterator[tuple[Callback, ...]]:
    """The callbacks, told that a run begins and, whatever happens, that it is over. Only the first process talks.

    That it is over is told to every callback, even if an earlier one raises; then the first error is raised.
    """
    listening = tuple(callbacks) if is_first() else ()
    check_callbacks(listening)
    first: BaseException | None = None
    try:
        tell(listening, Event("opened", values=values))
        yield listening
    except BaseException as error:
        first = error
    state = "finished" if first is None else "stopped"
    for callback in listening:
        try:
            callback(Event("closed", values={"state": state}))
        except Exception as error:
            first = error if first is None else first
    if first is not None:
        raise first


def tell(callbacks: Iterable[Callback], event: Event) -> None:
    """Every callback, in order. What one raises ends the run: it can be resumed."""
    for callback in callbacks:
        callback(event)


class Teller:
    """Tells callbacks what one method does. Without callbacks it costs nothing."""

    def __init__(
        self, callbacks: tuple[Callback, ...], label: str, method: Any, data: FederatedData, simulation: Engine
    ) -> None:
        self.callbacks, self.label, self.method, self.data = callbacks, label, method, data
        self.cost = Cost.of(simulation) if callbacks else None

    def started(self, t: int, rounds: int) -> None:
        """The method begins after ``t`` rounds of an earlier run, or 0."""
        settings = parameters(self.method) if dataclasses.is_dataclass(self.method) else {}
        tell(self.callbacks, Event("started", self.label, t, {"rounds": rounds, "settings": settings}))

    def evaluated(self, records: Records, new: int, seconds: float) -> None:
        """The last ``new`` records are new."""
        if self.cost is None:
            return
        prox = pull(getattr(self.method, "prox", 0.0))
        for e in range(len(records.rounds) - new, len(records.rounds)):
            row = records.row(e, self.data.test.counts, prox, self.cost)
            if "context" in records.values and self.data.context is not None:
                row["ari"] = agreement(self.data.context, records.values["context"][e])
            round_ = row.pop("round")
            tell(self.callbacks, Event("evaluated", self.label, round_, {**row, "seconds": round(seconds, 3)}))

    def ended(self, result: Result) -> None:
        """The method is done, or diverged."""
        if self.callbacks:
            tell(self.callbacks, Event("ended", self.label, result.rounds, result.summary()))
