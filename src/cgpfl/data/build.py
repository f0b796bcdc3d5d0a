"""From a source and a split, by name, to a federation."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.data.federated import FederatedData, _arrays
from cgpfl.data.makers import MAKERS, make_contexts
from cgpfl.data.sources import load
from cgpfl.data.splits import RULES, sample, split
from cgpfl.errors import CgpflError
from cgpfl.registry import Registry

SPLITS = Registry(
    "split",
    {
        "rotation": "equal clients; images turned by k*360/K degrees in context k",
        "labels": "equal clients; labels renamed by a permutation of context k",
        "shift": "equal clients; features shifted by a direction of context k",
        "iid": "every client a random sample of all",
        "cyclic": "client i holds classes i, i+1, ... mod C (the paper's split)",
        "block": "disjoint blocks of classes, clients in turn",
        "random": "any classes_per_client classes for each client",
        "dirichlet": "class shares of each client drawn from Dirichlet(alpha)",
        "own": "the file's own array 'client' says whose sample it is",
    },
)
"""By name, what it does; one of somebody else's is a function of (labels, clients, seed)."""


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
    largest: int = 0,
    share: float = 1.0,
    test: float = 0.25,
    validation: float = 0.0,
    public: float = 0.0,
    seed: int = 0,
) -> FederatedData:
    """A federation of ``clients`` from a named set (or .npz file) and a named split (see ``SPLITS``).

    ``share`` is the part of the set that is used at all, drawn alike from every class. ``smallest`` and ``largest``
    are samples a client must get, and may get (0: any number).
    ``public`` is the share of all those samples that is taken out before the split and that everybody has;
    with hidden contexts, equally many of them are of each.
    """
    recipe = {**locals()}
    recipe["split"] = recipe.pop("split_by")
    rule_of = SPLITS.find(split_by)
    if not 0 <= public < 1:
        raise CgpflError(f"public = {public:g}: must be a share, >= 0 and < 1")
    if not 0 < share <= 1:
        raise CgpflError(f"share = {share:g}: must be above 0 and at most 1")
    raw = load(source)
    x, y = _arrays(raw.x, raw.y, f"data {source}")
    about: dict[str, Any] = {"source": source, "split": split_by, "seed": seed}
    more: dict[str, Any] = {"test": test, "validation": validation, "seed": seed, "classes": raw.classes}
    more |= {"scale": raw.scale, "shift": raw.shift, "about": about}
    if split_by == "own":
        if raw.client is None:
            raise CgpflError(f"split own: data {source} has no array 'client'")
        for name, value, default in (("public", public, 0), ("share", share, 1), ("largest", largest, 0)):
            if value != default:
                reason = "the file's own clients keep their samples"
                raise CgpflError(f"{name}: {reason}; use another split, or {name} = {default}")
        return FederatedData.from_arrays(x, y, raw.client, **more).made_by(recipe)

    rule = "iid" if split_by in MAKERS else split_by
    used = np.arange(len(y)) if share == 1 else sample(y, share, seed)
    if share < 1 and split_by in MAKERS:  # these copy x: only what is used of it
        x, y, used = x[used], y[used], np.arange(len(used))
    rest, everybody = _set_aside(used, public, seed)
    sizes: dict[str, Any] = {"held": classes_per_client, "alpha": alpha, "spread": spread}
    sizes |= {"smallest": smallest, "largest": largest}
    if rule in RULES:
        parts = [rest[p] for p in split(y[rest], rule, clients, seed=seed, **sizes)]
    else:
        parts = [rest[p] for p in _brought(split_by, rule_of, y[rest], clients, seed)]
    about |= {k: v for k, v in (("public", public), ("largest", largest)) if v}
    if share < 1:
        about["share"] = share
    context: np.ndarray | None = None
    if split_by in MAKERS:
        about["contexts"] = contexts
        settings: dict[str, Any] = {"contexts": contexts, "classes": raw.classes, "seed": seed}
        x, y, context = make_contexts(split_by, x, y, parts, everybody, **settings)
    elif rule == "cyclic":
        context = np.arange(clients) % raw.classes  # clients with the same label set
        context = context if len(np.unique(context)) < clients else None
    elif rule == "block":
        context = np.arange(clients) % -(-raw.classes // classes_per_client)
    if rule in ("cyclic", "block", "random"):
        about["classes_per_client"] = classes_per_client
    if rule == "dirichlet":
        about["alpha"] = alpha
    return FederatedData.from_parts(x, y, parts, context=context, public=everybody, **more).made_by(recipe)


def _set_aside(rows: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Positions ``rows [n]`` as (those to split, the public ones in random order, or None)."""
    if share == 0:
        return rows, None
    order = np.random.default_rng([seed, 3]).permutation(len(rows)).astype(np.int32)
    size = max(round(share * len(rows)), 1)
    return rows[np.sort(order[size:])], rows[order[:size]].astype(np.int32)


def _brought(name: str, rule: Any, y: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
    """A split of somebody else's: ``rule(labels, clients, seed)`` → positions of each client's samples."""
    if not callable(rule):
        raise CgpflError(f"split {name}: is no function of (labels, clients, seed)")
    try:
        parts = [np.asarray(p) for p in rule(y, clients, seed)]
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise CgpflError(f"split {name}: {reason}") from error
    taken = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    wrong = [
        (len(parts) != clients, f"gives {len(parts)} clients, not {clients}"),
        (
            any(p.ndim != 1 or p.size == 0 or not np.issubdtype(p.dtype, np.integer) for p in parts),
            "gives a client no list of positions",
        ),
        (taken.size and (taken.min() < 0 or taken.max() >= len(y)), f"gives positions outside 0..{len(y) - 1}"),
        (len(np.unique(taken)) < taken.size, "gives a sample twice"),
    ]
    for is_wrong, why in wrong:
        if is_wrong:
            raise CgpflError(f"split {name}: {why}")
    return [p.astype(np.int64) for p in parts]
