"""A node from what its worker is told: its part of an app's experiment, and its own data."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from cgpfl.data import FederatedData
from cgpfl.data.local import files_of, load_local
from cgpfl.data.survey import check_fits
from cgpfl.deploy.agreement import ASKED, EXPERIMENT, Agreement, read_agreement
from cgpfl.deploy.survey import Surveyor, survey_of
from cgpfl.engine.flower.node import Node
from cgpfl.metrics import DEFAULT, measured
from cgpfl.registry import own_modules

APPS = "apps"
"""Beside private states: the apps that they are of."""
_nodes: dict[str, tuple[Any, Node]] = {}
_data: dict[Any, FederatedData] = {}


def load_node(facts: dict[str, Any]) -> Node | Surveyor:
    """The node of ``facts`` (app, label, form, client, data, state), as before unless a file of it has changed.

    ``form``: of the samples, as JSON; where that is empty and the app does not know it, statistics are asked.
    """
    app, data = Path(facts["app"]), Path(facts["data"])
    as_of = (facts, _state(app / EXPERIMENT), *(_state(f) for f in files_of(data) if f is not None))
    known = _nodes.get(facts["label"])
    if known is not None and known[0] == as_of:
        return known[1]
    agreed = read_agreement(app / EXPERIMENT, facts["form"])
    client, place = agreed.client(facts["client"]), Path(facts["state"])
    if agreed.asks:
        return Surveyor(agreed, client, data, place)
    about = {"label": facts["label"], "form": facts["form"], "app": keep_app(agreed, place).name}
    node = make_node(agreed, facts["label"], client, data, place, about)
    _nodes[facts["label"]] = (as_of, node)
    return node


def make_node(
    agreed: Agreement, label: str, client: int, data: Path, place: Path, about: dict[str, Any] | None = None
) -> Node:
    """The node of a client with its own data; ``about`` is kept beside its states in ``place``."""
    model, own = agreed.model(), _loaded(data, agreed)
    method = agreed.method(label, int(own.train.counts[0]))
    metrics = measured(agreed.values.get("metrics", DEFAULT), model.objective)
    return Node(method, model, own, client, agreed.deploy.clients, agreed.seed, place, metrics, about or {})


def keep_app(agreed: Agreement, place: Path) -> Path:
    """A copy of the app's experiment, and of modules that came with it, beside the private states."""
    content = agreed.where.read_bytes()
    kept = place / APPS / hashlib.sha256(content).hexdigest()[:16]
    if not kept.exists():
        part = kept.with_name(kept.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700, parents=True)
        (part / EXPERIMENT).write_bytes(content)
        named = {key: value for key, value in agreed.values.items() if key != "data"}
        for name, source in own_modules(named).items():
            if source.is_dir():
                shutil.copytree(source, part / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, part / source.name)
        part.rename(kept)
    return kept


def _state(file: Path) -> tuple[int, int] | None:
    if not file.exists():
        return None
    about = file.stat()
    return about.st_mtime_ns, about.st_size


def _loaded(path: Path, agreed: Agreement) -> FederatedData:
    """The client's data; methods share it."""
    form, test, seed = agreed.form, agreed.deploy.test, agreed.seed
    key = (str(path), form, test, seed, *(_state(f) for f in files_of(path) if f is not None))
    if key not in _data:
        _data.clear()
        if agreed.deploy.form == ASKED and form.columns is not None:
            check_fits(survey_of(agreed, path), form.columns, agreed.reading, f"data {path}")
        _data[key] = load_local(path, form, test=test, seed=seed)
    return _data[key]
