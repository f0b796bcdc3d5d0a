"""Units in several processes, each with its share of the cores.

Processes are started anew, never forked (JAX has threads). What is imported here is light: a worker
chooses its cores before JAX counts them.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cgpfl.errors import CgpflError, one_line

if TYPE_CHECKING:
    from cgpfl.battery.cells import Unit
    from cgpfl.experiment.run import Progress

Report = Callable[["Unit", "Progress"], None]


class Place(NamedTuple):
    """Where a worker computes, and what it writes."""

    cores: tuple[int, ...]
    """Empty: where the system puts it."""
    platforms: str | None
    """JAX's, where one was chosen."""
    out: Path
    rounds: int


def shares(cores: Sequence[int], jobs: int) -> list[tuple[int, ...]]:
    """The cores of each of ``jobs`` workers: disjoint where there are enough, else one each in turn."""
    if jobs >= len(cores):
        return [(cores[i % len(cores)],) for i in range(jobs)]
    cuts = [round(i * len(cores) / jobs) for i in range(jobs + 1)]
    return [tuple(cores[a:b]) for a, b in pairwise(cuts)]


def over_processes(
    units: Sequence[Unit],
    jobs: int,
    out: Path,
    rounds: int,
    *,
    platforms: str | None,
    report: Report,
    stop: Callable[[], bool],
) -> bool:
    """Run every unit, ``jobs`` at a time; False when ``stop()`` turned true before the end."""
    context = multiprocessing.get_context("spawn")
    with _quiet_tracker():
        todo, told = context.Queue(), context.Queue()
    for unit in [*units, *[None] * jobs]:
        todo.put(unit)
    there = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    cores = shares(there, jobs) if there else [()] * jobs
    places = [Place(own, platforms, out, rounds) for own in cores]
    workers = [context.Process(target=_work, args=(place, todo, told), daemon=True) for place in places]
    left = len(units)
    try:
        _start(workers)
        while left:
            if stop():
                return False
            try:
                unit, news = told.get(timeout=0.2)
            except queue.Empty:
                if lost := [w.exitcode for w in workers if w.exitcode not in (None, 0)]:
                    what = f"a worker ended with code {lost[0]}; what is finished is kept, try fewer --jobs"
                    raise CgpflError(f"battery: {what}") from None
                continue
            if isinstance(news, str):
                raise CgpflError(f"battery: {unit.method}: {news}")
            if news is None:
                left -= 1
            else:
                report(unit, news)
        return True
    finally:  # what they were at is not kept; files are whole or not there
        todo.cancel_join_thread()
        begun = [worker for worker in workers if worker.pid is not None]
        for worker in begun:
            worker.terminate()
        for worker in begun:
            worker.join()


@contextmanager
def _quiet_tracker() -> Iterator[None]:
    """Start Python's tracker of semaphores so that it says nothing: it removes what ended workers left."""
    before = os.environ.get("PYTHONWARNINGS")
    own = "ignore:resource_tracker:UserWarning"
    os.environ["PYTHONWARNINGS"] = f"{before},{own}" if before else own
    try:
        resource_tracker.ensure_running()
        yield
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _start(workers: Sequence[Any]) -> None:
    """Start them deaf to Ctrl-C, which reaches every process of a terminal: the first decides for all."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if here else None
    try:
        for worker in workers:
            worker.start()
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _work(place: Place, todo: Any, told: Any) -> None:
    """A worker: units until there are no more, or nobody who wants them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if place.cores:
        os.sched_setaffinity(0, place.cores)
    if place.platforms:
        os.environ["JAX_PLATFORMS"] = place.platforms
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several share a GPU
    from cgpfl.battery.run import run_unit

    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive():
        try:
            unit = todo.get(timeout=2)
        except queue.Empty:
            continue
        if unit is None:
            return
        try:
            run_unit(unit, place.out, place.rounds, on_progress=partial(_tell, told, unit))
            told.put((unit, None))
        except Exception as error:  # said by the first process
            told.put((unit, one_line(error)))


def _tell(told: Any, unit: Unit, progress: Progress) -> None:
    told.put((unit, progress))
