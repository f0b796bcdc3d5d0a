"""Run an experiment: every method of a configuration into one run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cgpfl.data import FederatedData
from cgpfl.engine import check_start
from cgpfl.engine.drive import interrupts
from cgpfl.engine.placement import check_place
from cgpfl.engine.processes import agree, by_the_first, watched
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import Experiment, from_dict, read_toml, to_toml
from cgpfl.experiment.events import EVENTS, Callback, JsonLines, check_callbacks, opening, told
from cgpfl.experiment.folder import RunFolder, parameters
from cgpfl.experiment.result import Outcome, Result
from cgpfl.experiment.run import Progress, checked, run_method
from cgpfl.files import write
from cgpfl.models import Model, as_model


@dataclass(frozen=True)
class Finished:
    """A finished experiment."""

    folder: Path
    results: list[Outcome]
    """One a method; its models are in its folder."""
    summary: dict[str, Any]

    def result(self, label: str) -> Result:
        """Everything of one method, with its models, read from the folder."""
        from cgpfl.experiment.reload import load_result

        return load_result(self.folder, label)


def run_experiment(
    experiment: Experiment,
    out: Path,
    on_progress: Callable[[Progress], None] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Finished:
    """Run every method into the new folder ``out``. Everything is checked before it is created.

    ``callbacks`` are called with every :class:`~cgpfl.experiment.events.Event`.
    """
    check_callbacks(callbacks)
    data, model, methods = build(experiment)

    def begin() -> None:
        RunFolder.create(out)
        write(out / "config.toml", to_toml(experiment.complete(data, parameters(model.settings()))).encode())

    with watched(lambda: f"run {out}", "see what it says"):
        agree("run", f"{experiment} {data.digest}")
        by_the_first(begin)
        return _run(experiment, RunFolder(out), data, model, methods, on_progress, callbacks)


def resume_experiment(
    path: Path,
    on_progress: Callable[[Progress], None] | None = None,
    devices: int | str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Finished:
    """Continue a run from its folder: finished methods are kept, the others go on where they were.

    ``devices``: on another number of devices than before.
    """
    folder = RunFolder.open(path)
    if not (path / "config.toml").exists():
        raise CgpflError(f"run {path}: has no config.toml; a run made in Python is continued there, with resume=True")
    if "deploy" in read_toml(path / "config.toml"):
        raise CgpflError(f"run {path}: is of a deployment; it goes on by: cgpfl deploy run APP --out {path}")
    values = read_toml(path / "config.toml") | ({} if devices is None else {"devices": devices})
    experiment = from_dict(values, str(path / "config.toml"))
    data, model, methods = build(experiment)
    with watched(lambda: f"run {path}", "see what it says"):
        agree("run", f"{experiment} {data.digest}")
        return _run(experiment, folder, data, model, methods, on_progress, callbacks)


def build(experiment: Experiment) -> tuple[FederatedData, Model, dict[str, Any]]:
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
    callbacks: Sequence[Callback],
) -> Finished:
    by_the_first(lambda: folder.write_split(data))
    results: list[Outcome] = []
    summary: dict[str, Any] = {}
    config = experiment.complete(data, parameters(model.settings()))
    everyone: tuple[Callback, ...] = (JsonLines(folder.path / EVENTS), *callbacks)
    with told(everyone, opening(folder.path.resolve().name, experiment, data, model, config)) as listening:
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
                    callbacks=listening,
                    stop=stop,
                    checkpoint_seconds=experiment.checkpoint_seconds,
                )
                by_the_first(partial(folder.save_models, result))
                results.append(result.outcome())
                del result  # its personal states and samples make room for the next method's
        by_the_first(lambda: summary.update(folder.finish(results)))
    return Finished(folder.path, results, summary)
