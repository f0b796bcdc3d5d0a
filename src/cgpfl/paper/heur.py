"""CGPFL-Heur beside CGPFL, pFedMe and the best K, and the e(K) it chooses by."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.experiment.table import Runs
from cgpfl.files import save_csv
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import COLOUR, legend_below, panels
from cgpfl.paper.figures import runs_at, runs_of, tunes
from cgpfl.paper.plan import Part, Plan, percent, swept
from cgpfl.paper.readings import READINGS, TUNED, k_cell, table_1_cell
from cgpfl.paper.section import Figure, Section, Verdict, grade
from cgpfl.paper.settings import Setting
from cgpfl.paper.tuning import GRID
from cgpfl.report.figures import COLOURS
from cgpfl.report.pictures import save_picture, whole


def _needs(plan: Plan) -> list[Cell]:
    labels = (*GRID, "local")
    cells = [table_1_cell(plan, s, label, r) for s in plan.swept for r in READINGS for label in labels]
    return cells + [k_cell(plan, s, k, r) for s in plan.swept for r in READINGS for k in s.ks]


def _best_k(plan: Plan, setting: Setting, reading: str) -> int:
    return max(setting.ks, key=lambda k: np.nan_to_num(percent(runs_at(plan, setting, k, reading))[0]))


def _bars(plan: Plan, setting: Setting, reading: str) -> dict[str, tuple[Runs, str]]:
    """Heur and what stands beside it."""
    best = _best_k(plan, setting, reading)
    named = {"Local": "local", "pFedMe": "pfedme", "K = 4": "cgpfl-4", "Heur": "cgpfl-heur"}
    bars = {name: (runs_of(plan, setting, label, reading), COLOUR[label]) for name, label in named.items()}
    heur = bars.pop("Heur")
    return {**bars, f"best K = {best}": (runs_at(plan, setting, best, reading), COLOURS[2]), "Heur": heur}


def _make(plan: Plan) -> Section:
    folder, facts = plan.out / "figure-heur", []
    picture, axes = panels(2, len(plan.swept), 3.2, 2.6)
    near, gains = [], []
    for c, setting in enumerate(plan.swept):
        for reading in READINGS:
            for name, (runs, _) in _bars(plan, setting, reading).items():
                mean, std = percent(runs)
                numbers = {"accuracy_%": round(mean, 3), "std": round(std, 3)}
                facts.append({"setting": setting.title, "reading": reading, "method": name, **numbers})
        bars = _bars(plan, setting, TUNED)
        _draw_bars(axes[0, c], bars)
        axes[0, c].set_title(setting.title, fontsize=10)
        top = percent(runs_at(plan, setting, _best_k(plan, setting, TUNED)))[0]
        near.append(top - percent(bars["Heur"][0])[0])
        gains.append(top - percent(runs_at(plan, setting, 1))[0])
        _draw_error(axes[1, c], bars["Heur"][0])
    axes[0, 0].set_ylabel("test accuracy (%)", fontsize=9)
    axes[1, 0].set_ylabel("e(K) and its terms, first round", fontsize=9)
    legend_below(picture, axes[1, 0])
    save_picture(picture, folder, "heur")
    save_csv(folder / "heur.csv", facts)
    close = [gap <= 0.1 * gain for gap, gain in zip(near, gains, strict=True)]
    each = [f"{s.title} {v:+.1f} of {g:.1f}" for s, v, g in zip(plan.swept, near, gains, strict=True)]
    verdict = Verdict(
        "CGPFL-Heur comes close to the best K (Figure 3).",
        grade(close),
        f"what it leaves of the gain of the best K over K = 1, in points: {', '.join(each)}. Close is up to a tenth.",
    )
    caption = "Above: Heur beside pFedMe, K = 4 and the best K (Figure 3b). Below: e(K), K chosen in the first round."
    text = [
        "The best K is chosen by looking at test accuracy, which nobody has in practice: an upper limit, not a rival. "
        "It has the rates chosen for CGPFL-Heur, the others each their own."
    ]
    return Section("figure-heur", "CGPFL-Heur", text, [], [Figure("heur", caption)], [] if plan.quick else [verdict])


def _draw_bars(ax: Any, bars: dict[str, tuple[Runs, str]]) -> None:
    for i, (runs, colour) in enumerate(bars.values()):
        mean, std = percent(runs)
        ax.bar(i, mean, color=colour, alpha=0.8, yerr=std if len(runs.seeds) > 1 else None, capsize=3)
        above = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        ax.annotate(f"{mean:.1f}", (i, mean + std), **above)
    ends = np.array([(m - s, m + s) for r, _ in bars.values() for m, s in [percent(r)] if not np.isnan(m)])
    low, high = (ends.min(), ends.max()) if len(ends) else (0.0, 100.0)
    ax.set_ylim(max(0, low - 0.3 * (high - low) - 1), high + 0.15 * (high - low) + 0.2)
    ax.set_xticks(range(len(bars)), list(bars), fontsize=7)


def _draw_error(ax: Any, runs: Runs) -> None:
    """The e(K) curve of the first seed."""
    values = runs.records[0].values
    if not runs.records[0].rounds:
        return
    complexity, cost, mu = values["complexity"][-1], values["cost"][-1], float(values["mu"][-1])
    ks = np.arange(1, len(cost) + 1)
    k = int(values["k"][-1])
    ax.plot(ks, complexity, "--", color=COLOURS[7], lw=1.2, label="complexity")
    ax.plot(ks, mu * cost, ":", color=COLOURS[1], lw=1.6, label="μ · cost")
    ax.plot(ks, complexity + mu * cost, color=COLOURS[0], lw=1.8, label="e(K)")
    ax.plot(k, complexity[k - 1] + mu * cost[k - 1], "*", color=COLOURS[3], ms=13, label="chosen")
    ax.set_xlabel("number of contexts K", fontsize=9)
    ax.set_ylim(bottom=0)
    whole(ax.xaxis)


FIGURE_HEUR = Part("figure-heur", "CGPFL-Heur beside CGPFL and pFedMe, and its e(K)", _needs, _make, tunes, over=swept)
