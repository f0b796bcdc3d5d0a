"""Figures of a comparison's folder: the ranking with what each method costs, and accuracy over rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.report.clients import clients_of
from cgpfl.report.columns import first_title
from cgpfl.report.figures import COLOURS
from cgpfl.report.files import read_history
from cgpfl.report.pictures import blank, save_picture, whole

PLAIN = ("local", "fedavg")
"""What every method is measured against; drawn as lines behind the others."""


def draw(folder: Path) -> list[Path]:
    """Draw what a comparison's folder holds into ``figures/``; returns the files."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    history = read_history(folder)
    written: list[Path] = []
    rows = len(summary["methods"])
    columns = min(rows, 6)
    tall = -(-rows // columns)
    sizes = {"ranking": (8.5, max(2.8, 1.0 + 0.27 * rows)), "accuracy": (1.9 * columns + 0.7, 1.65 * tall + 0.9)}
    for name, size in sizes.items():
        picture = blank(size)
        if name == "accuracy":
            small_multiples(picture, history, summary, tall, columns)
        else:
            ranking(picture, summary)
        written += save_picture(picture, folder / "figures", name)
    return written


def title(summary: dict[str, Any]) -> str:
    """Where the numbers are from."""
    data, seeds = summary["data"], summary["seeds"]
    origin = f"{data.get('source', 'data')}, split: {data.get('split', 'own')}, {clients_of(data)} clients"
    return f"{origin}, {summary['rounds']} rounds, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}"


def ranking(picture: Any, summary: dict[str, Any]) -> None:
    """One line a method, best on top: mean and each seed (filled: tied with the best), and what it costs."""
    methods = summary["methods"]
    axes, sent, work = picture.subplots(1, 3, sharey=True, width_ratios=(6, 1, 1))
    places = np.arange(len(methods), 0, -1)
    for i, (y, facts) in enumerate(zip(places, methods.values(), strict=True)):
        if facts["accuracy"] is None:
            axes.text(0.02, y, "diverged", transform=axes.get_yaxis_transform(), va="center", color=COLOURS[3])
            continue
        each = 100 * np.array([v for v in facts["each_seed"] if v is not None])
        top = i == 0 or facts["tied"]
        colour = COLOURS[0] if top else COLOURS[7]
        axes.plot([each.min(), each.max()], [y, y], color=colour, lw=2, alpha=0.5, solid_capstyle="round")
        axes.plot(each, np.full(len(each), y), "|", color=colour, ms=7, mew=1.2)
        axes.plot(each.mean(), y, "o", color=colour, ms=6, mfc=colour if top else "white", mew=1.5)
        beside = {"textcoords": "offset points", "va": "center", "fontsize": 8}
        axes.annotate(f"{each.mean():.1f}", (each.max(), y), (6, 0), **beside)
    for name, style in zip(PLAIN, ("--", ":"), strict=True):
        if methods.get(name, {}).get("accuracy") is not None:
            axes.axvline(100 * methods[name]["accuracy"], color=COLOURS[1], ls=style, lw=1.1, zorder=0, label=name)
    axes.margins(x=0.09)
    axes.set_yticks(places, list(methods))
    axes.set_ylim(0.3, len(methods) + 0.7)
    axes.set_xlabel(f"test {first_title(summary['data'])} of the clients' models (%), mean and each seed")
    for side, key, label, unit in ((sent, "megabytes", "MB", 1.0), (work, "gradients", "gradients, k", 1e3)):
        side.barh(places, [facts[key] / unit for facts in methods.values()], color=COLOURS[7], alpha=0.6, height=0.6)
        side.set_xlabel(label)
        side.tick_params(axis="y", length=0)
    for part in (axes, sent, work):
        part.spines[["top", "right"]].set_visible(False)
        part.grid(axis="x", alpha=0.25)
        part.set_axisbelow(True)
    picture.suptitle(title(summary), fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", frameon=False, fontsize=8)


def small_multiples(picture: Any, history: pd.DataFrame, summary: dict[str, Any], tall: int, columns: int) -> None:
    """Accuracy over rounds, a panel a method, best first; local and fedavg behind each."""
    grid = picture.subplots(tall, columns, sharex=True, sharey=True, squeeze=False).ravel()
    curves = {
        str(m): rows.pivot(index="round", columns="seed", values="accuracy") for m, rows in history.groupby("method")
    }
    for axes, label in zip(grid, summary["methods"], strict=False):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        for name, style in zip(PLAIN, ("--", ":"), strict=True):
            if name in curves and name != label:
                axes.plot(curves[name].index, 100 * curves[name].mean(axis=1), style, color=COLOURS[7], lw=1)
        if label in curves:
            own = 100 * curves[label]
            axes.fill_between(own.index, own.min(axis=1), own.max(axis=1), color=COLOURS[0], alpha=0.2, lw=0)
            axes.plot(own.index, own.mean(axis=1), color=COLOURS[0], lw=1.8)
        axes.set_title(label, fontsize=9)
        whole(axes.xaxis)
        axes.tick_params(labelsize=8)
    used = len(summary["methods"])
    for i, axes in enumerate(grid):
        axes.set_visible(i < used)
        axes.tick_params(labelbottom=i + columns >= used)
    picture.supxlabel("round", fontsize=9)
    picture.supylabel(f"test {first_title(summary['data'])} (%)", fontsize=9)
    picture.suptitle(title(summary) + "; grey: local (dashes), fedavg (dots)", fontsize=10)
