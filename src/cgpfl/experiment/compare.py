"""Compare methods: one federation, the same start and random keys for all, several seeds in one program."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.algorithms import METHODS
from cgpfl.data import FederatedData
from cgpfl.engine import check_start
from cgpfl.engine.drive import interrupts
from cgpfl.engine.together import Run
from cgpfl.errors import CgpflError
from cgpfl.experiment.batch import Batch, Done, as_runs, compiling, run_batch
from cgpfl.experiment.compared import Compared, finish, load, save
from cgpfl.experiment.config import Experiment, Named, from_dict, read_toml, to_toml
from cgpfl.experiment.folder import RunFolder, parameters
from cgpfl.experiment.run import Progress, checked, explain, fingerprint
from cgpfl.experiment.table import Runs
from cgpfl.experiment.tune import candidates, space
from cgpfl.files import write
from cgpfl.hyper import from_values, hyper, value_of
from cgpfl.metrics import DEFAULT, Metric, name_of
from cgpfl.models import Model, as_model

ALWAYS = ("local", "fedavg")
"""Shown beside every result: without them a personalised number means nothing."""
PUBLIC, VALIDATION = 0.1, 0.2
"""Shares taken where a method, or a search, needs such samples and the data has none."""


@dataclass(frozen=True)
class Comparing:
    """``[compare]``: what a comparison is beside its experiment."""

    seeds: int = hyper(3, "runs of every method, with seeds seed, seed + 1, …", low=1, high=1000)
    target: float = hyper(0.0, "accuracy whose first round is noted; 0 = what local training ends with", low=0, high=1)
    tune: int = hyper(0, "settings tried for each method, chosen on validation samples; 0 = none", low=0, high=1000)


def compare(
    methods: Sequence[str | dict[str, Any]] | str = "all",
    data: str | dict[str, Any] = "digits",
    split: str = "rotation",
    model: str = "mlr",
    *,
    seeds: int = 3,
    tune: int = 0,
    target: float = 0.0,
    metrics: Sequence[str | Metric | Callable[[Any, Any], Any]] = DEFAULT,
    out: str | Path,
    on_progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Compared:
    """Compare ``methods`` on a named set and split; see ``cgpfl compare --help``.

    ``methods``: "all", or names; ``{"name": "ditto", "label": "stiff", "prox": 9.0}`` is a method with other settings.
    ``data``: a set's name or a .npz file, or a dictionary with settings of ``[data]`` (source, split, clients, ...).
    ``metrics``: what is measured, as of :func:`cgpfl.run`.
    ``seeds`` runs of each; ``tune`` settings tried for each on validation samples (0 = as they are);
    further settings are the experiment's (rounds, seed, participation, ...). ``out`` is the folder to create.
    """
    names = [methods] if isinstance(methods, str) else list(methods)
    named: list[dict[str, Any]] = []
    for m in names:
        named += [m] if isinstance(m, dict) else [{"name": name} for name in chosen([m])]
    values = {
        "data": data if isinstance(data, dict) else {"source": data, "split": split},
        "model": {"name": model},
        "method": named,
        "compare": {"seeds": seeds, "tune": tune, "target": target},
        **settings,
        "metrics": [name_of(m) for m in metrics],
    }
    return run_comparison(*from_config(values, "compare"), Path(out), on_progress)


def chosen(names: Sequence[str]) -> list[str]:
    """Method names, checked, with "all" replaced by all there are."""
    for name in names:
        if name != "all":
            METHODS.find(name)
    return [n for name in names for n in (METHODS if name == "all" else [name])]


def from_config(values: dict[str, Any], where: str) -> tuple[Experiment, Comparing]:
    """A checked experiment and its section [compare]."""
    rest = dict(values)
    section = rest.pop("compare", {})
    if isinstance(section, dict):
        section = {k: v for k, v in section.items() if k != "notes"}
    comparing = from_values(Comparing, section, f"{where}: compare")
    return from_dict(rest, where), comparing


def completed(experiment: Experiment, comparing: Comparing) -> tuple[Experiment, list[str]]:
    """The experiment with what every comparison has, and notes on what was added."""
    if experiment.devices not in ("auto", 1) or experiment.store not in ("auto", "device"):
        raise CgpflError("devices, store: a comparison runs on one device, with everything on it; use cgpfl run")
    notes: list[str] = []
    methods, data = experiment.methods(), experiment.data
    missing = [name for name in ALWAYS if name not in methods]
    needy = [label for label, m in methods.items() if getattr(m, "needs_public", False)]
    kept = experiment.method
    if needy and data.split == "own":
        kept = tuple(m for m in kept if m.label not in needy)
        notes.append(f"{', '.join(needy)} left out: no public samples in a split of one's own")
    elif needy and not data.public:
        data = dataclasses.replace(data, public=PUBLIC)
        notes.append(f"{PUBLIC:.0%} of all samples are public, for {', '.join(needy)} (data.public)")
    if comparing.tune and not data.validation:
        data = dataclasses.replace(data, validation=VALIDATION)
        notes.append(f"{VALIDATION:.0%} of each client's samples are for validation (data.validation)")
    if missing:
        notes.append(f"{' and '.join(missing)} added: always shown")
    added = tuple(Named(name, name) for name in missing)
    return dataclasses.replace(experiment, data=data, method=added + kept), notes


def run_comparison(
    experiment: Experiment,
    comparing: Comparing,
    out: Path,
    on_progress: Callable[[Progress], None] | None = None,
) -> Compared:
    """Compare the experiment's methods into the new folder ``out``. Everything is checked before it is created."""
    experiment, notes = completed(experiment, comparing)
    problem = _build(experiment, comparing)
    folder = RunFolder.create(out)
    config = experiment.complete(problem.data[0], parameters(problem.model.settings()))
    config["compare"] = {**parameters(comparing), "notes": notes}
    write(folder.path / "config.toml", to_toml(config).encode())
    return _run(problem, folder.path, notes, on_progress)


