"""How the paper's figures are drawn: one style."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.report.figures import COLOURS
from cgpfl.report.pictures import blank

NAMES = {
    "local": "Local",
    "fedavg": "FedAvg",
    "ifca": "IFCA (K=4)",
    "l2sgd": "L2SGD",
    "apfl": "APFL",
    "pfedme": "pFedMe (PM)",
    "per-fedavg": "Per-FedAvg (HF)",
    "ditto": "Ditto",
    "cgpfl-2": "CGPFL (K=2)",
    "cgpfl-4": "CGPFL (K=4)",
    "cgpfl-heur": "CGPFL-Heur",
    "cgpfl-heur-warm": "CGPFL-Heur, warm-up 5 (ours)",
    "cgpfl-auto": "CGPFL-auto (ours)",
}
"""Methods as the paper writes them, and two that are not in it."""
COLOUR = {
    "local": COLOURS[7],
    "fedavg": COLOURS[5],
    "ifca": COLOURS[8],
    "per-fedavg": COLOURS[6],
    "ditto": COLOURS[9],
    "pfedme": COLOURS[1],
    "cgpfl-2": COLOURS[4],
    "cgpfl-4": COLOURS[0],
    "cgpfl-heur": COLOURS[3],
    "cgpfl-heur-warm": COLOURS[3],
    "cgpfl-auto": COLOURS[2],
}


def panels(rows: int, columns: int, width: float = 3.1, height: float = 2.7, **more: Any) -> tuple[Any, np.ndarray]:
    """A picture of ``rows × columns`` plots."""
    picture = blank((width * columns + 0.4, height * rows + 0.5))
    axes = picture.subplots(rows, columns, squeeze=False, **more)
    for ax in axes.ravel():
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
        ax.tick_params(which="both", labelsize=8)
        ax.xaxis.label.set_size(9)
        ax.yaxis.label.set_size(9)
    return picture, axes


def band(ax: Any, x: np.ndarray, curves: np.ndarray, **style: Any) -> None:
    """Mean over seeds of ``curves [seeds, X]``, and the range of the seeds behind it."""
    if not curves.size:
        return
    line = ax.plot(x, curves.mean(axis=0), **style)[0]
    if len(curves) > 1:
        ax.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=line.get_color(), alpha=0.15, lw=0)


def legend_below(picture: Any, ax: Any, columns: int = 6) -> None:
    """One legend for all panels, under them, in as many columns as there is room for."""
    handles, labels = ax.get_legend_handles_labels()
    columns = max(1, min(columns, int(0.75 * picture.get_figwidth())))
    picture.legend(handles, labels, loc="outside lower center", ncol=columns, frameon=False, fontsize=8)
