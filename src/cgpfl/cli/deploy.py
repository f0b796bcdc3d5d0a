"""``cgpfl deploy``: an experiment on real nodes, over Flower."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cgpfl.cli.app import app, page
from cgpfl.cli.options import Methods, experiment_options
from cgpfl.cli.runs import Assignments, Config, free_folder, nested
from cgpfl.errors import CgpflError, LostError

deploy_app = typer.Typer(help="Real nodes, over Flower: TLS, authentication, faults.", no_args_is_help=True)
app.add_typer(deploy_app, name="deploy")

App = Annotated[Path, typer.Argument(metavar="APP", help="An app's folder, written by: cgpfl deploy init.")]
Out = Annotated[Path | None, typer.Option(help="Run folder; a run that stopped there goes on.")]
DEMO = ("local", "fedavg", "cgpfl-heur")
TRIAL = {
    "data": {"clients": 4, "contexts": 2, "share": 0.1},
    "rounds": 6,
    "method": [
        {"name": "local", "local_rounds": 100},
        {"name": "fedavg", "local_rounds": 100},
        {"name": "cgpfl-heur", "local_rounds": 100, "warmup": 2},
    ],
}
"""What is tried without APP: a message to a node is dear, so there is more work in each; and little data a node."""


@deploy_app.callback()
def needed(context: typer.Context) -> None:
    """Real nodes, over Flower: TLS, authentication, faults."""
    from cgpfl.deploy.preflight import check_extras

    if context.invoked_subcommand != "export-node" and "--help" not in sys.argv:
        check_extras()


@deploy_app.command()
@experiment_options
def init(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="Folder to write.")],
    flags: dict[str, Any],
    config: Config = None,
    nodes: Annotated[int | None, typer.Option(help="Clients of the federation (default: the data's).")] = None,
    host: Annotated[str, typer.Option(help="The server's name or address, as nodes see it.")] = "localhost",
    port: Annotated[int, typer.Option(help="The server's port for nodes.")] = 9443,
    shape: Annotated[str | None, typer.Option(help="Shape of one input, such as 28,28, for data of the nodes.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes, with --shape.")] = None,
    names: Annotated[str | None, typer.Option(help="What the nodes are called, as a,b,c (default: 0, 1, ...).")] = None,
    method: Methods = None,
    settings: Assignments = None,
) -> None:
    """Write a Flower app from an experiment: configuration, certificates, nginx, systemd units.

    With the experiment's own data, for a trial; or for data that only the nodes have: arrays with --shape and
    --classes, tables with --label, whose columns nodes agree on when the run starts.
    Deadlines and the like: section deploy of experiment.toml, or --set deploy.deadline=60.

    [dim]cgpfl deploy init federation --nodes 4 --rounds 10[/dim]

    [dim]cgpfl deploy init federation experiment.toml --shape 28,28 --classes 10 --nodes 8 --host fl.example.org[/dim]

    [dim]cgpfl deploy init hospitals --label outcome --names charité,mitte,nord --host fl.example.org[/dim]
    """
    from cgpfl.deploy.preflight import check_address

    check_address(host, port)
    called = [] if names is None else [name.strip() for name in names.split(",")]
    if called and nodes not in (None, len(called)):
        raise CgpflError(f"--nodes {nodes}: there are {len(called)} --names")
    flags |= {"clients": len(called)} if called else {} if nodes is None else {"clients": nodes}
    experiment, deploy, federation = _planned(config, flags, method, settings, shape, classes, called)
    from cgpfl.deploy.layout import write_app

    form = None if federation is None else federation.form(experiment.loss)
    write_app(folder, experiment, deploy, form, host=host, port=port)
    ready = "" if deploy.form == "given" else f", with a table in each of {folder}/trial-data/0, 1, ..."
    trial = f"A trial on this machine: cgpfl deploy up {folder}{ready}"
    typer.echo(f"Wrote {folder}. {trial}\nOn real hosts: {folder}/README.md")


@deploy_app.command()
@experiment_options
def up(
    flags: dict[str, Any],
    folder: Annotated[
        Path | None, typer.Argument(metavar="APP", help="An app's folder (default: digits, a temporary one).")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes, without APP (default: 4).")] = None,
    method: Methods = None,
    out: Out = None,
    settings: Assignments = None,
    check: Annotated[bool, typer.Option("--check", help="Then simulate the same and compare.")] = False,
) -> None:
    """Try a deployment on this machine: SuperLink and SuperNodes as processes, over TLS, nodes authenticated.

    [dim]cgpfl deploy up --nodes 4 --rounds 5 --check[/dim]
    """
    from cgpfl.cli.terminal import progress
    from cgpfl.deploy.agreement import EXPERIMENT, read_agreement
    from cgpfl.deploy.check import compare
    from cgpfl.deploy.follow import finished
    from cgpfl.deploy.layout import prepare_trial_data, write_app
    from cgpfl.deploy.server import check as check_agreement
    from cgpfl.deploy.trial import trial

    temporary = folder is None
    if folder is None:
        flags |= {} if nodes is None else {"clients": nodes}
        experiment, deploy, federation = _planned(TRIAL, flags, method, settings, None, None)
        out = out or free_folder(experiment.data.source, experiment.data.chosen_split, "deploy-")
        if out.exists():
            raise CgpflError(
                f"out {out}: exists already; choose another, or go on by: cgpfl deploy up {out}/app --out {out}"
            )
        folder = out / "app"
        write_app(folder, experiment, deploy, federation.form(experiment.loss), parent_mode=0o700)
    else:
        given = {"nodes": nodes, "method": method, **flags, "set": settings}
        wrong = [name.replace("_", "-") for name, value in given.items() if value is not None]
        if wrong:
            raise CgpflError(f"--{wrong[0]}: goes without APP; the app's own experiment is {folder / EXPERIMENT}")
        experiment, federation = check_agreement(read_agreement(folder / EXPERIMENT)), None
        out = out or free_folder(folder.resolve().name, "nodes", "deploy-")
    if finished(out):
        raise CgpflError(f"out {out}: is finished; choose another")
    prepare_trial_data(folder, experiment, federation)
    try:
        with progress() as tell, trial(folder, say=say) as running:
            running.run(out, on_progress=tell, say=say)
    except (KeyboardInterrupt, LostError) as error:
        how = f"every finished round is saved; continue with: cgpfl deploy up {folder} --out {out}"
        if isinstance(error, LostError):
            raise LostError(f"{error}; {how}") from error
        typer.echo(f"Stopped; {how}", err=True)
        raise typer.Exit(130) from None
    _show(out)
    if check:
        typer.echo(compare(folder, out))
    if temporary:
        shutil.rmtree(folder)


@deploy_app.command("run")
def run_(
    folder: App,
    out: Annotated[Path, typer.Option(help="Run folder; a run that stopped there goes on.")],
) -> None:
    """Start a run on the running SuperLink, or go on with a stopped one, and follow it to its end.

    A run that is going on is followed, not started again.
    """
    from cgpfl.cli.terminal import progress
    from cgpfl.deploy.agreement import EXPERIMENT, read_agreement
    from cgpfl.deploy.follow import follow, size
    from cgpfl.deploy.lock import has_server
    from cgpfl.deploy.server import check as check_agreement
    from cgpfl.deploy.trial import patience, start_run

    agreed = read_agreement(folder / EXPERIMENT)
    check_agreement(agreed)
    since = size(out)
    if has_server(out):
        say(f"{out} is being served; following")
    else:
        start_run(folder.resolve(), folder.resolve() / ".flwr", out)
    try:
        with progress() as tell:
            follow(out, since, on_progress=tell, say=say, check=lambda: None, silence=patience(agreed))
    except KeyboardInterrupt:
        typer.echo(f"The run goes on; follow it by: cgpfl deploy run {folder} --out {out}", err=True)
        raise typer.Exit(130) from None
    _show(out)


def _planned(
    config: Path | dict[str, Any] | None,
    flags: dict[str, Any],
    method: Any,
    settings: list[str] | None,
    shape: str | None,
    classes: Any,
    names: Sequence[str] = (),
) -> tuple[Any, Any, Any]:
    """Experiment, deployment and, unless the nodes bring it, the federation's data."""
    from cgpfl.deploy.agreement import ASKED, NAME, Deployment
    from cgpfl.deploy.layout import read_shape
    from cgpfl.experiment.config import from_dict, parse_value
    from cgpfl.hyperparameters import from_values

    if str(flags.get("devices") or "").isdigit():
        flags = flags | {"devices": int(flags["devices"])}
    own = [s for s in settings or [] if s.startswith("deploy.")]
    values = nested(config, flags, method, DEMO, [s for s in settings or [] if s not in own])
    section = dict(values.pop("deploy", {}))
    for setting in own:
        name, equals, text = setting.removeprefix("deploy.").partition("=")
        if not equals:
            raise CgpflError(f"--set {setting}: must be deploy.KEY=VALUE")
        section[name.strip()] = parse_value(text.strip())
    experiment = from_dict(values, str(config) if isinstance(config, Path) else "command line")
    federation = None
    asks = shape is None and bool(experiment.data.label) and "source" not in values["data"]
    if shape is not None and experiment.data.label:
        raise CgpflError("--label, --shape: choose one; with --label nodes agree on the columns of their tables")
    if (shape is None) != (classes is None):
        raise CgpflError("--shape, --classes: go together")
    facts: dict[str, Any] = {}
    if shape is not None or asks:
        if experiment.data.clients == "auto":
            raise CgpflError(f"--nodes: how many clients the federation has, with {'--label' if asks else '--shape'}")
        facts = {"clients": experiment.data.clients}
        facts |= {"form": ASKED} if shape is None else {"shape": read_shape(shape), "classes": classes}
    else:
        federation = experiment.data.build(experiment.seed)
        form = federation.form(experiment.loss)
        facts = {"clients": federation.clients, "shape": form.shape, "classes": form.classes}
        facts |= {"most": int(max(t.counts.max() for t in (federation.train, federation.test)))}
        facts |= {} if isinstance(form.scale, tuple) else {"scale": form.scale, "shift": form.shift}
        facts |= {"names": federation.names} if all(map(NAME.fullmatch, federation.names)) else {}
    facts |= {"names": list(names)} if names else {}
    return experiment, from_values(Deployment, {**facts, **section}, "deploy"), federation


def say(line: str) -> None:
    """A line beside the results."""
    typer.echo(line, err=True)


def _show(out: Path) -> None:
    from types import SimpleNamespace

    from cgpfl.cli.terminal import show_run
    from cgpfl.deploy.follow import summary

    done: Any = SimpleNamespace(folder=out, summary=summary(out), results=[SimpleNamespace(message=None)])
    show_run(done)
    page(out, False)
