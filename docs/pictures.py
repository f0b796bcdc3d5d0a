"""Draw the pictures of docs/concepts.md, each from a run of the digits example (seed 0).

    python docs/pictures.py

contexts.png: a digit as each context sees it, and all models of a run on two principal components.
personal.png: accuracy of the personal and the context models over rounds, beside one global model and none.
pull.png: both at the end of runs with other λ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import cgpfl
from cgpfl.report.figures import COLOURS

FOLDER = Path(__file__).parent / "images"
PULLS = (0.1, 0.3, 1.0, 3.0, 6.0, 12.0)
EARLY = 8
"""λ up to the paper's, and the round of the first picture: later all θ of a context lie on its ω."""


def figure(size: tuple[float, float]) -> Figure:
    """An empty picture."""
    picture = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(picture)
    return picture


def plain(axes: Any) -> Any:
    """Axes with a light grid and without a frame."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    return axes


def vectors(stacked: Any) -> np.ndarray:
    """A pytree of ``[n, ...]`` arrays as ``[n, d]``."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(stacked)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def contexts(result: cgpfl.Result) -> Figure:
    """What the contexts see, and where their models are."""
    data, found = result.data, result.contexts
    assert data.context is not None
    assert found is not None
    picture = figure((8, 3.6))
    left, right = picture.subfigures(1, 2, width_ratios=[1, 2])
    for k, axes in enumerate(left.subplots(2, 2).flat):
        client = int(np.flatnonzero(data.context == k)[0])
        rows = data.train.parts()[client]
        axes.imshow(data.x[rows[data.y[rows] == 4][0]], cmap="gray_r")
        axes.set_title(f"client {client}: a 4", fontsize=9, color=COLOURS[k])
        axes.set(xticks=[], yticks=[])
    personal = vectors(result.state.clients)[: data.clients]
    centres = vectors(result.state.server.models)[: found.k]
    mean = personal.mean(axis=0)
    _, _, axis = np.linalg.svd(personal - mean, full_matrices=False)
    axes = plain(right.subplots())
    for k in range(4):
        at = (personal[data.context == k] - mean) @ axis[:2].T
        axes.scatter(*at.T, s=26, color=COLOURS[k], label=f"θ, hidden context {k}")
    at = (centres - mean) @ axis[:2].T
    axes.scatter(*at.T, s=260, marker="*", facecolor="none", edgecolor="black", lw=1.3, label="ω of a context found")
    axes.set(xlabel="first principal component", ylabel="second", title=f"models after round {result.rounds}")
    axes.legend(fontsize=8, loc="center")
    return picture


def personal(result: cgpfl.Result, fedavg: cgpfl.Result, local: cgpfl.Result) -> Figure:
    """Personal and context models over rounds."""
    picture = figure((7, 3.6))
    axes = plain(picture.add_subplot())
    lines = (
        (result, "accuracy", "personal models θ", COLOURS[0], "-"),
        (result, "shared_accuracy", "context models ω", COLOURS[0], "--"),
        (local, "accuracy", "local: each client alone", COLOURS[7], "-"),
        (fedavg, "accuracy", "fedavg: one model for all", COLOURS[1], "-"),
    )
    for of, column, label, colour, style in lines:
        axes.plot(of.history["round"], 100 * of.history[column], style, color=colour, label=label, lw=1.9)
    axes.set(xlabel="round", ylabel="test accuracy (%)")
    axes.legend(fontsize=9)
    return picture


def pull(results: dict[float, cgpfl.Result]) -> Figure:
    """The two kinds of models at the end, for several λ."""
    picture = figure((7, 3.6))
    axes = plain(picture.add_subplot())
    for column, label, style in (
        ("accuracy", "personal models θ", "o-"),
        ("shared_accuracy", "context models ω", "s--"),
    ):
        at = [100 * r.history[column].iloc[-1] for r in results.values()]
        axes.semilogx(list(results), at, style, color=COLOURS[0], label=label)
    axes.set_xticks(list(results), [f"{pull:g}" for pull in results])
    axes.minorticks_off()
    axes.set(xlabel="λ (prox): pull towards the context's model", ylabel="test accuracy (%)")
    axes.legend(fontsize=9)
    return picture


def main() -> None:
    """Run the example and write the pictures."""
    data = cgpfl.make_data("digits", "rotation", seed=0)
    heur = cgpfl.run("cgpfl-heur", data, seed=0)
    contexts(cgpfl.run("cgpfl-heur", data, rounds=EARLY, seed=0)).savefig(FOLDER / "contexts.png", dpi=110)
    others = [cgpfl.run(name, data, seed=0) for name in ("fedavg", "local")]
    personal(heur, *others).savefig(FOLDER / "personal.png", dpi=110)
    method = [cgpfl.CGPFL(contexts=4, prox=prox) for prox in PULLS]
    pull({m.prox: cgpfl.run(m, data, seed=0) for m in method}).savefig(FOLDER / "pull.png", dpi=110)


if __name__ == "__main__":
    main()
