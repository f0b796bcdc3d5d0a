"""A node from what its worker is told: its part of an app's experiment, and its own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cgpfl.data import FederatedData, Form
from cgpfl.data.local import files_of, load_local
from cgpfl.deploy.agreement import EXPERIMENT, read_agreement
from cgpfl.engine.flower.node import Node
from cgpfl.metrics import DEFAULT, measured

_nodes: dict[str, tuple[Any, Node]] = {}
_data: dict[Any, FederatedData] = {}


def load_node(facts: dict[str, Any]) -> Node:
    """The node of ``facts`` (app, label, client, data, state), as before unless a file of it has changed."""
    app, data = Path(facts["app"]), Path(facts["data"])
    as_of = (facts, _state(app / EXPERIMENT), *(_state(f) for f in files_of(data) if f is not None))
    known = _nodes.get(facts["label"])
    if known is not None and known[0] == as_of:
        return known[1]
    agreed = read_agreement(app / EXPERIMENT)
    method, model = agreed.method(facts["label"]), agreed.model()
    own = _loaded(data, agreed.form, agreed.deploy.test, agreed.seed)
    client, place, metrics = (
        int(facts["client"]),
        Path(facts["state"]),
        measured(agreed.values.get("metrics", DEFAULT), model.objective),
    )
    node = Node(method, model, own, client, agreed.deploy.clients, agreed.seed, place, metrics)
    _nodes[facts["label"]] = (as_of, node)
    return node


def _state(file: Path) -> tuple[int, int] | None:
    if not file.exists():
        return None
    about = file.stat()
    return about.st_mtime_ns, about.st_size


def _loaded(path: Path, form: Form, test: float, seed: int) -> FederatedData:
    """The client's data; methods share it."""
    key = (str(path), form, test, seed, *(_state(f) for f in files_of(path) if f is not None))
    if key not in _data:
        _data.clear()
        _data[key] = load_local(path, form, test=test, seed=seed)
    return _data[key]
