"""Trackers: the stream of events (:mod:`cgpfl.experiment.events`) told to TensorBoard, MLflow or Weights & Biases.

A tracker is a callback like any other, ``cgpfl.run(..., callbacks=[TensorBoard("runs/board")])``; on the command line
``--track tensorboard``. Your own is a function of one event::

    def mine(event):
        if event.kind == "evaluated":
            print(event.method, event.round, event.values["accuracy"])

    cgpfl.run("cgpfl", data, callbacks=[mine])

Each tool is an extra (``pip install 'cgpfl[tensorboard]'``, ``[mlflow]``, ``[wandb]``) and is imported when its
tracker is made. Where the tool writes to is its own affair: MLFLOW_TRACKING_URI, WANDB_MODE, WANDB_PROJECT, ...
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cgpfl.errors import CgpflError
from cgpfl.experiment.events import Callback, Event


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


class TensorBoard:
    """Scalars of every method in a folder of its own under ``folder``: TensorBoard overlays them."""

    def __init__(self, folder: str | Path = "runs/tensorboard") -> None:
        self._events = needed("tensorboard.summary", "tensorboard")
        self.folder = Path(folder)
        self._writers: dict[str, Any] = {}

    def __call__(self, event: Event) -> None:
        """Write an evaluation's numbers; close everything at the end."""
        if event.kind == "opened":
            self.run = _name(event)
        elif event.kind == "evaluated":
            writer = self._writers.get(event.method)
            if writer is None:
                writer = self._writers[event.method] = self._events.Writer(str(self.folder / self.run / event.method))
            for name, value in event.numbers().items():
                writer.add_scalar(name, value, event.round)
        elif event.kind == "closed":
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()


class MLflow:
    """A run of MLflow for each method, with its settings as parameters, under one experiment."""

    def __init__(self, experiment: str = "cgpfl") -> None:
        self._mlflow = needed("mlflow", "mlflow")
        self.experiment = experiment
        self._open: str | None = None
        try:
            self._mlflow.MlflowClient().search_experiments(max_results=1)
        except self._mlflow.MlflowException as error:
            raise CgpflError(f"mlflow: {_line(error)}; see MLFLOW_TRACKING_URI") from error

    def __call__(self, event: Event) -> None:
        """Start a run with its method, log its numbers, end it."""
        client = self._mlflow.MlflowClient()
        if event.kind == "opened":
            self._about, self.run = event.values, _name(event)
            found = client.get_experiment_by_name(self.experiment)
            self._where = found.experiment_id if found else client.create_experiment(self.experiment)
        elif event.kind == "started":
            tags = {"cgpfl.run": self.run, "cgpfl.method": event.method}
            self._open = client.create_run(self._where, run_name=f"{self.run}/{event.method}", tags=tags).info.run_id
            about = {k: v for k, v in self._about.items() if k != "config"}
            for name, value in (flat(about) | flat(event.values)).items():
                client.log_param(self._open, name, value)
        elif event.kind == "evaluated" and self._open:
            for name, value in event.numbers().items():
                client.log_metric(self._open, name, value, step=event.round)
        elif self._open:
            done = event.kind == "ended" and not event.values["diverged"]
            client.set_terminated(self._open, "FINISHED" if done else "FAILED" if event.kind == "ended" else "KILLED")
            self._open = None


class Wandb:
    """A run of Weights & Biases for each method, grouped by the cgpfl run. ``WANDB_MODE=offline`` needs no account."""

    def __init__(self, project: str | None = None) -> None:
        self._wandb = needed("wandb", "wandb")
        self.project = project
        self._open: Any = None
        if self._wandb.setup().settings.mode == "online":
            try:
                self._wandb.login()
            except self._wandb.Error as error:
                raise CgpflError(f"wandb: {_line(error)} Or set WANDB_MODE=offline.") from error

    def __call__(self, event: Event) -> None:
        """Start a run with its method, log its numbers, finish it."""
        if event.kind == "opened":
            self._about, self.run = event.values, _name(event)
        elif event.kind == "started":
            config = flat({k: v for k, v in self._about.items() if k != "config"}) | flat(event.values)
            self._open = self._wandb.init(
                project=self.project, group=self.run, name=f"{self.run}/{event.method}", config=config
            )
        elif event.kind == "evaluated" and self._open:
            self._open.log(event.numbers(), step=event.round)
        elif self._open:
            if event.kind == "ended":
                self._open.summary.update(event.numbers())
            self._open.finish(exit_code=0 if event.kind == "ended" else 1)
            self._open = None


TRACKERS: dict[str, Callable[[], Callback]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": Wandb}


def tracker(name: str) -> Callback:
    """A tracker by its name on the command line."""
    if name not in TRACKERS:
        raise CgpflError(f"--track {name}: no such tracker; there are {', '.join(TRACKERS)}")
    return TRACKERS[name]()


def _line(error: Exception) -> str:
    """The first line of what a tool has to say."""
    return str(error).strip().partition("\n")[0]


def _name(event: Event) -> str:
    """What a run is called in a tool."""
    return str(event.values["name"])
