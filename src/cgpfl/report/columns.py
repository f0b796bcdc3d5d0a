"""The columns of result tables: a row each, for the terminal, Markdown, notebooks and the page.

A new column is a row here. Cells read a method's entry in ``summary.json``, of a run or of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cgpfl.metrics import METRICS, figure, headline
from cgpfl.tables import Table

About = Mapping[str, Mapping[str, Any]]
"""Metrics beside the accuracy, by name: title, help, percent, higher."""


@dataclass(frozen=True)
class Entry:
    """A method in a table."""

    label: str
    facts: dict[str, Any]
    """Its entry in ``summary.json``."""
    done: str = ""
    """Rounds done."""
    local: float | None = None
    """What local training beside it comes to."""
    seeds: int = 1
    best: bool = False


@dataclass(frozen=True)
class Column:
    """A column."""

    head: str
    cell: Callable[[Entry], str]
    help: str = ""
    short: str = ""
    """Its head where there is little room: on a terminal."""
    views: str = "terminal table page"
    """Where it is shown: on a terminal, in Markdown, LaTeX and notebooks, on the page."""
    known: bool = False
    """Left out where no method has a value."""


def number(value: float | None, form: str = ".1f", unit: float = 1.0, end: str = "") -> str:
    """A number that may not be known."""
    return "–" if value is None or np.isnan(value) else f"{value / unit:{form}}{end}"


def accuracy(facts: dict[str, Any]) -> float | None:
    """What a method is ranked by; None if it diverged or has none yet."""
    found = facts["accuracy"]
    value = found["pooled"] if isinstance(found, dict) else found
    return None if facts["diverged"] or value is None or np.isnan(value) else value


def _share(of: str, name: str) -> Callable[[Entry], str]:
    return lambda e: figure((e.facts[of] or {}).get(name), unit=" %")


def _reached(e: Entry) -> str:
    return f"diverged ({e.facts['diverged']})" if e.facts["diverged"] else _share("accuracy", "pooled")(e)


def _sent(e: Entry) -> str:
    up, down = e.facts.get("bytes_up"), e.facts.get("bytes_down")
    return number(None if up is None or down is None else up + down, ",.1f", 1e6)


def _ari(e: Entry) -> str:
    return number((e.facts["contexts"] or {}).get("ari"), ".2f")


def _gain(e: Entry) -> str:
    own = accuracy(e.facts)
    return "–" if own is None or e.local is None else f"{100 * (own - e.local):+.1f}"


PLAIN = "classification"
"""The task, where a summary says none."""


def first_title(data: Mapping[str, Any] | None = None) -> str:
    """Title of the metric that methods are ranked by; ``data``: a summary's facts of the data."""
    return headline((data or {}).get("task", PLAIN)).title


def ranked(methods: Mapping[str, dict[str, Any]]) -> list[str]:
    """Labels, the best first; those that diverged, or have no figure yet, last, in their order."""
    ends = {label: accuracy(facts) for label, facts in methods.items()}
    return sorted(methods, key=lambda label: -(-np.inf if (end := ends[label]) is None else end))


METHOD = Column("method", lambda e: e.label)
MEAN, WORST = "over clients, each counting alike", "mean over the worst tenth of the clients"
GRADIENTS = (
    "of minibatches, computed by all clients together; rounds of cgpfl-auto's warm-up, which take more, count as others"
)
MEGABYTES = "megabytes sent and received by all clients; what is done once, at a method's start, is not counted"
RUN = (
    METHOD,
    Column(
        *("accuracy", _reached),
        "right test answers of the clients' own models, of all test samples, after the last round",
    ),
    Column("vs. local", _gain, "percentage points more than training alone", views="page", known=True),
    Column("mean", _share("accuracy", "mean"), MEAN),
    Column("worst tenth", _share("accuracy", "worst_tenth"), WORST),
    Column(
        *("shared", _share("shared_accuracy", "pooled"), "accuracy of the shared or context models"),
        views="page",
        known=True,
    ),
    Column(
        *("contexts", lambda e: str((e.facts["contexts"] or {}).get("k", "–")), "in use at the end"),
        known=True,
    ),
    Column("ARI", _ari, "agreement with the true contexts: 1 = exact, 0 = chance", known=True),
    Column(
        *("MB up", lambda e: number(e.facts.get("bytes_up"), ",.1f", 1e6)),
        "megabytes uploaded by all clients",
        views="terminal",
    ),
    Column("MB", _sent, MEGABYTES, views="page"),
    Column("gradients", lambda e: number(e.facts.get("gradients"), ",.0f"), GRADIENTS, views="page"),
    Column("rounds", lambda e: e.done or str(e.facts.get("rounds", "–")), "done", views="table page"),
    Column("seconds", lambda e: number(e.facts.get("seconds"), ",.1f"), "compilation included", views="terminal page"),
)
"""Of a run: one entry a method."""


