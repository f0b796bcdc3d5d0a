"""Pictures: how each begins, and the one place that writes them, for the screen and for a paper."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from cgpfl.files import written

FORMATS = (".png", ".svg", ".pdf")
"""What every picture is written as."""
STYLE: Any = {
    "svg.hashsalt": "cgpfl",  # the same picture gives the same file
    "pdf.fonttype": 42,  # letters as TrueType, which journals ask for and which can be edited
}
UNDATED: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
ONE_AT_A_TIME = threading.RLock()
LAYOUT = ("GDEF", "GPOS", "GSUB", "MATH")
"""Tables of a font that say how letters become lines: in a PDF they are lines, and to cut these tables down to its few
letters takes longer than all else of it."""


def blank(size: tuple[float, float]) -> Any:
    """An empty picture of ``size`` (inches), which needs no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(picture)
    return picture


@contextmanager
def _letters_alone() -> Iterator[None]:
    """Fonts are embedded without their tables of ``LAYOUT``."""
    from fontTools.subset import Options

    with ONE_AT_A_TIME:
        before = getattr(Options, "_drop_tables_default", None)
        if before is None:  # another fontTools: with them, then
            yield
            return
        Options._drop_tables_default = [*before, *LAYOUT]
        try:
            yield
        finally:
            Options._drop_tables_default = before


def write_picture(picture: Any, path: Path) -> Path:
    """Write one file; its suffix says the format: .png, .svg or .pdf."""
    import matplotlib as mpl

    kind = path.suffix.lower()
    letters = _letters_alone() if kind == ".pdf" else nullcontext()
    with mpl.rc_context(STYLE), letters, written(path, sync=False) as file:
        picture.savefig(file, dpi=150, format=kind[1:] or None, metadata=UNDATED.get(kind))
    return path


Write = Callable[[Any, Path], Path]


def save_picture(picture: Any, folder: Path, name: str, write_pdf: Write | None = None) -> list[Path]:
    """``name``.png, ``name``.svg and ``name``.pdf in ``folder``; the files. ``write_pdf``: of :func:`beside`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for suffix in FORMATS:
        write = write_pdf if write_pdf is not None and suffix == ".pdf" else write_picture
        files.append(write(picture, folder / f"{name}{suffix}"))
        picture.set_layout_engine(None)  # everything has its place now, and keeps it: "none" would draw it twice
    return files


def whole(axis: Any) -> None:
    """Whole numbers at the ticks of an axis that is not logarithmic: rounds, contexts, iterations."""
    axis.get_major_locator().set_params(integer=True)


@contextmanager
def beside() -> Iterator[Write]:
    """A function that writes pictures in a process of its own, while this one goes on; they are there at the end.

    For several PDFs: embedding their letters takes as long as all else. What the other process cannot write, this one
    does.
    """
    given: list[tuple[Any, Path]] = []
    command = [sys.executable, "-P", "-c", "import cgpfl.report.pictures as p, sys; p.write_all(sys.stdin.buffer)"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, **quiet)
    except OSError:
        yield write_picture
        return

    def write(picture: Any, path: Path) -> Path:
        given.append((picture, path))
        try:
            pickle.dump((picture, path.absolute()), child.stdin)  # type: ignore[arg-type]
        except (OSError, pickle.PicklingError, AttributeError, TypeError):
            child.kill()
        return path

    try:
        yield write
    except BaseException:
        child.kill()
        raise
    finally:
        try:
            child.communicate()
        except OSError:
            child.kill()
    if child.returncode != 0:
        for picture, path in given:
            write_picture(picture, path)


class Painters:
    """A process that draws a run's figures when it is finished; it imports meanwhile what that takes, and then divides.

    As a context: at its end it is done, or killed if there is no run to draw. What it cannot draw, this process does.
    """

    def __init__(self, count: int = 2) -> None:
        """``count``: into how many processes it divides, where a process can."""
        self._count = count if sys.platform == "linux" else 1
        self._run, self._asked = Path(), False
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, once: later than what is waited for first."""
        if self._child is not None:
            return
        paint = "import gc; gc.disable(); from cgpfl.report.figures import paint; paint()"
        command = [sys.executable, "-P", "-c", paint, str(self._count)]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # who divides must be alone
        with suppress(OSError):
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, env=env, process_group=0, **quiet)

    def draw(self, run: Path) -> None:
        """Begin to draw the figures of ``run``."""
        self._run, self._asked = run, True
        self.start()
        if self._child is not None:
            assert self._child.stdin is not None
            with suppress(OSError):
                self._child.stdin.write(os.fsencode(run.absolute()))
                self._child.stdin.close()

    def __enter__(self) -> Painters:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        wanted = self._asked and (kind is None or issubclass(kind, Exception))
        child, failed = self._child, True
        try:
            failed = child is None or bool(wanted and child.wait())
        finally:
            if child is not None:
                if failed or not wanted:
                    with suppress(OSError):
                        os.killpg(child.pid, signal.SIGKILL)  # all that it has divided into
                child.wait()
                with suppress(OSError):
                    child.stdin.close()  # type: ignore[union-attr]
        if wanted and failed:
            from cgpfl.report.figures import draw

            draw(self._run)


def write_all(pictures: BinaryIO) -> None:
    """What the other process does: write each picture that its parent gives, until there are no more."""
    while True:
        try:
            picture, path = pickle.load(pictures)
        except EOFError:
            return
        write_picture(picture, path)
