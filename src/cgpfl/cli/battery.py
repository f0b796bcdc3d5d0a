"""``cgpfl battery``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cgpfl.cli.app import Quiet, app, use


@app.command()
def battery(
    problems: Annotated[list[str] | None, typer.Argument(metavar="[PROBLEM]...", help="Some of --list; all.")] = None,
    methods: Annotated[str | None, typer.Option(help="Methods, as a,b (default: all). local, fedavg always.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of everything (default: 5; quick: 2).")] = None,
    rounds: Annotated[int | None, typer.Option(help="Of every run (default: 150; quick: 20).")] = None,
    contexts_seeds: Annotated[
        int, typer.Option(help="Look at the contexts of cgpfl-auto over this many seeds (0: as the others).")
    ] = 0,
    jobs: Annotated[int, typer.Option(help="Processes; each gets its share of the cores.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder, continued if it is there (default: runs/battery).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two problems, a few methods: a minute or two.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the problems and stop.")] = False,
    quiet: Quiet = False,
) -> None:
    """See how far each method is behind the best, on many kinds of problems.

    Regret: points of accuracy behind the best method of a problem. A method with a small mean and a small worst
    regret can be switched on without knowing the problem. What is finished is kept: the same command goes on.

    [dim]cgpfl battery --quick[/dim]

    [dim]cgpfl battery rotations iid alone --methods ditto,ifca,cgpfl-heur --jobs 2[/dim]
    """
    if list_:
        return _list()
    if jobs > 1:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # this process must not fill a GPU
    from cgpfl.battery.run import run, wishes_of
    from cgpfl.cli.terminal import progress
    from cgpfl.engine.drive import Stopped

    wishes = wishes_of(problems or (), methods, seeds, rounds, quick=quick, more_seeds=contexts_seeds)
    use(device)
    folder = out or Path("runs") / ("battery-quick" if quick else "battery")
    try:
        with progress(quiet=quiet) as tell:
            found = run(wishes, folder, jobs=jobs, on_progress=tell)
    except Stopped:
        typer.echo("Stopped; what is finished is saved. The same command goes on with the rest.", err=True)
        raise typer.Exit(130) from None
    if not quiet:
        from cgpfl.battery.files import text

        typer.echo(f"\n{text(found)}\ntables, picture and every run: {folder}")
    return None


def _list() -> None:
    from cgpfl.battery.problems import PROBLEMS
    from cgpfl.cli.terminal import table

    rows = [
        (p.name, str(p.form.clients), "–" if p.contexts is None else str(p.contexts), p.about)
        for p in PROBLEMS.values()
    ]
    table(["problem", "clients", "contexts", "what it is"], rows)
