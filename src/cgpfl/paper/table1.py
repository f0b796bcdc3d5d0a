"""Table 1 in both readings, the published number beside each of ours, and how the rates were chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cgpfl.experiment.compare import lost_seeds
from cgpfl.experiment.table import Runs
from cgpfl.files import save_csv
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import COLOUR, NAMES, panels
from cgpfl.paper.plan import NotRunError, Part, Plan, percent, shown, with_spread
from cgpfl.paper.published import TABLE_1, table_1
from cgpfl.paper.readings import FIRST, READINGS, TUNED, table_1_cell, table_seeds
from cgpfl.paper.section import Figure, Section, Verdict, grade
from cgpfl.paper.settings import Setting
from cgpfl.paper.tuning import HELD_OUT, OURS, SEED, SYMBOLS, choice, tuned_labels, words
from cgpfl.report.pictures import save_picture
from cgpfl.tables import Table

ROWS = ("local", "fedavg", "ifca", "l2sgd", "apfl", "pfedme", "per-fedavg", "ditto", "cgpfl-4", "cgpfl-heur")
"""Of Table 1; local training, first, is not in the paper's."""
RIVALS = ROWS[1:8]
"""The paper's seven competitors."""
CLOSE = 0.5
"""Points below its published number that still count as reaching it."""


EXTRA = ("cgpfl-heur-warm", OURS)
"""Rows that are not the paper's, at chosen rates alone."""


def rows(setting: Setting, reading: str) -> tuple[str, ...]:
    """The methods that are run in a reading of a setting."""
    extra = [label for label in EXTRA if label != OURS or OURS in tuned_labels(setting)]
    return ROWS if reading == FIRST else (*ROWS, *extra)


def _all_rows(settings: list[Setting]) -> list[str]:
    return list(dict.fromkeys(label for s in settings for label in rows(s, TUNED)))


def facts_of(setting: Setting, method: str, reading: str, runs: Runs, published: float | None) -> dict[str, Any]:
    """A row of the CSV of Table 1 or 2."""
    mean, std = percent(runs)
    done = [s for s in runs.scores() if s is not None]
    over = {
        f"{k}_%": round(100 * float(np.mean([s[k] for s in done])), 3) if done else "" for k in ("mean", "worst_tenth")
    }
    rates = {name: runs.settings.get(name, "") for name in ("rate", "personal_rate")}
    context = runs.settings.get("context_rate", runs.settings.get("global_rate", ""))
    return {
        "setting": setting.title,
        "method": method,
        "reading": reading,
        "lambda": runs.settings.get("prox", ""),
        "context_rate": context,
        **rates,
        "accuracy_%": round(mean, 3),
        "std": round(std, 3),
        "published": "" if published is None else published,
        "difference": "" if published is None else round(mean - published, 2),
        **over,
        "each_seed_%": " ".join(f"{100 * v:.2f}" for v in runs.accuracy()),
        "diverged": sum(d is not None for d in runs.diverged),
    }


def lost(plan: Plan, cells: dict[str, Cell]) -> list[str]:
    """What is to say of the cells, by name, that diverged: which seeds, when, and the likely cause."""
    found = {name: plan.runs(cell) for name, cell in cells.items()}
    return [lost_seeds(n, cells[n].method, r) for n, r in found.items() if any(d is not None for d in r.diverged)]


def row(plan: Plan, setting: Setting, label: str, reading: str = TUNED) -> Runs | None:
    """The runs of a row in a setting; None where they are not there."""
    if label not in rows(setting, reading):
        return None
    try:
        return plan.runs(table_1_cell(plan, setting, label, reading))
    except NotRunError:
        return None


def _needs(plan: Plan) -> list[Cell]:
    return [table_1_cell(plan, s, label, r) for s in plan.settings.values() for r in READINGS for label in rows(s, r)]


def _tunes(plan: Plan) -> list[tuple[Setting, str]]:
    wanted = {*ROWS, *EXTRA}
    return [(s, label) for s in plan.settings.values() for label in tuned_labels(s) if label in wanted]


