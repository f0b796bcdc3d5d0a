"""A finished run, opened again from its folder: one method of it, with or without its federation."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cgpfl.data import Form
from cgpfl.engine import State
from cgpfl.engine.privacy import protected_for
from cgpfl.engine.problem import keys_of, make_task, on_device, with_public
from cgpfl.errors import CgpflError, DamagedError
from cgpfl.experiment.checkpoint import STATE, MethodFolder, arrays_tree, check_same, load_checkpoint
from cgpfl.experiment.config import Experiment, config_of, read_experiment
from cgpfl.experiment.experiment import build
from cgpfl.experiment.folder import RunFolder, form_of
from cgpfl.experiment.lines import pointing
from cgpfl.experiment.result import Result
from cgpfl.experiment.run import fingerprint, run_method
from cgpfl.files import check_sum, read_text
from cgpfl.models import as_model


@dataclass(frozen=True)
class Published:
    """What a finished method's server knows, and what it takes to use it. No client's samples, no personal state."""

    label: str
    method: Any
    task: Any
    """With the model; and with the public samples, where the method needs such."""
    server: Any
    seed: int
    rounds: int
    data: dict[str, Any]
    """Facts of the federation: its form (:meth:`cgpfl.data.Form.facts`), ``clients``, ``split_hash``, ..."""

    @property
    def model(self) -> Any:
        return self.task.model

    @property
    def form(self) -> Form:
        """Of the federation's samples."""
        return Form.of(self.data)


def load_result(path: Path, label: str | None = None) -> Result:
    """The result of a finished method from its run folder; the federation is built again and checked.

    ``label``: which of the run's methods; None = the most accurate.
    """
    folder, experiment = _open(path, label)
    if "deploy" in config_of(path):
        raise CgpflError(f"run {path}: is of a deployment, whose clients keep their models; use: cgpfl personalize")
    # Where the run was computed does not matter here: one device of this machine reads what it left.
    experiment = dataclasses.replace(experiment, devices=1, store="auto")
    label = experiment.method[0].label
    with pointing(path / "config.toml"):
        problem = build(experiment)
    folder.check_split(problem.data)
    method, place = problem.methods[label], folder.method(label)
    result = run_method(method, problem.data, problem.model, experiment, label=label, folder=place)
    if result.diverged is not None:
        raise CgpflError(_lost(path, label, result.diverged))
    return result


def load_published(path: Path, label: str | None = None) -> Published:
    """The server's side of a finished method from its run folder, without the federation's samples.

    ``label``: which of the run's methods; None = the most accurate. (A method that needs public samples gets them: the
    federation is built again.)
    """
    folder, experiment = _open(path, label)
    label = experiment.method[0].label
    method, seed = experiment.methods()[label], experiment.seed
    data = experiment.data.build(seed) if getattr(method, "needs_public", False) else None
    facts = data.summary() | data.form(experiment.loss).facts() if data is not None else _facts(folder, experiment)
    if experiment.privacy == "client":  # as the run had it: noise of uploads depends on who is asked, not on samples
        method = protected_for(method, experiment, facts["clients"], [], (seed,))
    form = Form.of(facts)
    given = {"objective": form.objective, "frozen": experiment.frozen, **experiment.model.settings}
    model = as_model(experiment.model.name, form.shape, form.classes, **given)
    where = folder.method(label).path
    arrays, saved = load_checkpoint(where / STATE, "round", "run")
    made = {name: value for name, value in saved["run"].items() if not name.startswith("deploy.")}
    check_same(where, made, fingerprint(method, model, experiment))
    task = make_task(model, keys_of(seed), facts["clients"])
    if data is not None:
        folder.check_split(data)
        task = with_public(task, on_device(data))
    number: Any = jax.ShapeDtypeStruct((), np.int32)
    server = jax.eval_shape(method.init_server, task, jax.random.key(0))
    state = arrays_tree(arrays, State(server, (), number, number), where / STATE)
    if int(state.diverged) >= 0:
        raise CgpflError(_lost(path, label, int(state.diverged) + 1))
    return Published(label, method, task, state.server, seed, saved["round"], facts)


def published(result: Result) -> Published:
    """The server's side of a result."""
    task = make_task(result.model, keys_of(result.seed), result.data.clients)
    if getattr(result.method, "needs_public", False):
        task = with_public(task, on_device(result.data))
    facts = (result.seed, result.rounds, result.data.summary() | form_of(result.data, result.model).facts())
    return Published(result.label, result.method, task, result.state.server, *facts)


def ranked(path: Path) -> list[str]:
    """Labels of a finished run's methods, the most accurate first."""
    return _ranked(_open(path, None)[0])


def choose(path: Path, label: str | None) -> str:
    """The label of the run's method that is asked for; None = the most accurate. It must be finished."""
    return _open(path, label)[1].method[0].label


def _open(path: Path, label: str | None) -> tuple[RunFolder, Experiment]:
    """A run folder and its experiment, with the one method that is asked for, which must be finished."""
    experiment, folder = read_experiment(path), RunFolder(path)
    names = [m.label for m in experiment.method]
    label = label or next(iter(_ranked(folder)), names[-1])
    if label not in names:
        raise CgpflError(f"run {path}: no method {label!r}; it has {', '.join(names)}")
    state = folder.method(label)
    done = _round(state) if state.exists() else 0
    if done < experiment.rounds:
        raise CgpflError(
            f"run {path}: {label} is at round {done} of {experiment.rounds}; finish it with: cgpfl resume {path}"
        )
    chosen = next(m for m in experiment.method if m.label == label)
    return folder, dataclasses.replace(experiment, method=(chosen,))


def _round(folder: MethodFolder) -> int:
    """Rounds done; a method that diverged, or stopped early, is as finished as it will be."""
    try:
        arrays, facts = load_checkpoint(folder.path / STATE, "round")
    except DamagedError as error:
        how = f"go on from the one before it by: cgpfl resume {folder.path.parent.parent}"
        raise DamagedError(f"{error}; {how}") from error
    over = int(arrays.get(".diverged", -1)) >= 0 or facts.get("stopped", False)
    return 10**9 if over else int(facts["round"])


def _ranked(folder: RunFolder) -> list[str]:
    """Labels by the run's summary, the most accurate first, the first of equals before the others."""
    found = _summary(folder).get("methods", {})
    scored = {label: m["accuracy"]["pooled"] for label, m in found.items() if m.get("accuracy") and not m["diverged"]}
    return sorted(scored, key=lambda label: -scored[label])


def _facts(folder: RunFolder, experiment: Experiment) -> dict[str, Any]:
    """Facts of the federation from the summary; where it has none (yet), the federation is built."""
    facts = _summary(folder).get("data", {})
    if "scale" in facts:
        return facts
    data = experiment.data.build(experiment.seed)
    return data.summary() | data.form(experiment.loss).facts()


def _summary(folder: RunFolder) -> dict[str, Any]:
    try:
        check_sum(folder.path / "summary.json")
        return json.loads(read_text(folder.path / "summary.json"))
    except FileNotFoundError:
        return {}
    except DamagedError:
        raise
    except (OSError, ValueError) as error:
        raise CgpflError(f"run {folder.path}: summary.json cannot be read ({type(error).__name__})") from error


def _lost(path: Path, label: str, bad: int) -> str:
    return f"run {path}: {label} diverged in round {bad}; it has no model to use"
