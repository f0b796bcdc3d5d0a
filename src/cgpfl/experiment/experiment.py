"""The orchestrator: from an experiment, however it was given, to a run folder and results.

The command line's ``cgpfl run`` and Python's :func:`run` are the same path; :mod:`cgpfl.experiment.compare` begins as
they do and runs the seeds of each method together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from cgpfl.data import FederatedData
from cgpfl.engine import check_start
from cgpfl.engine.drive import interrupts
from cgpfl.engine.placement import check_place
from cgpfl.engine.processes import agree, by_the_first, watched
from cgpfl.errors import CgpflError
from cgpfl.experiment.ahead import ahead
from cgpfl.experiment.config import Experiment, config_of, read_experiment, to_toml
from cgpfl.experiment.events import EVENTS, Callback, JsonLines, check_callbacks, opening, told
from cgpfl.experiment.folder import Draw, RunFolder
from cgpfl.experiment.given import keep_samples
from cgpfl.experiment.lock import writing
from cgpfl.experiment.progress import in_python
from cgpfl.experiment.result import Outcome, Result
from cgpfl.experiment.run import Progress, check_label, checked, engine_of, run_method
from cgpfl.files import a_path, write
from cgpfl.models import Model

Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class Problem:
    """An experiment with its parts built, each once, and checked against each other."""

    experiment: Experiment
    federations: dict[int, FederatedData]
    """By seed."""
    model: Model
    methods: dict[str, Any]
    """By label, under the rules of their rounds."""

    @property
    def data(self) -> FederatedData:
        """The first seed's."""
        return next(iter(self.federations.values()))

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything, written out."""
        return self.experiment.complete(self.federations, self.model)

    def begin(self, folder: RunFolder, **more: Any) -> RunFolder:
        """Write ``config.toml``, ``more`` sections in it, and what else it takes to go on from a new folder."""
        keep_samples(folder.path, self.config["data"], self.federations)
        write(folder.path / "config.toml", to_toml({**self.config, **more}).encode())
        return folder


def build(experiment: Experiment, seeds: Sequence[int] = ()) -> Problem:
    """Data, model and methods, everything checked against everything."""
    check_place(experiment.devices, experiment.store)
    methods = experiment.methods()
    federations = experiment.data.federations(seeds or [experiment.seed])
    first = next(iter(federations.values()))
    if experiment.patience and first.validation is None:
        raise CgpflError("patience: needs validation samples; set data.validation, for instance to 0.2")
    model = experiment.make_model(first)
    ready = {label: checked(method, first, experiment, federations) for label, method in methods.items()}
    check_start(ready.values(), first, model)
    return Problem(experiment, federations, model, ready)


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


def run(
    method: Any,
    data: FederatedData | str | dict[str, Any] = "digits",
    model: Any = "mlr",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    on_progress: Tell | None = None,
    callbacks: Sequence[Callback] = (),
    label: str | None = None,
    **settings: Any,
) -> Result:
    """Run ``method`` on ``data`` and return its :class:`Result`.

    ``method``: an object of the contract, or a method's name. ``data``: a federation, a data set's name, a .npz file,
    or a dictionary with settings of ``[data]``. ``model``: a name such as "mlr", a dictionary with a name and
    settings, a :class:`~cgpfl.models.Model`, a flax
    module or a pair (init, apply). Names may be ``package.module:Name``. ``settings`` are those of
    :class:`~cgpfl.engine.settings.Settings`: ``rounds`` (200) and ``seed`` (0).
    ``eval_every``: rounds between evaluations (0 = about 100 in the run; the last is always evaluated).
    ``participation``: share of the clients asked in a round. ``dropout``: chance that one asked does not
    answer. ``clients_per_block``: clients computed at once (0 = what fits). ``devices``: how many share the
    clients, "all", or "auto": one, or a CPU's cores if that is faster. ``store``: where personal states are
    between rounds: "device", "host", "disk" (a file in ``out``), or "auto". ``precision``: of the clients'
    matrix products, "float32", "tf32", "bfloat16", or "default": JAX's own. ``metrics``: what is measured, by name or
    yours (see :func:`cgpfl.metrics.get_metric`). ``sampler``: who is asked; ``outgoing``: what becomes of updates
    before they leave a client; ``mean``: how uploads become a mean (:mod:`cgpfl.rounds`).
    ``out``: a run folder, with checkpoints, for ``cgpfl resume``, ``report``, ``export``, …; with ``resume=True`` a run
    there is continued. How far it is is shown on standard error, or under a notebook's cell, unless ``progress`` is
    False or ``on_progress`` is given, which is called after every block; ``callbacks`` with every
    :class:`~cgpfl.experiment.events.Event`.

    >>> import cgpfl
    >>> data = cgpfl.make_data("digits", "rotation", seed=0)
    >>> result = cgpfl.run(cgpfl.CGPFL(contexts="auto"), data, rounds=50, seed=0)
    >>> result.contexts.k
    4
    """
    place = Path() if out is None else a_path(out)
    if out is not None and not (resume and place.exists()):
        RunFolder.check_free(place)
    if label is not None:
        check_label(label)
    problem = build(Experiment.of([method], data, model, settings, "run", label or ""))
    check_callbacks(callbacks)
    kept: list[Result] = []
    if out is None:
        with in_python(progress, on_progress) as tell:
            _perform(problem, None, tell, callbacks, kept.append)
        return replace(kept[0], problem=problem)
    folder, there = RunFolder(place), resume and place.exists()
    agree("run", f"{problem.config} {problem.data.digest}")
    if not there:
        by_the_first(lambda: RunFolder.create(place))
    with writing(place), in_python(progress, on_progress) as tell:
        others = [one for one in folder.labels() if one not in problem.methods] if there else []
        if others:
            raise CgpflError(f"run {place}: holds {', '.join(others)}; resume with label={others[0]!r}")
        by_the_first(lambda: folder.check_split(problem.data) if there else problem.begin(folder))
        _perform(problem, folder, tell, callbacks, kept.append)
    return replace(kept[0], problem=problem)


def run_experiment(
    experiment: Experiment,
    out: Path,
    on_progress: Tell | None = None,
    callbacks: Sequence[Callback] = (),
    draw: Draw | None = None,
) -> Finished:
    """Run every method into the new folder ``out``. Everything is checked before it is created.

    ``callbacks`` are called with every :class:`~cgpfl.experiment.events.Event`. ``draw``: called with the finished
    folder instead of drawing its figures.
    """
    check_callbacks(callbacks)
    by_the_first(lambda: RunFolder.check_free(out))
    problem = build(experiment)
    with watched(lambda: f"run {out}", "see what it says"):
        agree("run", f"{problem.config} {problem.data.digest}")
        by_the_first(lambda: RunFolder.create(out))
        with writing(out):
            by_the_first(lambda: problem.begin(RunFolder(out)))
            return _perform(problem, RunFolder(out), on_progress, callbacks, draw=draw)


def resume_experiment(
    path: Path,
    on_progress: Tell | None = None,
    devices: int | str | None = None,
    callbacks: Sequence[Callback] = (),
    draw: Draw | None = None,
) -> Finished:
    """Continue a run from its folder: finished methods are kept, the others go on where they were.

    ``devices``: on another number of devices than before. ``draw``: as of :func:`run_experiment`.
    """
    if "deploy" in config_of(path):
        raise CgpflError(f"run {path}: is of a deployment; it goes on by: cgpfl deploy run APP --out {path}")
    with watched(lambda: f"run {path}", "see what it says"), writing(path):
        problem = build(read_experiment(path, **({} if devices is None else {"devices": devices})))
        agree("run", f"{problem.config} {problem.data.digest}")
        return _perform(problem, RunFolder(path), on_progress, callbacks, draw=draw)


def _perform(
    problem: Problem,
    folder: RunFolder | None,
    on_progress: Tell | None,
    callbacks: Sequence[Callback],
    keep: Callable[[Result], None] = lambda result: None,
    draw: Draw | None = None,
) -> Finished:
    """Every method in turn, from its checkpoint where there is one, and the folder's tables at the end."""
    experiment, data, results = problem.experiment, problem.data, list[Outcome]()
    summary: dict[str, Any] = {}
    everyone, name, config = tuple(callbacks), next(iter(problem.methods)), None
    if folder is not None:
        by_the_first(partial(folder.write_split, data))
        everyone, name = (JsonLines(folder.path / EVENTS), *callbacks), folder.path.resolve().name
        config = problem.config
    with told(everyone, opening(name, experiment, data, problem.model, config)) as listening:
        folders = {label: None if folder is None else folder.method(label) for label in problem.methods}
        makers = [
            None
            if place is not None and place.exists()
            else partial(engine_of, m, data, problem.model, experiment, place)
            for m, place in zip(problem.methods.values(), folders.values(), strict=True)
        ]
        with interrupts() as stop, ahead(makers, data.x.nbytes) as engine:
            for i, (label, method) in enumerate(problem.methods.items()):
                result = run_method(
                    method,
                    data,
                    problem.model,
                    experiment,
                    label=label,
                    folder=folders[label],
                    on_progress=on_progress,
                    callbacks=listening,
                    stop=stop,
                    checkpoint_seconds=experiment.checkpoint_seconds,
                    engine=engine(i),
                )
                if folder is not None:
                    by_the_first(partial(folder.save_models, result))
                    results.append(result.outcome())
                keep(result)
                del result  # its personal states and samples make room for the next method's
        if folder is not None:
            by_the_first(lambda: summary.update(folder.finish(results, draw)))
    return Finished(Path() if folder is None else folder.path, results, summary)
