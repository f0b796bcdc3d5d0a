"""What a run's events say, folded as they come: a file that grows is read on from where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from cgpfl.files import regular
from cgpfl.report.files import EVENTS

BLOCK = 1 << 22
"""Bytes read at once."""


class EventSummary(NamedTuple):
    """What the events say: the newest "opened", the state, and each method's newest events."""

    opened: dict[str, Any]
    state: str
    methods: dict[str, dict[str, Any]]


class Folded:
    """Events, one after the other; of a round that was run twice (a resumed run) the later."""

    def __init__(self) -> None:
        self.opened: dict[str, Any] | None = None
        self.state = "stopped"
        self.methods: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, dict[int, dict[str, Any]]] = {}
        self._frames: dict[str, pd.DataFrame] = {}
        self._newer: dict[str, dict[int, dict[str, Any]]] = {}
        """Rows that are not in the frames yet, all of later rounds."""

    def add(self, event: dict[str, Any]) -> None:
        """The next event."""
        kind, label, values = event["kind"], event["method"], event["values"]
        if kind == "opened":
            self.opened, self.state = values, "running"
        elif kind == "closed":
            self.state = "finished" if values["state"] == "finished" else "stopped"
        elif kind == "started":
            facts = {"label": label, "rounds": values["rounds"], "round": event["round"], "summary": None}
            self.methods[label] = facts | {"settings": values.get("settings", {})}
            self.rows[label] = {t: row for t, row in self.rows.get(label, {}).items() if t <= event["round"]}
            self._frames.pop(label, None)
        elif label in self.methods and kind == "evaluated":
            if event["round"] <= self.methods[label]["round"]:  # run twice
                self._frames.pop(label, None)
            self.rows[label][event["round"]] = values
            self._newer.setdefault(label, {})[event["round"]] = values
            self.methods[label]["round"] = event["round"]
        elif label in self.methods and kind == "ended":
            self.methods[label]["summary"], self.methods[label]["round"] = values, event["round"]

    def summary(self) -> EventSummary | None:
        """All of it so far; None where no run has begun."""
        if self.opened is None:
            return None
        metrics = self.opened.get("metrics", {})
        methods = {}
        for label, facts in self.methods.items():
            history = self._history(label)
            methods[label] = {**facts, "history": history, "summary": facts["summary"] or _so_far(history, metrics)}
        return EventSummary(self.opened, self.state, methods)

    def _history(self, label: str) -> pd.DataFrame:
        newer, before = self._newer.pop(label, {}), self._frames.get(label)
        rows = sorted((self.rows[label] if before is None else newer).items())
        frame = pd.DataFrame([{"round": t, **row} for t, row in rows])
        if before is None or not len(before):
            self._frames[label] = frame
        elif len(frame):
            self._frames[label] = pd.concat([before, frame], ignore_index=True)
        return self._frames[label]


class Follower:
    """The events of a run folder, read on at every call from where the last one ended."""

    def __init__(self, run: Path) -> None:
        self.path = run / EVENTS
        self.seen = False
        """Whether its folder has been there."""
        self._begin((0, 0))

    def _begin(self, of: tuple[int, int]) -> None:
        self.folded, self._at, self._of = Folded(), 0, of

    def read(self) -> EventSummary | None:
        """What they say by now; a last line that is not whole yet is left for later."""
        with suppress(FileNotFoundError), regular(self.path).open("rb") as file:
            facts = self.path.stat()
            same = (facts.st_dev, facts.st_ino)
            if same != self._of or facts.st_size < self._at:  # another file: the run was begun anew
                self._begin(same)
            file.seek(self._at)
            rest = b""
            while block := file.read(BLOCK):
                *lines, rest = (rest + block).split(b"\n")
                for event in whole_events(lines):
                    self.folded.add(event)
                self._at = file.tell() - len(rest)
            for event in whole_events([rest]):  # without an end, yet whole: the next reading has it again
                self.folded.add(event)
            return self.folded.summary()
        self._begin((0, 0))
        return None


def whole_events(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    """The events among lines; one that was cut off is left out."""
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and {"kind", "method", "round", "values"} <= event.keys():
            yield event


def seconds_left(methods: dict[str, dict[str, Any]], planned: Iterable[str]) -> float | None:
    """How long the methods of a run will still take, by how long they have taken; None where nothing is known.

    ``methods``: as :class:`EventSummary` has them; ``planned``: labels of all. Those that have not begun are taken for
    the mean of those that have.
    """
    whole: list[float] = []
    left = 0.0
    for facts in methods.values():
        spent, done, rounds = _spent(facts), facts["round"], facts["rounds"]
        if not spent or not done:
            continue
        whole.append(spent if facts["summary"].get("rounds") else spent * rounds / done)
        left += whole[-1] - spent
    waiting = [label for label in planned if label not in methods]
    unknown = len(waiting) + sum(1 for facts in methods.values() if not _spent(facts))
    return left + unknown * sum(whole) / len(whole) if whole else None


def _spent(facts: dict[str, Any]) -> float:
    """Seconds that a method has taken."""
    return float(facts["summary"].get("seconds") or 0.0)


def _so_far(history: pd.DataFrame, metrics: Iterable[str]) -> dict[str, Any]:
    """An entry of summary.json for a method that is not done."""
    if not len(history):
        return {"accuracy": None, "shared_accuracy": None, "contexts": None, "diverged": None}
    last = history.iloc[-1]

    def value(name: str) -> float | None:
        return float(last[name]) if name in last and pd.notna(last[name]) else None

    accuracy = {"pooled": value("accuracy"), "mean": value("mean"), "worst_tenth": value("worst_tenth")}
    shared = value("shared_accuracy")
    k = value("k")
    return {
        "accuracy": accuracy,
        "shared_accuracy": None if shared is None else {"pooled": shared},
        "metrics": {name: {"pooled": value(name)} for name in metrics},
        "contexts": None if k is None else {"k": int(k), "ari": value("ari")},
        "diverged": None,
        **{name: value(name) for name in ("bytes_up", "bytes_down", "gradients", "seconds")},
    }
