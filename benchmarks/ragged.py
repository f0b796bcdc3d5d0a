"""What unequal clients cost: 40 clients of 5 to 5,000 samples against 40 of one size, with as many samples in all.

    python benchmarks/ragged.py [--models mlr dnn cnn] [--methods fedavg cgpfl-auto local] [--repeats 7] [--alone]

Images of 28 × 28 pixels, made up. The default 200 rounds have an evaluation every second one, so blocks of rounds with
as many evaluations are timed, of the two federations in turn. The ratio is that of the medians, by the clock and of
processor time (which other people's work on the machine changes less). ``--alone``: rounds without any evaluation, too.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from cgpfl.algorithms import get_method
from cgpfl.data import FederatedData
from cgpfl.engine import Drive, Simulation
from cgpfl.models import as_model

CLIENTS, CLASSES, SIDE = 40, 10, 28
ROUNDS = {"mlr": 20, "dnn": 10, "cnn": 2}
"""Of a timed block."""
NEVER = 10**6


def sizes(ragged: bool) -> np.ndarray:
    """Samples of each client; the even ones have as many in all, to 40."""
    each = np.geomspace(5, 5000, CLIENTS).round().astype(int)
    return np.random.default_rng(1).permutation(each) if ragged else np.full(CLIENTS, round(each.sum() / CLIENTS))


def federation(ragged: bool) -> FederatedData:
    """Classes are bright spots in noise."""
    rng, counts = np.random.default_rng(0), sizes(ragged)
    owner = np.repeat(np.arange(CLIENTS), counts)
    y = rng.integers(0, CLASSES, len(owner)).astype(np.int32)
    x = rng.integers(0, 128, (len(owner), SIDE, SIDE), np.uint8)
    x[np.arange(len(y)), 4 + 2 * y, 4 + 2 * y] = 255
    parts = [np.flatnonzero(owner == i) for i in range(CLIENTS)]
    return FederatedData.from_parts(x, y, parts, classes=CLASSES, scale=1 / 255)


def driven(method: str, data: FederatedData, model: str, every: int) -> Drive:
    """A run whose program is compiled."""
    built = as_model(model, data.shape, CLASSES)
    drive = Drive(Simulation(get_method(method), data, built, rounds=NEVER, eval_every=every))
    drive.block(2)
    return drive


def timed(drives: list[Drive], rounds: int, repeats: int) -> np.ndarray:
    """Median milliseconds a round of each, measured in turn: ``[drives, 2]``, by the clock and of the processor."""
    taken: list[list[np.ndarray]] = [[] for _ in drives]
    for _ in range(repeats):
        for drive, own in zip(drives, taken, strict=True):
            began = np.array([time.perf_counter(), time.process_time()])
            drive.block(rounds)
            int(drive.state.answers)
            own.append(1e3 * (np.array([time.perf_counter(), time.process_time()]) - began) / rounds)
    return np.median(taken, axis=1)


def measure(model: str, method: str, repeats: int, alone: bool) -> dict[str, Any]:
    """One method on both federations."""
    both = [federation(ragged) for ragged in (True, False)]
    found: dict[str, Any] = {"model": model, "method": method}
    for name, every in (("", 2), *([("alone_", NEVER)] if alone else [])):
        ragged, even = timed([driven(method, data, model, every) for data in both], ROUNDS[model], repeats)
        found |= {f"{name}ragged_ms": round(ragged[0], 2), f"{name}even_ms": round(even[0], 2)}
        found |= {f"{name}ratio": round(ragged[0] / even[0], 2), f"{name}cpu_ratio": round(ragged[1] / even[1], 2)}
    return found


def main() -> None:
    """A line of JSON for each model and method."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=list(ROUNDS), choices=list(ROUNDS))
    parser.add_argument("--methods", nargs="+", default=["fedavg", "cgpfl-auto", "local"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--alone", action="store_true", help="rounds without evaluation, too")
    asked = parser.parse_args()
    for model in asked.models:
        for method in asked.methods:
            print(json.dumps(measure(model, method, asked.repeats, asked.alone)), flush=True)


if __name__ == "__main__":
    main()
