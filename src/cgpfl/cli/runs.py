"""Commands that run methods: run, compare, resume."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cgpfl.cli.app import Quiet, app, go, grouped, one_of
from cgpfl.errors import CgpflError


def _splits(incomplete: str) -> list[str]:
    """Completion of a split's name."""
    from cgpfl.data import SPLITS

    return one_of(*SPLITS)(incomplete)


Config = Annotated[Path | None, typer.Argument(help="A TOML configuration; flags override it.")]
Clients = Annotated[int | None, typer.Option(help="Number of clients.")]


@dataclass(frozen=True)
class ProblemOptions:
    """What is learned, and on which data."""

    data: Annotated[str | None, typer.Option(help="A data set's name or a .npz file with x and y.")] = None
    split: Annotated[
        str | None,
        typer.Option(help="rotation, labels, shift, iid, cyclic, block, random, ...", autocompletion=_splits),
    ] = None
    model: Annotated[str | None, typer.Option(help="mlr, dnn or cnn.", autocompletion=one_of("mlr", "dnn", "cnn"))] = (
        None
    )
    rounds: Annotated[int | None, typer.Option(help="Communication rounds.")] = None
    metrics: Annotated[
        str | None,
        typer.Option(
            help="What is measured, as a,b: accuracy, log-loss, balanced-accuracy, macro-f1, auc, ece, or module:name."
        ),
    ] = None
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE, data.KEY=VALUE or METHOD.KEY=VALUE; repeatable.")
    ] = None

    def flags(self, **others: Any) -> dict[str, Any]:
        """Those that stand for a setting, and ``others``."""
        metrics = None if self.metrics is None else [name.strip() for name in self.metrics.split(",")]
        known = {"data": self.data, "split": self.split, "model": self.model, "rounds": self.rounds}
        return {**known, "metrics": metrics, **others}


@dataclass(frozen=True)
class HardwareOptions:
    """Devices and processes that share the clients."""

    devices: Annotated[str | None, typer.Option(help="Devices that share the clients: a number, or all.")] = None
    coordinator: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of process 0, to be one of several processes; auto under SLURM or MPI."),
    ] = None
    processes: Annotated[int | None, typer.Option(help="How many processes, with --coordinator.")] = None
    process_id: Annotated[int | None, typer.Option(help="Which of them this is: 0, 1, ...")] = None

    def prepare(self) -> int | str | None:
        """Prepare JAX for them, before it looks for any → the setting ``devices``."""
        if self.coordinator is None and (self.processes is not None or self.process_id is not None):
            raise CgpflError("--processes, --process-id: only go with --coordinator")
        number = self.devices is not None and self.devices.isdigit() and int(self.devices) > 0
        if self.devices not in (None, "all") and not number:
            raise CgpflError(f"--devices {self.devices}: must be a number from 1, or all")
        if self.coordinator is None:
            return int(self.devices or 0) if number else self.devices
        if self.devices is not None:
            raise CgpflError("--devices: several processes use all their devices; leave it out")
        from cgpfl.engine.processes import join

        join(self.coordinator, self.processes, self.process_id)
        return "all"


@dataclass(frozen=True)
class TellingOptions:
    """Who is told what happens."""

    track: Annotated[
        list[str] | None,
        typer.Option(
            help="Also tell a tracker: tensorboard, mlflow or wandb; repeatable.",
            autocompletion=one_of("tensorboard", "mlflow", "wandb"),
        ),
    ] = None
    quiet: Quiet = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print a line for every evaluated round.")] = False

    def callbacks(self) -> list[Any]:
        """Beside the run's own file."""
        from cgpfl.cli.terminal import evaluation
        from cgpfl.trackers import tracker

        return [*(tracker(name) for name in self.track or []), *([evaluation] if self.verbose else [])]


