"""``cgpfl liars``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cgpfl.cli.app import BEGAN, Quiet, app
from cgpfl.cli.options import Methods, experiment_options
from cgpfl.cli.runs import Assignments, Config, free_folder, nested
from cgpfl.errors import CgpflError
from cgpfl.files import a_path


def _numbers(text: str) -> list[float]:
    """The numbers of ``a,b``."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise CgpflError(f"--shares {text}: must be numbers, as 0,0.1,0.2") from error


@app.command()
@experiment_options
def liars(
    flags: dict[str, Any],
    config: Config = None,
    method: Methods = None,
    means: Annotated[str, typer.Option(help="Means that are compared, as a,b.")] = "weighted,auto",
    shares: Annotated[str, typer.Option(help="Shares of clients that lie, as a,b.")] = "0,0.1,0.2,0.3,0.4",
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder to create (default: runs/liars-DATA-SPLIT-n).")] = None,
    settings: Assignments = None,
    quiet: Quiet = False,
) -> None:
    """Draw the honest clients' accuracy over the share of liars, with several means.

    For research: a simulation in which some clients lie on purpose.

    [dim]cgpfl liars --attack sign-flip --methods fedavg,cgpfl-auto --rounds 60[/dim]

    [dim]cgpfl liars --attack backdoor --means weighted,median,auto --shares 0,0.2 --seeds 3[/dim]
    """
    from cgpfl.cli.terminal import progress, table
    from cgpfl.experiment.config import from_dict
    from cgpfl.experiment.liars import over_shares, save_shares

    flags.setdefault("attack", "sign-flip")
    values = nested(config, flags, method, ["fedavg", "cgpfl-auto"], settings)
    experiment = from_dict(values, str(config) if config is not None else "command line")
    source, split = experiment.data.source, experiment.data.chosen_split
    folder = a_path(out, "--out") if out is not None else free_folder(source, split, "liars-")
    if folder.exists():
        raise CgpflError(f"--out {folder}: exists; name a folder that is not there")
    rules = [name.strip() for name in means.split(",")]
    with progress(BEGAN, quiet=quiet) as tell:
        found = over_shares(experiment, rules, _numbers(shares), seeds, tell)
    files = save_shares(found, experiment.attack.name, folder)
    if not quiet:
        shown = 100 * found.groupby(["method", "mean", "share"], sort=False)["accuracy"].mean().unstack()
        rows = [[*who, *(f"{v:.1f}" for v in row)] for who, row in zip(shown.index, shown.to_numpy(), strict=True)]
        table(["method", "mean", *(f"{100 * s:g} % lie" for s in shown.columns)], rows)
        typer.echo("\n".join(str(file) for file in files))
