"""Figures over K: curves for several K, accuracy at every K, and CGPFL-Heur beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.experiment.table import Runs, rounds_to
from cgpfl.paper.cells import Cell
from cgpfl.paper.draw import COLOUR, NAMES, band, legend_below, panels, save, whole
from cgpfl.paper.plan import Part, Plan, family_cell, k_cell, percent, table_1_cell, with_spread
from cgpfl.paper.section import Figure, Section, Table, Verdict, grade, save_csv
from cgpfl.paper.settings import PROX, Setting
from cgpfl.report.figures import COLOURS

BESIDE = ("ditto", "per-fedavg", "local", "fedavg")
"""Drawn beside CGPFL's curves: the two the paper draws, and the two that every result needs."""


def shown(setting: Setting) -> list[int]:
    """Numbers of contexts whose curves are drawn; K = 1 is pFedMe."""
    wanted = (1, 2, 4, 10, 20) if max(setting.ks) >= 20 else (1, 2, 4, max(setting.ks))
    return [k for k in dict.fromkeys(wanted) if k in setting.ks]


def losses(runs: Runs) -> np.ndarray:
    """Training loss over evaluated rounds, mean over clients. ``[seeds, E]``."""
    fine = [r for r, bad in zip(runs.records, runs.diverged, strict=True) if bad is None]
    return np.stack([r.values["train_loss"].mean(axis=1) for r in fine]) if fine else np.zeros((0, 0))


def _needs_k(plan: Plan) -> list[Cell]:
    cells = [k_cell(s, k) for s in plan.swept for k in s.ks]
    cells += [table_1_cell(s, label) for s in plan.swept for label in BESIDE]
    return cells + [family_cell(s, "cgpfl-heur") for s in plan.swept]


def _make_k(plan: Plan) -> Section:
    folder, facts = plan.out / "figure-k", []
    for setting in plan.swept:
        for k in setting.ks:
            mean, std = percent(plan.runs(k_cell(setting, k)))
            facts.append({"setting": setting.title, "K": k, "accuracy_%": round(mean, 3), "std": round(std, 3)})
    save_csv(folder / "accuracy-over-k.csv", facts)
    _draw_curves(plan)
    _draw_k(plan)
    return Section(
        "figure-k",
        "Accuracy, loss and the number of contexts",
        [f"λ = {PROX:g}. Lines are means over {len(plan.seeds)} seeds, bands their range. K = 1 is pFedMe."],
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
                plan.runs(k_cell(setting, k)),
                {"color": _shade(i), "lw": 1.7},
            )
            for i, k in enumerate(shown(setting))
        ]
        for label in BESIDE:
            style = {"color": COLOUR[label], "lw": 1.2, "ls": "--"}
            lines.append((NAMES[label], plan.runs(table_1_cell(setting, label)), style))
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
    save(picture, plan.out / "figure-k", "curves")


def _shade(i: int) -> str:
    return (COLOURS[1], COLOURS[4], COLOURS[0], COLOURS[2], COLOURS[3])[i % 5]


def _draw_k(plan: Plan) -> None:
    picture, axes = panels(1, len(plan.swept), 3.2, 2.9)
    for ax, setting in zip(axes[0], plan.swept, strict=True):
        each = 100 * np.stack([plan.runs(k_cell(setting, k)).accuracy() for k in setting.ks], axis=1)
        band(ax, np.asarray(setting.ks), each, color=COLOURS[0], marker="o", ms=3, lw=1.6, label="CGPFL")
        heur = plan.runs(family_cell(setting, "cgpfl-heur"))
        chosen = _chosen(heur)
        ax.plot(chosen.mean(), percent(heur)[0], "*", color=COLOURS[3], ms=14, label="CGPFL-Heur", zorder=4)
        local = percent(plan.runs(table_1_cell(setting, "local")))[0]
        ax.axhline(local, color=COLOUR["local"], ls="--", lw=1.2, label="Local")
        ax.set_title(setting.title, fontsize=10)
        ax.set_xlabel("number of contexts K", fontsize=9)
        whole(ax.xaxis)
    axes[0, 0].set_ylabel("test accuracy (%)", fontsize=9)
    legend_below(picture, axes[0, 0])
    save(picture, plan.out / "figure-k", "accuracy-over-k")


def _chosen(runs: Runs) -> np.ndarray:
    """The K of each seed."""
    return np.array([int(r.values["k"][-1]) for r in runs.records if r.rounds])


