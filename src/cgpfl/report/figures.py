"""Figures of a run folder: accuracy over rounds, contexts over rounds, and what K was chosen by."""

from __future__ import annotations

import atexit
import gc
import itertools
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.report import pictures
from cgpfl.report.clients import clients_of
from cgpfl.report.columns import first_title, ranked
from cgpfl.report.files import read_history
from cgpfl.report.pictures import blank, save_picture, whole

COLOURS = ("#4C72B0", "#DD8452", "#55A868", "#C44E52", "#8172B3", "#937860", "#DA8BC3", "#8C8C8C", "#CCB974", "#64B5CD")
"""Told apart by most readers, in print too."""


def draw(run: Path) -> list[Path]:
    """Draw what a run folder holds into ``figures/``; returns the files. What has nothing to show is left out."""
    with pictures.beside() as write_pdf:
        return _draw(run, write_pdf)


def paint() -> None:
    """What :class:`~cgpfl.report.pictures.Painters` are: wait for a run's folder, divide, and draw a share each."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_pdf
    import matplotlib.backends.backend_svg  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    atexit.register(gc.freeze)  # nobody looks for garbage in what ends anyway
    place, count, others = 0, int(sys.argv[1]), list[int]()
    run = os.fsdecode(sys.stdin.buffer.read())
    if not run:
        return
    while len(others) < count - 1:
        if not (other := os.fork()):
            place, others = len(others) + 1, []
            break
        others.append(other)
    _draw(Path(run), pictures.write_picture, (place, count))
    if any(os.waitpid(other, 0)[1] for other in others):
        sys.exit(1)


def _draw(run: Path, write_pdf: pictures.Write, share: tuple[int, int] = (0, 1)) -> list[Path]:
    """``share``: (i, n), every n-th picture from the i-th on."""
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    history = read_history(run)
    metrics = pd.read_parquet(run / "metrics.parquet")
    written: list[Path] = []
    numbers = itertools.count()

    def figure(name: str, size: tuple[float, float], paint: Callable[[Any], None]) -> None:
        if next(numbers) % share[1] != share[0]:
            return
        picture = blank(size)
        axes = picture.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        paint(axes)
        written.extend(save_picture(picture, run / "figures", name, write_pdf))

    figure("accuracy", (8, 4.2), lambda axes: accuracy(axes, history, summary))
    for label, facts in summary["methods"].items():
        found = facts["contexts"]
        if found is None:
            continue
        rows = metrics[metrics["method"] == label]
        if rows["context"].nunique() > 1:  # one colour everywhere says nothing
            height = min(8.0, max(2.6, 1.2 + 0.09 * rows["client"].nunique()))
            figure(f"contexts-{label}", (7, height), partial(context_map, rows=rows, label=label))
        if len(found.get("curve", {}).get("k", ())) > 1:
            paint = cross_fitting if "score" in found["curve"] else choosing_k
            figure(f"choosing-k-{label}", (7, 4.2), partial(paint, contexts=found, label=label))
    return written


def accuracy(axes: Any, history: pd.DataFrame, summary: dict[str, Any]) -> None:
    """Pooled accuracy of the personal models over rounds, a line a method; the legend has the best first."""
    labels = list(summary["methods"])
    for label in ranked(summary["methods"]):
        rows, i = history[history["method"] == label], labels.index(label)
        if not len(rows):
            continue
        colour = COLOURS[i % len(COLOURS)]
        dashed = i % 2 == 1  # dashes over solid lines: two that coincide can still be told apart
        last = 100 * rows["accuracy"].iloc[-1]
        style = {"ls": "--" if dashed else "-", "zorder": 3 + dashed, "color": colour, "lw": 1.9}
        axes.plot(rows["round"], 100 * rows["accuracy"], label=f"{label}  {last:.1f} %", **style)
        if summary["methods"][label]["diverged"]:
            axes.plot(rows["round"].iloc[-1], last, "x", color=colour, ms=9, mew=2)
    data = summary["data"]
    axes.set(xlabel="round", ylabel=f"test {first_title(data)} of the clients' models (%)")
    origin = f"{data.get('source', 'data')}, split: {data.get('split', 'own')}"
    axes.set_title(f"{origin}, {clients_of(data)} clients, seed {summary['seed']}")
    axes.grid(alpha=0.25)
    whole(axes.xaxis)
    beside(axes)


def beside(axes: Any) -> None:
    """The legend, to the right of the curves: it hides none of them."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9)


