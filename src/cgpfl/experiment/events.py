"""What happens in a run, as one stream of events for whoever listens: a file, a tracker, your own function.

A callback is any function of one :class:`Event`. The kinds, in the order in which they come:

    opened      the run begins; values: name, seed, rounds, data, model, metrics, notes (what to know before it is
                trained), config (where there is one)
    started     a method begins, or goes on after ``round``; values: rounds, settings
    evaluated   ``round`` was evaluated; values: its row of history.csv, ari and seconds (of a comparison's seeds, and
                of the settings that a search tries, the means)
    ended       a method is done; values: its entry in summary.json
    closed      the run is over; values: state ("finished" or "stopped"); the last event, whatever happened
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cgpfl.data.scales import scale_note
from cgpfl.engine.processes import is_first
from cgpfl.errors import CgpflError
from cgpfl.experiment.folder import finite, parameters
from cgpfl.experiment.records import Cost, Records, pull
from cgpfl.files import append
from cgpfl.metrics import agreement, measured

if TYPE_CHECKING:
    from cgpfl.data import FederatedData


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
    more = {m.name: m.about() for m in measured(settings.metrics, getattr(model, "objective", None))}
    notes = [note for note in (scale_note(data),) if note]
    return {**about, "model": named, "metrics": more, "notes": notes, **({} if config is None else {"config": config})}


class JsonLines:
    """Every event as a line of JSON at the end of a file: ``{"time": ..., "kind": ..., ...}``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        """Append a line; a last line that was cut off by a crash is ended first."""
        line = json.dumps(finite({"time": round(time.time(), 3), **dataclasses.asdict(event)}), allow_nan=False)
        append(self.path, line.encode())


def check_callbacks(callbacks: Iterable[Callback]) -> None:
    """Callbacks are functions; said before anything is written."""
    if not isinstance(callbacks, Iterable):
        raise CgpflError(f"callbacks: {callbacks!r} is no list of functions of one event")
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
    """Tells callbacks what one method does, in one run or in several at once. Without callbacks it costs nothing."""

    def __init__(
        self, callbacks: tuple[Callback, ...], label: str, runs: Sequence[tuple[Any, FederatedData]], engine: Any
    ) -> None:
        """``runs``: the method and the data of each."""
        self.callbacks, self.label, self.runs = callbacks, label, runs
        self.cost = Cost.of(engine) if callbacks else None

    def started(self, t: int, rounds: int) -> None:
        """The method begins after ``t`` rounds of an earlier run, or 0."""
        method = self.runs[0][0]
        settings = parameters(method) if dataclasses.is_dataclass(method) else {}
        tell(self.callbacks, Event("started", self.label, t, {"rounds": rounds, "settings": settings}))

    def evaluated(self, each: Sequence[Records], rounds: Sequence[int], seconds: float) -> None:
        """These rounds were evaluated; of several runs the means are told."""
        if self.cost is None:
            return
        for t in rounds:
            rows = [self._row(*run, of, t) for run, of in zip(self.runs, each, strict=True) if t in of.rounds]
            if rows:
                values = rows[0] if len(rows) == 1 else {k: _mean([r[k] for r in rows if k in r]) for k in rows[0]}
                tell(self.callbacks, Event("evaluated", self.label, t, {**values, "seconds": round(seconds, 3)}))

    def _row(self, method: Any, data: FederatedData, records: Records, t: int) -> dict[str, Any]:
        assert self.cost is not None
        e = records.rounds.index(t)
        row = records.row(e, data.test.counts, pull(getattr(method, "prox", 0.0)), self.cost)
        if "context" in records.values and data.context is not None:
            row["ari"] = agreement(data.context, records.values["context"][e])
        del row["round"]
        return row

    def ended(self, rounds: int, summary: Callable[[], dict[str, Any]]) -> None:
        """The method is done, or diverged."""
        if self.callbacks:
            tell(self.callbacks, Event("ended", self.label, rounds, summary()))


def _mean(values: Sequence[Any]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