def _best_table(plan: Plan) -> Table:
    rows = []
    for setting in plan.swept:
        means = np.array([percent(plan.runs(k_cell(setting, k)))[0] for k in setting.ks])
        heur = plan.runs(family_cell(setting, "cgpfl-heur"))
        best = int(np.nanargmax(means))
        local = percent(plan.runs(table_1_cell(setting, "local")))
        rows.append(
            [
                setting.title,
                with_spread(means[0], 0.0, 1),
                f"{setting.ks[best]}",
                f"{means[best]:.1f}",
                with_spread(means[-1], 0.0, 1),
                " ".join(map(str, _chosen(heur))),
                with_spread(*percent(heur), len(plan.seeds)),
                with_spread(*local, len(plan.seeds)),
            ]
        )
    last = plan.swept[0].ks[-1]
    columns = ["setting", "K = 1", "best K", "at the best K", f"K = {last}", "Heur's K, each seed", "Heur", "Local"]
    return Table("Accuracy (%) over K", columns, rows)


def _speed_table(plan: Plan) -> Table:
    """Rounds until the accuracy that pFedMe ends with."""
    rows = []
    for setting in plan.swept:
        target = with_spread(percent(plan.runs(k_cell(setting, 1)))[0], 0.0, 1)
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
    cells = {"cgpfl-4": k_cell(setting, 4), "pfedme": k_cell(setting, 1)}
    cells |= {label: table_1_cell(setting, label) for label in BESIDE}
    targets = plan.runs(cells["pfedme"]).accuracy()
    return {label: reached(plan.runs(cell), targets) for label, cell in cells.items()}


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
        each = 100 * np.stack([plan.runs(k_cell(setting, k)).accuracy() for k in setting.ks])  # [K, seeds]
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


def _needs_heur(plan: Plan) -> list[Cell]:
    labels = ("pfedme", "cgpfl-4", "cgpfl-heur")
    cells = [family_cell(s, label) for s in plan.swept for label in labels]
    cells += [k_cell(s, k) for s in plan.swept for k in s.ks]
    return cells + [table_1_cell(s, label) for s in plan.swept for label in ("local", "fedavg")]


def _make_heur(plan: Plan) -> Section:
    folder, facts = plan.out / "figure-heur", []
    picture, axes = panels(2, len(plan.swept), 3.2, 2.6)
    near, gains = [], []
    for c, setting in enumerate(plan.swept):
        best = max(setting.ks, key=lambda k: np.nan_to_num(percent(plan.runs(k_cell(setting, k)))[0]))
        bars = {
            "Local": (plan.runs(table_1_cell(setting, "local")), COLOUR["local"]),
            "pFedMe": (plan.runs(family_cell(setting, "pfedme")), COLOUR["pfedme"]),
            "K = 4": (plan.runs(family_cell(setting, "cgpfl-4")), COLOUR["cgpfl-4"]),
            f"best K = {best}": (plan.runs(k_cell(setting, best)), COLOURS[2]),
            "Heur": (plan.runs(family_cell(setting, "cgpfl-heur")), COLOUR["cgpfl-heur"]),
        }
        for i, (name, (runs, colour)) in enumerate(bars.items()):
            mean, std = percent(runs)
            axes[0, c].bar(i, mean, color=colour, alpha=0.8, yerr=std if len(plan.seeds) > 1 else None, capsize=3)
            above = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "fontsize": 8}
            axes[0, c].annotate(f"{mean:.1f}", (i, mean + std), **above)
            facts.append({"setting": setting.title, "method": name, "accuracy_%": round(mean, 3), "std": round(std, 3)})
        ends = np.array([(m - s, m + s) for r, _ in bars.values() for m, s in [percent(r)] if not np.isnan(m)])
        low, high = (ends.min(), ends.max()) if len(ends) else (0.0, 100.0)
        axes[0, c].set_ylim(max(0, low - 0.3 * (high - low) - 1), high + 0.15 * (high - low) + 0.2)
        axes[0, c].set_xticks(range(len(bars)), list(bars), fontsize=7)
        axes[0, c].set_title(setting.title, fontsize=10)
        top = percent(bars[f"best K = {best}"][0])[0]
        near.append(top - percent(bars["Heur"][0])[0])
        gains.append(top - percent(plan.runs(k_cell(setting, 1)))[0])
        _draw_error(axes[1, c], bars["Heur"][0])
    axes[0, 0].set_ylabel("test accuracy (%)", fontsize=9)
    axes[1, 0].set_ylabel("e(K) and its terms, first round", fontsize=9)
    legend_below(picture, axes[1, 0])
    save(picture, folder, "heur")
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
        "The best K is chosen by looking at test accuracy, which nobody has in practice: an upper limit, not a rival."
    ]
    return Section("figure-heur", "CGPFL-Heur", text, [], [Figure("heur", caption)], [] if plan.quick else [verdict])


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


FIGURE_K = Part("figure-k", "accuracy and loss over rounds for several K, accuracy over K", _needs_k, _make_k)
FIGURE_HEUR = Part("figure-heur", "CGPFL-Heur beside CGPFL and pFedMe, and its e(K)", _needs_heur, _make_heur)
