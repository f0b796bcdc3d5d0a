"""The figure of honest clients' accuracy over the share of liars."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cgpfl.report.figures import COLOURS
from cgpfl.report.pictures import blank, save_picture


def draw_liars(found: pd.DataFrame, attack: str, folder: Path) -> list[Path]:
    """One panel a method, one line a mean, the range of the seeds behind it; columns method, mean, share, accuracy."""
    methods, means = (list(dict.fromkeys(found[name])) for name in ("method", "mean"))
    picture = blank((3.2 * len(methods) + 0.8, 3.0))
    axes = picture.subplots(1, len(methods), squeeze=False, sharey=True)[0]
    for ax, method in zip(axes, methods, strict=True):
        for i, mean in enumerate(means):
            own = found[(found["method"] == method) & (found["mean"] == mean)]
            each = 100 * own.groupby("share")["accuracy"].agg(["mean", "min", "max"])
            colour = COLOURS[i % len(COLOURS)]
            ax.plot(100 * each.index, each["mean"], marker="o", markersize=3, label=mean, color=colour)
            ax.fill_between(100 * each.index, each["min"], each["max"], alpha=0.15, lw=0, color=colour)
        ax.set_title(method, fontsize=10)
        ax.set_xlabel(f"liars, per cent ({attack})")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    axes[0].set_ylabel("honest accuracy, per cent")
    handles, labels = axes[0].get_legend_handles_labels()
    picture.legend(
        handles, labels, loc="outside lower center", ncol=min(len(means), 3 * len(methods)), frameon=False, fontsize=8
    )
    return save_picture(picture, folder, "liars")
