"""``cgpfl advise``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cgpfl.cli.app import BEGAN, Quiet, app
from cgpfl.cli.options import DATA, experiment_options
from cgpfl.cli.runs import free_folder, nested
from cgpfl.errors import CgpflError

Data = Annotated[str, typer.Argument(help="A data set's name, a table (.csv, .parquet), an .npz or a folder.")]
Assigned = Annotated[list[str] | None, typer.Option("--set", help="data.KEY=VALUE or model.KEY=VALUE; repeatable.")]


@app.command()
@partial(experiment_options, only=(*DATA, "model"))
def advise(
    data: Data,
    flags: dict[str, Any],
    folds: Annotated[int, typer.Option(help="Folds of each client's samples.")] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds of every training.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    settings: Assigned = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the page (default: runs/advice-DATA-SPLIT-n).")] = None,
    quiet: Quiet = False,
) -> None:
    """Say whether to train alone, together or in contexts, by a short study on your own clients.

    Five ways are cross-validated on the same folds: alone, one model, one model tuned, contexts, contexts and personal
    models. The simplest that cannot be told from the best is recommended, which may be to train alone.

    [dim]cgpfl advise patients.csv --client hospital --label outcome[/dim]

    [dim]cgpfl advise digits --split rotation[/dim]
    """
    from cgpfl.advice.advice import conclude, plan_of
    from cgpfl.cli.terminal import progress
    from cgpfl.experiment.config import from_dict

    for setting in settings or []:
        if not setting.startswith(("data.", "model.")):
            raise CgpflError(f"--set {setting}: must be data.KEY=VALUE or model.KEY=VALUE here")
    flags |= {"data": data, "rounds": rounds, "seed": seed}
    experiment = from_dict(nested(None, flags, None, ["local"], settings), "command line")
    folder = out or free_folder(experiment.data.source, experiment.data.chosen_split, "advice-")
    if folder.exists():
        raise CgpflError(f"--out {folder}: exists; name a folder that is not there")
    plan = plan_of(experiment, folds)
    if not quiet:
        typer.echo(plan.words())
    with progress(BEGAN, quiet=quiet) as tell:
        advice = conclude(plan, tell)
    page = advice.save(folder)
    if not quiet:
        typer.echo(f"\n{advice}\n\npage: {page}")
