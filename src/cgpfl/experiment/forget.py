"""Forget a client: the run as if it had never been there, replayed from its first round.

A run without a client is a run on :meth:`FederatedData.without <cgpfl.data.FederatedData.without>`: nothing of the old
run is used but its configuration, so there is nothing the client could have left behind.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cgpfl.data import FederatedData
from cgpfl.engine.privacy import summed
from cgpfl.errors import CgpflError
from cgpfl.experiment.compare import Comparing, from_config, is_comparison, run_comparison
from cgpfl.experiment.compared import Compared
from cgpfl.experiment.config import DataConfig, Experiment, config_of, read_experiment
from cgpfl.experiment.events import Callback
from cgpfl.experiment.experiment import Finished, Tell, run_experiment
from cgpfl.experiment.folder import RunFolder
from cgpfl.experiment.given import GivenData
from cgpfl.experiment.lock import writing
from cgpfl.experiment.progress import in_python
from cgpfl.files import GONE, a_path, no_link, unsum, write

FORGOTTEN = "forgotten.json"
MODELS, VALUES = ("methods", "samples*.safetensors"), ("federation.safetensors", "metrics.parquet", "audit-*.json")
DELETED = (*MODELS, *VALUES, "figures", "*.html")
"""What ``delete`` removes of the old run: models and states, samples, and values and pictures of each client."""


@dataclass(frozen=True)
class Forgotten:
    """A run without a client, and what it took."""

    folder: Path
    client: str
    finished: Finished | Compared
    cost: dict[str, dict[str, float]]
    """By method: ``rounds``, ``seconds`` and ``gradients`` (of a comparison: means over its seeds)."""
    deleted: tuple[str, ...]
    """What was removed of the old run."""

    @property
    def total(self) -> dict[str, float]:
        names = ("rounds", "seconds", "gradients")
        return {name: sum(each[name] for each in self.cost.values()) for name in names}


def forget(
    run: str | Path,
    client: int | str,
    *,
    out: str | Path | None = None,
    delete: bool = False,
    progress: bool = True,
    on_progress: Tell | None = None,
    callbacks: Sequence[Callback] = (),
) -> Forgotten:
    """Run the experiment of the folder ``run`` (a run's or a comparison's) as if ``client`` had never been there.

    Into the new folder ``out`` (None: ``RUN-without-CLIENT``), bit for bit what ``cgpfl.run`` gives on
    ``data.without(client)``. ``delete``: afterwards the old run's models, samples and values of each client are
    removed. ``progress``, ``on_progress`` and ``callbacks``: as of :func:`cgpfl.run`.
    """
    path = a_path(run, "run")
    planned = plan(path, client, out)
    with in_python(progress, on_progress) as tell:
        return planned.run(tell, callbacks, delete)


@dataclass(frozen=True)
class Plan:
    """What is to be run, checked, before anything is."""

    path: Path
    out: Path
    client: str
    experiment: Experiment
    comparing: Comparing | None

    def run(self, tell: Tell | None, callbacks: Sequence[Callback] = (), delete: bool = False) -> Forgotten:
        """Run it; the old run is touched only when the new one is finished."""
        finished: Finished | Compared
        if self.comparing is None:
            finished = run_experiment(self.experiment, self.out, tell, callbacks)
        else:
            finished = run_comparison(self.experiment, self.comparing, self.out, tell, callbacks)
        deleted = remove(self.path, self.client, self.out) if delete else ()
        found = Forgotten(self.out, self.client, finished, cost_of(self.out), deleted)
        about = {"client": self.client, "of": self.path.resolve().name, "cost": found.cost, "total": found.total}
        about |= {"deleted": list(deleted), "data": {"without": list(self.experiment.data.without)}}
        write(self.out / FORGOTTEN, (json.dumps(about, indent=2) + "\n").encode())
        return found


def plan(path: Path, client: int | str, out: str | Path | None = None) -> Plan:
    """The experiment of a folder without a client; an error where that cannot be."""
    config = config_of(path)
    if "deploy" in config:
        raise CgpflError(
            f"run {path}: is of a deployment, whose samples are on its nodes; take the client's node away, set clients "
            "in [deploy] to one fewer, and start a new run: cgpfl deploy run APP --out NEW"
        )
    comparing = None
    if is_comparison(path):
        experiment, comparing = from_config(config, str(path / "config.toml"))
    else:
        experiment = read_experiment(path)
    if sums := [label for label, method in experiment.methods().items() if summed(experiment, method)]:
        raise CgpflError(
            f"run {path}: {sums[0]}: trusted = server: both runs would have the same noise of the server's, and their "
            "difference be what the client sent; run anew without it, with another seed"
        )
    seeds = [experiment.seed + i for i in range(comparing.seeds if comparing else 1)]
    federations = experiment.data.federations(seeds)
    for data in federations.values():
        data.without(client)
    first = next(iter(federations.values()))
    name = first.name(first.place(client))
    slug = re.sub(r"[^\w.-]+", "-", name).strip("-")[:60] or "client"
    place = path.parent / f"{path.resolve().name}-without-{slug}" if out is None else a_path(out)
    RunFolder.check_free(place)
    return Plan(path, place, name, replace(experiment, data=_without(experiment.data, path, name)), comparing)


def _without(data: DataConfig, path: Path, name: str) -> DataConfig:
    """Settings of the data without a client; samples that the folder keeps are given anew, without the client's."""
    if not data.source.endswith(".safetensors") or Path(data.source).parent.resolve() != path.resolve():
        return replace(data, without=(*data.without, name))

    def left(seed: int) -> FederatedData:
        return data.build(seed).without(name)

    given = GivenData(left(0) if data.seed != "same" else left)
    return DataConfig(seed=data.seed, given=given)


def cost_of(folder: Path) -> dict[str, dict[str, float]]:
    """Rounds, seconds and gradients of each method of a finished run or comparison."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    usual = {"rounds": summary.get("rounds", 0), "seconds": 0.0, "gradients": 0}
    return {label: {n: m.get(n) or v for n, v in usual.items()} for label, m in summary["methods"].items()}


def remove(path: Path, client: str, now: Path) -> tuple[str, ...]:
    """Delete a run's models, states, samples and values of each client; configuration and pooled figures stay.

    The folder says from then on which client was forgotten, and where the run is ``now``.
    """
    with writing(path):
        write(path / GONE, (json.dumps({"client": client, "now": str(now)}) + "\n").encode())
        found = sorted(file for pattern in DELETED for file in path.glob(pattern))
        for file in found:
            no_link(file)
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        unsum(path)
    return tuple(file.name for file in found)
