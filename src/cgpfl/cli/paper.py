"""``cgpfl paper``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cgpfl.cli.app import Quiet, app, use


@app.command()
def paper(
    names: Annotated[list[str], typer.Argument(metavar="PART...", help="Parts to make, or all; see below.")],
    quick: Annotated[bool, typer.Option("--quick", help="Small problems: minutes on two cores.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Runs of everything (default: 5; quick: 2).")] = None,
    only: Annotated[
        str | None, typer.Option(metavar="SETTING,...", help="Compute the runs of these settings; draw nothing.")
    ] = None,
    as_is: Annotated[bool, typer.Option("--as-is", help="Draw what has been computed; compute nothing.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder, continued if it is there (default: runs/paper).")] = None,
    quiet: Quiet = False,
) -> None:
    """Make the paper's tables and figures, the published numbers beside ours.

    Parts: split, table1, table2, figure-k, figure-heur, mu, figure-contexts, figure-distances, figure-kmeans,
    theory, sweep, variations, beyond, all. What is finished is kept: the same command goes on after a stop.

    Settings: mnist-mlr, mnist-dnn, fmnist-mlr, fmnist-dnn, cifar10-cnn. With --only the runs of some of them are
    computed, to go on elsewhere or later; the same command without it draws everything. With --as-is an unfinished
    reproduction is drawn as far as it is there.

    [dim]cgpfl paper all --quick[/dim]

    [dim]cgpfl paper table1 table2 --seeds 5 --device gpu --out runs/paper[/dim]
    """
    from cgpfl.cli.terminal import progress, show_paper
    from cgpfl.engine.drive import Stopped

    use(device)
    folder = out or Path("runs") / ("paper-quick" if quick else "paper")
    from cgpfl.paper import make

    try:
        with progress(quiet=quiet) as tell:
            some = [name.strip() for name in only.split(",")] if only is not None else []
            made = make(names, folder, quick=quick, seeds=seeds, only=some, as_is=as_is, on_progress=tell)
    except Stopped:
        typer.echo("Stopped; what is finished is saved. The same command goes on with the rest.", err=True)
        raise typer.Exit(130) from None
    if quiet:
        return
    if some:
        typer.echo(f"{made.seconds:.0f} s; the runs of {', '.join(some)} are finished. Without --only all is drawn.")
    else:
        show_paper(made)
