"""Many runs of one method, as few programs: what a comparison and the paper's tables are made of."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np

from cgpfl.data import FederatedData
from cgpfl.engine import Drive, Simulation
from cgpfl.engine.drive import of_each
from cgpfl.engine.together import Run, Together, how_many_fit, same_samples
from cgpfl.experiment.folder import parameters
from cgpfl.experiment.records import Cost, Records
from cgpfl.experiment.run import Progress, mean_accuracy
from cgpfl.experiment.table import Runs
from cgpfl.metrics import agreement


class Done(NamedTuple):
    """A run that has ended."""

    records: Records
    answers: int
    """Uploads received in all."""
    diverged: int | None
    """The round (from 1) in which it diverged, if it did."""


class Batch(NamedTuple):
    """Runs of one method that differ in seeds, data, and hyper-parameters declared as floats."""

    label: str
    todo: Sequence[Run]
    model: Any
    engine: dict[str, Any]
    """Arguments of :class:`Together`."""

    def parts(self) -> list[Sequence[Run]]:
        """The runs, as many in one program as fit in memory."""
        size = how_many_fit(self.todo[0], self.model, same_samples([r.data for r in self.todo]))
        return [self.todo[first : first + size] for first in range(0, len(self.todo), size)]


@contextmanager
def compiling(batches: Sequence[Batch]) -> Iterator[Callable[[int], None]]:
    """Compile the batches' programs ahead, in other threads, while those before them run.

    Yields a function that waits until batch i is compiled. On a CPU nothing is done: its cores are busy.
    """
    workers = min(8, (os.cpu_count() or 1) // 2)
    if jax.default_backend() == "cpu" or workers < 2 or len(batches) < 2:
        yield lambda i: None
        return
    pool = ThreadPoolExecutor(workers)
    ahead = [pool.submit(_compile, batch) for batch in batches]

    def wait(i: int) -> None:
        ahead[i].exception()  # what is wrong with it is said when it runs

    try:
        yield wait
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _compile(batch: Batch) -> None:
    Together(batch.parts()[0], batch.model, **batch.engine).compile()


def run_batch(
    batch: Batch,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Done]:
    """Every run to its last round. When ``stop()`` turns true, :class:`Stopped` is raised."""
    began, done = time.perf_counter(), list[Done]()
    for part in batch.parts():
        drive = Drive(Together(part, batch.model, **batch.engine), Records(), label=batch.label)

        def on_block(evaluations: int, part: Any = part, drive: Drive = drive, before: int = len(done)) -> None:
            if on_progress is not None:
                on_progress(_progress(batch, part, drive, before, time.perf_counter() - began))

        drive.run(on_block, stop)
        answers = np.asarray(drive.state.answers)
        ends = zip(of_each(drive.state, drive.records), answers, drive.lost, strict=True)
        done += [Done(own, int(count), bad) for own, count, bad in ends]
    return done


def _progress(batch: Batch, part: Sequence[Run], drive: Drive, before: int, seconds: float) -> Progress:
    """How far all of a batch is, ``before`` of whose runs have ended."""
    rounds, share = batch.engine["rounds"], len(part) / len(batch.todo)
    at = round(before / len(batch.todo) * rounds + drive.t * share)
    speed = None if drive.pace.speed is None else drive.pace.speed * share
    accuracy = mean_accuracy(of_each(drive.state, drive.records), [run.data for run in part])
    return Progress(batch.label, at, rounds, accuracy, seconds, speed)


def as_runs(batch: Batch, done: Sequence[Done], *, seconds: float, tried: list[dict[str, Any]] | None = None) -> Runs:
    """The seeds of one setting of a method, and how they ended, as a table's row wants them."""
    label, todo, model, engine = batch
    first = todo[0]
    simulation = Simulation(first.method, first.data, model, **engine)
    return Runs(
        label=label,
        seeds=[r.seed for r in todo],
        records=[d.records for d in done],
        samples=[r.data.test.counts for r in todo],
        cost=Cost.of(simulation),
        answers=[d.answers for d in done],
        rounds=[engine["rounds"] if d.diverged is None else d.diverged for d in done],
        diverged=[d.diverged for d in done],
        seconds=seconds,
        settings=parameters(first.method),
        tried=tried or [],
        ari=[_ari(d.records, r.data) for d, r in zip(done, todo, strict=True)],
    )


def _ari(records: Records, data: FederatedData) -> float | None:
    if "context" not in records.values or not records.rounds:
        return None
    return agreement(data.context, records.values["context"][-1])
