"""What the command line prints: live progress on a terminal, plain lines elsewhere, tables."""

from __future__ import annotations

import io
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from cgpfl.report.columns import run_table
from cgpfl.tables import Table

if TYPE_CHECKING:
    from cgpfl.experiment.compared import Compared
    from cgpfl.experiment.events import Event
    from cgpfl.experiment.experiment import Finished
    from cgpfl.experiment.run import Progress
    from cgpfl.paper import Made


def console() -> Console:
    """Standard output; in a pipe as wide as the text needs, and without colours."""
    return Console(width=None if sys.stdout.isatty() else 110, highlight=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table of words."""
    out = console()
    out.print(Table("", columns, rows, left=range(len(columns))).rich())
    out.print()


@contextmanager
def progress(began: float | None = None, *, quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """A function to call with each :class:`Progress`: bars on a terminal, plain lines elsewhere; or nothing.

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
    elif sys.stdout.isatty():
        with _bars(facts) as tell:
            yield tell
    else:
        yield _lines(facts)


@contextmanager
def _bars(facts: Callable[[Progress], str]) -> Iterator[Callable[[Progress], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("[bold]{task.description:<12}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
    )
    tasks: dict[str, Any] = {}
    with Bars(*columns, console=Console()) as bars:

        def tell(p: Progress) -> None:
            task = tasks.setdefault(p.label, None)
            if task is None:
                task = tasks[p.label] = bars.add_task(p.label, total=p.rounds, facts="")
            bars.update(task, completed=p.round, facts=facts(p))

        yield tell


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


def _lines(facts: Callable[[Progress], str]) -> Callable[[Progress], None]:
    last: dict[str, float] = {}

    def tell(p: Progress) -> None:
        now, line = time.monotonic(), facts(p)
        if p.round >= p.rounds or p.message or now - last.get(p.label, -1e9) >= 5:
            last[p.label] = now
            print(f"{p.label:<12} round {p.round}/{p.rounds}  {line}", flush=True)

    return tell


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


def _facts(p: Progress, wait: float) -> str:
    """Accuracy, rounds/s and the time left, as far as known; before that ``wait``, the time to the first round."""
    if p.message:
        return f"diverged in round {p.round}"
    parts = [] if p.accuracy is None else [f"accuracy {p.accuracy:6.1%}"]
    if p.rounds_per_second is None:
        return "  ".join([*parts, f"first round after {wait:.1f} s"])
    parts.append(f"{p.rounds_per_second:.3g} rounds/s")
    left = (p.rounds - p.round) / p.rounds_per_second
    parts.append(f"ETA {int(left) // 60}:{int(left) % 60:02d}" if p.round < p.rounds else f"{p.seconds:.1f} s")
    return "  ".join(parts)


def show(finished: Finished | Compared, *, quiet: bool = False) -> bool:
    """The final table of a run or a comparison and where the rest is; False if every method diverged."""
    from cgpfl.experiment.compared import Compared

    with redirect_stdout(io.StringIO()) if quiet else nullcontext():
        return show_comparison(finished) if isinstance(finished, Compared) else show_run(finished)


def heading(data: dict[str, Any]) -> str:
    """One line on the federation."""
    facts = f"{data['clients']} clients of about {data['train_samples'] // data['clients']} samples"
    hidden = f", {data['true_contexts']} hidden contexts" if data["true_contexts"] else ""
    return f"\n{data.get('source', 'data')} split by {data.get('split', 'own')}: {facts}{hidden}"


def show_run(finished: Finished) -> bool:
    """The table of a run."""
    summary = finished.summary
    print(heading(summary["data"]))
    console().print(run_table(summary["methods"], "terminal", summary.get("metrics", {})).rich())
    print("\naccuracy: the clients' own models on their test samples, pooled, last round")
    print(explained(summary.get("metrics", {})), end="")
    if summary["data"]["true_contexts"]:
        print("ARI: agreement of the contexts found with the hidden ones; 1 = exact, 0 = chance")
    lines = [line for label, m in summary["methods"].items() for line in remarks(label, m)]
    if lines:
        print("\n".join(["", *lines, ""]))
    print(f"figures, metrics and models: {finished.folder}")
    messages = [r.message for r in finished.results if r.message]
    for message in messages:
        print(message, file=sys.stderr)
    return len(messages) < len(finished.results)


def explained(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """What the metrics beside the accuracy are: lines of at most 80 columns."""
    each = [f"{m['title']}, {'more' if m['higher'] else 'less'} is better: {m['help']}" for m in metrics.values()]
    return "".join(textwrap.fill(text, 80, subsequent_indent="  ") + "\n" for text in each)


def remarks(label: str, method: dict[str, Any]) -> list[str]:
    """What a method's contexts are, where it chose them itself, and its notes: lines of at most 80 columns."""
    contexts = method["contexts"] or {}
    told = [contexts["sentence"]] if contexts.get("chosen") else []
    wrapped = [textwrap.wrap(f"{label}: {text}", 80, subsequent_indent="  ") for text in (*told, *method["notes"])]
    return [line for lines in wrapped for line in lines]


def show_comparison(compared: Compared) -> bool:
    """The ranked table of a comparison."""
    seeds = len(next(iter(compared.runs.values())).seeds)
    print(heading(compared.data))
    for note in compared.notes:
        print(note)
    console().print(compared.shown("terminal").rich())
    print("\naccuracy (%): clients' own models on their test samples, pooled, last round;")
    print(
        f"  mean ± std over {seeds} seed{'s' if seeds > 1 else ''}. mean, worst: over clients, over their worst tenth"
    )
    print(f"to target: rounds until {100 * compared.target:.1f} %. MB: sent and received. grads: of all clients.")
    print("  (what is done once, at a method's start, is not counted)")
    print("s: all seeds together, compilation and search included")
    print(explained({m.name: m.about() for of in compared.runs.values() for m in of.metrics()}), end="")
    if seeds > 1:
        print(f"≈: not told apart from the best (paired t-test over {seeds} seeds, 5 %)")
    found = {label: runs.contexts() or [] for label, runs in compared.runs.items() if runs.chose}
    if found:
        each = [f"{label} {', '.join('–' if k is None else str(k) for k in ks)}" for label, ks in found.items()]
        of = "contexts found" + (", seed by seed" if seeds > 1 else "")
        print("\n".join(textwrap.wrap(f"{of}: {'; '.join(each)}", 80, subsequent_indent="  ")))
    tuned = [(label, runs.chosen, len(runs.tried)) for label, runs in compared.runs.items() if runs.chosen]
    if tuned:
        print("\nchosen on validation samples:")
    for label, best, n in tuned:
        values = ", ".join(f"{k} = {v:.3g}" for k, v in best.items() if k != "validation_accuracy")
        print(f"  {label}: {values} ({best['validation_accuracy']:.1%}, of {n} settings)")
    print(f"table, figures and every run: {compared.folder}")
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
