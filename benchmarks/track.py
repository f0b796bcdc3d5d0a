"""A guard of speed: a few figures, kept with machine and commit, and what got worse by more than its noise.

    python -m benchmarks.track [--quick] [--figures run,mlr] [--large] [--show]

Run it before a release, on a machine that does nothing else. Every figure is measured several times; ``track.jsonl``
beside this file keeps all of it. Medians are compared with those of the newest record of the same machine (processor,
cores, JAX, GPU). Worse is what lies above by more than 5 % and three spreads: of these timings, of the record's, and of
the medians of earlier records. A line for each, and exit code 1. Without a GPU two cores are used.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDS = Path(__file__).with_name("track.jsonl")
SPREADS, LEAST, EARLIER = 3.0, 0.05, 8
"""Spreads, and the share of a figure, below which nothing is worse; earlier records whose medians tell a spread."""
Values = dict[str, list[float]]


def command(cache: Path, *arguments: object) -> tuple[float, float]:
    """Seconds of a Python module's command with its own cache: by the clock, and of processors."""
    before, began = os.times(), time.perf_counter()
    made, own = [sys.executable, "-m", *map(str, arguments)], os.environ | {"CGPFL_CACHE": str(cache)}
    if subprocess.run(made, stdout=subprocess.DEVNULL, cwd=ROOT, env=own, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(made)}")
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, used


def named(name: str, timings: Sequence[tuple[float, float]]) -> Values:
    """Seconds by the clock, and of processors."""
    return {f"{name}-s": [t[0] for t in timings], f"{name}-cpu-s": [t[1] for t in timings]}


def run(repeats: int, large: bool) -> Values:
    """``cgpfl run``: from an empty cache, and warm."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        whole = ["cgpfl.cli", "run", "--quiet", "--out"]
        cold = [command(place / f"cache-{i}", *whole, place / f"cold-{i}") for i in range((repeats + 1) // 2)]
        warm = [command(place / "cache-0", *whole, place / f"warm-{i}") for i in range(repeats)]
    return named("run-cold", cold) | named("run-warm", warm)


def first(repeats: int, large: bool) -> Values:
    """From the command to the first round of CGPFL, warm."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        one = ["run", "--methods", "cgpfl", "--out"]
        command(place / "cache", "cgpfl.cli", *one, place / "fill")
        warm = [command(place / "cache", "benchmarks.track", "first", *one, place / str(i)) for i in range(repeats)]
    return named("first", warm)


def to_the_first_round(arguments: list[str]) -> None:
    """The command line, ended when it tells of its first round."""
    from cgpfl.cli import main, terminal

    @contextmanager
    def progress(*arguments: Any, **named: Any) -> Any:
        yield lambda p: os._exit(0) if p.round else None

    terminal.progress = progress
    sys.argv = ["cgpfl", *arguments]
    main()


