"""The driver of rounds: blocks and their pace, progress, checkpoints and interrupts, whatever the engine.

An engine knows how rounds are computed; who drives it decides how many at a time. One run or several in one program,
on a device or streamed from the host, in memory or with a folder: the loop is this one.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from cgpfl.engine.processes import by_the_first, gathered, watched
from cgpfl.engine.round import State
from cgpfl.errors import CgpflError

BLOCK_SECONDS = 1.0
"""How long a block of rounds should take: often enough for progress and Ctrl-C, rare enough to cost nothing."""


class Traffic(NamedTuple):
    """Cost of one client in one round."""

    message: int  # bytes
    upload: int  # bytes
    gradients: float  # minibatch gradients (expected)


class Engine(Protocol):
    """Where rounds are computed. ``state.diverged`` has an axis of runs where several are in one program."""

    method: Any
    data: Any
    rounds: int
    eval_every: int

    def start(self) -> State:
        """The state before the first round."""

    def shapes(self) -> State:
        """The form of a state as it is saved."""

    def advance(self, state: State, start: int, stop: int) -> tuple[State, dict[str, np.ndarray], list[int]]:
        """Run rounds ``start``..``stop`` (from 0, stop exclusive) → (state, records, the rounds, from 1, they are of).

        ``state`` is used up.
        """

    def furthest(self, start: int) -> int:
        """The last round that a block from ``start`` may reach."""

    def whole(self, state: State) -> State:
        """The state as it is saved (every process must ask)."""

    def placed(self, state: State) -> State:
        """A saved state, to go on with."""

    def traffic(self) -> Traffic:
        """Bytes and gradients of one client in one round."""


@dataclass
class Recorded:
    """What was recorded, evaluation by evaluation."""

    rounds: list[int] = field(default_factory=list)
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, rounds: list[int], values: dict[str, np.ndarray]) -> None:
        """Append the records of a block."""
        if rounds:
            self.rounds = self.rounds + rounds
            joined = {k: np.concatenate([self.values[k], v]) if k in self.values else v for k, v in values.items()}
            self.values = joined


R = TypeVar("R", bound=Recorded)


def waited(records: Recorded, patience: int, runs: int = 1) -> list[int | None]:
    """For each run the evaluations until its validation score had not got better for ``patience`` of them, or None."""
    found = records.values.get("validation_correct")
    if not patience or found is None:
        return [None] * runs
    curves = np.asarray(found, float).sum(axis=-1).reshape(len(found), -1)  # [evaluations, runs]
    best = np.maximum.accumulate(curves, axis=0)
    ends: list[int | None] = []
    for top in best.T:
        newest = np.where(np.diff(top, prepend=-np.inf) > 0, np.arange(len(top)), 0)
        since = np.arange(len(top)) - np.maximum.accumulate(newest)
        ends.append(int((since >= patience).argmax()) + 1 if (since >= patience).any() else None)
    return ends


def of_each(state: State, records: R, patience: int = 0) -> list[R]:
    """Each run's own records, without those of and after a round in which it diverged, or after it had stopped."""
    lost = np.asarray(state.diverged)
    if lost.ndim == 0:
        return [records]
    kept = [sum(1 for t in records.rounds if bad < 0 or t <= bad) for bad in lost]
    ends = waited(records, patience, len(kept))
    kept = [n if end is None else min(n, end) for n, end in zip(kept, ends, strict=True)]
    return [
        type(records)(records.rounds[:n], {k: v[:n, r] for k, v in records.values.items()}) for r, n in enumerate(kept)
    ]


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


class Checkpoints(Protocol):
    """Where a run's state and records are kept."""

    def exists(self) -> bool:
        """Whether there is one."""

    def load(self, like: State, what: dict[str, Any]) -> tuple[State, dict[str, Any], Any]:
        """State, facts and records of the newest, which must be of the run ``what``."""

    def save(self, state: State, facts: dict[str, Any], new: Any) -> None:
        """A state, its facts and the records since the last."""