def _over_seeds(e: Entry) -> str:
    lost, std = e.facts["diverged"], e.facts["std"]
    if lost:
        return "diverged" if lost == e.seeds else f"diverged {lost}/{e.seeds}"
    return figure(e.facts["accuracy"]) + (f" ± {100 * std:.1f}" if e.seeds > 1 and std is not None else "")


def _found(e: Entry) -> str:
    known = [k for k in e.facts.get("k") or [] if k is not None]
    return "–".join(dict.fromkeys(str(f(known)) for f in (min, max))) if known else "–"


def chance(p: float | None) -> str:
    """A p-value, as papers write it."""
    return "–" if p is None or np.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def _p(e: Entry) -> str:
    if e.best and e.seeds > 1 and not e.facts["diverged"]:
        return "best"
    return ("≈ " if e.facts["tied"] else "") + chance(e.facts.get("p"))


COMPARISON = (
    METHOD,
    Column(
        *("accuracy", _over_seeds),
        "right test answers of the clients' own models, of all test samples, after the last round, in %; mean ± "
        "standard deviation over seeds",
    ),
    Column("mean", lambda e: figure(e.facts["mean"]), MEAN),
    Column("worst tenth", lambda e: figure(e.facts["worst_tenth"]), WORST, "worst"),
    Column("contexts", _found, "in use at the end, over seeds", views="page", known=True),
    Column(
        *("rounds to {target}", lambda e: number(e.facts["rounds_to_target"], ",.0f")),
        *("first evaluated round with an accuracy of {target}, mean over seeds; –: not reached by all", "to target"),
    ),
    Column("MB", lambda e: number(e.facts["megabytes"], ",.1f"), MEGABYTES),
    Column("gradients", lambda e: number(e.facts["gradients"], ",.0f", 1e3, "k"), f"{GRADIENTS}; k: thousand", "grads"),
    Column("s", lambda e: number(e.facts["seconds"], ",.1f"), "seconds of all seeds, compilation and search included"),
    Column(
        *("p", _p),
        "chance of such a difference to the best method, or a larger one, if there were none (paired t-test over "
        "seeds); ≈: not told apart from the best, p of 0.05 or more",
        known=True,
    ),
    Column(
        *("p (Holm)", lambda e: chance(e.facts.get("p_holm")), "p, corrected for the number of methods"),
        views="table page",
        known=True,
    ),
)
"""Of a comparison: one entry a method, its figures means over seeds."""


def _measured(name: str, about: Mapping[str, Any]) -> Column:
    """The column of a metric, in either table."""

    def cell(e: Entry) -> str:
        if "metrics" in e.facts or name not in e.facts:
            return figure(e.facts.get("metrics", {}).get(name, {}).get("pooled"), about["percent"], " %")
        std = e.facts[f"{name}/std"]
        more = f" ± {figure(std, about['percent'])}" if e.seeds > 1 and std is not None and not np.isnan(std) else ""
        return figure(e.facts[name], about["percent"]) + more

    better = "more" if about.get("higher", True) else "less"
    words = about["help"].rstrip(".")
    said = f"{words}; {better} is better" if words else f"{better} is better"
    return Column(about["title"], cell, said)


