"""From a source and a split, by name, to a federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from cgpfl.data.federated import FederatedData
from cgpfl.data.makers import MAKERS, make_contexts
from cgpfl.data.samples import answers, samples
from cgpfl.data.sources import is_file, load
from cgpfl.data.splits import RULES, sample, split
from cgpfl.data.tables import Reading, Source, federation, with_table
from cgpfl.errors import CgpflError, one_line
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
        "own": "the data's own clients",
    },
)
"""By name, what it does; one of somebody else's is a function of (labels, clients, seed)."""


CLIENTS = 40
"""Clients that samples without any are given to, where nobody says how many."""


def make_data(
    source: str = "digits",
    split_by: str = "auto",
    *,
    clients: int | str = "auto",
    contexts: int = 4,
    classes_per_client: int = 3,
    alpha: float = 0.5,
    spread: float = 0.0,
    smallest: int | str = "auto",
    largest: int = 0,
    share: float = 1.0,
    test: float = 0.25,
    validation: float = 0.0,
    public: float = 0.0,
    seed: int = 0,
    without: Sequence[str] = (),
    **reading: Any,
) -> FederatedData:
    """A federation from a named set, or a file or folder of yours, and a named split (see ``SPLITS``).

    Data that has clients keeps them ("own"), unless another split is asked for; a named set without any is split by
    "rotation". ``share`` is the part of the set that is used at all, drawn alike from every class. ``smallest`` and
    ``largest`` are samples a client must get, and may get (0: any number); of data's own clients those with fewer than
    ``smallest`` are left out. ``public`` is the share of all those samples that is taken out before the split and that
    everybody has; with hidden contexts, equally many of them are of each. ``without``: clients that are taken out
    again, by name, after the split (:meth:`FederatedData.without`). ``reading``: how a table or a folder is read, see
    :class:`~cgpfl.data.tables.Reading`.
    """
    recipe = {**locals(), **reading}
    del recipe["reading"], recipe["without"]
    recipe["split"] = recipe.pop("split_by")
    _check_kinds(recipe)
    if isinstance(without, str) or not all(isinstance(name, str | Integral) for name in without):
        raise CgpflError(f"data: without = {without!r}: must be a list of clients' names")
    if not 0 <= public < 1:
        raise CgpflError(f"public = {public:g}: must be a share, >= 0 and < 1")
    if not 0 < share <= 1:
        raise CgpflError(f"share = {share:g}: must be above 0 and at most 1")
    unknown = [k for k in reading if k not in vars(Reading())]
    if unknown:
        raise CgpflError(f"data: no setting {unknown[0]!r}; a table's are {', '.join(vars(Reading()))}")
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in reading.items()}
    how = Reading(**given)
    raw = load(source, reading=how)
    split_by = _split(split_by, source, raw)
    rule_of = SPLITS.find(split_by)
    about: dict[str, Any] = {"source": source, "split": split_by, "seed": seed}
    cuts: dict[str, Any] = {"test": test, "validation": validation, "seed": seed}
    if split_by == "own":
        for name, value, default in (("public", public, 0), ("share", share, 1), ("largest", largest, 0)):
            if value != default:
                reason = "the data's own clients keep their samples"
                raise CgpflError(f"{name}: {reason}; use another split, or {name} = {default}")
        least = 0 if smallest == "auto" else int(smallest)
        data = federation(raw, how, **cuts, smallest=least, about=about)
        if clients not in ("auto", data.clients):
            raise CgpflError(
                f"clients = {clients}: data {source} has its own {data.clients} clients; leave it out or choose a split"
            )
        return data.made_by(recipe).without(*without)
    number, least = CLIENTS if clients == "auto" else int(clients), 4 if smallest == "auto" else int(smallest)
    sizes: dict[str, Any] = {"alpha": alpha, "spread": spread, "smallest": least, "largest": largest}
    sizes["held"] = classes_per_client
    data = _dealt(raw, how, rule_of, about, cuts, sizes, number, contexts, share, public)
    return data.made_by(recipe).without(*without)


KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("source", "split"), (str, "text")),
    **dict.fromkeys(("contexts", "classes_per_client", "largest", "seed", "clients", "smallest"), (Integral, "whole")),
    **dict.fromkeys(("alpha", "spread", "share", "test", "validation", "public"), (Real, "a number")),
}


