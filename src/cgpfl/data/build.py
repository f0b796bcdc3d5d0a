"""From a source and a split, by name, to a federation."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.data.federated import FederatedData, _arrays
from cgpfl.data.makers import MAKERS, make_contexts
from cgpfl.data.sources import load
from cgpfl.data.splits import RULES, split
from cgpfl.errors import CgpflError

SPLITS = {
    "rotation": "equal clients; images turned by k*360/K degrees in context k",
    "labels": "equal clients; labels renamed by a permutation of context k",
    "shift": "equal clients; features shifted by a direction of context k",
    "iid": "every client a random sample of all",
    "cyclic": "client i holds classes i, i+1, ... mod C (the paper's split)",
    "block": "disjoint blocks of classes, clients in turn",
    "random": "any classes_per_client classes for each client",
    "dirichlet": "class shares of each client drawn from Dirichlet(alpha)",
    "own": "the file's own array 'client' says whose sample it is",
}


def make_data(
    source: str = "digits",
    split_by: str = "rotation",
    *,
    clients: int = 40,
    contexts: int = 4,
    classes_per_client: int = 3,
    alpha: float = 0.5,
    spread: float = 0.0,
    smallest: int = 4,
    test: float = 0.25,
    validation: float = 0.0,
    seed: int = 0,
) -> FederatedData:
    """A federation of ``clients`` from a named set (or .npz file) and a named split (see ``SPLITS``)."""
    if split_by not in SPLITS:
        raise CgpflError(f"no split {split_by!r}; there are {', '.join(SPLITS)}")
    raw = load(source)
    x, y = _arrays(raw.x, raw.y, f"data {source}")
    about: dict[str, Any] = {"source": source, "split": split_by, "seed": seed}
    more: dict[str, Any] = {"test": test, "validation": validation, "seed": seed, "classes": raw.classes}
    more |= {"scale": raw.scale, "shift": raw.shift, "about": about}
    if split_by == "own":
        if raw.client is None:
            raise CgpflError(f"split own: data {source} has no array 'client'")
        return FederatedData.from_arrays(x, y, raw.client, **more)

    rule = "iid" if split_by in MAKERS else split_by
    assert rule in RULES
    parts = split(y, rule, clients, seed=seed, held=classes_per_client, alpha=alpha, spread=spread, smallest=smallest)
    context: np.ndarray | None = None
    if split_by in MAKERS:
        about["contexts"] = contexts
        x, y, context = make_contexts(split_by, x, y, parts, contexts=contexts, classes=raw.classes, seed=seed)
    elif rule == "cyclic":
        context = np.arange(clients) % raw.classes  # clients with the same label set
        context = context if len(np.unique(context)) < clients else None
    elif rule == "block":
        context = np.arange(clients) % -(-raw.classes // classes_per_client)
    if rule in ("cyclic", "block", "random"):
        about["classes_per_client"] = classes_per_client
    if rule == "dirichlet":
        about["alpha"] = alpha
    return FederatedData.from_parts(x, y, parts, context=context, **more)
