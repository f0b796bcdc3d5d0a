"""Many runs of one method, as few programs: what a comparison and the paper's tables are made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from cgpfl.algorithms.wrapper import unseamed
from cgpfl.data import FederatedData
from cgpfl.engine import Drive, Engine, Simulation, engine_for
from cgpfl.engine.drive import of_each
from cgpfl.engine.together import Run, Together, how_many_fit, same_samples
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.events import Callback, Teller
from cgpfl.experiment.folder import parameters
from cgpfl.experiment.records import Cost, Records
from cgpfl.experiment.run import Progress, mean_accuracy
from cgpfl.experiment.table import Runs
from cgpfl.metrics import agreement, headline
from cgpfl.objectives import Classification


class Done(NamedTuple):
    """A run that has ended."""

    records: Records
    answers: int
    """Uploads received in all."""
    diverged: int | None
    """The round (from 1) in which it diverged, if it did."""
    seconds: float = 0.0
    """Its share of the time that its program took."""


class Batch(NamedTuple):
    """Runs of one method that differ in seeds, data, and hyper-parameters declared as floats."""

    label: str
    todo: Sequence[Run]
    model: Any
    engine: dict[str, Any]
    """Arguments of :class:`Together`."""
    place: dict[str, Any] | None = None
    """Devices and store of :func:`~cgpfl.engine.engine_for`: each run has a program of its own there."""

    def parts(self) -> list[Sequence[Run]]:
        """The runs, as many in one program as fit in memory."""
        size = 1
        if self.place is None:
            size = how_many_fit(self.todo[0], self.model, same_samples([r.data for r in self.todo]))
        return [self.todo[first : first + size] for first in range(0, len(self.todo), size)]

    def made(self, part: Sequence[Run], folder: Path | None = None) -> Engine:
        """The engine of a part; ``folder``: where personal states may be kept."""
        if self.place is None:
            return Together(part, self.model, **self.engine)
        (run,) = part
        return engine_for(run.method, run.data, self.model, folder=folder, seed=run.seed, **self.place, **self.engine)

    def first(self, folder: Path) -> Engine:
        """The first part's engine; ``folder``: the batch's, for its checkpoints."""
        part = self.parts()[0]
        return self.made(part, MethodFolder(folder / f"{0:05d}-{len(part)}").path)


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
    engine = batch.made(batch.parts()[0])
    if isinstance(engine, Simulation):
        engine.compile()


def run_batch(
    batch: Batch,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    callbacks: tuple[Callback, ...] = (),
    folder: Path | None = None,
    what: dict[str, Any] | None = None,
    save_every: float = 10.0,
    engine: Engine | None = None,
) -> list[Done]:
    """Every run to its last round. When ``stop()`` turns true, :class:`~cgpfl.engine.drive.Stopped` is raised.

    With a ``folder`` it goes on from there the next time, if that is for the same runs (``what``). ``engine``: the
    first part's, if it has been made.
    """
    made = engine
    done: list[Done] = []

    def run(part: Sequence[Run]) -> list[Done]:
        place = None if folder is None else MethodFolder(folder / f"{len(done):05d}-{len(part)}")
        given = made if not done else None
        engine = batch.made(part, None if place is None else place.path) if given is None else given
        drive = Drive(engine, Records(), label=batch.label, checkpoints=place, what=what)
        teller = Teller(callbacks, batch.label, [(r.method, r.data) for r in part], engine)

        title = headline(getattr(batch.model, "objective", Classification()).task).title

        def on_block(evaluations: int) -> None:
            each = of_each(drive.state, drive.records, drive.patience)
            seconds = drive.seconds + sum(d.seconds for d in done)
            teller.evaluated(each, drive.newest(evaluations), seconds)
            if on_progress is not None:
                rounds, share = batch.engine["rounds"], len(part) / len(batch.todo)
                at = round(len(done) / len(batch.todo) * rounds + drive.t * share)
                speed = None if drive.pace.speed is None else drive.pace.speed * share
                accuracy = mean_accuracy(each, [r.data for r in part])
                on_progress(Progress(batch.label, at, rounds, accuracy, seconds, speed, metric=title))

        teller.started(drive.t, batch.engine["rounds"])
        drive.run(on_block, stop, save_every=save_every)
        answers = np.atleast_1d(np.asarray(drive.state.answers))
        ends = zip(of_each(drive.state, drive.records, drive.patience), answers, drive.lost, strict=True)
        seconds = drive.seconds / len(part)
        return [Done(own, _answers(own, drive.records.rounds, int(n)), bad, seconds) for own, n, bad in ends]

    for part in batch.parts():
        done += run(part)
    return done


def _answers(own: Records, evaluated: list[int], all_of_them: int) -> int:
    """Uploads of a run: fewer than the program's where it stopped before the others."""
    return int(own.values["answers"][-1]) if own.rounds and own.rounds[-1] < evaluated[-1] else all_of_them


def as_runs(batch: Batch, done: Sequence[Done], *, seconds: float, tried: list[dict[str, Any]] | None = None) -> Runs:
    """The seeds of one setting of a method, and how they ended, as a table's row wants them."""
    label, todo, model, engine = batch[:4]
    first = todo[0]
    simulation = Simulation(first.method, first.data, model, **engine)
    return Runs(
        label=label,
        seeds=[r.seed for r in todo],
        records=[d.records for d in done],
        samples=[r.data.test.counts for r in todo],
        cost=Cost.of(simulation),
        answers=[d.answers for d in done],
        rounds=[d.diverged or (d.records.rounds[-1] if d.records.rounds else engine["rounds"]) for d in done],
        diverged=[d.diverged for d in done],
        seconds=seconds,
        settings=_settings(first.method),
        tried=tried or [],
        ari=[_ari(d.records, r.data) for d, r in zip(done, todo, strict=True)],
    )


def _settings(method: Any) -> dict[str, Any]:
    """Hyper-parameters of a method, without the rules of its rounds; λ, too, where it is that of a method inside."""
    own = unseamed(method)
    values = parameters(own) if is_dataclass(own) else {}
    return values if "prox" in values or not hasattr(own, "prox") else {**values, "prox": own.prox}


def _ari(records: Records, data: FederatedData) -> float | None:
    if "context" not in records.values or not records.rounds:
        return None
    honest = np.isfinite(records.values["correct"][-1]) if "liar" in records.values else None
    return agreement(data.context, records.values["context"][-1], honest)