def _check_kinds(given: dict[str, Any]) -> None:
    """Arguments of the right kinds; their ranges are checked where they matter."""
    for name, (kind, what) in KINDS.items():
        value = given[name]
        if name in ("clients", "smallest") and isinstance(value, str) and value == "auto":
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            must = "a whole number" if kind is Integral else what
            also = ' or "auto"' if name in ("clients", "smallest") else ""
            raise CgpflError(f"data: {name} = {value!r}: must be {must}{also}")
        if kind is Integral and not 0 <= int(value) < 2**32:
            raise CgpflError(f"data: {name} = {value!r}: must be from 0 to {2**32 - 1:,}")


def _split(wanted: str, source: str, raw: Source) -> str:
    """The split that is meant: data that has clients keeps them."""
    if wanted == "own" and raw.client is None:
        raise CgpflError(f"split own: data {source} does not say whose a sample is; name a table's column by client")
    if wanted != "auto":
        return wanted
    if raw.client is not None:
        return "own"
    if is_file(source):
        ways = ", ".join(n for n in SPLITS.ours if n != "own")
        raise CgpflError(
            f"data {source}: does not say whose a sample is; name a table's column by client, or a split: {ways}"
        )
    return "rotation"


def _dealt(
    raw: Source,
    reading: Reading,
    rule_of: Any,
    about: dict[str, Any],
    cuts: dict[str, Any],
    sizes: dict[str, Any],
    clients: int,
    contexts: int,
    share: float,
    public: float,
) -> FederatedData:
    """Samples given to invented clients; ``sizes``: settings of :func:`cgpfl.data.splits.split`."""
    split_by, seed, where = about["split"], cuts["seed"], f"data {about['source']}"
    for name, given in (("held", raw.held), ("time", raw.time)):
        if given is not None:
            raise CgpflError(f"{name}: {where} says which samples are tested; that goes with its own clients alone")
    y, known = answers(raw.y, raw.task, raw.classes, raw.labels)
    is_table, task = isinstance(raw.x, dict), known.get("task", "classification")
    x = raw.x if is_table else samples(raw.x, where)
    if is_table and split_by in ("rotation", "shift"):
        raise CgpflError(f"split {split_by}: is for images and arrays; {where} is a table")
    if task != "classification" and split_by not in ("iid", "shift", "rotation") and split_by in SPLITS.ours:
        raise CgpflError(f"split {split_by}: is by classes, of which {task} has none; use iid")
    rule = "iid" if split_by in MAKERS else split_by
    kinds = y if task == "classification" else np.zeros(len(y), np.int32)
    used = np.arange(len(y)) if share == 1 else sample(kinds, share, seed)
    if share < 1 and split_by in MAKERS and not is_table:  # these copy x: only what is used of it
        x, y, kinds, used = x[used], y[used], kinds[used], np.arange(len(used))
    rest, everybody = _set_aside(used, public, seed)
    if rule in RULES:
        parts = [rest[p] for p in split(kinds[rest], rule, clients, seed=seed, **sizes)]
    else:
        parts = [rest[p] for p in _brought(split_by, rule_of, kinds[rest], clients, seed)]
    about |= {k: v for k, v in (("public", public), ("largest", sizes["largest"])) if v}
    if share < 1:
        about["share"] = share
    context: np.ndarray | None = None
    classes = known["classes"]
    if split_by in MAKERS:
        about["contexts"] = contexts
        settings: dict[str, Any] = {"contexts": contexts, "classes": classes, "seed": seed}
        plain = np.zeros((len(y), 1), np.float32) if is_table else x
        made, y, context = make_contexts(split_by, plain, y, parts, everybody, **settings)
        x = x if is_table else made
    elif rule == "cyclic":
        context = np.arange(clients) % classes  # clients with the same label set
        context = context if len(np.unique(context)) < clients else None
    elif rule == "block":
        context = np.arange(clients) % -(-classes // sizes["held"])
    if rule in ("cyclic", "block", "random"):
        about["classes_per_client"] = sizes["held"]
    if rule == "dirichlet":
        about["alpha"] = sizes["alpha"]
    more: dict[str, Any] = {**cuts, "about": about, "context": context, "public": everybody, **known}
    more |= {"task": task} | (
        {"encoding": reading.encoding, "standardise": reading.standardise}
        if is_table
        else {"scale": raw.scale, "shift": raw.shift}
    )
    labels = more.pop("labels", ())
    data = FederatedData.from_parts(x, y, parts, **more)
    return with_table(replace(data, labels=labels) if labels else data, raw)


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
        raise CgpflError(f"split {name}: {one_line(error)}") from error
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
