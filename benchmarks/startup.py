"""From command to answer: what a whole ``cgpfl run`` does when, and what it takes beside another commit.

    python benchmarks/startup.py picture docs/images/startup.svg [--cold]    # a run's timeline
    python benchmarks/startup.py time [--before TREE] [--cold] [--repeats 5] # by turns, each a command

``TREE`` is another working copy of this repository. Clock and processor time, the children's included; medians. Other
people's work on the machine changes the second less, but not little: two threads of a core share it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

BEGAN = time.perf_counter()
HERE = Path(__file__).parents[1]
PHASES = {
    "cgpfl.experiment.experiment:build": "data, methods checked",
    "cgpfl.experiment.run:engine_of": "engine",
    "cgpfl.engine.simulation:Simulation.prepare": "program",
    "cgpfl.engine.drive:Drive.__init__": "first state",
    "cgpfl.engine.drive:Drive.block": "rounds",
    "cgpfl.experiment.folder:RunFolder.save_models": "models",
    "cgpfl.experiment.folder:RunFolder._write": "tables",
    "cgpfl.cli.terminal:show": "shown",
    "cgpfl.report.page:write_report": "report",
    "cgpfl.report.pictures:Painters.draw": "figures asked for",
    "cgpfl.report.pictures:Painters.__exit__": "figures",
}
"""Functions that are timed, and what they are called; one inside another lies on top of it."""
COLOURS = ("#8C8C8C", "#4C72B0", "#937860", "#DD8452", "#DA8BC3", "#55A868", "#CCB974", "#C44E52", "#222222", "#8172B3")


class Span(NamedTuple):
    """A phase of one thread."""

    thread: str
    what: str
    first: float
    last: float


def timed(spans: list[Span], what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter() - BEGAN
        try:
            return function(*args, **kwargs)
        finally:
            spans.append(Span(threading.current_thread().name, what, start, time.perf_counter() - BEGAN))

    return call


def record(arguments: list[str]) -> list[Span]:
    """Run the command in this process."""
    from cgpfl.cli import main

    spans = [Span("MainThread", "imports", 0.0, time.perf_counter() - BEGAN)]
    start = time.perf_counter() - BEGAN
    places = {name: importlib.import_module(name.partition(":")[0]) for name in PHASES}
    spans.append(Span("MainThread", "imports", start, time.perf_counter() - BEGAN))
    for name, what in PHASES.items():
        *parents, last = name.partition(":")[2].split(".")
        holder = functools.reduce(getattr, parents, places[name])
        old = getattr(holder, last)
        new = timed(spans, what, old)
        setattr(holder, last, new)
        for module in [m for n, m in sys.modules.items() if n.startswith("cgpfl") and not parents]:
            if getattr(module, last, None) is old:  # imported by name
                setattr(module, last, new)
    sys.argv = ["cgpfl", *arguments]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    return spans


def picture(spans: list[Span]) -> str:
    """A timeline, a row a thread."""
    end = max(s.last for s in spans)
    threads = sorted({s.thread for s in spans}, key=lambda n: (n != "MainThread", n))
    kinds = list(dict.fromkeys(["imports", *PHASES.values()]))
    kinds.remove("figures asked for")
    width, left, high = 900, 90, 34
    lines = []

    def place(t: float) -> float:
        return left + t / end * (width - left - 20)

    asked = [s.last for s in spans if s.what == "figures asked for"]
    shown = [s for s in spans if s.what != "figures asked for"]
    rows = {name: i for i, name in enumerate(threads)}
    if asked:
        rows["painters"] = len(rows)
        shown.append(Span("painters", "figures", asked[0], end))
    for s in sorted(shown, key=lambda s: s.first - s.last):  # long ones first: what is inside lies on top
        box = f'x="{place(s.first):.1f}" y="{20 + rows[s.thread] * high}" height="{high - 8}"'
        colour = COLOURS[kinds.index(s.what) % len(COLOURS)]
        size = max(0.7, place(s.last) - place(s.first))
        told = f"<title>{escape(s.what)} {s.last - s.first:.2f} s</title>"
        lines.append(f'<rect {box} width="{size:.1f}" fill="{colour}">{told}</rect>')
    for name, i in rows.items():
        label = {"MainThread": "main"}.get(name, name)
        lines.append(f'<text x="4" y="{20 + i * high + 17}">{escape(label)}</text>')
    bottom = 20 + len(rows) * high
    step = next(v for v in (0.5, 1, 2, 5, 10, 20, 50, 100) if end / v <= 12)
    for k in range(int(end / step) + 1):
        lines.append(f'<text x="{place(k * step):.0f}" y="{bottom + 10}" text-anchor="middle">{k * step:g} s</text>')
    for i, kind in enumerate(kinds):
        x, y = left + (i % 5) * 160, bottom + 26 + (i // 5) * 18
        lines.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>')
        lines.append(f'<text x="{x + 17}" y="{y + 10}">{escape(kind)}</text>')
    frame = f'viewBox="0 0 {width} {bottom + 66}" font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>\n"])


def command(tree: Path, cache: Path, arguments: list[str]) -> tuple[float, float]:
    """Clock and processor time of one ``cgpfl run``."""
    env = {**os.environ, "PYTHONPATH": str(tree / "src"), "CGPFL_CACHE": str(cache)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run = [sys.executable, "-m", "cgpfl.cli", *arguments]
    subprocess.run(run, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, worked


def compare(before: Path | None, cold: bool, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        trees = {"now": HERE, **({} if before is None else {"before": before})}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
        for n in range(repeats + (not cold)):
            for name, tree in trees.items():
                cache = Path(place) / (f"{name}-{n}" if cold else name)
                took = command(tree, cache, ["run", "--out", f"{place}/run-{name}-{n}"])
                if cold or n:  # the first fills the cache
                    found[name].append(took)
                    print(f"{name:<7} {took[0]:6.1f} s by the clock, {took[1]:6.1f} s of processor", flush=True)
        for name, each in found.items():
            clock, worked = (statistics.median(column) for column in zip(*each, strict=True))
            print(f"{name:<7} {clock:6.1f} s by the clock, {worked:6.1f} s of processor: median of {len(each)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=["picture", "time"])
    parser.add_argument("out", nargs="?", type=Path, default=Path("startup.svg"))
    parser.add_argument("--before", type=Path)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    if args.do == "time":
        compare(args.before, args.cold, args.repeats)
        return
    with tempfile.TemporaryDirectory() as place:
        cache = os.environ.setdefault("CGPFL_CACHE", f"{place}/cache")
        if not args.cold:
            command(HERE, Path(cache), ["run", "--out", f"{place}/first"])
        global BEGAN
        BEGAN = time.perf_counter()
        args.out.write_text(picture(record(["run", "--quiet", "--out", f"{place}/run"])), encoding="utf-8")


if __name__ == "__main__":
    main()
