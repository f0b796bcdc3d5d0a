"""Figures over K: curves for several K, and accuracy at every K."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.experiment.table import Runs, rounds_to
from cgpfl.files import save_csv
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import COLOUR, NAMES, band, legend_below, panels
from cgpfl.paper.plan import Part, Plan, of_seeds, percent, swept, with_spread
from cgpfl.paper.plan import shown as accuracy_of
from cgpfl.paper.readings import FIRST, READINGS, TUNED, k_cell, swept_seeds, table_1_cell
from cgpfl.paper.section import Figure, Section, Verdict, grade
from cgpfl.paper.settings import PROX, Setting
from cgpfl.paper.tuning import GRID
from cgpfl.report.figures import COLOURS
from cgpfl.report.pictures import save_picture, whole
from cgpfl.tables import Table

BESIDE = ("ditto", "per-fedavg", "local", "fedavg")
"""Drawn beside CGPFL's curves: the two the paper draws, and the two that every result needs."""
SHADES = (COLOURS[1], COLOURS[4], COLOURS[0], COLOURS[2], COLOURS[3])
"""Of the curves of several K."""


def shown(setting: Setting) -> list[int]:
    """Numbers of contexts whose curves are drawn; K = 1 is pFedMe."""
    wanted = (1, 2, 4, 10, 20) if max(setting.ks) >= 20 else (1, 2, 4, max(setting.ks))
    return [k for k in dict.fromkeys(wanted) if k in setting.ks]


def losses(runs: Runs) -> np.ndarray:
    """Training loss over evaluated rounds, mean over clients. ``[seeds, E]``."""
    fine = [r for r, bad in zip(runs.records, runs.diverged, strict=True) if bad is None]
    return np.stack([r.values["train_loss"].mean(axis=1) for r in fine]) if fine else np.zeros((0, 0))


def runs_at(plan: Plan, setting: Setting, k: int, reading: str = TUNED) -> Runs:
    """CGPFL with K = ``k``."""
    return plan.runs(k_cell(plan, setting, k, reading))


def runs_of(plan: Plan, setting: Setting, label: str, reading: str = TUNED) -> Runs:
    """A row of Table 1, of the seeds that the sweep over K has."""
    return of_seeds(plan.runs(table_1_cell(plan, setting, label, reading)), swept_seeds(plan, reading))


def tunes(plan: Plan) -> list[tuple[Setting, str]]:
    """The choices behind the figures over K."""
    return [(s, label) for s in plan.swept for label in (*GRID, *BESIDE)]


def _needs_k(plan: Plan) -> list[Cell]:
    cells = [k_cell(plan, s, k, reading) for s in plan.swept for reading in READINGS for k in s.ks]
    return cells + [table_1_cell(plan, s, label) for s in plan.swept for label in (*BESIDE, "cgpfl-heur")]


def _make_k(plan: Plan) -> Section:
    folder, facts = plan.out / "figure-k", []
    for setting in plan.swept:
        for reading in READINGS:
            for k in setting.ks:
                mean, std = percent(runs_at(plan, setting, k, reading))
                numbers = {"accuracy_%": round(mean, 3), "std": round(std, 3)}
                facts.append({"setting": setting.title, "reading": reading, "K": k, **numbers})
    save_csv(folder / "accuracy-over-k.csv", facts)
    _draw_curves(plan)
    _draw_k(plan)
    seeds, few = len(swept_seeds(plan)), len(swept_seeds(plan, FIRST))
    text = (
        f"λ = {PROX:g}. Every K has the rates chosen for CGPFL-Heur, so that K alone differs; K = 1 is pFedMe at those "
        "rates, the others have their own (Table 1). Lines are means over "
        f"{seeds} seeds, bands their range. The first reading's accuracy at every K is in the CSV file ({few} "
        f"seed{'s' if few > 1 else ''})."
    )
    return Section(
        "figure-k",
        "Accuracy, loss and the number of contexts",
        [text],
        [_best_table(plan), _speed_table(plan)],
        [
            Figure("curves", "Test accuracy and training loss over rounds (the paper's Figures 1 and 2)."),
            Figure("accuracy-over-k", "Accuracy over K = 1..N/2; the star is CGPFL-Heur (the paper's Figure 3a)."),
        ],
        _verdicts(plan) if not plan.quick else [],
    )


