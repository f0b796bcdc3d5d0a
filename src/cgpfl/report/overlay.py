"""Several saved runs for a paper: their curves on common axes, and their tables as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.errors import CgpflError
from cgpfl.files import write
from cgpfl.report.columns import first_title
from cgpfl.report.figures import COLOURS, beside
from cgpfl.report.page import read_runs, table_of
from cgpfl.report.pictures import blank, save_picture, whole

DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
"""A style of lines a run."""


def write_overlay(runs: Sequence[Path], folder: Path) -> list[Path]:
    """``curves.png``, .svg, .pdf and ``table.tex`` of some run folders, in ``folder``; returns the files."""
    read = [run for _, run in read_runs(runs)]
    if not any(m["history"]["round"] for run in read for m in run["methods"]):
        raise CgpflError(f"--figures {folder}: nothing was evaluated in {', '.join(map(str, runs))} yet")
    picture = blank((8.5, 4.6))
    overlay(picture.add_subplot(), read)
    try:
        files = save_picture(picture, folder, "curves")
        text = "\n".join(f"% {run['name']}: {run['title']}\n{table_of(run, 'table').latex()}" for run in read)
        write(folder / "table.tex", text.encode())
    except OSError as error:
        raise CgpflError(f"--figures {folder}: cannot be written: {error.strerror or error}") from error
    return [*files, folder / "table.tex"]


def overlay(axes: Any, runs: Sequence[dict[str, Any]]) -> None:
    """Accuracy over rounds: a colour a method, a style of lines a run; over seeds the mean, and its range behind it."""
    labels = list(dict.fromkeys(m["label"] for run in runs for m in run["methods"]))
    for i, label in enumerate(labels):
        for j, run in enumerate(runs):
            m = next((m for m in run["methods"] if m["label"] == label and "accuracy" in m["history"]), None)
            if m is None:
                continue
            history, colour, dashes = m["history"], COLOURS[i % len(COLOURS)], DASHES[j % len(DASHES)]
            named = label if len(runs) == 1 else f"{label}, {run['name']}"
            y = 100 * np.array(history["accuracy"], float)
            axes.plot(history["round"], y, color=colour, ls=dashes, lw=1.8, label=f"{named}  {y[-1]:.1f} %")
            if (band := history.get("band")) is not None:
                edges = (100 * np.array(band[side], float) for side in ("low", "high"))
                axes.fill_between(history["round"], *edges, color=colour, alpha=0.15, lw=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    whole(axes.xaxis)
    axes.set(xlabel="round", ylabel=f"test {first_title(runs[0]['data'])} of the clients' models (%)")
    beside(axes)