class Drive:
    """Rounds of an engine, from the start or from a checkpoint on. After :meth:`run`: how it ended."""

    def __init__(
        self,
        engine: Engine,
        records: Any = None,
        *,
        label: str = "run",
        checkpoints: Checkpoints | None = None,
        what: dict[str, Any] | None = None,
    ) -> None:
        """``what``: what a checkpoint must have in common with the run that continues it."""
        self.engine, self.label, self.checkpoints, self.what = engine, label, checkpoints, what or {}
        self.pace, self.patience = Pace(), int(getattr(engine, "patience", 0))
        self.records: Any
        there = checkpoints is not None and checkpoints.exists()
        if len(set(gathered(there)[:, 0])) > 1:
            raise CgpflError("out: not all processes see the run's folder; it must be on a file system they share")
        seconds = 0.0
        if checkpoints is None or not there:
            self.state, self.t, self.records = engine.start(), 0, Recorded() if records is None else records
        else:
            state, facts, self.records = checkpoints.load(engine.shapes(), self.what)
            self.state, self.t, seconds = engine.placed(state), facts["round"], facts["seconds"]
        self._began = time.perf_counter() - seconds
        self._saved, self._on_disk = len(self.records.rounds), self.t if there else None

    @property
    def seconds(self) -> float:
        """Spent on this run so far, before it was stopped, too."""
        return time.perf_counter() - self._began

    @property
    def lost(self) -> list[int | None]:
        """For each run the round (from 1) in which a parameter or a loss stopped being finite, if any."""
        return [None if bad < 0 else int(bad) + 1 for bad in np.atleast_1d(np.asarray(self.state.diverged))]

    @property
    def stopped_early(self) -> bool:
        """Whether every run that goes on has waited in vain for a better validation score."""
        lost = self.lost
        ends = waited(self.records, self.patience, len(lost))
        return None not in [end if bad is None else bad for bad, end in zip(lost, ends, strict=True)]

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to run."""
        return self.t >= self.engine.rounds or None not in self.lost or self.stopped_early

    def newest(self, count: int) -> list[int]:
        """The rounds of the last ``count`` evaluations."""
        newest: list[int] = self.records.rounds[len(self.records.rounds) - count :]
        return newest

    def block(self, rounds: int) -> int:
        """At most ``rounds`` rounds in one call → how many evaluations there were."""
        end, start = min(self.t + rounds, self.engine.furthest(self.t)), time.perf_counter()
        if self.patience:  # where it stops must not depend on how long a block is
            end = min(end, (self.t // self.engine.eval_every + 1) * self.engine.eval_every)
        self.state, values, due = self.engine.advance(self.state, self.t, end)
        self.records.add(due, values)
        lost = [bad for bad in self.lost if bad is not None]
        self.pace.took(end - self.t, time.perf_counter() - start)
        self.t = max(lost) if len(lost) == len(self.lost) else end
        return len(due)

    def run(
        self,
        on_block: Callable[[int], None] = lambda evaluations: None,
        stop: Callable[[], bool] = lambda: False,
        *,
        save_every: float = 10.0,
        how: str = "",
    ) -> Drive:
        """To the last round. When ``stop()`` turns true the state is saved and :class:`Stopped` raised.

        ``on_block`` is told after every block how many evaluations it had. ``save_every``: seconds between
        checkpoints. ``how``: how to go on after another process was lost.
        """
        with watched(lambda: f"{self.label}, after round {self.t}", how):
            next_save, length = time.perf_counter() + save_every, self.pace.length
            over = self.is_over
            while not over:
                on_block(self.block(length))
                if over := self.is_over:
                    break
                asked = gathered(self.pace.length, stop(), time.perf_counter() >= next_save)
                length = int(asked[0, 0])
                if asked[:, 1].any():
                    self.save()
                    raise Stopped(f"{self.label}: stopped after round {self.t}")
                if asked[0, 2]:
                    start = time.perf_counter()
                    self.save()
                    now = time.perf_counter()
                    next_save = now + max(save_every, 5 * (now - start))
            self.save()
        return self

    def quick(self) -> Drive:
        """To the last round in blocks as long as may be, with nobody told."""
        while not self.is_over:
            self.block(self.engine.rounds)
        return self

    def save(self) -> None:
        """A checkpoint, unless the newest is of this round."""
        if self.checkpoints is None or self._on_disk == self.t:
            return
        facts = {"round": self.t, "records": len(self.records.rounds), "seconds": self.seconds, "run": self.what}
        facts |= {"stopped": True} if self.stopped_early else {}
        values = {k: v[self._saved :] for k, v in self.records.values.items()}
        new, whole = type(self.records)(self.records.rounds[self._saved :], values), self.engine.whole(self.state)
        keep = self.checkpoints.save
        by_the_first(lambda: keep(whole, facts, new))
        self._saved, self._on_disk = len(self.records.rounds), self.t


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C or SIGTERM as a question asked between blocks; a second one stops at once (or when a compilation ends)."""
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
