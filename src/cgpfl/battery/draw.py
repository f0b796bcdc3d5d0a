"""The picture: regret of every method on every problem."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cgpfl.battery.regret import CLOSE, Regrets
from cgpfl.report.figures import COLOURS
from cgpfl.report.pictures import blank, save_picture

MOST = 50.0
"""Points at which the colours end."""


def draw(r: Regrets, folder: Path) -> None:
    """battery.png, .svg and .pdf: methods × problems, least mean regret on top, each method's worst framed."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.patches import Rectangle

    m, p = r.regret.shape
    picture = blank((max(4.8, 2.6 + 0.42 * (p + 2)), 2.1 + 0.27 * m))
    ax = picture.add_subplot()
    # The mean is a column of its own, a gap before the problems.
    columns = np.concatenate([r.mean[:, None], np.full((m, 1), np.nan), r.regret], axis=1)
    colours = LinearSegmentedColormap.from_list("regret", ["#F7F7F4", "#F2D9A6", COLOURS[1], COLOURS[3], "#5B1A26"])
    image = ax.imshow(columns, cmap=colours, norm=PowerNorm(0.5, 0, MOST), aspect="auto", interpolation="nearest")
    for i in range(m):
        for c in [0, *range(2, p + 2)]:
            value, lost = columns[i, c], c > 1 and r.diverged[i, c - 2] > 0
            shown = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
            weight = "bold" if value <= CLOSE else "normal"
            colour = "white" if value > 0.4 * MOST else "black"
            ax.text(
                c, i, shown + ("†" if lost else ""), ha="center", va="center", fontsize=7, weight=weight, color=colour
            )
        at = 2 + int(r.regret[i].argmax())
        if r.worst[i] > 0:
            ax.add_patch(Rectangle((at - 0.47, i - 0.46), 0.94, 0.92, fill=False, ec=COLOURS[0], lw=2.2))
    ax.set_xticks([0, *range(2, p + 2)], ["mean", *r.problems], rotation=55, ha="left", rotation_mode="anchor")
    ax.xaxis.tick_top()
    ax.set_yticks(range(m), r.methods)
    ax.tick_params(length=0, labelsize=8)
    ax.spines[:].set_visible(False)
    bar = picture.colorbar(image, ax=ax, location="bottom", fraction=0.03, aspect=50, pad=0.02, extend="max")
    bar.ax.tick_params(labelsize=8)
    marks = f"bold: at most {CLOSE:g}; framed: the method's worst"
    marks += "; †: a run diverged" if r.diverged.any() else ""
    bar.set_label(f"regret: points of accuracy behind the best method of the problem\n{marks}", fontsize=8)
    save_picture(picture, folder, "battery")
