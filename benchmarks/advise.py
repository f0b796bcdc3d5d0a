"""Whether advice is right: ``python -m benchmarks.advise [--data NAME ...] [--seeds 10] [--jobs J] [--out FILE]``.

Where the right answer is known:

    iid         digits dealt out at random, 40 clients of about 45 samples      → one model
    rotation    digits in 4 contexts, turned by 90 degrees, 40 clients          → contexts, with or without personal; 4
    alone       digits, 12 clients of about 150, each with names of its own     → alone
                for the ten classes: a permutation that no other client has

Where it is not, a full comparison gives it (:mod:`benchmarks.ranking`): advice is right if it names what that ranks
first, or what a paired test cannot tell from it.

    tuna, train, watch      households, travellers, arms: ``cgpfl data list``

What is done is kept in FILE, a line a study or a way on a split, and not done again. With several jobs each process has
cores of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import cgpfl
from benchmarks.ranking import compare_once, ranking
from cgpfl.advice.folds import everything, make_folds
from cgpfl.advice.study import NAMES, study
from cgpfl.advice.weigh import weigh
from cgpfl.data import FederatedData
from cgpfl.experiment import Experiment

Line = dict[str, Any]
NATURAL = {"tuna": "tuna", "train": "train", "watch": "smartwatch"}
"""Federations with clients of their own, and what ``--data`` calls them elsewhere."""
RIGHT = {"iid": ("one model",), "rotation": ("contexts", "contexts + personal"), "alone": ("alone",)}


def federation(kind: str, seed: int) -> FederatedData:
    """One of those above."""
    if kind in NATURAL:
        return cgpfl.make_data(NATURAL[kind], seed=seed)
    if kind != "alone":
        return cgpfl.make_data("digits", kind, clients=40, seed=seed)
    data = cgpfl.make_data("digits", "iid", clients=12, seed=seed)
    y, draw = data.y.copy(), np.random.default_rng([seed, 5])
    for rows in everything(data):
        y[rows] = draw.permutation(data.classes).astype(y.dtype)[y[rows]]
    return replace(data, y=y)


def once(kind: str, seed: int) -> Line:
    """One study, as ``cgpfl advise`` makes it."""
    began, cpu = time.perf_counter(), time.process_time()
    data = federation(kind, seed)
    folds = make_folds(data, 5, seed)
    model = Experiment.of(["local"], data, "mlr", {}, "advise").make_model(data)
    found = study(folds, model, 50, seed)
    verdict = weigh(found.correct, found.counts, folds.cuts)
    return {
        "kind": kind,
        "seed": seed,
        "advice": verdict.name,
        "k": found.contexts()[0],
        "score": {name: round(v, 4) for name, v in verdict.score.items()},
        "p": {name: round(v, 4) for name, v in verdict.p.items()},
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def is_right(line: Line, tied: list[str] | None = None) -> bool:
    """Whether the advice is the known answer, with the known number of contexts; or one of ``tied``."""
    if tied is not None:
        return line["advice"] in tied
    return line["advice"] in RIGHT[line["kind"]] and (line["kind"] != "rotation" or line["k"] == 4)


def show(lines: list[Line]) -> None:
    """The tables."""
    kinds = list(dict.fromkeys(line["kind"] for line in lines))
    studies = [line for line in lines if "way" not in line]
    ranks = {k: ranked(lines, k) for k in kinds}
    print("| federation | right | advice | K | " + " | ".join(NAMES) + " | CPU seconds |")
    print("|---|--:|---|---|" + "--:|" * (len(NAMES) + 1))
    for kind in kinds:
        own = [line for line in studies if line["kind"] == kind]
        if not own:
            continue
        rank = ranks[kind]
        known = kind in RIGHT or rank is not None
        right = sum(is_right(line, None if rank is None else rank["tied"]) for line in own) if known else "?"
        figures = " | ".join(f"{100 * np.mean([line['score'][name] for line in own]):.1f}" for name in NAMES)
        cost = np.median([line["cpu_seconds"] for line in own])
        advice, k = (counted([line[what] for line in own]) for what in ("advice", "k"))
        print(f"| {kind} | {right} of {len(own)} | {advice} | {k} | {figures} | {cost:.0f} |")
    for kind, rank in ranks.items():
        if rank is not None:
            short = ranked(lines, kind, "short")
            print(f"\n{kind}: a full comparison ranks first {', '.join(rank['tied'])}; best {rank['best']}")
            print(f"  score {rank['score']}\n  p {rank['p']}\n  after 50 rounds {short and short['tied']}")


def counted(values: list[Any]) -> str:
    """What there is, and how often."""
    return ", ".join(f"{v}: {values.count(v)}" for v in dict.fromkeys(values))


def ranked(lines: list[Line], kind: str, after: str = "full") -> dict[str, Any] | None:
    """The comparison's ranking, of the splits on which every way is done; None before there are two."""
    own = [line for line in lines if line["kind"] == kind and "way" in line]
    whole = [s for s in {line["split"] for line in own} if sum(line["split"] == s for line in own) == len(NAMES)]
    return ranking([line for line in own if line["split"] in whole], after) if len(whole) > 1 else None


def todo(kinds: list[str], seeds: int, splits: int, lines: list[Line]) -> Iterator[Line]:
    """What is not done yet: the longest first."""
    done = {(line["kind"], line.get("seed"), line.get("way"), line.get("split")) for line in lines}
    for way in reversed(NAMES):
        for kind in kinds:
            for split in range(splits if kind in NATURAL else 0):
                if (kind, None, way, split) not in done:
                    yield {"kind": kind, "way": way, "split": split}
    for seed in range(seeds):
        for kind in kinds:
            if (kind, seed, None, None) not in done:
                yield {"kind": kind, "seed": seed}


def work(task: Line) -> Line:
    """One study, or one way on one split."""
    if "seed" in task:
        return once(task["kind"], task["seed"])
    began = time.perf_counter()
    found = compare_once(NATURAL[task["kind"]], task["way"], task["split"])
    return task | found | {"seconds": round(time.perf_counter() - began, 1)}


def settle(numbers: Any, jobs: int) -> None:
    """Give this process cores of its own, before JAX counts them."""
    cores = sorted(os.sched_getaffinity(0))
    own = cores[numbers.get() :: jobs] if jobs <= len(cores) else cores
    os.sched_setaffinity(0, own)


def perform(tasks: list[Line], jobs: int) -> Iterator[Line]:
    """Every task's line, as it is done."""
    if jobs == 1:
        yield from map(work, tasks)
        return
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")  # of each process, which counts before it is settled
    spawn = get_context("spawn")
    numbers = spawn.Queue()
    for number in range(jobs):
        numbers.put(number)
    with ProcessPoolExecutor(jobs, spawn, settle, (numbers, jobs)) as pool:
        for ended in as_completed([pool.submit(work, task) for task in tasks]):
            yield ended.result()


def main() -> None:
    """Run what is missing, then show everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", choices=[*RIGHT, *NATURAL], default=list(RIGHT))
    parser.add_argument("--seeds", type=int, default=10, help="studies of each federation")
    parser.add_argument("--splits", type=int, default=10, help="splits of the full comparison")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("runs/advise.jsonl"))
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    for line in perform(list(todo(asked.data, asked.seeds, asked.splits, lines)), asked.jobs):
        lines.append(line)
        with asked.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
    wanted = [line for line in lines if line["kind"] in asked.data]
    show([line for line in wanted if line.get("seed", 0) < asked.seeds and line.get("split", 0) < asked.splits])


if __name__ == "__main__":
    main()