def model(name: str, rounds: int) -> Callable[[int, bool], Values]:
    """A round of CGPFL with 40 clients, and its compilation."""

    def measured(repeats: int, large: bool) -> Values:
        from benchmarks.bench.machine import fresh_programs, seconds
        from benchmarks.bench.ours import Ours
        from benchmarks.bench.work import Case

        found: Values = {f"round-{name}-ms": [], f"compile-{name}-s": []}
        for _ in range((repeats + 1) // 2):
            with fresh_programs():
                ours = Ours(Case("cgpfl", name, 40))
                found[f"compile-{name}-s"].append(ours.compile())
                ours.advance(1)
                timed = [1e3 * seconds(lambda ours=ours: ours.advance(rounds)) / rounds for _ in range(repeats)]
            found[f"round-{name}-ms"] += timed
        return found

    return measured


def ratio(repeats: int, large: bool) -> Values:
    """CGPFL's round as a multiple of pFedMe's, by turns."""
    from benchmarks.bench.machine import fresh_programs
    from benchmarks.bench.ours import Ours
    from benchmarks.bench.timing import Contestant, interleaved
    from benchmarks.bench.work import Case

    found = {}
    for clients, rounds in ((400, 5), *([(4000, 2)] if large else [])):
        with fresh_programs():
            each = {name: Ours(Case(name, "mlr", clients)) for name in ("cgpfl", "pfedme")}
            for ours in each.values():
                ours.advance(1)
            turns = [Contestant(n, lambda o=o, r=rounds: o.advance(r), rounds) for n, o in each.items()]
            times = interleaved(turns, repeats, math.inf)
        found[f"ratio-{clients}"] = [a / b for a, b in zip(times["cgpfl"], times["pfedme"], strict=True)]
    return found


def choice(repeats: int, large: bool) -> Values:
    """CGPFL-Auto's choice of K for 40 clients."""
    from benchmarks.bench.machine import fresh_programs
    from benchmarks.contexts import times_of_choice

    with fresh_programs():
        took, _, _ = times_of_choice(40, repeats=repeats)
    return {"choice-s": took[1:], "choice-first-s": took[:1]}


FIGURES: dict[str, Callable[[int, bool], Values]] = {
    "run": run,
    "first": first,
    "mlr": model("mlr", 10),
    "dnn": model("dnn", 5),
    "cnn": model("cnn", 2),
    "ratio": ratio,
    "choice": choice,
}
"""Those in processes of their own come first: this one must not hold a GPU then."""
QUICK = ("first", "mlr", "dnn", "ratio", "choice")


def spread(values: Sequence[float]) -> float:
    """A standard deviation, by the median absolute deviation."""
    middle = median(values)
    return 1.4826 * median(abs(v - middle) for v in values)


def noise(now: Sequence[float], before: Sequence[Sequence[float]]) -> float:
    """What a median may be above the newest of those before it (oldest first) and mean nothing."""
    medians = [median(values) for values in before[-EARLIER:]]
    parts = [spread(now), spread(before[-1]), spread(medians) if len(medians) > 2 else 0.0]
    return max(SPREADS * math.hypot(*parts), LEAST * medians[-1])


def worse(record: dict[str, Any], earlier: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each figure that got worse than in the newest record of the same machine that has it."""
    lines = []
    for name, values in record["figures"].items():
        same = [r for r in earlier if r["machine"] == record["machine"] and name in r["figures"]]
        if not same:
            continue
        before = [r["figures"][name] for r in same]
        now, then, allowed = median(values), median(before[-1]), noise(values, before)
        if now - then > allowed:
            lines.append(
                f"{name}: {now:.3g}, was {then:.3g} in {same[-1]['commit']}: "
                f"{100 * (now / then - 1):+.0f} %, noise {100 * allowed / then:.0f} %"
            )
    return lines


def read(file: Path) -> list[dict[str, Any]]:
    """All records, oldest first."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def show(records: Sequence[dict[str, Any]]) -> str:
    """Every record's medians and spreads."""
    lines = []
    for r in records:
        lines.append(f"{r['date']} {r['commit']} load {r['load']:g} {json.dumps(r['machine'])}")
        lines += [f"  {n:18} {median(v):10.4g} ± {spread(v):.2g} ({len(v)})" for n, v in r["figures"].items()]
    return "\n".join(lines)


def made(groups: Sequence[str], repeats: int, large: bool) -> dict[str, Any]:
    """Measure, and say on what."""
    load, figures = os.getloadavg()[0], Values()
    for name in groups:
        print(f"{name} ...", file=sys.stderr, flush=True)
        figures |= FIGURES[name](repeats, large)
    from benchmarks.bench.machine import facts

    about = facts()
    gpu = None if about["device"].startswith("cpu") else about["device"]
    machine = {"cpu": about["processor"], "cores": about["cpus"], "jax": about["jax"], "gpu": gpu}
    git = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(git, capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip() or "unknown"
    figures = {name: [float(f"{v:.5g}") for v in values] for name, values in figures.items()}
    return {
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "load": round(load, 1),
        "machine": machine,
        "figures": figures,
    }


def main() -> int:
    if sys.argv[1:2] == ["first"]:
        to_the_first_round(sys.argv[2:])
    parser = argparse.ArgumentParser(description="What got slower.")
    parser.add_argument("--quick", action="store_true", help="fewer figures and timings: some minutes")
    parser.add_argument("--figures", help=f"of {','.join(FIGURES)} (default: all)")
    parser.add_argument("--large", action="store_true", help="the ratio with 4,000 clients, too")
    parser.add_argument("--show", action="store_true", help="all records, nothing measured")
    parser.add_argument("--records", type=Path, default=RECORDS)
    asked = parser.parse_args()
    groups = asked.figures.split(",") if asked.figures else QUICK if asked.quick else list(FIGURES)
    if unknown := set(groups) - set(FIGURES):
        parser.error(f"--figures: no {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    earlier = read(asked.records)
    if asked.show:
        print(show(earlier) or "no records yet")
        return 0
    if hasattr(os, "sched_setaffinity") and not Path("/dev/nvidiactl").exists():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    record = made([name for name in FIGURES if name in groups], 3 if asked.quick else 5, asked.large)
    with asked.records.open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(show([record]))
    if record["load"] > 0.5 * record["machine"]["cores"]:
        print("the machine was busy before this began: figures of a quiet one will not be comparable with these")
    lines = worse(record, earlier)
    for line in lines:
        print(f"WORSE {line}")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
