"""Run a grid: every case checked, timed in turn, and set beside what the machine allows."""

from __future__ import annotations

import dataclasses
import gc
import math
import time
from collections.abc import Callable, Iterator

import jax

from benchmarks.bench.check import CHECKED, check_round, checked
from benchmarks.bench.counts import Counts, count, layers_of
from benchmarks.bench.grid import Grid
from benchmarks.bench.machine import (
    busy_note,
    facts,
    forget_peak,
    fresh_programs,
    measure,
    peak_memory,
    program_memory,
    seconds,
)
from benchmarks.bench.ours import Ours
from benchmarks.bench.result import Result, Row
from benchmarks.bench.rivals import fastest, rivals, why_none
from benchmarks.bench.sweep import run_sweep
from benchmarks.bench.tabulate import duration
from benchmarks.bench.timing import Contestant, interleaved, medians
from benchmarks.bench.work import SIZES, Case, method_of, model_of, rule_of
from cgpfl.engine.blocks import memory

COPIES = 6
"""Models of every client that a round holds at once, at most: θ and uploads, old and new, and k-means' points."""

Tell = Callable[[str], None]


def run(grid: Grid, tell: Tell = lambda line: None, keep: Callable[[Result], None] = lambda result: None) -> Result:
    """Measure all of ``grid``; ``tell`` hears of each step, ``keep`` gets the result after each case."""
    reason = why_none()
    tell("the machine's own rates")
    busy = busy_note()
    result = Result(grid, facts(), measure(), notes=tuple(note for note in (reason, busy) if note))
    for case in cases(grid):
        left_out = too_much(case, result)
        if left_out is not None:
            tell(left_out)
            result = dataclasses.replace(result, notes=(*result.notes, left_out))
            continue
        start = time.perf_counter()
        row = run_case(case, grid, with_torch=reason is None)
        result = dataclasses.replace(result, rows=(*result.rows, row), notes=(*result.notes, *remarks(row, grid)))
        keep(result)
        tell(f"{case.name}: {duration(row.ours)} a round ({time.perf_counter() - start:.0f} s)")
    if grid.sweep:
        tell("the sweep")
        result = dataclasses.replace(result, sweep=run_sweep(grid.sweep_rounds))
    result = dataclasses.replace(result, rates=result.rates.best(measure()))
    keep(result)
    return result


def cases(grid: Grid) -> Iterator[Case]:
    """All of them, a model's together: its samples are made once."""
    for model in grid.models:
        for method in grid.methods:
            for clients in grid.clients:
                yield Case(method, model, clients, grid.samples)


def counts_of(case: Case) -> Counts:
    """Operations and bytes of a case's round."""
    contexts = getattr(method_of(case.method), "contexts", 1)
    return count(
        layers_of(model_of(case.model)), rule_of(case), case.clients, contexts, pixels=math.prod(SIZES[case.model])
    )


def too_much(case: Case, result: Result) -> str | None:
    """Why a case is left out, in one line, or None: its time judged by fewer clients', its memory by their models'."""
    before = [r for r in result.rows if (r.case.method, r.case.model) == (case.method, case.model)]
    if before:
        expected = before[-1].ours * case.clients / before[-1].case.clients
        if expected > result.grid.limit:
            return f"{case.name}: left out, a round would take some {expected:.0f} s; raise --limit to time it"
    parameters = sum(layer.parameters for layer in layers_of(model_of(case.model)))
    need = COPIES * 4 * parameters * case.clients
    if need > 0.75 * memory():
        return f"{case.name}: left out, it may need {need / 2**30:.0f} GB of memory"
    return None


def remarks(row: Row, grid: Grid) -> Iterator[str]:
    """What to know about a case's timings, a line each."""
    timings = len(row.times["ours"])
    if timings < grid.repeats:
        yield f"{row.case.name}: {timings} of {grid.repeats} timings; raise --limit for more"
    for name in row.dropped:
        yield f"{row.case.name}: {name}: not timed, 3x slower in a trial; is the machine busy?"


def run_case(case: Case, grid: Grid, with_torch: bool = True) -> Row:
    """Set up, check, then time one case."""
    gc.collect()
    forget_peak()
    with fresh_programs():
        ours = Ours(case)
        compiling = ours.compile()
        first = seconds(lambda: ours.advance(1))
        # A GPU's own record of its peak never starts anew, so there it is what the program needs by itself.
        peak = peak_memory() if jax.default_backend() == "cpu" else program_memory(ours.program)
        expected = ours.client_rounds(min(CHECKED, case.clients))
        off = check_round(checked(ours), expected)
        others = rivals(ours, expected) if with_torch else None
        rounds = max(1, min(grid.rounds, int(grid.limit / 2 / first)))  # a call of T rounds within half the limit
        contestants = [
            Contestant("ours", lambda: ours.advance(rounds), rounds),
            Contestant("ours, one round", lambda: ours.advance(1)),
            *([] if others is None else others.contestants),
        ]
        times = interleaved(contestants, grid.repeats, grid.limit)
        jax.block_until_ready(ours.drive.state)
    middle = medians(times)
    best = {who: found for who in ("loop", "vmap") if (found := fastest(middle, who)) is not None}
    return Row(
        case=case,
        ours=middle["ours"],
        alone=middle["ours, one round"],
        rounds=rounds,
        compile=compiling,
        memory=peak,
        counts=counts_of(case),
        rivals={who: found[0] for who, found in best.items()},
        timed={} if others is None else others.clients,
        variants={who: found[1] for who, found in best.items()},
        dropped=() if others is None else others.dropped,
        difference=off if others is None else max(off, others.difference),
        times=times,
    )
