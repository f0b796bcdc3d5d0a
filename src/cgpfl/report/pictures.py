"""Pictures: how each begins, and the one place that writes them, for the screen and for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cgpfl.files import written

FORMATS = (".png", ".svg", ".pdf")
"""What every picture is written as."""
STYLE: Any = {
    "svg.hashsalt": "cgpfl",  # the same picture gives the same file
    "pdf.fonttype": 42,  # letters as TrueType, which journals ask for and which can be edited
}
UNDATED: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def blank(size: tuple[float, float]) -> Any:
    """An empty picture of ``size`` (inches), which needs no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(picture)
    return picture


def write_picture(picture: Any, path: Path) -> Path:
    """Write one file; its suffix says the format: .png, .svg or .pdf."""
    import matplotlib as mpl

    kind = path.suffix.lower()
    with mpl.rc_context(STYLE), written(path, sync=False) as file:
        picture.savefig(file, dpi=150, format=kind[1:] or None, metadata=UNDATED.get(kind))
    return path


def save_picture(picture: Any, folder: Path, name: str) -> list[Path]:
    """``name``.png, ``name``.svg and ``name``.pdf in ``folder``; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for suffix in FORMATS:
        files.append(write_picture(picture, folder / f"{name}{suffix}"))
        picture.set_layout_engine("none")  # everything has its place now, and keeps it
    return files


def whole(axis: Any) -> None:
    """Whole numbers at the ticks of an axis that is not logarithmic: rounds, contexts, iterations."""
    axis.get_major_locator().set_params(integer=True)
