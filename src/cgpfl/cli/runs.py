"""Commands that run methods: run, compare, resume."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

import typer

from cgpfl.cli.app import Quiet, Verbose, app, go, one_of
from cgpfl.cli.options import Methods, experiment_options, named
from cgpfl.errors import CgpflError
from cgpfl.files import a_path

Config = Annotated[Path | None, typer.Argument(help="A TOML configuration; flags override it.")]
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
Track = Annotated[
    list[str] | None,
    typer.Option(
        help="Also tell a tracker: tensorboard, mlflow or wandb; repeatable.",
        autocompletion=one_of("tensorboard", "mlflow", "wandb"),
    ),
]


@app.command()
@experiment_options
def run(
    flags: dict[str, Any],
    config: Config = None,
    method: Methods = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to create (default: runs/DATA-SPLIT-n).")] = None,
    settings: Assignments = None,
    coordinator: Coordinator = None,
    processes: Processes = None,
    process_id: ProcessId = None,
    track: Track = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run methods on a federation, once.

    Without arguments: digits, 40 clients, 4 hidden rotation contexts, six methods.

    [dim]cgpfl run --split labels --methods local,cgpfl-heur --seed 3[/dim]

    [dim]cgpfl run --rounds 100 --set cgpfl.prox=5 --set participation=0.5[/dim]

    [dim]cgpfl run big.toml --out runs/big --coordinator node1:9876 --processes 2 --process-id 0[/dim]
    """
    from cgpfl.experiment.config import DEFAULT_METHODS, from_dict
    from cgpfl.experiment.experiment import run_experiment
    from cgpfl.experiment.lines import pointing

    wanted = _spread(flags.get("devices"), coordinator, processes, process_id)
    if coordinator is not None and out is None:
        raise CgpflError("--coordinator: needs --out, a folder that all processes see")
    flags |= {} if wanted is None else {"devices": wanted}
    with pointing(config):
        values = nested(config, flags, method, DEFAULT_METHODS, settings)
        experiment = from_dict(values, str(config) if config is not None else "command line")
        folder = a_path(out) if out else free_folder(experiment.data.source, experiment.data.chosen_split)
        listening = _callbacks(track, verbose, quiet)
        go(
            lambda tell, draw=None: run_experiment(experiment, folder, tell, listening, draw),
            folder,
            quiet=quiet,
            verbose=verbose,
            draws=True,
        )


