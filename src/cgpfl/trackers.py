"""Trackers: the stream of events (:mod:`cgpfl.experiment.events`) told to TensorBoard, MLflow or Weights & Biases.

A tracker is a callback like any other, ``cgpfl.run(..., callbacks=[TensorBoard("runs/board")])``; on the command line
``--track tensorboard``. Your own is a function of one event::

    def mine(event):
        if event.kind == "evaluated":
            print(event.method, event.round, event.values["accuracy"])

    cgpfl.run("cgpfl", data, callbacks=[mine])

Of a function of yours an error ends the run (it can be resumed); of these trackers it ends the tracking.

Each tool is an extra (``pip install 'cgpfl[tensorboard]'``, ``[mlflow]``, ``[wandb]``) and is imported when its
tracker is made. Where the tool writes to is its own affair: MLFLOW_TRACKING_URI, WANDB_MODE, WANDB_PROJECT, ...
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cgpfl.errors import CgpflError
from cgpfl.experiment.events import Callback, Event

LOG = logging.getLogger(__name__)


def needed(module: str, extra: str) -> Any:
    """A tool's module, or one line that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CgpflError(f"{extra}: is not installed; install it with: pip install 'cgpfl[{extra}]'") from error


def flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings as ``data.clients = 40``; lists as text."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{before}{name}"
        if isinstance(value, dict):
            out |= flat(value, f"{key}.")
        elif name == "method" and isinstance(value, list):
            out |= flat({m["label"]: {k: v for k, v in m.items() if k != "label"} for m in value})
        else:
            out[key] = json.dumps(value) if isinstance(value, list) else value
    return out


class Tracker(ABC):
    """What the tools have in common: a run of the tool for each method that has something new to tell.

    A tool that fails once the run is going on (a server gone, a disk full) is given up with one line: no tracker ends
    hours of training, whose numbers are in the run folder anyway.
    """

    name = ""

    def __init__(self) -> None:
        self._about: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self._since = 0
        self._is_open = self._given_up = False

    def __call__(self, event: Event) -> None:
        """Tell the tool, unless it failed in this run before."""
        if event.kind == "opened":
            self._is_open = self._given_up = False
        if self._given_up:
            return
        try:
            self._take(event)
        except Exception as error:
            self._given_up = True
            what = _line(error) or type(error).__name__
            LOG.warning("%s: %s; the run goes on without it", self.name, what)
            if self._is_open:
                with contextlib.suppress(Exception):
                    self.end(None)

    def _take(self, event: Event) -> None:
        if event.kind == "opened":
            self._about = event.values
        elif event.kind == "started":
            self._settings, self._since = event.values, event.round
        elif event.kind == "evaluated":
            self._open(event.method)
            self.log(event.round, event.numbers())
        else:
            if event.kind == "ended" and event.round > self._since:  # it diverged before its first evaluation
                self._open(event.method)
            if self._is_open:
                self._is_open = False
                self.end(None if event.kind == "closed" else event)

    def _open(self, method: str) -> None:
        if not self._is_open:
            about = {k: v for k, v in self._about.items() if k != "config"}
            self.begin(str(self._about["name"]), method, flat(about) | flat(self._settings))
            self._is_open = True

    @abstractmethod
    def begin(self, run: str, method: str, settings: dict[str, Any]) -> None:
        """A method's first numbers are to come."""

    @abstractmethod
    def log(self, t: int, numbers: dict[str, float]) -> None:
        """Numbers of round ``t``."""

    @abstractmethod
    def end(self, ended: Event | None) -> None:
        """The method ended, or the run was stopped (None)."""


class TensorBoard(Tracker):
    """Scalars of every method in a folder of its own under ``folder``: TensorBoard overlays them."""

    name = "tensorboard"

    def __init__(self, folder: str | Path = "runs/tensorboard") -> None:
        super().__init__()
        self._events = needed("tensorboard.summary", "tensorboard")
        self.folder = Path(folder)
        self._writer: Any = None

    def begin(self, run: str, method: str, settings: dict[str, Any]) -> None:
        self._writer = self._events.Writer(str(self.folder / run / method))

    def log(self, t: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, t)

    def end(self, ended: Event | None) -> None:
        self._writer.close()


class MLflow(Tracker):
    """A run of MLflow for each method, with its settings as parameters, under one experiment."""

    name = "mlflow"

    def __init__(self, experiment: str = "cgpfl") -> None:
        super().__init__()
        self._mlflow = needed("mlflow", "mlflow")
        self.experiment = experiment
        self._run = ""
        try:
            self._client = self._mlflow.MlflowClient()
            self._client.search_experiments(max_results=1)
        except self._mlflow.MlflowException as error:
            raise CgpflError(f"mlflow: {_line(error)}; see MLFLOW_TRACKING_URI") from error

    def begin(self, run: str, method: str, settings: dict[str, Any]) -> None:
        found = self._client.get_experiment_by_name(self.experiment)
        where = found.experiment_id if found else self._client.create_experiment(self.experiment)
        tags = {"cgpfl.run": run, "cgpfl.method": method}
        self._run = self._client.create_run(where, run_name=f"{run}/{method}", tags=tags).info.run_id
        for name, value in settings.items():
            self._client.log_param(self._run, name, value)

    def log(self, t: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self._client.log_metric(self._run, name, value, step=t)

    def end(self, ended: Event | None) -> None:
        """Finished, failed if it diverged, killed if it was stopped."""
        status = "KILLED" if ended is None else "FAILED" if ended.values["diverged"] else "FINISHED"
        self._client.set_terminated(self._run, status)


class Wandb(Tracker):
    """A run of Weights & Biases for each method, grouped by the cgpfl run. ``WANDB_MODE=offline`` needs no account."""

    name = "wandb"

    def __init__(self, project: str | None = None) -> None:
        super().__init__()
        self._wandb = needed("wandb", "wandb")
        self.project = project
        self._run: Any = None
        if self._wandb.setup().settings.mode == "online":
            try:
                self._wandb.login()
            except self._wandb.Error as error:
                raise CgpflError(f"wandb: {_line(error)} Or set WANDB_MODE=offline.") from error

    def begin(self, run: str, method: str, settings: dict[str, Any]) -> None:
        self._run = self._wandb.init(project=self.project, group=run, name=f"{run}/{method}", config=settings)

    def log(self, t: int, numbers: dict[str, float]) -> None:
        self._run.log(numbers, step=t)

    def end(self, ended: Event | None) -> None:
        """The summary, and the exit code: 0 if the method ended."""
        if ended is not None:
            self._run.summary.update(ended.numbers())
        self._run.finish(exit_code=1 if ended is None else 0)


TRACKERS: dict[str, Callable[[], Callback]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": Wandb}


def tracker(name: str) -> Callback:
    """A tracker by its name on the command line."""
    if name not in TRACKERS:
        raise CgpflError(f"--track {name}: no such tracker; there are {', '.join(TRACKERS)}")
    return TRACKERS[name]()


def _line(error: Exception) -> str:
    """The first line of what a tool has to say."""
    return str(error).strip().partition("\n")[0]
