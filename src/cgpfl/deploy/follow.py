"""Following a run by the events in its folder: the server writes them, whoever started it reads them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cgpfl.deploy.lock import has_server
from cgpfl.errors import CgpflError, LostError
from cgpfl.experiment.events import EVENTS
from cgpfl.experiment.run import Progress

START = 120.0
"""Seconds in which a server must have said something."""


def events(path: Path, since: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Whole lines of the file from byte ``since`` on, each with the place after it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(since)
        for line in file:
            if not line.endswith(b"\n"):
                return
            since += len(line)
            with contextlib.suppress(ValueError):  # a line that a killed server did not finish
                yield since, json.loads(line)


def size(out: Path) -> int:
    """Bytes of events so far: where a run that starts now will begin."""
    path = out / EVENTS
    return path.stat().st_size if path.exists() else 0


def follow(
    out: Path,
    since: int,
    *,
    on_progress: Callable[[Progress], None],
    say: Callable[[str], None],
    check: Callable[[], None],
    silence: float,
) -> None:
    """Until the run is finished; :class:`LostError` where it stopped, or said nothing for ``silence`` seconds.

    ``check`` is called now and then, and raises where waiting is in vain.
    """
    heard, anything = time.monotonic(), has_server(out)
    while True:
        gone = anything and not has_server(out)  # asked first: what it said before its end is read below
        for place, event in events(out / EVENTS, since):
            since, heard, anything = place, time.monotonic(), True
            if event["kind"] == "say":
                say(event["values"]["line"])
            elif event["kind"] == "progress":
                v = event["values"]
                speed = v["round"] / v["seconds"] if v["round"] and v["seconds"] else None
                on_progress(Progress(v["label"], v["round"], v["rounds"], v["accuracy"], v["seconds"], speed))
            elif event["kind"] == "stopped":
                raise LostError(event["values"]["message"])
            elif event["kind"] == "finished":
                return
        check()
        if gone:
            raise LostError(f"run {out}: the server is gone; the same command goes on after the last round it saved")
        if not anything and time.monotonic() - heard > START:
            raise LostError(f"run {out}: the server did not begin within {START:g} s; can it write there?")
        if time.monotonic() - heard > silence:
            raise LostError(f"run {out}: nothing was heard of the server for {silence:.0f} s")
        time.sleep(0.1)


def finished(out: Path) -> bool:
    """Whether the run in ``out`` has its summary."""
    return (out / "summary.json").exists()


def summary(out: Path) -> dict[str, Any]:
    """The finished run's figures."""
    try:
        found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    except (OSError, ValueError) as error:
        raise CgpflError(f"run {out}: has no summary.json that can be read") from error
    return found
