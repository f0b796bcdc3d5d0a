"""What the command line prints: live progress on a terminal, plain lines elsewhere, tables."""

from __future__ import annotations

import io
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from cgpfl.report.choice import count
from cgpfl.report.clients import clients_of
from cgpfl.report.columns import summary_table
from cgpfl.tables import Table, origin

if TYPE_CHECKING:
    from cgpfl.experiment.compared import Compared
    from cgpfl.experiment.events import Event
    from cgpfl.experiment.experiment import Finished
    from cgpfl.experiment.run import Progress
    from cgpfl.paper import Made


WIDTH = 80
"""Columns of prose."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The command line knows what to do."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output; in a pipe as wide as the text needs, and without colours."""
    return _Console(width=None if sys.stdout.isatty() else 110, highlight=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table of words."""
    out = console()
    out.print(Table("", columns, rows, left=range(len(columns))).rich())
    out.print()


def progress(began: float | None = None, *, quiet: bool = False) -> AbstractContextManager[Callable[[Progress], None]]:
    """A function to call with each :class:`Progress`: bars on a terminal, plain lines elsewhere; or nothing.

    ``began``: when, on the monotonic clock, whatever comes before a method's first round was started.
    """
    from cgpfl.experiment.progress import shown_progress

    return shown_progress(sys.stdout, began, quiet=quiet)


@contextmanager
def downloads() -> Iterator[Callable[[str, int, int], None] | None]:
    """A function to call with (what, bytes so far, bytes in all): a bar on a terminal; elsewhere None, for lines."""
    if not sys.stdout.isatty():
        yield None
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[facts]}"))
    with Bars(*columns, console=Console(highlight=False), transient=True) as bars:
        task, current, began = bars.add_task("", total=None, facts=""), "", 0.0

        def tell(what: str, done: int, total: int) -> None:
            nonlocal task, current, began
            news = done == total == 0
            if news:
                bars.console.print(what, markup=False)
            if what != current:  # the next thing: its bar starts anew, and moves without end until there are bytes
                bars.remove_task(task)
                task, current, began = bars.add_task("", total=None, facts=""), what, time.monotonic()
            if not news:
                facts = f"{_megabytes(done, total)}, {done / 1e6 / max(time.monotonic() - began, 1e-3):.1f} MB/s"
                bars.update(task, description=what, completed=done, total=total or None, facts=facts)

        yield tell


def _megabytes(done: int, total: int) -> str:
    return f"{done / 1e6:.1f} of {total / 1e6:.1f} MB" if total else f"{done / 1e6:.1f} MB"


def notes(event: Event) -> None:
    """What to know before anything is trained: a callback."""
    for note in event.values.get("notes", []) if event.kind == "opened" else []:
        print("\n".join(textwrap.wrap(f"note: {note}", 80, subsequent_indent="  ")), file=sys.stderr, flush=True)


def evaluation(event: Event) -> None:
    """A line for an evaluated round: a callback for those who want to see everything."""
    if event.kind != "evaluated":
        return
    v = event.values
    parts = [f"{event.method:<12} round {event.round:>6}  accuracy {v['accuracy']:6.1%}  loss {v['loss']:.3f}"]
    parts += [f"shared {v['shared_accuracy']:6.1%}"] if "shared_accuracy" in v else []
    parts += [f"{k} {v[k]:.3f}" for k in v if f"{k}/worst_tenth" in v]
    parts += [f"contexts {v['k']}"] if "k" in v else []
    parts += [f"ARI {v['ari']:.2f}"] if "ari" in v else []
    print("  ".join(parts), flush=True)


def show(finished: Finished | Compared, *, quiet: bool = False) -> bool:
    """The final table of a run or a comparison and where the rest is; False if every method diverged."""
    from cgpfl.experiment.compared import Compared

    with redirect_stdout(io.StringIO()) if quiet else nullcontext():
        return show_comparison(finished) if isinstance(finished, Compared) else show_run(finished)


def say(text: str, indent: str = "") -> None:
    """Prose, in lines of at most 80 columns; what goes on in the next line is indented."""
    print("\n".join(wrapped(text, indent)))


def wrapped(text: str, indent: str = "") -> list[str]:
    """Prose in lines of at most 80 columns; a path or an address is never broken."""
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", **whole)


def heading(data: dict[str, Any]) -> str:
    """One line on the federation."""
    clients = clients_of(data)
    facts = f"{count(clients, 'client')} of about {count(data['train_samples'] // clients, 'sample')}"
    hidden = f", {count(data['true_contexts'], 'hidden context')}" if data["true_contexts"] else ""
    return f"{origin(data)}: {facts}{hidden}"


def show_table(shown: Table) -> None:
    """A table, and below it what its columns mean."""
    console().print(shown.rich())
    print()
    for line in shown.legend():
        say(line)


def show_run(finished: Finished) -> bool:
    """The table of a run."""
    summary = finished.summary
    print()
    say(heading(summary["data"]))
    show_table(summary_table(summary, "terminal"))
    lines = [line for label, m in summary["methods"].items() for line in remarks(label, m)]
    if lines:
        print("\n".join(["", *lines]))
    print(f"\nfigures, metrics and models: {finished.folder}")
    messages = [r.message for r in finished.results if r.message]
    for message in messages:
        print(message, file=sys.stderr)
    return len(messages) < len(finished.results)


def remarks(label: str, method: dict[str, Any]) -> list[str]:
    """What a method's contexts are, where it chose them itself, and its notes: lines of at most 80 columns."""
    contexts = method["contexts"] or {}
    told = [contexts["sentence"]] if contexts.get("chosen") else []
    return [line for text in (*told, *method["notes"]) for line in wrapped(f"{label}: {text}")]


def show_comparison(compared: Compared) -> bool:
    """The ranked table of a comparison."""
    seeds = len(next(iter(compared.runs.values())).seeds)
    print()
    say(f"{heading(compared.data)}; {seeds} seed{'s' * (seeds > 1)}")
    for note in compared.notes:
        say(note)
    show_table(compared.shown("terminal"))
    found = {label: runs.contexts() or [] for label, runs in compared.runs.items() if runs.chose}
    if found:
        each = [f"{label} {', '.join('–' if k is None else str(k) for k in ks)}" for label, ks in found.items()]
        say(f"contexts found{', seed by seed' * (seeds > 1)}: {'; '.join(each)}")
    tuned = [(label, runs.chosen, len(runs.tried)) for label, runs in compared.runs.items() if runs.chosen]
    if tuned:
        print("\nchosen on validation samples:")
    for label, best, n in tuned:
        values = ", ".join(f"{k} = {v:.3g}" for k, v in best.items() if k != "validation_accuracy")
        say(f"{label}: {values} ({best['validation_accuracy']:.1%}, of {n} settings)", "  ")
    print(f"\ntable, figures and every run: {compared.folder}")
    for line in compared.diverged:
        print(line, file=sys.stderr)
    return any(bad is None for runs in compared.runs.values() for bad in runs.diverged)


def show_paper(made: Made) -> None:
    """The tables of a reproduction, and where the rest is."""
    for section in made.sections:
        print(f"\n{section.title}")
        for found in section.tables:
            if max((len(v) for row in found.rows for v in row), default=0) > 40:
                continue  # words: for the page
            out, rows = console(), found.rows
            widest = [max(map(len, column)) + 2 for column in zip(found.columns, *rows, strict=True)]
            if sum(widest) > out.width:  # the page and the CSV have the spread over seeds, too
                rows = [[cell.partition(" ± ")[0] for cell in row] for row in rows]
            print(f"\n{found.title}")
            out.print(replace(found, rows=rows, strong=[]).rich())
            if found.note:
                out.print(found.note)
        for verdict in section.verdicts:
            print(f"\n{verdict.verdict:<11} {verdict.claim}\n            {verdict.evidence}")
    for name, why in made.skipped.items():
        print(f"{name} is left out: {why}")
    print(f"\n{made.seconds:.0f} s; everything on one page: {made.folder / 'index.html'}")
