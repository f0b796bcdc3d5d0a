"""How a problem is made: samples, who gets them, what a context changes. Everything follows from the seed.

A context is a list of changes, one a context: functions of samples and labels. The first leaves them as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from cgpfl.data import FederatedData, IndexTable, split
from cgpfl.data.makers import rotate

TEST, PUBLIC = 0.25, 0.1
"""Shares of each client's samples for testing, and of all samples that everybody has (DAPPER and FedMD need some)."""

Samples = tuple[np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator], tuple[np.ndarray, ...]]
"""A generator → samples ``[n, ...]``, labels ``[n]`` and, where that is given, the client ``[n]`` of each."""
Change = Callable[[np.ndarray, np.ndarray], Samples]
Changes = Callable[[int, np.ndarray, int, np.random.Generator], list[Change]]
"""(K, all samples, classes, generator) → K changes."""
Parts = Callable[[np.ndarray, int, int], list[np.ndarray]]
"""(labels, clients, seed) → positions of each client's samples."""


@dataclass(frozen=True)
class Form:
    """What compiled programs depend on: federations of one form and one method are one program."""

    name: str
    clients: int
    shape: tuple[int, ...]
    """Of one input."""
    classes: int
    rows: int
    """Of the array of samples."""
    public: int
    train: int
    """Widths of the tables: at least the samples of the largest client."""
    test: int


def _as_they_are(x: np.ndarray, y: np.ndarray) -> Samples:
    return x, y


def _turn(angle: float, x: np.ndarray, y: np.ndarray) -> Samples:
    return rotate(x, angle), y


def _rename(names: np.ndarray, x: np.ndarray, y: np.ndarray) -> Samples:
    return x, names[y]


def _shift(step: np.ndarray, x: np.ndarray, y: np.ndarray) -> Samples:
    return x + step, y


def _change_basis(basis: np.ndarray, x: np.ndarray, y: np.ndarray) -> Samples:
    return x @ basis, y


def _both(first: Change, second: Change, x: np.ndarray, y: np.ndarray) -> Samples:
    return second(*first(x, y))


def turned(step: float) -> Changes:
    """Images turned by 0, ``step``, 2·``step``, … degrees."""
    return lambda k, x, classes, rng: [partial(_turn, step * i) for i in range(k)]


def renamed(k: int, x: np.ndarray, classes: int, rng: np.random.Generator) -> list[Change]:
    """Classes renamed by a permutation of each context, no two alike."""
    names = [tuple(range(classes))]
    while len(names) < k:
        if (drawn := tuple(rng.permutation(classes).tolist())) not in names:
            names.append(drawn)
    return [partial(_rename, np.array(new, np.int32)) for new in names]


def swapped(k: int, x: np.ndarray, classes: int, rng: np.random.Generator) -> list[Change]:
    """Two contexts, in one of which two classes have each other's names."""
    assert k == 2
    pair, names = rng.choice(classes, 2, replace=False), np.arange(classes, dtype=np.int32)
    names[pair] = pair[::-1]
    return [_as_they_are, partial(_rename, names)]


def shifted(by: float) -> Changes:
    """Features shifted in a random direction of each context, ``by`` times the samples' own spread."""
    return lambda k, x, classes, rng: [_as_they_are, *shifts(k - 1, by, x, rng)]


def shifts(count: int, by: float, x: np.ndarray, rng: np.random.Generator) -> list[Change]:
    """``count`` shifts, each ``by`` times the spread of ``x [n, ...]`` long."""
    spread = np.sqrt(np.square(x - x.mean(axis=0)).reshape(len(x), -1).sum(axis=1).mean())
    directions = rng.standard_normal((count, *x.shape[1:]))
    return [partial(_shift, (by * spread * d / np.linalg.norm(d)).astype(np.float32)) for d in directions]


def other_bases(k: int, x: np.ndarray, classes: int, rng: np.random.Generator) -> list[Change]:
    """Tables ``[n, d]`` in a random orthogonal basis of each context."""
    drawn = [np.linalg.qr(rng.standard_normal((x.shape[1],) * 2))[0].astype(np.float32) for _ in range(k - 1)]
    return [_as_they_are, *(partial(_change_basis, basis) for basis in drawn)]


