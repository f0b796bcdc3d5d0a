"""Tables 1 and 2, the published number beside each of ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.experiment.table import Runs
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import COLOUR, NAMES, legend_below, panels, save
from cgpfl.paper.plan import Part, Plan, family_cell, percent, table_1_cell, with_spread
from cgpfl.paper.published import LAMBDAS, TABLE_1, TABLE_2, table_1
from cgpfl.paper.section import Figure, Section, Table, Verdict, grade, save_csv
from cgpfl.paper.settings import FAMILY, Setting

ROWS = ("local", "fedavg", "ifca", "l2sgd", "apfl", "pfedme", "per-fedavg", "ditto", "cgpfl-4", "cgpfl-heur")
"""Of Table 1; local training, first, is not in the paper's."""
RIVALS = ROWS[1:8]
"""The paper's seven competitors."""


def _facts(setting: Setting, method: str, runs: Runs, published: float | None) -> dict[str, Any]:
    """A row of the CSV."""
    mean, std = percent(runs)
    done = [s for s in runs.scores() if s is not None]
    over = {
        f"{k}_%": round(100 * float(np.mean([s[k] for s in done])), 3) if done else "" for k in ("mean", "worst_tenth")
    }
    return {
        "setting": setting.title,
        "method": method,
        "lambda": runs.settings.get("prox", ""),
        "accuracy_%": round(mean, 3),
        "std": round(std, 3),
        "published": "" if published is None else published,
        "difference": "" if published is None else round(mean - published, 2),
        **over,
        "each_seed_%": " ".join(f"{100 * v:.2f}" for v in runs.accuracy()),
        "diverged": sum(d is not None for d in runs.diverged),
    }


def _needs_1(plan: Plan) -> list[Cell]:
    return [table_1_cell(s, label) for s in plan.settings.values() for label in ROWS]


def _make_1(plan: Plan) -> Section:
    folder, settings = plan.out / "table1", list(plan.settings.values())
    facts, rows, strong = [], [[NAMES[label]] for label in ROWS], []
    means = np.full((len(ROWS), len(settings)), np.nan)
    for c, setting in enumerate(settings):
        for r, label in enumerate(ROWS):
            runs, published = plan.runs(table_1_cell(setting, label)), table_1(setting.name, label)
            facts.append(_facts(setting, label, runs, published))
            means[r, c], std = percent(runs)
            beside = "–" if published is None else f"{published:.2f}"
            rows[r] += [with_spread(means[r, c], std, len(plan.seeds)), beside]
        strong.append([int(np.nanargmax(means[:, c])), 1 + 2 * c])
    save_csv(folder / "table1.csv", facts)
    columns = ["method", *(v for s in settings for v in (s.title, "paper"))]
    title = f"Table 1: test accuracy (%), mean ± std over {len(plan.seeds)} seeds; in bold the best of ours"
    note = (
        "Pooled over clients, last round, the clients' own models. Cyclic split, λ = 12, lr as the paper states. "
        "In a round a client takes 10 steps, of pFedMe and CGPFL 50, of L2SGD as the coin falls."
    )
    _draw_1(plan, settings)
    caption = "Table 1 as a picture: ours with each seed (dots), the published number (hollow)."
    return Section(
        "table1",
        "Table 1: nine methods and local training",
        [],
        [Table(title, columns, rows, note, strong)],
        [Figure("table1", caption)],
        _verdicts_1(settings, means) if not plan.quick else [],
    )


def _draw_1(plan: Plan, settings: list[Setting]) -> None:
    picture, axes = panels(1, len(settings), 2.5, 3.4, sharey=True)
    for ax, setting in zip(axes[0], settings, strict=True):
        for r, label in enumerate(ROWS):
            y, colour = len(ROWS) - r, COLOUR.get(label, "#333333")
            each = 100 * plan.runs(table_1_cell(setting, label)).accuracy()
            ax.plot(each, np.full(len(each), y), "|", color=colour, ms=7)
            ax.plot(each.mean(), y, "o", color=colour, ms=6)
            published = table_1(setting.name, label)
            if published is not None:
                ax.plot(published, y, "o", mfc="white", mec="#333333", ms=6, mew=1)
        ax.set_title(setting.title, fontsize=10)
        ax.set_yticks(range(len(ROWS), 0, -1), [NAMES[label] for label in ROWS])
    picture.supxlabel("test accuracy (%); filled: ours, hollow: published", fontsize=9)
    save(picture, plan.out / "table1", "table1")


