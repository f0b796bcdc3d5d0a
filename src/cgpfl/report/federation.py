"""A figure of a federation: which classes each client holds, and how much of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.report import pictures
from cgpfl.report.figures import COLOURS

MOST_CLIENTS, MOST_CLASSES = 60, 26
"""Up to so many, numbers are written out; more are drawn as a picture with a scale."""


def draw_federation(
    counts: np.ndarray,
    title: str,
    path: Path,
    class_names: Sequence[str] | None = None,
    client_names: Sequence[str] = (),
) -> Path:
    """Draw samples of each class at each client, ``counts [N, classes]``, as a map, and client sizes as bars.

    One row a client, in their order. The suffix of ``path`` says the format: .png, .svg or .pdf.
    """
    counts, path = np.asarray(counts), Path(path)
    clients, classes = counts.shape
    names = [str(k) for k in range(classes)] if class_names is None else list(class_names)
    sizes = counts.sum(axis=1)
    wide = 0.46 * min(classes, MOST_CLASSES)
    tall = 0.175 * min(clients, MOST_CLIENTS)
    picture = pictures.blank((max(wide, 1.4) + 3.0, max(tall, 0.7) + 1.3))
    cells, bars = picture.subplots(1, 2, sharey=True, width_ratios=(max(wide, 1.4), 2.2))
    image = class_map(cells, counts, names)
    if client_names and _written_out(counts):
        cells.set_yticks(range(clients), client_names, fontsize=7)
    if not _written_out(counts):
        scale = picture.colorbar(image, ax=[cells, bars], location="bottom", shrink=0.5, aspect=40, pad=0.02)
        scale.set_label("samples of a class at a client", size=9)
        scale.ax.tick_params(labelsize=8)
    size_bars(bars, sizes)
    facts = f"{clients} clients, {sizes.sum():,} samples; a client has {sizes.min():,} to {sizes.max():,}"
    picture.suptitle(f"{title}\n{facts}, on average {sizes.mean():,.0f}", fontsize=10)
    return pictures.write_picture(picture, path)


def _written_out(counts: np.ndarray) -> bool:
    return counts.shape[0] <= MOST_CLIENTS and counts.shape[1] <= MOST_CLASSES


def class_map(axes: Any, counts: np.ndarray, names: Sequence[str]) -> Any:
    """Clients × classes, the darker the more samples; where there are none it is white."""
    from matplotlib.colors import Normalize, PowerNorm

    clients, classes = counts.shape
    top = max(float(counts.max()), 1.0)
    few = Normalize(-0.15 * top, 1.1 * top)  # a few samples can be told from none
    norm = few if _written_out(counts) else PowerNorm(0.5, 0, 1.1 * top)
    shown = np.ma.masked_equal(counts, 0)
    image = axes.imshow(shown, aspect="auto", interpolation="nearest", cmap="Blues", norm=norm)
    axes.set(xlabel="samples of each class", ylabel="client")
    _on_top(axes)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if classes <= MOST_CLASSES:
        slanted = max(map(len, names)) > 4
        style = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"} if slanted else {}
        axes.set_xticks(range(classes), names, **style)
    if not _written_out(counts):
        return image
    axes.set_yticks(range(0, clients, 1 if clients <= 20 else 5))
    for at in range(clients + 1):
        axes.axhline(at - 0.5, color="0.9", lw=0.6)
    for at in range(classes + 1):
        axes.axvline(at - 0.5, color="0.9", lw=0.6)
    for i, k in np.argwhere(counts):
        colour = "white" if counts[i, k] > 0.55 * top else "0.15"
        axes.text(k, i, f"{counts[i, k]}", ha="center", va="center", fontsize=6.5, color=colour)
    return image


def size_bars(axes: Any, sizes: np.ndarray) -> None:
    """Samples of each client, a bar a row."""
    few = len(sizes) <= MOST_CLIENTS
    axes.barh(np.arange(len(sizes)), sizes, height=0.72 if few else 1.0, color=COLOURS[0])
    axes.set(xlabel="samples in all", xlim=(0, (1.3 if few else 1.05) * max(sizes.max(), 1)))
    _on_top(axes)
    axes.xaxis.get_major_locator().set_params(nbins=3, integer=True)
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.spines[["right", "bottom", "left"]].set_visible(False)
    for i, size in enumerate(sizes if few else ()):
        axes.text(size + 0.02 * sizes.max(), i, f"{size:,}", va="center", fontsize=6.5, color="0.25")


def _on_top(axes: Any) -> None:
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.xaxis.label.set_size(9)
    axes.yaxis.label.set_size(9)
    axes.tick_params(labelsize=8)