def resume_comparison(path: Path, on_progress: Callable[[Progress], None] | None = None) -> Compared:
    """Continue a comparison from its folder: finished methods are kept."""
    values = read_toml(path / "config.toml")
    notes = list(values["compare"].get("notes", []))
    experiment, comparing = from_config(values, str(path / "config.toml"))
    return _run(_build(experiment, comparing), path, notes, on_progress)


def is_comparison(path: Path) -> bool:
    """Whether a folder holds a comparison."""
    config = path / "config.toml"
    return config.exists() and isinstance(read_toml(config).get("compare"), dict)


@dataclass(frozen=True)
class _Problem:
    experiment: Experiment
    comparing: Comparing
    data: list[FederatedData]
    """A federation a seed; the same object where the split has a seed of its own."""
    model: Model
    methods: dict[str, Any]

    @property
    def seeds(self) -> list[int]:
        return [self.experiment.seed + i for i in range(self.comparing.seeds)]

    def fingerprint(self, label: str) -> dict[str, Any]:
        """What records must have been made with to belong here."""
        run = fingerprint(self.methods[label], self.model, self.experiment)
        splits = [d.digest for d in self.data]
        return {**run, "seeds": self.seeds, "tune": self.comparing.tune, "data": splits}


def _build(experiment: Experiment, comparing: Comparing) -> _Problem:
    methods = experiment.methods()
    seeds = [experiment.seed + i for i in range(comparing.seeds)]
    if experiment.data.seed == "same":
        data = [experiment.data.build(seed) for seed in seeds]
    else:
        data = [experiment.data.build(seeds[0])] * len(seeds)
    model = as_model(experiment.model.name, data[0].shape, data[0].classes, **experiment.model.settings)
    ready = {label: checked(m, data[0], experiment) for label, m in methods.items()}
    check_start(ready.values(), data[0], model)
    return _Problem(experiment, comparing, data, model, ready)


