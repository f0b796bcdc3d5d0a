"""Commands that show runs on a page: report, watch."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cgpfl.cli.app import app
from cgpfl.errors import CgpflError
from cgpfl.files import a_path


def _each_once(runs: list[Path]) -> list[Path]:
    """The folders, each once, however it is spelled."""
    first: dict[str, Path] = {}
    for run in (a_path(run, "run") for run in runs):
        first.setdefault(os.path.realpath(run), run)
    return list(first.values())


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or comparisons'.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write (default: report.html in RUN; of several: runs/report.html).")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Also a folder for a paper: all runs' curves on common axes, and their tables as LaTeX."),
    ] = None,
) -> None:
    """Make one HTML page of a run, finished or not, or of several: on common axes, and side by side.

    It opens from disk, needs no network and holds everything: send it to anyone.

    [dim]cgpfl report runs/digits-rotation-1[/dim]

    [dim]cgpfl report runs/digits-rotation-1 runs/digits-labels-1 --out both.html --figures both[/dim]
    """
    from cgpfl.report.overlay import write_overlay
    from cgpfl.report.page import write_report

    runs = _each_once(runs)
    default = runs[0] / "report.html" if len(runs) == 1 else Path("runs/report.html")
    typer.echo(write_report(runs, default if out is None else a_path(out, "--out")))
    for file in [] if figures is None else write_overlay(runs, a_path(figures, "--figures")):
        typer.echo(file)


@app.command()
def watch(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; they may still be running.")],
    port: Annotated[int | None, typer.Option(help="Port on this machine (default: the first free from 8765).")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser, too.")] = False,
) -> None:
    """Serve the report as a live page: it gains points while the runs go on.

    On this machine only (127.0.0.1). A folder that is not there yet is waited for. The page finds the connection again
    after it was lost. Ctrl-C ends it; the runs go on.

    [dim]cgpfl run --out runs/mine & cgpfl watch runs/mine --open[/dim]
    """
    from cgpfl.report.serve import serve

    if port is not None and not 0 <= port < 2**16:
        raise CgpflError(f"--port {port}: must be a number from 0 to 65535")
    runs = _each_once(runs)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts it in the background ignores Ctrl-C
    with suppress(KeyboardInterrupt), serve(runs, port) as server:
        for run in (run for run in runs if not run.exists()):
            typer.echo(f"run {run}: not there yet; waiting for it (Ctrl-C ends)", err=True)
        typer.echo(f"{server.url} (Ctrl-C ends)")
        if show:
            typer.launch(server.url)
        server.serve_forever()
