"""A node's own model, on the node: from the state and the message that it keeps, and its own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from cgpfl.data import FederatedData
from cgpfl.deploy.agreement import EXPERIMENT, read_agreement
from cgpfl.deploy.node import APPS, make_node
from cgpfl.engine.flower.private import MESSAGE
from cgpfl.errors import CgpflError
from cgpfl.experiment.reload import Published
from cgpfl.experiment.result import PersonalModel
from cgpfl.files import load_arrays, load_facts

STATES = "states"
"""Of a node's folder: its private states."""


class Personal(NamedTuple):
    """What a node has for itself."""

    model: PersonalModel
    shared: PersonalModel | None
    """What the server sent it, where that is a model."""
    data: FederatedData
    """Its own samples."""
    published: Published
    """Where the model comes from; of the server's state there is nothing here."""
    facts: dict[str, Any]
    """Whose it is."""


def personal_model(state: Path, data: Path, label: str | None = None) -> Personal:
    """The model of the node whose folder is ``state``, after the last message it heard of the method ``label``.

    ``label``: None where the node took part in one method only.
    """
    place = state / STATES if (state / STATES).is_dir() else state
    file, facts = _newest(place, label)
    agreed = read_agreement(place / APPS / facts["app"] / EXPERIMENT, facts["form"])
    node = make_node(agreed, facts["label"], int(facts["client"]), data, place)
    own, shared = node.personal(file.parent.name, load_arrays(file)[0], facts["round"], facts["base"])

    def usable(params: Any) -> PersonalModel:
        return PersonalModel(jax.tree.map(np.asarray, params), node.model, agreed.form)

    about = {"source": "nodes", "split": "node", "clients": node.clients, **agreed.form.facts()}
    task: Any = None
    published = Published(facts["label"], node.method, task, None, node.seed, facts["round"], about)
    names = agreed.deploy.names
    whose = {"client": node.client, **({"name": names[node.client]} if names else {})}
    return Personal(usable(own), None if shared is None else usable(shared), node.data, published, whose)


def _newest(place: Path, label: str | None) -> tuple[Path, dict[str, Any]]:
    """What is kept of the newest run of a method: the message's file, and its facts."""
    files = sorted(place.glob(f"client-*/*/{MESSAGE}"), key=lambda f: -f.stat().st_mtime)
    if not files:
        raise CgpflError(f"state {place}: has no model; give the folder that cgpfl deploy node was given as --state")
    kept = [(file, load_facts(file)) for file in files]
    labels = sorted({facts["label"] for _, facts in kept})
    if label is None and len(labels) > 1:
        raise CgpflError(f"state {place}: has models of {', '.join(labels)}; choose one by --method")
    found = [(file, facts) for file, facts in kept if label in (None, facts["label"])]
    if not found:
        raise CgpflError(f"state {place}: has no model of {label!r}; it has {', '.join(labels)}")
    return found[0]