@app.command()
@grouped
def run(
    config: Config = None,
    method: Annotated[list[str] | None, typer.Option(help="Method to run; repeat for several.")] = None,
    clients: Clients = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to create (default: runs/DATA-SPLIT-n).")] = None,
    *,
    problem: ProblemOptions,
    hardware: HardwareOptions,
    telling: TellingOptions,
) -> None:
    """Run methods on a federation, once.

    Without arguments: digits, 40 clients, 4 hidden rotation contexts, six methods.

    [dim]cgpfl run --split labels --method local --method cgpfl-heur --seed 3[/dim]

    [dim]cgpfl run --rounds 100 --set cgpfl.prox=5 --set participation=0.5[/dim]

    [dim]cgpfl run big.toml --out runs/big --coordinator node1:9876 --processes 2 --process-id 0[/dim]
    """
    from cgpfl.experiment.config import DEFAULT_METHODS, from_dict
    from cgpfl.experiment.experiment import run_experiment

    wanted = hardware.prepare()
    if hardware.coordinator is not None and out is None:
        raise CgpflError("--coordinator: needs --out, a folder that all processes see")
    flags = problem.flags(clients=clients, seed=seed, devices=wanted)
    values = nested(config, flags, method, DEFAULT_METHODS, problem.settings)
    experiment = from_dict(values, str(config) if config is not None else "command line")
    folder = out or free_folder(experiment.data.source, experiment.data.split)
    listening = telling.callbacks()
    go(
        lambda tell: run_experiment(experiment, folder, tell, listening),
        folder,
        quiet=telling.quiet,
        verbose=telling.verbose,
    )


@app.command()
@grouped
def compare(
    config: Config = None,
    methods: Annotated[str | None, typer.Option(help="all, or names separated by commas.")] = None,
    clients: Clients = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of every method (default: 3).")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed (default: 0).")] = None,
    target: Annotated[
        float | None, typer.Option(help="Accuracy whose first round is noted (default: local training's last).")
    ] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Choose each method's rates on validation samples.")] = False,
    budget: Annotated[int | None, typer.Option(help="Settings tried for each method by --tune (default: 8).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to create (default: runs/compare-DATA-SPLIT-n).")] = None,
    quiet: Quiet = False,
    *,
    problem: ProblemOptions,
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
    names = None if methods is None else chosen([name.strip() for name in methods.split(",")])
    flags = problem.flags(clients=clients, seed=seed)
    values = nested(config, flags, names, chosen(["all"]), problem.settings)
    section = values.setdefault("compare", {})
    given = {"seeds": seeds, "target": target, "tune": (8 if budget is None else budget) if tune else None}
    if isinstance(section, dict):
        section.update({k: v for k, v in given.items() if v is not None})
    experiment, comparing = from_config(values, str(config) if config is not None else "command line")
    folder = out or free_folder(experiment.data.source, experiment.data.split, "compare-")
    go(lambda tell: run_comparison(experiment, comparing, folder, tell), folder, quiet=quiet)


@app.command()
@grouped
def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a comparison's.")],
    hardware: HardwareOptions,
    telling: TellingOptions,
) -> None:
    """Continue a run that was stopped; the result is that of a run never stopped.

    It may go on with more or fewer devices and processes than before.

    [dim]cgpfl resume runs/digits-rotation-1[/dim]
    """
    from cgpfl.experiment.compare import is_comparison, resume_comparison
    from cgpfl.experiment.experiment import resume_experiment

    quiet, verbose = telling.quiet, telling.verbose
    if not is_comparison(folder):
        wanted, listening = hardware.prepare(), telling.callbacks()
        go(lambda tell: resume_experiment(folder, tell, wanted, listening), folder, quiet=quiet, verbose=verbose)
        return
    if telling.track or verbose:
        raise CgpflError("--track, --verbose: not of a comparison, whose seeds run at once")
    if hardware != HardwareOptions():
        raise CgpflError("--devices, --coordinator: a comparison runs on one device")
    go(lambda tell: resume_comparison(folder, tell), folder, quiet=quiet)


def nested(
    config: Path | dict[str, Any] | None,
    flags: dict[str, Any],
    methods: Any,
    default: Any,
    settings: list[str] | None,
) -> dict[str, Any]:
    """The nested values of an experiment: the configuration's, then the flags', then --set's."""
    from cgpfl.experiment.config import apply_setting, read_toml

    values: dict[str, Any] = read_toml(config) if isinstance(config, Path) else deepcopy(config or {})
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


def free_folder(source: str, split: str, prefix: str = "") -> Path:
    """The first of runs/DATA-SPLIT-1, -2, … that does not exist."""
    stem = source.rpartition(":")[2] if ":" in source else Path(source).stem
    name = f"{prefix}{stem}-{split.rpartition(':')[2]}"
    n = 1
    while (path := Path("runs") / f"{name}-{n}").exists():
        n += 1
    return path
