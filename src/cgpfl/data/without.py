"""A federation as if some of its clients had never been there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cgpfl.data.columns import cells, fitted_to
from cgpfl.errors import CgpflError

if TYPE_CHECKING:
    from cgpfl.data.federated import FederatedData, IndexTable


def without(data: FederatedData, clients: Sequence[int | str]) -> FederatedData:
    """The federation without these clients: their samples are gone, the others keep names, order and samples.

    Random draws follow the others' places, as in a federation that never had more clients. What was fitted to samples
    is fitted again: a table's means and values, and the labels that have names.
    """
    gone = sorted({data.place(c) for c in clients})
    if not gone:
        return data
    names = [data.name(i) for i in gone]
    if len(gone) == data.clients:
        raise CgpflError(f"client {names[0]}: nobody is left without it; at least one client must stay")
    kept = np.setdiff1d(np.arange(data.clients), gone)
    tables = {n: t for n in ("train", "test", "validation") if (t := getattr(data, n)) is not None}
    theirs = np.ones(len(data.y), bool)
    for table in tables.values():
        for i in gone:
            theirs[table.rows[i, : table.counts[i]]] = False
    place = np.cumsum(theirs, dtype=np.int64) - 1
    more: dict[str, Any] = {name: _table(t, kept, place) for name, t in tables.items()}
    ids = data.ids[kept]
    more |= {"x": data.x[theirs], "y": data.y[theirs], "ids": np.argsort(np.argsort(ids)).astype(np.int32)}
    more |= {"names": tuple(data.name(int(i)) for i in kept)}
    more |= {"context": None if data.context is None else data.context[kept]}
    more |= {"public": None if data.public is None else place[data.public].astype(data.public.dtype)}
    more |= {"about": {**data.about, "without": [*data.about.get("without", []), *names]}}
    left = _named(_refitted(dataclasses.replace(data, **more, made=None)))
    recipe = data.recipe
    return left if recipe is None else left.made_by({**recipe, "without": [*recipe.get("without", ()), *names]})


def _table(table: IndexTable, kept: np.ndarray, place: np.ndarray) -> IndexTable:
    """Rows of the clients ``kept [n]``, with each sample's new place; as wide as the longest of them."""
    from cgpfl.data.federated import IndexTable

    return IndexTable.of([place[part].astype(table.rows.dtype) for part in (table.parts()[i] for i in kept)])


def _refitted(data: FederatedData) -> FederatedData:
    """A table's columns, fitted to the samples that are left."""
    if data.columns is None:
        return data
    old = data.columns
    found = cells(old.decode(data.x), [c.name for c in old.columns if not c.is_number])
    own = fitted_to(found, data.train.parts(), data.names, old.encoding, old.standardise)
    columns = dataclasses.replace(own, label=old.label, aside=old.aside)
    scale, shift = columns.units()
    return dataclasses.replace(data, x=columns.encode_cells(found, "data"), columns=columns, scale=scale, shift=shift)


def _named(data: FederatedData) -> FederatedData:
    """Labels with names: those that somebody still has, at least two."""
    used = np.unique(data.y) if data.task == "classification" else np.zeros(0, int)
    if not data.labels or len(used) < 2 or len(used) == len(data.labels):
        return data
    codes = np.searchsorted(used, data.y).astype(data.y.dtype)
    return dataclasses.replace(data, y=codes, classes=len(used), labels=tuple(data.labels[int(i)] for i in used))
