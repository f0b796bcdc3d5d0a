"""Many runs of one method, as few programs: what a comparison and the paper's tables are made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from cgpfl.engine.together import Run, Together, how_many_fit, same_samples
from cgpfl.experiment.folder import parameters
from cgpfl.experiment.records import Cost, Records
from cgpfl.experiment.run import Pace, Progress, Stopped
from cgpfl.experiment.table import Runs


class Done(NamedTuple):
    """A run that has ended."""

    records: Records
    answers: int
    """Uploads received in all."""
    diverged: int | None
    """The round (from 1) in which it diverged, if it did."""


def run_all(
    todo: Sequence[Run],
    model: Any,
    engine: dict[str, Any],
    *,
    label: str,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Done]:
    """Every run to its last round, as many in one program as fit in memory.

    The runs are of one method and differ in seeds, data, and hyper-parameters declared as floats.
    ``engine``: arguments of :class:`Together`. When ``stop()`` turns true, :class:`Stopped` is raised.
    """
    rounds, began = engine["rounds"], time.perf_counter()
    size = how_many_fit(todo[0], model, same_samples([r.data for r in todo]))
    done: list[Done] = []
    for first in range(0, len(todo), size):
        part = todo[first : first + size]
        together = Together(part, model, **engine)
        state, t, pace = together.start(), 0, Pace()
        records = [Records() for _ in part]
        while t < rounds and bool((state.diverged < 0).any()):
            end, start = min(t + pace.length, together.furthest(t)), time.perf_counter()
            state, values, due = together.advance(state, t, end)
            pace.took(end - t, time.perf_counter() - start)
            for own, (block, evaluated) in zip(records, together.split(state, values, due), strict=True):
                own.add(evaluated, block)
            t = end
            if on_progress is not None:
                told = round((first + t / rounds * len(part)) / len(todo) * rounds)
                speed = None if pace.speed is None else pace.speed * len(part) / len(todo)
                accuracy = _mean_accuracy(records, part)
                on_progress(Progress(label, told, rounds, accuracy, time.perf_counter() - began, speed))
            if stop():
                raise Stopped(label)
        ends = zip(records, np.asarray(state.answers), np.asarray(state.diverged), strict=True)
        done += [Done(own, int(answers), None if bad < 0 else int(bad) + 1) for own, answers, bad in ends]
    return done


def as_runs(
    label: str,
    todo: Sequence[Run],
    done: Sequence[Done],
    model: Any,
    engine: dict[str, Any],
    *,
    seconds: float,
    tried: list[dict[str, Any]] | None = None,
) -> Runs:
    """The seeds of one setting of a method, ``todo`` with how they ended, as a table's row wants them."""
    first = todo[0]
    simulation = Simulation(first.method, first.data, model, **engine)
    cost = simulation.traffic()
    return Runs(
        label=label,
        seeds=[r.seed for r in todo],
        records=[d.records for d in done],
        samples=[r.data.test.counts for r in todo],
        cost=Cost(cost.message, cost.upload, cost.gradients, simulation.static.cohort),
        answers=[d.answers for d in done],
        rounds=[engine["rounds"] if d.diverged is None else d.diverged for d in done],
        diverged=[d.diverged for d in done],
        seconds=seconds,
        settings=parameters(first.method),
        tried=tried or [],
        ari=[_ari(d.records, r.data) for d, r in zip(done, todo, strict=True)],
    )


def _mean_accuracy(records: Sequence[Records], runs: Sequence[Run]) -> float | None:
    each = [
        r.values["correct"][-1].sum() / run.data.test.counts.sum()
        for r, run in zip(records, runs, strict=True)
        if r.rounds
    ]
    return float(np.mean(each)) if each else None


def _ari(records: Records, data: FederatedData) -> float | None:
    if data.context is None or "context" not in records.values or not records.rounds:
        return None
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(data.context, records.values["context"][-1]))