def _make(plan: Plan) -> Section:
    settings = list(plan.settings.values())
    labels = _all_rows(settings)
    facts, lines, strong = [], [[NAMES[label]] for label in labels], []
    means = {r: np.full((len(labels), len(settings)), np.nan) for r in READINGS}
    there = {r: np.zeros((len(labels), len(settings)), bool) for r in READINGS}
    notes = []
    for c, setting in enumerate(settings):
        for r, label in enumerate(labels):
            published = table_1(setting.name, label)
            for reading in READINGS:
                runs = row(plan, setting, label, reading)
                lines[r].append("–" if runs is None else shown(runs))
                if runs is not None:
                    facts.append(facts_of(setting, label, reading, runs, published))
                    there[reading][r, c], means[reading][r, c] = True, percent(runs)[0]
            lines[r].append("–" if published is None else f"{published:.2f}")
        whole = all(there[TUNED][labels.index(m), c] for m in rows(setting, TUNED))
        if whole and not np.isnan(means[TUNED][:, c]).all():
            strong.append([int(np.nanargmax(means[TUNED][:, c])), 2 + 3 * c])
        for reading in READINGS:
            cells = {
                f"{setting.title}, {NAMES[m]}, {reading}": table_1_cell(plan, setting, m, reading)
                for m, found in zip(labels, there[reading][:, c], strict=True)
                if found
            }
            notes += lost(plan, cells)
            left = [NAMES[m] for m in rows(setting, reading) if not there[reading][labels.index(m), c]]
            notes += [f"Not run: {setting.title}, {reading}: {', '.join(left)}"] if left else []
    if not facts:
        raise NotRunError("none of its runs is finished")
    save_csv(plan.out / "table1" / "table1.csv", facts)
    columns = ["method", *(v for s in settings for v in (f"{s.title}, first", "tuned", "paper"))]
    title = f"Table 1: test accuracy (%), mean ± std over {len(plan.seeds)} seeds; in bold the best of ours, tuned"
    table = Table(title, columns, lines, " ".join([_note(plan, settings), *(f"{n}." for n in notes)]), strong)
    _draw(plan, settings)
    caption = "Table 1 as a picture: tuned, with each seed (filled), as first read (cross), published (hollow)."
    return Section(
        "table1",
        "Table 1: nine methods and local training",
        _text(settings),
        [table, _gaps(settings, means[TUNED], there[TUNED]), _chosen(plan, settings)],
        [Figure("table1", caption)],
        verdicts(settings, means, there, _spread(plan, settings)) if not plan.quick else [],
    )


def _spread(plan: Plan, settings: list[Setting]) -> np.ndarray:
    """Standard deviation over seeds of CGPFL-Heur minus local training, tuned, in points; 0 where there is none."""
    found = []
    for setting in settings:
        heur, local = (row(plan, setting, label) for label in ("cgpfl-heur", "local"))
        if heur is None or local is None or len(heur.seeds) == 1:
            found.append(0.0)
        else:
            found.append(100 * float((heur.accuracy() - local.accuracy()).std(ddof=1)))
    return np.nan_to_num(found)


def _text(settings: list[Setting]) -> list[str]:
    budgets = ", ".join(f"{s.title} {s.budget}" for s in settings)
    short = [f"{s.title} after {s.tune_rounds} of its {s.rounds} rounds" for s in settings if s.tune_rounds]
    late = f" ({'; '.join(short)})" if short else ""
    return [
        "*First*: 2β/N = λ·lr and η = lr, and lr for everybody else: what this reproduction assumed at first. *Tuned*: "
        "λ, R, S, T and α as the paper states them, and the rates chosen for each method, the competitors' lr "
        f"included, from equally many settings ({budgets}), by accuracy on {HELD_OUT:.0%} of each client's training "
        f"samples, held out, on seed {SEED}, which is not in the table, in the last round{late}. One that diverges "
        "there is out. The table's runs train on all training samples. Every setting tried and its validation "
        "accuracy: tuning.csv.",
        "The rows under CGPFL-Heur are ours, not the paper's: the same with five rounds of one shared model before the "
        "first clustering, at the rates chosen without them"
        + (", and our own method at its defaults but for the chosen rates." if OURS in _all_rows(settings) else "."),
    ]


def _note(plan: Plan, settings: list[Setting]) -> str:
    fewer = [
        f"{s.title}, {reading}: {len(seeds)}"
        for s in settings
        for reading in READINGS
        if len(seeds := table_seeds(plan, s, reading)) < len(plan.seeds)
    ]
    return (
        "Pooled over clients, last round, the clients' own models. Cyclic split, λ = 12. In a round a client takes 10 "
        "steps, of pFedMe and CGPFL 50, of L2SGD as the coin falls."
        + (f" Fewer seeds: {'; '.join(fewer)}." if fewer else "")
    )