def _verdicts_1(settings: list[Setting], means: np.ndarray) -> list[Verdict]:
    # A run that diverged is worse than any other.
    of = {label: np.nan_to_num(means[r], nan=0.0) for r, label in enumerate(ROWS)}
    names = [s.title for s in settings]

    def where(condition: np.ndarray) -> str:
        return ", ".join(n for n, yes in zip(names, condition, strict=True) if yes) or "none"

    found = []
    local = of["local"] > np.maximum(of["cgpfl-4"], of["cgpfl-heur"])
    better = of["cgpfl-heur"] > of["cgpfl-4"]
    found.append(
        Verdict(
            "CGPFL-Heur is better than CGPFL with K = 4 (Table 1).",
            grade(better),
            f"in {int(better.sum())} of {len(names)} settings; by "
            + ", ".join(f"{d:+.1f}" for d in of["cgpfl-heur"] - of["cgpfl-4"])
            + " points.",
        )
    )
    wins, losses = [], []
    for rival in RIVALS:
        for label in ("cgpfl-4", "cgpfl-heur"):
            beaten = of[label] > of[rival]
            wins += beaten.tolist()
            if not beaten.all():
                losses.append(f"{NAMES[label]} loses to {NAMES[rival]} on {where(~beaten)}")
    printed = [TABLE_1[label][c] > TABLE_1[r][c] for r in RIVALS for label in ROWS[8:] for c in range(5)]
    evidence = (
        f"{sum(wins)} of {len(wins)} comparisons won (in the paper's own table {sum(printed)} of {len(printed)}). "
    )
    evidence += "; ".join(losses) + ". " if losses else ""
    evidence += f"Local training, which the paper does not show, is better than both on: {where(local)}."
    found.append(
        Verdict("CGPFL and CGPFL-Heur are better than all seven competitors (Table 1).", grade(wins), evidence)
    )
    return found


def _needs_2(plan: Plan) -> list[Cell]:
    return [family_cell(s, label, prox) for s in plan.swept for label in FAMILY for prox in s.lambdas]


def _make_2(plan: Plan) -> Section:
    folder = plan.out / "table2"
    facts, tables = [], []
    grid: dict[str, dict[str, np.ndarray]] = {}
    for setting in plan.swept:
        rows = []
        grid[setting.name] = {}
        for label in FAMILY:
            cells = [plan.runs(family_cell(setting, label, prox)) for prox in setting.lambdas]
            each = [percent(runs) for runs in cells]
            published = [_published(setting, label, prox) for prox in setting.lambdas]
            rows.append([NAMES[label], *(with_spread(m, s, len(plan.seeds)) for m, s in each)])
            rows.append(["  paper", *(f"{p:.2f}" for p in published)])
            facts += [_facts(setting, label, r, p) for r, p in zip(cells, published, strict=True)]
            grid[setting.name][label] = np.array([m for m, _ in each])
        columns = [f"{setting.title}, λ =", *(f"{prox:g}" for prox in setting.lambdas)]
        tables.append(Table(f"Table 2, {setting.title}: test accuracy (%)", columns, rows))
    save_csv(folder / "table2.csv", facts)
    _draw_2(plan, grid)
    caption = "Table 2 as a picture: ours (lines), the paper's (dots); local training, at lr, dashed."
    return Section(
        "table2",
        "Table 2: the effect of λ",
        [f"Every line is {len(plan.seeds)} seeds; a method's λ × seeds run as one compiled program."],
        tables,
        [Figure("table2", caption)],
        _verdicts_2(grid) if not plan.quick else [],
    )


def _published(setting: Setting, label: str, prox: float) -> float:
    return TABLE_2[setting.name][label][LAMBDAS[setting.name].index(int(prox))]


def _draw_2(plan: Plan, grid: dict[str, dict[str, np.ndarray]]) -> None:
    picture, axes = panels(1, len(plan.swept), 3.0, 2.9)
    for ax, setting in zip(axes[0], plan.swept, strict=True):
        for label in FAMILY:
            colour = COLOUR[label]
            ax.plot(setting.lambdas, grid[setting.name][label], "-", color=colour, lw=1.8, label=NAMES[label])
            ax.plot(setting.lambdas, [_published(setting, label, p) for p in setting.lambdas], "o", color=colour, ms=3)
        local = table_1_cell(setting, "local")
        if plan.cells.has(local):
            value = percent(plan.runs(local))[0]
            ax.axhline(value, color=COLOUR["local"], ls="--", lw=1.2, label=NAMES["local"])
        ax.set_title(setting.title, fontsize=10)
        ax.set_xlabel("λ", fontsize=9)
    axes[0, 0].set_ylabel("test accuracy (%)", fontsize=9)
    legend_below(picture, axes[0, 0])
    save(picture, plan.out / "table2", "table2")


def _verdicts_2(grid: dict[str, dict[str, np.ndarray]]) -> list[Verdict]:
    def verdict(claim: str, better: str, worse: str) -> Verdict:
        # A run that diverged is worse than any other.
        pairs = [(np.nan_to_num(g[better], nan=0.0), np.nan_to_num(g[worse], nan=0.0)) for g in grid.values()]
        gap = np.concatenate([a - b for a, b in pairs])
        printed = np.concatenate([np.subtract(TABLE_2[s][better], TABLE_2[s][worse]) for s in TABLE_2])
        evidence = (
            f"{int((gap > 0).sum())} of {len(gap)} pairs (setting, λ); {gap.min():+.1f} to {gap.max():+.1f} points. In "
            f"the paper's own table {int((printed > 0).sum())} of {len(printed)}."
        )
        return Verdict(claim, grade(gap > 0), evidence)

    return [
        verdict("CGPFL (K = 4) is better than pFedMe at every λ (Table 2).", "cgpfl-4", "pfedme"),
        verdict("CGPFL-Heur is better than CGPFL (K = 4) over λ (Table 2).", "cgpfl-heur", "cgpfl-4"),
    ]


TABLE1 = Part("table1", "accuracy of nine methods and local training in five settings", _needs_1, _make_1)
TABLE2 = Part(
    "table2",
    "pFedMe, CGPFL and CGPFL-Heur over λ in four settings",
    lambda plan: [*_needs_2(plan), *(table_1_cell(s, "local") for s in plan.swept)],
    _make_2,
)
