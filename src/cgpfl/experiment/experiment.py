"""Run an experiment: every method of a configuration into one run folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cgpfl.data import FederatedData
from cgpfl.engine import check_start
from cgpfl.engine.processes import agree, by_the_first, watched
from cgpfl.engine.where import check_place
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import write
from cgpfl.experiment.config import Experiment, from_dict, read_toml, to_toml
from cgpfl.experiment.folder import RunFolder, parameters
from cgpfl.experiment.result import Outcome
from cgpfl.experiment.run import Progress, checked, interrupts, run_method
from cgpfl.models import Model, as_model


@dataclass(frozen=True)
class Finished:
    """A finished experiment."""

    folder: Path
    results: list[Outcome]
    """One a method; its models are in its folder."""
    summary: dict[str, Any]


def run_experiment(
    experiment: Experiment, out: Path, on_progress: Callable[[Progress], None] | None = None
) -> Finished:
    """Run every method into the new folder ``out``. Everything is checked before it is created."""
    data, model, methods = _build(experiment)

    def begin() -> None:
        RunFolder.create(out)
        write(out / "config.toml", to_toml(experiment.complete(data, parameters(model.settings()))).encode())

    with watched(lambda: f"run {out}", "see what it says"):
        agree("run", f"{experiment} {data.digest}")
        by_the_first(begin)
        return _run(experiment, RunFolder(out), data, model, methods, on_progress)


def resume_experiment(
    path: Path, on_progress: Callable[[Progress], None] | None = None, devices: int | str | None = None
) -> Finished:
    """Continue a run from its folder: finished methods are kept, the others go on where they were.

    ``devices``: on another number of devices than before.
    """
    folder = RunFolder.open(path)
    if not (path / "config.toml").exists():
        raise CgpflError(f"run {path}: has no config.toml; a run made in Python is continued there, with resume=True")
    values = read_toml(path / "config.toml") | ({} if devices is None else {"devices": devices})
    experiment = from_dict(values, str(path / "config.toml"))
    data, model, methods = _build(experiment)
    with watched(lambda: f"run {path}", "see what it says"):
        agree("run", f"{experiment} {data.digest}")
        return _run(experiment, folder, data, model, methods, on_progress)


def _build(experiment: Experiment) -> tuple[FederatedData, Model, dict[str, Any]]:
    """Data, model and methods, everything checked against everything."""
    methods = experiment.methods()
    check_place(experiment.devices, experiment.store)
    data = experiment.data.build(experiment.seed)
    model = as_model(experiment.model.name, data.shape, data.classes, **experiment.model.settings)
    ready = {label: checked(method, data, experiment) for label, method in methods.items()}
    check_start(ready.values(), data, model)
    return data, model, ready


def _run(
    experiment: Experiment,
    folder: RunFolder,
    data: FederatedData,
    model: Model,
    methods: dict[str, Any],
    on_progress: Callable[[Progress], None] | None,
) -> Finished:
    by_the_first(lambda: folder.write_split(data))
    results: list[Outcome] = []
    with interrupts() as stop:
        for label, method in methods.items():
            result = run_method(
                method,
                data,
                model,
                experiment,
                label=label,
                folder=folder.method(label),
                on_progress=on_progress,
                stop=stop,
                checkpoint_seconds=experiment.checkpoint_seconds,
            )
            results.append(result.outcome())
            del result  # its personal states and samples make room for the next method's
    summary: dict[str, Any] = {}
    by_the_first(lambda: summary.update(folder.finish(results)))
    return Finished(folder.path, results, summary)