def _gaps(settings: list[Setting], means: np.ndarray, there: np.ndarray) -> Table:
    """CGPFL-Heur, tuned, beside its published number and beside local training."""
    heur, local = ROWS.index("cgpfl-heur"), ROWS.index("local")
    rows_ = []
    for c, setting in enumerate(settings):
        printed = table_1(setting.name, "cgpfl-heur") or float("nan")
        gaps = means[heur, c] - [printed, means[local, c]]
        run = [there[heur, c], there[heur, c] and there[local, c]]
        told = ["–" if not r else "diverged" if np.isnan(g) else f"{g:+.2f}" for r, g in zip(run, gaps, strict=True)]
        rows_.append([setting.title, *told])
    columns = ["setting", "minus published", "minus local, tuned"]
    return Table("CGPFL-Heur, tuned, in points", columns, rows_)


def _chosen(plan: Plan, settings: list[Setting]) -> Table:
    """The chosen values; everything that was tried goes to tuning.csv."""
    wanted = _tunes(plan)
    facts, table = [], []
    for label in dict.fromkeys(label for _, label in wanted):
        line = [NAMES[label]]
        for setting in settings:
            if (setting, label) not in wanted:
                line.append("–")
                continue
            try:
                found = choice(plan, setting, label)
            except NotRunError:
                line.append("–")
                continue
            line.append(f"{words(found.taken.values)} ({with_spread(found.taken.validation, 0.0, 1)})")
            facts += [
                {
                    "setting": setting.title,
                    "method": label,
                    "tried": words(t.values),
                    "validation_%": round(t.validation, 3),
                    "test_%": round(t.test, 3),
                    "chosen": int(i == found.best),
                    **{name: t.values.get(name, "") for name in SYMBOLS},
                }
                for i, t in enumerate(found.tried)
            ]
        table.append(line)
    if facts:
        save_csv(plan.out / "table1" / "tuning.csv", facts)
    title = f"The chosen rates, and their validation accuracy (%) on seed {SEED}"
    return Table(title, ["method", *(s.title for s in settings)], table)


def _draw(plan: Plan, settings: list[Setting]) -> None:
    labels = _all_rows(settings)
    picture, axes = panels(1, len(settings), 2.5, 3.8, sharey=True)
    for ax, setting in zip(axes[0], settings, strict=True):
        for r, label in enumerate(labels):
            y, colour = len(labels) - r, COLOUR.get(label, "#333333")
            tuned, first = (row(plan, setting, label, reading) for reading in (TUNED, FIRST))
            if tuned is not None:
                each = 100 * tuned.accuracy()
                ax.plot(each, np.full(len(each), y), "|", color=colour, ms=7)
                ax.plot(each.mean(), y, "o", color=colour, ms=6)
            if first is not None:
                ax.plot(percent(first)[0], y, "x", color=colour, ms=5)
            published = table_1(setting.name, label)
            if published is not None:
                ax.plot(published, y, "o", mfc="white", mec="#333333", ms=6, mew=1)
        ax.set_title(setting.title, fontsize=10)
        ax.set_yticks(range(len(labels), 0, -1), [NAMES[label] for label in labels])
    picture.supxlabel("test accuracy (%); filled: tuned, cross: as first read, hollow: published", fontsize=9)
    save_picture(picture, plan.out / "table1", "table1")


class _Columns:
    """Mean accuracies in the settings in which the methods of a claim were run."""

    def __init__(
        self, settings: list[Setting], means: dict[str, np.ndarray], there: dict[str, np.ndarray], *methods: str
    ) -> None:
        wanted = [ROWS.index(m) for m in methods]
        run = {reading: np.all(found[wanted], axis=0) for reading, found in there.items()}
        kept = run[TUNED]
        self.settings = [s for s, yes in zip(settings, kept, strict=True) if yes]
        self.left = [s.title for s, yes in zip(settings, kept, strict=True) if not yes]
        # A run that diverged is worse than any other.
        self.now, self.then = (
            {m: np.nan_to_num(means[reading][ROWS.index(m), kept], nan=0.0) for m in methods}
            for reading in (TUNED, FIRST)
        )
        self.first = run[FIRST][kept]
        """Where the first reading was run, too."""

    def where(self, condition: np.ndarray) -> str:
        return ", ".join(s.title for s, yes in zip(self.settings, condition, strict=True) if yes) or "none"

    def points(self, gap: np.ndarray, of_first: bool = False) -> str:
        run = self.first if of_first else np.ones(len(gap), bool)
        return ", ".join(f"{d:+.1f}" if yes else "–" for d, yes in zip(gap, run, strict=True))

    def verdict(self, claim: str, holds: Iterable[bool], evidence: str) -> list[Verdict]:
        """None where it was looked at nowhere."""
        if not self.settings:
            return []
        return [Verdict(claim, grade(holds), evidence + (f" Not run: {', '.join(self.left)}." if self.left else ""))]


