"""The picture: time of a round over the number of clients."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench.result import Result
from cgpfl.report.figures import COLOURS

LINES = {
    "loop": ("PyTorch, a loop over clients", COLOURS[1], "s--"),
    "vmap": ("torch.func.vmap", COLOURS[2], "^--"),
    "ours": ("ours", COLOURS[0], "o-"),
    "floor": ("floor: counted work at the machine's rates", COLOURS[7], "_:"),
}


def draw(result: Result, path: Path) -> None:
    """A panel for each method and model, both axes logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    methods = list(dict.fromkeys(row.case.method for row in result.rows))
    models = list(dict.fromkeys(row.case.model for row in result.rows))
    picture = Figure(figsize=(3.1 * len(models) + 0.6, 2.7 * len(methods) + 0.7), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots(len(methods), len(models), squeeze=False, sharex=True)
    for i, method in enumerate(methods):
        for j, model in enumerate(models):
            ax, rows = axes[i, j], [r for r in result.rows if (r.case.method, r.case.model) == (method, model)]
            for who, (label, colour, style) in LINES.items():
                values = {
                    r.case.clients: {"ours": r.ours, "floor": r.floor(result.rates), **r.rivals}.get(who) for r in rows
                }
                known = {n: 1000 * v for n, v in values.items() if v is not None}
                if known:
                    ax.loglog(list(known), list(known.values()), style, color=colour, lw=1.8, ms=6, label=label)
            ax.set_title(f"{method}, {model}", fontsize=10)
            ax.set_xticks(counts := sorted({r.case.clients for r in result.rows}), [str(n) for n in counts])
            ax.xaxis.set_minor_locator(NullLocator())
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(alpha=0.25)
            ax.tick_params(which="both", labelsize=8)
        axes[i, 0].set_ylabel("ms a round", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("clients", fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    columns = max(1, min(len(labels), len(models) + 1))
    picture.legend(handles, labels, loc="outside lower center", ncol=columns, frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)