def colour_map(axes: Any, image: np.ndarray, kinds: int, extent: tuple[float, ...]) -> list[str]:
    """An image of whole numbers below ``kinds``, a colour each, blank where they are not known → the colours."""
    from matplotlib.colors import ListedColormap

    colours = [COLOURS[i % len(COLOURS)] for i in range(kinds)]
    shown: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest", "vmin": -0.5, "vmax": kinds - 0.5}
    axes.imshow(image, cmap=ListedColormap(colours), extent=extent, **shown)
    axes.set_yticks([])
    return colours


def context_map(axes: Any, rows: pd.DataFrame, label: str) -> None:
    """Clients × rounds, coloured by context; clients of one final context side by side."""
    from matplotlib.patches import Patch

    table = rows.pivot(index="client", columns="round", values="context")
    order = np.lexsort((table.index.to_numpy(), table.iloc[:, -1].to_numpy()))
    values = table.to_numpy()[order]
    known = ~np.isnan(values.astype(float))  # blank where a node could not be evaluated
    used = np.unique(values[known])
    names = {int(c): i for i, c in enumerate(used)}
    image = np.full(values.shape, np.nan)
    image[known] = np.searchsorted(used, values[known])
    rounds = table.columns.to_numpy()
    step = rounds[1] - rounds[0] if len(rounds) > 1 else 1
    edges = (rounds[0] - step / 2, rounds[-1] + step / 2, len(values) - 0.5, -0.5)
    colours = colour_map(axes, image, len(used), edges)
    axes.set(xlabel="round", ylabel="clients, by final context")
    whole(axes.xaxis)
    axes.set_title(f"{label}: context of each client")
    handles = [Patch(color=colours[i], label=f"context {c}") for c, i in names.items()]
    if len(handles) <= 10:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)


def cross_fitting(axes: Any, contexts: dict[str, Any], label: str) -> None:
    """Prediction error over K with standard errors, the chosen K starred; K = N, everybody alone, stands apart."""
    curve, k = contexts["curve"], contexts["k"]
    ks, score, error = (np.asarray(curve[name]) for name in ("k", "score", "error"))
    largest = int(ks[-2])
    places = np.append(ks[:-1], largest + max(1.0, 0.12 * largest)).astype(float)
    bars = {"fmt": "none", "ecolor": COLOURS[7], "capsize": 3, "lw": 1.2}
    axes.errorbar(places, score, error, label="standard error of the difference to the best", **bars)
    axes.plot(places[:-1], score[:-1], color=COLOURS[0], lw=2, marker="o", ms=4, label="K contexts")
    axes.plot(places[-1], score[-1], "D", color=COLOURS[1], ms=7, label="everybody alone")
    at = -1 if contexts["alone"] else k - 1
    named = "everybody alone" if contexts["alone"] else f"K = {k}"
    axes.plot(places[at], score[at], "*", color=COLOURS[3], ms=16, zorder=4, label=f"chosen: {named}")
    axes.axvline((places[-2] + places[-1]) / 2, color=COLOURS[7], ls=":", lw=1)
    shown = ks[:-1] if largest <= 12 else np.array([1, *range(5, largest + 1, 5)])
    axes.set_xticks([*shown, places[-1]], [*(str(v) for v in shown), f"N = {ks[-1]}"])
    axes.set(xlabel="number of contexts K", ylabel="relative error on samples left out")
    axes.set_title(f"{label}: choosing the number of contexts")
    axes.grid(alpha=0.25)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=2, frameon=False)


def choosing_k(axes: Any, contexts: dict[str, Any], label: str) -> None:
    """e(K) and its two terms, the chosen K starred."""
    curve, k = contexts["curve"], contexts["k"]
    ks = np.asarray(curve["k"])
    error, first = np.asarray(curve["error"]), np.asarray(curve["complexity"])
    axes.plot(ks, first, "--", color=COLOURS[7], lw=1.4, label="complexity: more models, less data for each")
    axes.plot(ks, error - first, ":", color=COLOURS[1], lw=1.8, label="μ · cost: models away from their clients")
    axes.plot(ks, error, color=COLOURS[0], lw=2, marker="o", ms=4, label="e(K), their sum")
    axes.plot(k, error[ks == k], "*", color=COLOURS[3], ms=16, label=f"chosen: K = {k}")
    axes.set(xlabel="number of contexts K", ylabel="terms of the generalization bound")
    axes.set_title(f"{label}: choosing the number of contexts")
    whole(axes.xaxis)
    axes.grid(alpha=0.25)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=2, frameon=False)