def _draw_curves(plan: Plan) -> None:
    picture, axes = panels(2, len(plan.swept), 3.2, 2.6, sharex="col")
    for c, setting in enumerate(plan.swept):
        lines: list[tuple[str, Runs, dict[str, Any]]] = [
            (
                f"K = {k}" + (" (pFedMe)" if k == 1 else ""),
                runs_at(plan, setting, k),
                {"color": SHADES[i % len(SHADES)], "lw": 1.7},
            )
            for i, k in enumerate(shown(setting))
        ]
        for label in BESIDE:
            style = {"color": COLOUR[label], "lw": 1.2, "ls": "--"}
            lines.append((NAMES[label], runs_of(plan, setting, label), style))
        for name, runs, style in lines:
            rounds, accuracy = runs.curves()
            band(axes[0, c], rounds, 100 * accuracy, label=name, **style)
            band(axes[1, c], rounds, losses(runs), label=name, **style)
        axes[0, c].set_title(setting.title, fontsize=10)
        final = [mean for _, runs, _ in lines if not np.isnan(mean := percent(runs)[0])]
        axes[0, c].set_ylim(min(final, default=12) - 12, 100)
        axes[1, c].set(xlabel="round", yscale="log")
        whole(axes[1, c].xaxis)
    axes[0, 0].set_ylabel("test accuracy (%)", fontsize=9)
    axes[1, 0].set_ylabel("training loss", fontsize=9)
    legend_below(picture, axes[0, 0], 9)
    save_picture(picture, plan.out / "figure-k", "curves")


def _draw_k(plan: Plan) -> None:
    picture, axes = panels(1, len(plan.swept), 3.2, 2.9)
    for ax, setting in zip(axes[0], plan.swept, strict=True):
        each = 100 * np.stack([runs_at(plan, setting, k).accuracy() for k in setting.ks], axis=1)
        band(ax, np.asarray(setting.ks), each, color=COLOURS[0], marker="o", ms=3, lw=1.6, label="CGPFL")
        heur = runs_of(plan, setting, "cgpfl-heur")
        chosen = _chosen(heur)
        ax.plot(chosen.mean(), percent(heur)[0], "*", color=COLOURS[3], ms=14, label="CGPFL-Heur", zorder=4)
        local = percent(runs_of(plan, setting, "local"))[0]
        ax.axhline(local, color=COLOUR["local"], ls="--", lw=1.2, label="Local")
        ax.set_title(setting.title, fontsize=10)
        ax.set_xlabel("number of contexts K", fontsize=9)
        whole(ax.xaxis)
    axes[0, 0].set_ylabel("test accuracy (%)", fontsize=9)
    legend_below(picture, axes[0, 0])
    save_picture(picture, plan.out / "figure-k", "accuracy-over-k")


def _chosen(runs: Runs) -> np.ndarray:
    """The K of each seed."""
    return np.array([int(r.values["k"][-1]) for r in runs.records if r.rounds])


def _best_table(plan: Plan) -> Table:
    rows = []
    for setting in plan.swept:
        means = np.array([percent(runs_at(plan, setting, k))[0] for k in setting.ks])
        heur = runs_of(plan, setting, "cgpfl-heur")
        best = int(np.nanargmax(means))
        rows.append(
            [
                setting.title,
                with_spread(means[0], 0.0, 1),
                f"{setting.ks[best]}",
                f"{means[best]:.1f}",
                with_spread(means[-1], 0.0, 1),
                " ".join(map(str, _chosen(heur))),
                accuracy_of(heur),
                accuracy_of(runs_of(plan, setting, "local")),
            ]
        )
    last = plan.swept[0].ks[-1]
    columns = ["setting", "K = 1", "best K", "at the best K", f"K = {last}", "Heur's K, each seed", "Heur", "Local"]
    return Table("Accuracy (%) over K", columns, rows)


