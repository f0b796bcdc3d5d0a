"""The campaign: ``python -m benchmarks.badinput [--inputs 16000] [--folders 4000] [--messages 1000] [--seed 0]``.

What is neither a result nor one line, takes over 10 seconds, or is a wrong answer of a damaged folder is printed with
its seed, and the exit code is 1. Half of the inputs are mutated files, half are made by hypothesis.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.badinput.attempt import attempt
from benchmarks.badinput.inputs import KINDS

Found = Iterator[tuple[int, list[str]]]
"""How many inputs, and what was wrong with their answers."""


def mutated(count: int, seed: int) -> Found:
    """Files that were good, with some bytes changed."""
    for number in range(seed * 10**6, seed * 10**6 + count):
        draw = random.Random(number)
        kind = draw.choice(KINDS)
        wrong = attempt(f"{kind.__name__}, seed {number}", partial(kind, draw=draw))
        yield 1, [] if wrong is None else [wrong]


def made(count: int, seed: int) -> Found:
    """Well-formed files that make no sense."""
    import hypothesis
    from hypothesis import HealthCheck, Phase, given, settings

    from benchmarks.badinput.made import KINDS as MADE

    bounds = settings(
        max_examples=count // len(MADE) or 1,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for name, (strategy, call) in MADE.items():
        found: list[tuple[int, list[str]]] = []
        hypothesis.seed(seed)(bounds(given(strategy)(_noting(name, call, found))))()
        yield from found


def _noting(name: str, call: Any, found: list[tuple[int, list[str]]]) -> Callable[[Any], None]:
    def one(value: Any) -> None:
        wrong = attempt(f"{name} {value!r:.500}", lambda folder: call(folder, value))
        found.append((1, [] if wrong is None else [wrong]))

    return one


def folders(count: int, seed: int, scratch: Path) -> Found:
    """Damaged run folders, until so many were read."""
    from benchmarks.badinput.folders import damaged, make

    whole, number = make(scratch / "whole"), seed * 10**6
    while count > 0:
        read, wrong = damaged(number, whole)
        number, count = number + 1, count - read
        yield read, wrong


def messages(count: int, seed: int) -> Found:
    """Of a node to the server, and as many to a node."""
    from benchmarks.badinput.messages import to_node, to_server

    yield to_server(count, seed)
    for number in range(count):
        wrong = attempt(f"to a node, seed {number}", partial(to_node, draw=random.Random(seed * 10**6 + number)))
        yield 1, [] if wrong is None else [wrong]


def main() -> int:
    parser = argparse.ArgumentParser(description="Bad input, and what comes of it.")
    for name, default in {"inputs": 16000, "folders": 4000, "messages": 1000, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    total, faults = 0, 0
    with tempfile.TemporaryDirectory(prefix="cgpfl-badinput-") as scratch:
        for what, found in {
            "mutated inputs": mutated(asked.inputs // 2, asked.seed),
            "inputs made by hypothesis": made(asked.inputs // 2, asked.seed) if asked.inputs else iter(()),
            "readings of damaged folders": folders(asked.folders, asked.seed, Path(scratch))
            if asked.folders
            else iter(()),
            "messages": messages(asked.messages, asked.seed) if asked.messages else iter(()),
        }.items():
            began, count, bad = time.monotonic(), 0, 0
            for number, wrong in found:
                count, bad = count + number, bad + len(wrong)
                for line in wrong:
                    print(f"WRONG {line}", flush=True)
                if count % 500 < number:
                    print(f"{what}: {count} so far", flush=True)
            print(f"{what}: {count}, {bad} wrong answers, {time.monotonic() - began:.0f} s", flush=True)
            total, faults = total + count, faults + bad
    print(f"{total} in all, {faults} wrong answers")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
