"""Processes of a trial end with it, however it ends: one that was killed cannot end them itself."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

PARENT = "CGPFL_PARENT"
"""Variable of the environment: the process without which this one is of no use."""
LOOK = 0.5
"""Seconds between two looks."""
GRACE = 3.0
"""Seconds to go in peace."""


def descendants(pid: int) -> list[int]:
    """Processes that ``pid`` started, and those they started (on Linux; elsewhere none are found)."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        mine = children.get(todo.pop(), [])
        found += mine
        todo += mine
    return found


def end_with_parent() -> None:
    """End this process, and all it started, once the parent that the environment names is gone; without one, never."""
    parent = os.environ.pop(PARENT, "")
    if parent.isdigit():
        threading.Thread(target=_watch, args=(int(parent),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    others = descendants(os.getpid())  # in sessions of their own: nobody else would end them
    signal_all(others, signal.SIGTERM)
    time.sleep(GRACE)
    signal_all([*others, *descendants(os.getpid()), os.getpid()], signal.SIGKILL)


def signal_all(processes: list[int], number: int) -> None:
    """Send a signal to those that are still there."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
