"""What is seen of a run while it goes on: a bar on a terminal, a line in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, TextIO

from cgpfl.tables import three_digits

if TYPE_CHECKING:
    from cgpfl.experiment.run import Progress

EVERY = 5.0
"""Seconds between two plain lines of a method."""


@contextmanager
def shown_progress(
    file: TextIO, began: float | None = None, *, quiet: bool = False
) -> Iterator[Callable[[Progress], None]]:
    """A function to call with each :class:`Progress`, which writes to ``file`` or the notebook; or nothing.

    ``began``: when, on the monotonic clock, whatever comes before a method's first round was started.
    """
    last, waited = time.monotonic() if began is None else began, dict[str, float]()

    def facts(p: Progress) -> str:
        nonlocal last
        now = time.monotonic()
        wait, last = waited.setdefault(p.label, now - last), now
        return _facts(p, wait)

    if quiet:
        yield lambda p: None
    elif in_notebook():
        yield _cell(facts)
    elif file.isatty():
        with _bars(facts, file) as tell:
            yield tell
    else:
        yield _lines(facts, file)


@contextmanager
def in_python(progress: bool, given: Callable[[Progress], None] | None) -> Iterator[Callable[[Progress], None] | None]:
    """Whom a call from Python tells its progress: who was ``given``, else, where it is wanted, the reader.

    On standard error: what a script prints stays its own. Of several processes the first one speaks.
    """
    from cgpfl.engine.processes import is_first

    if given is not None or not progress or not is_first():
        yield given
        return
    with shown_progress(sys.stderr) as tell:
        yield tell


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    there = sys.modules.get("IPython")
    return there is not None and type(there.get_ipython()).__name__ == "ZMQInteractiveShell"


def _cell(facts: Callable[[Progress], str]) -> Callable[[Progress], None]:
    """A line a method under the cell, which changes in place."""
    from IPython import display as pages

    html: Any = pages.HTML
    show: Any = pages.display
    handles: dict[str, Any] = {}

    def tell(p: Progress) -> None:
        bar = f'<progress value="{p.round}" max="{p.rounds}"></progress>'
        words = f"{escape(p.label):<12} {bar} round {p.round:,} of {p.rounds:,}  {escape(facts(p))}"
        line = html(f"<pre>{words}</pre>")
        if p.label in handles:
            handles[p.label].update(line)
        else:
            handles[p.label] = show(line, display_id=True)

    return tell


@contextmanager
def _bars(facts: Callable[[Progress], str], file: TextIO) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("[bold]{task.description:<12}"),
        BarColumn(bar_width=16),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[facts]}"),
    )
    tasks: dict[str, Any] = {}
    with Bars(*columns, console=Console(file=file)) as bars:

        def tell(p: Progress) -> None:
            if p.label not in tasks:
                tasks[p.label] = bars.add_task(p.label, total=p.rounds, facts="")
            bars.update(tasks[p.label], completed=p.round, facts=facts(p))

        yield tell


def _lines(facts: Callable[[Progress], str], file: TextIO) -> Callable[[Progress], None]:
    last: dict[str, float] = {}

    def tell(p: Progress) -> None:
        now, line = time.monotonic(), facts(p)
        if p.round >= p.rounds or p.message or now - last.get(p.label, -1e9) >= EVERY:
            last[p.label] = now
            print(f"{p.label:<12} round {p.round:,}/{p.rounds:,}  {line}", file=file, flush=True)

    return tell


def _facts(p: Progress, wait: float) -> str:
    """Accuracy, rounds/s and the time left, as far as known; before that ``wait``, the time to the first round."""
    if p.message:
        return f"diverged in round {p.round:,}"
    parts = [] if p.accuracy is None else [f"{p.metric} {p.accuracy:6.1%}"]
    if p.rounds_per_second is None:
        return "  ".join([*parts, f"first round after {wait:.1f} s"])
    parts.append(f"{three_digits(p.rounds_per_second)} rounds/s")
    left = (p.rounds - p.round) / p.rounds_per_second
    parts.append(f"ETA {int(left) // 60}:{int(left) % 60:02d}" if p.round < p.rounds else f"{p.seconds:,.1f} s")
    return "  ".join(parts)