def _run(problem: _Problem, path: Path, notes: list[str], on_progress: Callable[[Progress], None] | None) -> Compared:
    runs: dict[str, Runs] = {}
    (path / "methods").mkdir(exist_ok=True)
    files = {label: path / "methods" / f"{label}.safetensors" for label in problem.methods}
    missing = [label for label, file in files.items() if not file.exists()]
    batches = {label: _batch(problem, label) for label in missing}
    with interrupts() as stop, compiling(list(batches.values())) as wait:
        for i, (label, batch) in enumerate(batches.items()):
            wait(i)
            save(files[label], _run_method(problem, batch, on_progress, stop), problem.fingerprint(label))
    for label, file in files.items():
        runs[label] = load(file, problem.fingerprint(label), [d.test.counts for d in problem.data])
    experiment = problem.experiment
    facts = {
        "data": problem.data[0].summary(),
        "model": {"name": experiment.model.name, **problem.model.settings()},
        "seeds": problem.seeds,
        "rounds": experiment.rounds,
    }
    lost = [lost_seeds(m, problem.methods[m], r) for m, r in runs.items() if any(bad is not None for bad in r.diverged)]
    return finish(path, runs, facts, target=problem.comparing.target, notes=notes, diverged=lost)


def _batch(problem: _Problem, label: str) -> Batch:
    """All seeds of one method, and of every setting a search tries."""
    experiment, method = problem.experiment, problem.methods[label]
    settings = [method]
    if problem.comparing.tune:
        settings = candidates(method, problem.comparing.tune, lambda m: checked(m, problem.data[0], experiment))
    todo = [Run(m, d, s) for m in settings for d, s in zip(problem.data, problem.seeds, strict=True)]
    engine = experiment.engine()
    del engine["seed"]
    return Batch(label, todo, problem.model, engine)


def _run_method(
    problem: _Problem, batch: Batch, on_progress: Callable[[Progress], None] | None, stop: Callable[[], bool]
) -> Runs:
    """The seeds of one method, with the best of the settings that were tried."""
    began, seeds, todo = time.perf_counter(), len(problem.seeds), list(batch.todo)
    done = run_batch(batch, on_progress=on_progress, stop=stop)
    best, tried = _choose([run.method for run in todo[::seeds]], todo, done, seeds)
    kept = slice(best * seeds, (best + 1) * seeds)
    seconds = time.perf_counter() - began
    return as_runs(batch._replace(todo=todo[kept]), done[kept], seconds=seconds, tried=tried)


def _choose(settings: list[Any], todo: list[Run], done: list[Done], seeds: int) -> tuple[int, list[dict[str, Any]]]:
    """The setting with the best mean validation accuracy over seeds → (its place, all that were tried)."""
    if len(settings) == 1:
        return 0, []
    tried = []
    for i, method in enumerate(settings):
        each = []
        for run, end in zip(todo[i * seeds :][:seeds], done[i * seeds :][:seeds], strict=True):
            assert run.data.validation is not None
            right = np.nan if end.diverged else end.records.values["validation_correct"][-1].sum()
            each.append(float(right / run.data.validation.counts.sum()))
        values = {name: float(value_of(method, name)) for name in space(method)}
        tried.append({**values, "validation_accuracy": float(np.mean(each))})
    found = np.array([t["validation_accuracy"] for t in tried])
    return int(np.argmax(np.where(np.isnan(found), -1.0, found))), tried


def lost_seeds(label: str, method: Any, runs: Runs) -> str:
    """Which seeds of a method diverged, and why that may be."""
    lost = {seed: bad for seed, bad in zip(runs.seeds, runs.diverged, strict=True) if bad is not None}
    where = ", ".join(f"seed {seed} in round {bad}" for seed, bad in lost.items())
    return explain(label, method, f"({where})")
