"""Table 2: the effect of λ, the published number under each of ours."""

from __future__ import annotations

import numpy as np

from cgpfl.experiment.table import Runs
from cgpfl.files import save_csv
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import COLOUR, NAMES, legend_below, panels
from cgpfl.paper.plan import Part, Plan, of_seeds, percent, shown, swept
from cgpfl.paper.published import LAMBDAS, TABLE_2
from cgpfl.paper.readings import FIRST, READINGS, TUNED, family_cell, swept_seeds, table_1_cell
from cgpfl.paper.section import Figure, Section, Verdict, grade
from cgpfl.paper.settings import FAMILY, PROX, Setting
from cgpfl.paper.table1 import facts_of, lost
from cgpfl.paper.tuning import SAME_AS
from cgpfl.report.pictures import save_picture
from cgpfl.tables import Table

Grid = dict[str, dict[str, np.ndarray]]
"""Setting → method → mean accuracy at each λ, in percent."""


def _needs(plan: Plan) -> list[Cell]:
    cells = [
        family_cell(plan, s, label, prox, reading)
        for s in plan.swept
        for label in FAMILY
        for reading in READINGS
        for prox in s.lambdas
    ]
    return [*cells, *(table_1_cell(plan, s, "local") for s in plan.swept)]


def _tunes(plan: Plan) -> list[tuple[Setting, str]]:
    labels = dict.fromkeys(SAME_AS.get(label, label) for label in (*FAMILY, "local"))
    return [(s, label) for s in plan.swept for label in labels]


def _runs(plan: Plan, setting: Setting, label: str, prox: float, reading: str) -> Runs:
    """The same seeds at every λ."""
    return of_seeds(plan.runs(family_cell(plan, setting, label, prox, reading)), swept_seeds(plan, reading))


def _make(plan: Plan) -> Section:
    facts, tables = [], []
    grids: dict[str, Grid] = {reading: {s.name: {} for s in plan.swept} for reading in READINGS}
    for setting in plan.swept:
        rows, notes = [], []
        for label in FAMILY:
            published = [_published(setting, label, prox) for prox in setting.lambdas]
            for reading in READINGS:
                each = [_runs(plan, setting, label, prox, reading) for prox in setting.lambdas]
                facts += [facts_of(setting, label, reading, r, p) for r, p in zip(each, published, strict=True)]
                grids[reading][setting.name][label] = np.array([percent(runs)[0] for runs in each])
                if reading == TUNED:
                    rows.append([NAMES[label], *map(shown, each)])
            rows.append(["  paper", *(f"{p:.2f}" for p in published)])
            at = {f"{NAMES[label]}, λ = {p:g}": family_cell(plan, setting, label, p) for p in setting.lambdas}
            notes += lost(plan, at)
        columns = [f"{setting.title}, λ =", *(f"{prox:g}" for prox in setting.lambdas)]
        note = " ".join(f"{n}." for n in notes)
        tables.append(Table(f"Table 2, {setting.title}: test accuracy (%)", columns, rows, note))
    save_csv(plan.out / "table2" / "table2.csv", facts)
    _draw(plan, grids[TUNED])
    seeds = [len(swept_seeds(plan, reading)) for reading in (TUNED, FIRST)]
    text = (
        f"Rates as chosen for each method at λ = {PROX:g} (those of CGPFL (K=4) for K = 2, too), {seeds[0]} seeds; a "
        f"method's λ × seeds run as one compiled program. The first reading, where 2β/N = λ·lr grows with λ, is in the "
        f"CSV file ({seeds[1]} seed{'s' if seeds[1] > 1 else ''})."
    )
    caption = "Table 2 as a picture: ours (lines), the paper's (dots); local training, tuned, dashed."
    found = _verdicts(grids[TUNED], grids[FIRST]) if not plan.quick else []
    return Section("table2", "Table 2: the effect of λ", [text], tables, [Figure("table2", caption)], found)


def _published(setting: Setting, label: str, prox: float) -> float:
    return TABLE_2[setting.name][label][LAMBDAS[setting.name].index(int(prox))]


def _draw(plan: Plan, grid: Grid) -> None:
    picture, axes = panels(1, len(plan.swept), 3.0, 2.9)
    for ax, setting in zip(axes[0], plan.swept, strict=True):
        for label in FAMILY:
            colour = COLOUR[label]
            ax.plot(setting.lambdas, grid[setting.name][label], "-", color=colour, lw=1.8, label=NAMES[label])
            ax.plot(setting.lambdas, [_published(setting, label, p) for p in setting.lambdas], "o", color=colour, ms=3)
        local = of_seeds(plan.runs(table_1_cell(plan, setting, "local")), swept_seeds(plan))
        ax.axhline(percent(local)[0], color=COLOUR["local"], ls="--", lw=1.2, label=NAMES["local"])
        ax.set_title(setting.title, fontsize=10)
        ax.set_xlabel("λ", fontsize=9)
    axes[0, 0].set_ylabel("test accuracy (%)", fontsize=9)
    legend_below(picture, axes[0, 0])
    save_picture(picture, plan.out / "table2", "table2")


def _verdicts(tuned: Grid, first: Grid) -> list[Verdict]:
    def gaps(grid: Grid, better: str, worse: str) -> np.ndarray:
        # A run that diverged is worse than any other.
        pairs = [(np.nan_to_num(g[better], nan=0.0), np.nan_to_num(g[worse], nan=0.0)) for g in grid.values()]
        return np.concatenate([a - b for a, b in pairs])

    def verdict(claim: str, better: str, worse: str) -> Verdict:
        gap, before = gaps(tuned, better, worse), gaps(first, better, worse)
        printed = np.concatenate([np.subtract(TABLE_2[s][better], TABLE_2[s][worse]) for s in TABLE_2])
        evidence = (
            f"{int((gap > 0).sum())} of {len(gap)} pairs (setting, λ); {gap.min():+.1f} to {gap.max():+.1f} points. As "
            f"first read {int((before > 0).sum())}, in the paper's own table {int((printed > 0).sum())} of "
            f"{len(printed)}."
        )
        return Verdict(claim, grade(gap > 0), evidence)

    return [
        verdict("CGPFL (K = 4) is better than pFedMe at every λ (Table 2).", "cgpfl-4", "pfedme"),
        verdict("CGPFL-Heur is better than CGPFL (K = 4) over λ (Table 2).", "cgpfl-heur", "cgpfl-4"),
    ]


TABLE2 = Part("table2", "pFedMe, CGPFL and CGPFL-Heur over λ in four settings", _needs, _make, _tunes, over=swept)
