"""``cgpfl report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cgpfl.cli.app import app


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or comparisons'.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write (default: report.html in RUN; of several: runs/report.html).")
    ] = None,
) -> None:
    """Make one HTML page of a run, finished or not, or of several side by side.

    It opens from disk, needs no network and holds everything: send it to anyone.

    [dim]cgpfl report runs/digits-rotation-1[/dim]

    [dim]cgpfl report runs/digits-rotation-1 runs/digits-labels-1 --out both.html[/dim]
    """
    from cgpfl.report.page import write_report

    default = runs[0] / "report.html" if len(runs) == 1 else Path("runs/report.html")
    typer.echo(write_report(runs, out or default))
