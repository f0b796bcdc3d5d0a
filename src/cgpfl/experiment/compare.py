"""Compare methods: one federation, the same start and random keys for all, several seeds in one program."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.algorithms import METHODS
from cgpfl.algorithms.wrapper import standing_alone, unseamed
from cgpfl.engine.drive import Engine, interrupts
from cgpfl.engine.together import Run
from cgpfl.errors import CgpflError
from cgpfl.experiment.ahead import ahead
from cgpfl.experiment.batch import Batch, Done, as_runs, compiling, run_batch
from cgpfl.experiment.compared import Compared, finish, load, save
from cgpfl.experiment.config import Experiment, Named, config_of, from_dict, read_toml
from cgpfl.experiment.events import EVENTS, Callback, Event, JsonLines, check_callbacks, opening, tell, told
from cgpfl.experiment.experiment import Problem, Tell, build
from cgpfl.experiment.folder import RunFolder
from cgpfl.experiment.lock import writing
from cgpfl.experiment.notes import spent_by_each
from cgpfl.experiment.progress import in_python
from cgpfl.experiment.run import checked, explain, fingerprint
from cgpfl.experiment.table import Runs
from cgpfl.experiment.tune import candidates, space
from cgpfl.files import a_path
from cgpfl.hyperparameters import from_values, hyper, parameters, value_of

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
    methods: Any = "all",
    data: Any = "digits",
    split: str = "auto",
    model: Any = "mlr",
    *,
    out: str | Path,
    seeds: int = 3,
    tune: int = 0,
    target: float = 0.0,
    progress: bool = True,
    on_progress: Tell | None = None,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Compared:
    """Compare ``methods`` over several seeds; see ``cgpfl compare --help``.

    ``methods``: "all", or a list of names (``package.module:Name``, too), of objects, and of settings such as
    ``{"name": "ditto", "label": "stiff", "prox": 9.0}``.
    ``data``: a set's name or a .npz file (cut by ``split``), a dictionary with settings of ``[data]`` (source, split,
    clients, ...), or your own: a :class:`~cgpfl.data.FederatedData` for all seeds, a list of them or a function of the
    seed for one each. ``model``: as of :func:`cgpfl.run`.
    ``seeds`` runs of each; ``tune`` settings tried for each on validation samples (0 = as they are);
    further settings are those of :func:`cgpfl.run` (rounds, seed, participation, devices, store, metrics, ...).
    ``out`` is the folder to create; ``callbacks`` are called with every event. ``progress`` and ``on_progress``: as of
    :func:`cgpfl.run`.
    """
    place = a_path(out)
    listed = [methods] if isinstance(methods, str | dict) or not isinstance(methods, Sequence) else list(methods)
    wanted = [one for m in listed for one in (chosen([m]) if isinstance(m, str) else [m])]
    source = {"source": data, "split": split} if isinstance(data, str) else data
    comparing = from_values(Comparing, {"seeds": seeds, "tune": tune, "target": target}, "compare: compare")
    if isinstance(data, Sequence) and not isinstance(data, str) and len(data) != seeds:
        raise CgpflError(f"data: {len(data)} federations for {seeds} seeds; give one a seed")
    experiment = Experiment.of(wanted, source, model, settings, "compare")
    with in_python(progress, on_progress) as tell:
        return run_comparison(experiment, comparing, place, tell, callbacks)


def chosen(names: Sequence[str]) -> list[str]:
    """Method names, checked, with "all" replaced by all there are, but for those that go around another."""
    for name in names:
        if name != "all":
            METHODS.find(name)
    return [n for name in names for n in (standing_alone() if name == "all" else [name])]


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
    notes: list[str] = []
    methods, data = experiment.methods(), experiment.data
    missing = [name for name in ALWAYS if name not in methods]
    needy = [label for label, m in methods.items() if getattr(m, "needs_public", False)]
    kept = experiment.method
    own = data.given is not None or data.source.endswith(".safetensors")
    has = own and data.build(experiment.seed)
    if needy and (data.chosen_split == "own" or own) and not (has and has.public is not None):
        kept = tuple(m for m in kept if m.label not in needy)
        notes.append(f"{', '.join(needy)} left out: no public samples in a split of one's own")
    elif needy and not own and not data.public:
        data = dataclasses.replace(data, public=PUBLIC)
        notes.append(f"{PUBLIC:.0%} of all samples are public, for {', '.join(needy)} (data.public)")
    if comparing.tune and has and has.validation is None:
        raise CgpflError("tune: chooses on validation samples, and the data has none; give it some, for instance 0.2")
    if comparing.tune and not own and not data.validation:
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
    on_progress: Tell | None = None,
    callbacks: Sequence[Callback] = (),
) -> Compared:
    """Compare the experiment's methods into the new folder ``out``. Everything is checked before it is created."""
    check_callbacks(callbacks)
    RunFolder.check_free(out)
    experiment, notes = completed(experiment, comparing)
    comparison = _Comparison(build(experiment, _seeds(experiment, comparing)), comparing, notes, on_progress, callbacks)
    folder = RunFolder.create(out)
    with writing(out):
        comparison.problem.begin(folder, compare={**parameters(comparing), "notes": notes})
        return comparison.run(out)