def _table(
    columns: Iterable[Column], entries: list[Entry], view: str, metrics: About, task: str, target: str = ""
) -> Table:
    first = headline(task)
    there = [c for c in columns if view in c.views.split()]
    if task != PLAIN:  # the others' words are about right answers
        words = {"accuracy": f"{first.help}; on all test samples", "vs. local": "hundredths more than training alone"}
        there = [
            replace(c, head=first.title if c.head == "accuracy" else c.head, help=words.get(c.head, c.help))
            for c in there
        ]
        there = [replace(c, help=c.help.replace("accuracy", first.title)) for c in there]
    shown = [c for c in there if not c.known or any(c.cell(e) not in ("", "–") for e in entries)]
    place = 1 + next(i for i, c in enumerate(shown) if c.head == "worst tenth")
    shown[place:place] = [_measured(name, about) for name, about in metrics.items()]
    heads = [(view == "terminal" and c.short) or c.head.replace("{target}", target) for c in shown]
    strong = [(r, c) for r, e in enumerate(entries) if e.best for c in range(len(shown))]
    rows = [[c.cell(e) for c in shown] for e in entries]
    return Table("", heads, rows, strong=strong, help=[c.help.replace("{target}", target) for c in shown])


def run_table(
    methods: Mapping[str, dict[str, Any]],
    view: str,
    metrics: About,
    names: Mapping[str, str] | None = None,
    done: Mapping[str, str] | None = None,
    task: str = PLAIN,
) -> Table:
    """The table of a run, best first. ``names``: the methods' of labels; ``done``: rounds, of methods that go on."""
    ends = {label: accuracy(facts) for label, facts in methods.items()}
    top = max((v for v in ends.values() if v is not None), default=None)
    entries = []
    for label in ranked(methods):
        facts = methods[label]
        local = next((ends[o] for o in methods if (names or {}).get(o) == "local" and o != label), None)
        best = top is not None and ends[label] == top
        entries.append(Entry(label, facts, (done or {}).get(label, ""), local, best=best))
    return _table(RUN, entries, view, metrics, task)


def comparison_table(
    methods: Mapping[str, dict[str, Any]], view: str, metrics: About, seeds: int, target: float, task: str = PLAIN
) -> Table:
    """The table of a comparison, best first."""
    entries = [Entry(label, facts, seeds=seeds, best=i == 0) for i, (label, facts) in enumerate(methods.items())]
    return _table(COMPARISON, entries, view, metrics, task, f"{100 * target:.1f} %")


def summary_table(summary: Mapping[str, Any], view: str) -> Table:
    """The table of a ``summary.json``, of a run or of a comparison, with what its columns mean as a note."""
    methods, about, task = summary["methods"], summary.get("metrics", {}), summary["data"].get("task", PLAIN)
    if "seeds" in summary:
        made = comparison_table(methods, view, about, len(summary["seeds"]), summary["target"], task)
    else:
        made = run_table(methods, view, about, task=task)
    return replace(made, note=". ".join(made.legend()) + ".")


def curves(metrics: About, task: str = PLAIN) -> list[dict[str, Any]]:
    """What the page can draw over rounds: columns of ``history.csv``, with their names in a menu and on an axis."""
    first = headline(task).about()
    what = first["title"]
    rows: list[tuple[str, str, str, Mapping[str, Any]]] = [
        ("accuracy", f"{what} of personal models", f"test {what}", first),
        ("mean", f"mean {what} over clients", f"mean test {what}", first),
        ("worst_tenth", f"{what} of the worst tenth", f"{what}, worst tenth", first),
        ("shared_accuracy", f"{what} of shared or context models", f"{what} of shared models", first),
    ]
    for name, about in metrics.items():
        title = about["title"]
        rows.append((name, title, title, about))
        rows.append((f"{name}/mean", f"{title}, mean over clients", f"mean {title}", about))
        rows.append((f"{name}/worst_tenth", f"{title} of the worst tenth", f"{title}, worst tenth", about))
    loss = METRICS["log-loss"].about()
    rows += [("loss", "test loss", "test loss", loss), ("train_loss", "training loss", "training loss", loss)]
    return [{"name": n, "menu": menu, "axis": axis, "percent": a["percent"]} for n, menu, axis, a in rows]