@app.command()
@experiment_options
def compare(
    flags: dict[str, Any],
    config: Config = None,
    method: Methods = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of every method (default: 3).")] = None,
    target: Annotated[
        float | None, typer.Option(help="Accuracy whose first round is noted (default: local training's last).")
    ] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Choose each method's rates on validation samples.")] = False,
    budget: Annotated[int | None, typer.Option(help="Settings tried for each method by --tune (default: 8).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to create (default: runs/compare-DATA-SPLIT-n).")] = None,
    settings: Assignments = None,
    track: Track = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare methods over several seeds: one ranked table, with plots.

    All methods see the same data and initial model and draw from the same keys. Local training and FedAvg are
    always shown.

    [dim]cgpfl compare --methods all[/dim]

    [dim]cgpfl compare --methods ditto,ifca,cgpfl-heur --split labels --seeds 5 --tune[/dim]
    """
    from cgpfl.experiment.compare import chosen, from_config, run_comparison
    from cgpfl.experiment.lines import pointing

    if budget is not None and not tune:
        raise CgpflError("--budget: only goes with --tune")
    if budget is not None and budget < 2:
        raise CgpflError(f"--budget {budget}: must be at least 2")
    wanted = _spread(flags.get("devices"), None, None, None)
    flags |= {} if wanted is None else {"devices": wanted}
    values = nested(config, flags, method, chosen(["all"]), settings)
    section = values.setdefault("compare", {})
    given = {"seeds": seeds, "target": target, "tune": (8 if budget is None else budget) if tune else None}
    if isinstance(section, dict):
        section.update({k: v for k, v in given.items() if v is not None})
    with pointing(config):
        experiment, comparing = from_config(values, str(config) if config is not None else "command line")
        folder = a_path(out) if out else free_folder(experiment.data.source, experiment.data.chosen_split, "compare-")
        listening = _callbacks(track, verbose, quiet)
        go(
            lambda tell: run_comparison(experiment, comparing, folder, tell, listening),
            folder,
            quiet=quiet,
            verbose=verbose,
        )


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a comparison's.")],
    devices: Devices = None,
    coordinator: Coordinator = None,
    processes: Processes = None,
    process_id: ProcessId = None,
    track: Track = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Continue a run that was stopped; the result is that of a run never stopped.

    It may go on with more or fewer devices and processes than before.

    [dim]cgpfl resume runs/digits-rotation-1[/dim]
    """
    from cgpfl.experiment.compare import is_comparison, resume_comparison
    from cgpfl.experiment.experiment import resume_experiment
    from cgpfl.experiment.lines import pointing

    folder = a_path(folder, "run")
    again: Any = resume_comparison if is_comparison(folder) else resume_experiment
    if is_comparison(folder) and any(flag is not None for flag in (coordinator, processes, process_id)):
        raise CgpflError("--coordinator: a comparison runs in one process")
    wanted = _spread(devices, coordinator, processes, process_id)
    listening = _callbacks(track, verbose, quiet)
    with pointing(folder / "config.toml"):
        go(
            lambda tell, **draw: again(folder, tell, wanted, listening, **draw),
            folder,
            quiet=quiet,
            verbose=verbose,
            draws=not is_comparison(folder),
        )


def _callbacks(track: list[str] | None, verbose: bool, quiet: bool) -> list[Any]:
    """Who is told what happens, beside the run's own file."""
    from cgpfl.cli.terminal import evaluation, notes
    from cgpfl.trackers import tracker

    return [*(tracker(name) for name in track or []), *([] if quiet else [notes]), *([evaluation] if verbose else [])]


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


def nested(
    config: Path | dict[str, Any] | None,
    flags: dict[str, Any],
    methods: list[str] | None,
    default: Any,
    settings: list[str] | None,
) -> dict[str, Any]:
    """The nested values of an experiment: the configuration's, then the flags', then --set's."""
    from cgpfl.experiment.compare import chosen
    from cgpfl.experiment.config import apply_setting, read_toml

    values: dict[str, Any] = read_toml(config) if isinstance(config, Path) else deepcopy(config or {})
    places = {"data": ("data", "source"), "split": ("data", "split"), "clients": ("data", "clients")}
    places |= {"model": ("model", "name"), **{name: ("data", name) for name in ("client", "label", "task")}}
    for section in ("data", "model"):
        if not isinstance(part := values.setdefault(section, {}), dict):
            raise CgpflError(f"{config}: {section}: must be a section [{section}], got {part!r}")
    for flag, value in flags.items():
        section, key = places.get(flag, ("", flag))
        (values[section] if section else values)[key] = value
    if methods is not None or "method" not in values:
        names = default if methods is None else chosen(named(methods))
        values["method"] = [{"name": name} for name in names]
    if not isinstance(values["method"], list):
        raise CgpflError(f"{config}: method: must be sections [[method]], got {values['method']!r}")
    for setting in settings or []:
        apply_setting(values, setting)
    return values


def free_folder(source: str, split: str, prefix: str = "") -> Path:
    """The first of runs/DATA-SPLIT-1, -2, … that does not exist."""
    stem = source.rpartition(":")[2] if ":" in source else Path(source).stem
    name = f"{prefix}{stem}-{split.rpartition(':')[2]}"
    n = 1
    while (path := Path("runs") / f"{name}-{n}").exists():
        n += 1
    return path