def _speed_table(plan: Plan) -> Table:
    """Rounds until the accuracy that pFedMe ends with."""
    rows = []
    for setting in plan.swept:
        target = with_spread(percent(runs_at(plan, setting, 1))[0], 0.0, 1)
        found = speeds(plan, setting).values()
        rows.append([setting.title, target, *("–" if np.isnan(r) else f"{r:.0f}" for r in found)])
    columns = ["setting", "target (%)", "CGPFL (K=4)", "pFedMe", *(NAMES[label] for label in BESIDE)]
    note = (
        "Mean over seeds of the first evaluated round with what pFedMe ends with in that seed; – if one never has it."
    )
    return Table("Rounds until the accuracy pFedMe ends with", columns, rows, note)


def speeds(plan: Plan, setting: Setting) -> dict[str, float]:
    """Rounds until the accuracy that pFedMe ends with in the same seed, mean over seeds, by method.

    NaN where a seed never has it, or diverged.
    """
    found = {"cgpfl-4": runs_at(plan, setting, 4), "pfedme": runs_at(plan, setting, 1)}
    found |= {label: runs_of(plan, setting, label) for label in BESIDE}
    targets = found["pfedme"].accuracy()
    return {label: reached(runs, targets) for label, runs in found.items()}


def reached(runs: Runs, targets: np.ndarray) -> float:
    """Mean over seeds of the first evaluated round with at least ``targets [seeds]``; NaN if one never has it."""
    rounds, curves = runs.curves()
    if len(curves) < len(targets) or np.isnan(targets).any():
        return float("nan")
    return float(np.mean([rounds_to(rounds, curve[None], t) for curve, t in zip(curves, targets, strict=True)]))


def _beyond_spread(gap: np.ndarray) -> bool:
    """Whether a difference over seeds ``[seeds]`` is larger than its standard deviation."""
    return bool(gap.mean() > (gap.std(ddof=1) if len(gap) > 1 else 0.0))


def _verdicts(plan: Plan) -> list[Verdict]:
    interior, inside, faster, text = [], [], [], []
    for setting in plan.swept:
        each = 100 * np.stack([runs_at(plan, setting, k).accuracy() for k in setting.ks])  # [K, seeds]
        means = each.mean(axis=1)
        best = int(np.nanargmax(means))
        gains = [each[best] - each[0], each[best] - each[-1]]
        inside.append(0 < best < len(means) - 1 and all(map(_beyond_spread, gains)))
        spread = [g.std(ddof=1) if len(g) > 1 else 0.0 for g in gains]
        interior.append(
            f"{setting.title}: best {means[best]:.1f} at K = {setting.ks[best]}, ahead of K = 1 by "
            f"{gains[0].mean():.1f} ± {spread[0]:.1f}, of K = {setting.ks[-1]} by "
            f"{gains[1].mean():.1f} ± {spread[1]:.1f}"
        )
        found = speeds(plan, setting)
        own = found["cgpfl-4"]
        rivals = ("pfedme", "ditto", "per-fedavg")
        faster += [not np.isnan(own) and (np.isnan(found[n]) or own < found[n]) for n in rivals]
        shown_ = {n: "never" if np.isnan(found[n]) else f"{found[n]:.0f}" for n in ("cgpfl-4", *rivals, "local")}
        text.append(f"{setting.title}: " + ", ".join(f"{n} {v}" for n, v in shown_.items()))
    return [
        Verdict(
            "A best K exists inside 1..N/2 (Figure 3a).",
            grade(inside),
            "; ".join(interior) + ". Asked for: gains over both ends larger than their spread over seeds.",
        ),
        Verdict(
            "CGPFL converges faster than pFedMe, Ditto and Per-FedAvg (Figures 1 and 2).",
            grade(faster),
            "rounds until the accuracy pFedMe ends with – " + "; ".join(text) + ".",
        ),
    ]


FIGURE_K = Part(
    "figure-k", "accuracy and loss over rounds for several K, accuracy over K", _needs_k, _make_k, tunes, over=swept
)