def verdicts(
    settings: list[Setting], means: dict[str, np.ndarray], there: dict[str, np.ndarray], spread: np.ndarray
) -> list[Verdict]:
    """What became of Table 1's claims, from mean accuracies ``[rows, settings]`` by reading: the tuned ones decide.

    ``there`` tells which were run; a claim is about the settings that have all that it compares. ``spread [settings]``
    is that of CGPFL-Heur minus local training over seeds.
    """
    of = _Columns(settings, means, there, "cgpfl-heur", "cgpfl-4")
    gap, before = (v["cgpfl-heur"] - v["cgpfl-4"] for v in (of.now, of.then))
    found = of.verdict(
        "CGPFL-Heur is better than CGPFL with K = 4 (Table 1).",
        gap > 0,
        f"in {int((gap > 0).sum())} of {len(gap)} settings; by {of.points(gap)} points; as first read by "
        f"{of.points(before, of_first=True)}.",
    )
    of = _Columns(settings, means, there, *ROWS)
    wins, losses = _comparisons(of.now, of.where)
    first = {m: v[of.first] for m, v in of.then.items()}
    earlier, _ = _comparisons(first, lambda _: "")
    printed = [TABLE_1[label][c] > TABLE_1[r][c] for r in RIVALS for label in ROWS[8:] for c in range(5)]
    local = of.now["local"] > np.maximum(of.now["cgpfl-4"], of.now["cgpfl-heur"])
    evidence = (
        f"{sum(wins)} of {len(wins)} comparisons won, as first read {sum(earlier)} of {len(earlier)} (in the paper's "
        f"own table {sum(printed)} of {len(printed)}). "
    )
    evidence += "; ".join(losses) + ". " if losses else ""
    evidence += f"Local training, which the paper does not show, is better than both on: {of.where(local)}."
    found += of.verdict("CGPFL and CGPFL-Heur are better than all seven competitors (Table 1).", wins, evidence)
    of = _Columns(settings, means, there, "cgpfl-heur")
    published = np.array([table_1(s.name, "cgpfl-heur") or np.nan for s in of.settings])
    gap, before = (v["cgpfl-heur"] - published for v in (of.now, of.then))
    found += of.verdict(
        f"CGPFL-Heur has its published accuracy (Table 1), or is less than {CLOSE:g} points under it.",
        gap >= -CLOSE,
        f"ours minus published: {', '.join(f'{v:+.2f}' for v in gap)} points "
        f"({', '.join(s.title for s in of.settings)}); as first read {of.points(before, of_first=True)}.",
    )
    of = _Columns(settings, means, there, "cgpfl-heur", "local")
    gap, before = (v["cgpfl-heur"] - v["local"] for v in (of.now, of.then))
    own = [spread[settings.index(s)] for s in of.settings]
    return found + of.verdict(
        "CGPFL-Heur is better than local training by more than the spread over seeds (not in the paper).",
        gap > own,
        "both tuned with the same budget: "
        + ", ".join(f"{v:+.2f} ± {s:.2f}" for v, s in zip(gap, own, strict=True))
        + f" points ({', '.join(s.title for s in of.settings)}); as first read {of.points(before, of_first=True)}.",
    )


def _comparisons(of: dict[str, np.ndarray], where: Callable[[np.ndarray], str]) -> tuple[list[bool], list[str]]:
    """CGPFL against each rival in each setting, and in words where it loses."""
    wins, losses = [], []
    for rival in RIVALS:
        for label in ("cgpfl-4", "cgpfl-heur"):
            beaten = of[label] > of[rival]
            wins += beaten.tolist()
            if not beaten.all():
                losses.append(f"{NAMES[label]} loses to {NAMES[rival]} on {where(~beaten)}")
    return wins, losses


TABLE1 = Part("table1", "accuracy of nine methods and local training in five settings", _needs, _make, _tunes)