def resume_comparison(
    path: Path,
    on_progress: Tell | None = None,
    devices: int | str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Compared:
    """Continue a comparison from its folder: finished methods are kept, the one in the middle goes on there.

    ``devices``: on another number of devices than before.
    """
    values = config_of(path) | ({} if devices is None else {"devices": devices})
    notes = list(values["compare"].get("notes", []))
    experiment, comparing = from_config(values, str(path / "config.toml"))
    with writing(path):
        problem = build(experiment, _seeds(experiment, comparing))
        return _Comparison(problem, comparing, notes, on_progress, callbacks).run(path)


def _seeds(experiment: Experiment, comparing: Comparing) -> list[int]:
    return [experiment.seed + i for i in range(comparing.seeds)]


def is_comparison(path: Path) -> bool:
    """Whether a folder holds a comparison."""
    config = path / "config.toml"
    return config.exists() and isinstance(read_toml(config).get("compare"), dict)


@dataclass(frozen=True)
class _Comparison:
    problem: Problem
    comparing: Comparing
    notes: list[str]
    on_progress: Tell | None
    callbacks: Sequence[Callback]

    def fingerprint(self, label: str) -> dict[str, Any]:
        """What records must have been made with to belong here."""
        problem = self.problem
        run = fingerprint(problem.methods[label], problem.model, problem.experiment)
        splits = [d.digest for d in problem.federations.values()]
        return {**run, "seeds": list(problem.federations), "tune": self.comparing.tune, "data": splits}

    def batch(self, label: str) -> Batch:
        """All seeds of one method, and of every setting a search tries."""
        problem, experiment, method = self.problem, self.problem.experiment, self.problem.methods[label]
        settings = [method]
        if self.comparing.tune:
            here = (problem.data, experiment, problem.federations)
            settings = candidates(unseamed(method), self.comparing.tune, lambda m: checked(m, *here))
            settings[0] = method
        todo = [Run(m, d, s) for m in settings for s, d in problem.federations.items()]
        engine, place = experiment.engine(), experiment.place()
        del engine["seed"]
        together = place["devices"] in ("auto", 1) and place["store"] in ("auto", "device")
        return Batch(label, todo, problem.model, engine, None if together else place)

    def run(self, path: Path) -> Compared:
        """Every method that has no file yet, then the table."""
        problem, experiment, done = self.problem, self.problem.experiment, dict[str, Runs]()
        (path / "methods").mkdir(exist_ok=True)
        files = {label: path / "methods" / f"{label}.safetensors" for label in problem.methods}
        batches = {label: self.batch(label) for label, file in files.items() if not file.exists()}
        everyone: tuple[Callback, ...] = (JsonLines(path / EVENTS), *self.callbacks)
        about = opening(path.resolve().name, experiment, problem.data, problem.model, problem.config)
        parts = {label: file.with_suffix(".part") for label, file in files.items()}
        makers = [partial(batch.first, parts[label]) for label, batch in batches.items()]
        for label in files.keys() - batches.keys():
            shutil.rmtree(parts[label], ignore_errors=True)  # killed when its file was there and these were still
        size = sum({id(d.x): d.x.nbytes for d in problem.federations.values()}.values())
        with (
            told(everyone, about) as listening,
            interrupts() as stop,
            compiling(list(batches.values())) as wait,
            ahead(makers, size) as engine,
        ):
            for i, (label, batch) in enumerate(batches.items()):
                wait(i)
                part = parts[label]
                runs = self._method(batch, part, listening, stop, engine(i))
                save(files[label], runs, self.fingerprint(label))
                shutil.rmtree(part)
        for label, file in files.items():
            samples = [d.test.counts for d in problem.federations.values()]
            done[label] = load(file, self.fingerprint(label), samples)
        facts = {
            "data": problem.data.summary(),
            "model": problem.config["model"],
            "seeds": list(problem.federations),
            "rounds": experiment.rounds,
        }
        lost = [
            lost_seeds(m, problem.methods[m], r) for m, r in done.items() if any(bad is not None for bad in r.diverged)
        ]
        notes = [*self.notes, *spent_by_each(problem.methods, problem.federations)]
        return finish(path, done, facts, target=self.comparing.target, notes=notes, diverged=lost)

    def _method(
        self, batch: Batch, part: Path, listening: tuple[Callback, ...], stop: Callable[[], bool], engine: Engine | None
    ) -> Runs:
        """The seeds of one method, with the best of the settings that were tried; ``part``: for its checkpoints."""
        seeds, todo = len(self.problem.federations), list(batch.todo)
        done = run_batch(
            batch,
            on_progress=self.on_progress,
            stop=stop,
            callbacks=listening,
            folder=part,
            what=self.fingerprint(batch.label),
            save_every=self.problem.experiment.checkpoint_seconds,
            engine=engine,
        )
        best, tried = _choose([run.method for run in todo[::seeds]], todo, done, seeds)
        kept = slice(best * seeds, (best + 1) * seeds)
        runs = as_runs(batch._replace(todo=todo[kept]), done[kept], seconds=sum(d.seconds for d in done), tried=tried)
        tell(listening, Event("ended", batch.label, max(runs.rounds), _entry(runs)))
        return runs


def _entry(runs: Runs) -> dict[str, Any]:
    """What the event "ended" says: means over seeds, as an entry of summary.json."""
    each = [s for s in runs.scores() if s is not None]
    accuracy = {name: float(np.mean([s[name] for s in each])) for name in each[0]} if each else None
    totals = [runs.cost.after(t, a) for t, a in zip(runs.rounds, runs.answers, strict=True)]
    return {
        "accuracy": accuracy,
        "shared_accuracy": None,
        "contexts": None,
        "rounds": max(runs.rounds),
        "diverged": next((bad for bad in runs.diverged if bad is not None), None),
        **{name: round(float(np.mean([t[name] for t in totals]))) for name in totals[0]},
        "seconds": round(runs.seconds, 3),
        "notes": [],
    }


def _choose(settings: list[Any], todo: list[Run], done: list[Done], seeds: int) -> tuple[int, list[dict[str, Any]]]:
    """The setting with the best mean validation accuracy over seeds → (its place, all that were tried)."""
    if len(settings) == 1:
        return 0, []
    tried = []
    for i, method in enumerate(settings):
        each = []
        for run, end in zip(todo[i * seeds :][:seeds], done[i * seeds :][:seeds], strict=True):
            assert run.data.validation is not None
            right, held = np.nan, run.data.validation.counts
            if not end.diverged:
                last = {name: end.records.values[name][-1] for name in ("validation_correct", "correct")}
                right, held = last["validation_correct"].sum(), held[np.isfinite(last["correct"])]  # not of liars
            each.append(float(right / held.sum()))
        own = unseamed(method)
        values = {name: float(value_of(own, name)) for name in space(own)}
        tried.append({**values, "validation_accuracy": float(np.mean(each))})
    found = np.array([t["validation_accuracy"] for t in tried])
    return int(np.argmax(np.where(np.isnan(found), -np.inf, found))), tried


def lost_seeds(label: str, method: Any, runs: Runs) -> str:
    """Which seeds of a method diverged, and why that may be."""
    lost = {seed: bad for seed, bad in zip(runs.seeds, runs.diverged, strict=True) if bad is not None}
    where = ", ".join(f"seed {seed} in round {bad}" for seed, bad in lost.items())
    return explain(label, method, f"({where})")