def crossed(first: Changes, second: Changes) -> Changes:
    """Four contexts: two of the first kind times two of the second."""

    def changes(k: int, x: np.ndarray, classes: int, rng: np.random.Generator) -> list[Change]:
        assert k == 4
        one, two = first(2, x, classes, rng), second(2, x, classes, rng)
        return [partial(_both, a, b) for a in one for b in two]

    return changes


def by_rule(rule: str, **settings: float) -> Parts:
    """A split of :mod:`cgpfl.data.splits`."""
    return lambda labels, clients, seed: split(labels, rule, clients, seed=seed, **settings)  # type: ignore[arg-type]


def by_size(sizes: Sequence[int]) -> Parts:
    """Clients of these sizes, in random order, each a random sample of all."""

    def parts(labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng([seed, 12])
        assert len(sizes) == clients
        assert sum(sizes) == len(labels)
        return np.split(rng.permutation(len(labels)), np.cumsum(rng.permutation(sizes))[:-1])

    return parts


EVENLY = by_rule("iid")
"""Every client a random sample of all, sizes equal to within one."""


@dataclass(frozen=True)
class Recipe:
    """A federation of a form, for every seed."""

    form: Form
    samples: Draw
    """Where the samples come from; the third array, if any, says whose they are, and ``parts`` is not asked."""
    contexts: tuple[int, ...] = ()
    """Clients in each context; (N,): all alike; empty: not known, clients just differ."""
    changes: Changes | None = None
    parts: Parts = EVENLY
    personal: float = 0.0
    """A shift of each client's own, as a share of the samples' spread."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Scale and shift of the model's inputs."""

    def make(self, seed: int) -> FederatedData:
        """The federation of a seed."""
        form, rng = self.form, np.random.default_rng([seed, 10])
        x, y, *owner = self.samples(rng)
        order = rng.permutation(len(y)).astype(np.int32)
        public, rest = np.split(order, [round(PUBLIC * len(y))])
        rest = np.sort(rest)
        if owner:
            parts = [rest[owner[0][rest] == i] for i in range(form.clients)]
        else:
            parts = [rest[p] for p in self.parts(y[rest], form.clients, seed)]
        context = rng.permutation(np.repeat(np.arange(len(self.contexts)), self.contexts)) if self.contexts else None
        x, y = x.copy(), y.copy()
        if self.personal:  # before the contexts' changes: an image is shifted, then turned
            for part, change in zip(parts, shifts(form.clients, self.personal, x, rng), strict=True):
                x[part], y[part] = change(x[part], y[part])
        if self.changes is not None and context is not None:
            k = len(self.contexts)
            changes = self.changes(k, x, form.classes, rng)
            for i, (change, shown) in enumerate(zip(changes, np.array_split(public, k), strict=True)):
                own = np.concatenate([shown, *(p for p, c in zip(parts, context, strict=True) if c == i)])
                x[own], y[own] = change(x[own], y[own])
        settings: dict[str, Any] = {"test": TEST, "seed": seed, "classes": form.classes, "context": context}
        data = FederatedData.from_parts(x.reshape(len(x), -1), y, parts, public=public, **settings, **self.inputs)
        return fitted(data, form)


def fitted(data: FederatedData, form: Form) -> FederatedData:
    """The federation with arrays as long as its form has them.

    Tables are padded. Where there are too few public samples they are repeated, each as often as any other (to within
    one), so that a draw of one stays the same; the copies, and then zeros, fill the array of samples.
    """

    def wide(table: IndexTable, width: int) -> IndexTable:
        return IndexTable(np.pad(table.rows, ((0, 0), (0, width - table.rows.shape[1]))), table.counts)

    assert data.public is not None
    copies = np.resize(data.public, form.public)[len(data.public) :]
    new = len(data.y) + np.arange(len(copies), dtype=np.int32)
    more = form.rows - len(data.y) - len(copies)
    return dataclasses.replace(
        data,
        x=np.pad(np.concatenate([data.x, data.x[copies]]), ((0, more), (0, 0))),
        y=np.pad(np.concatenate([data.y, data.y[copies]]), (0, more)),
        train=wide(data.train, form.train),
        test=wide(data.test, form.test),
        public=np.concatenate([data.public, new]),
        about={"form": form.name},
    )
