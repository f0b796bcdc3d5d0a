"""FederatedData: each sample once, and a table of which client holds which.

    x [n, ...]   the samples (uint8 images stay uint8), y [n] their labels
    train, test, validation: IndexTable(rows [N, max], counts [N]) – positions in x of each client's part

Ragged clients cost no copies: a row of the table is padded, the samples are not.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cgpfl.data.describe import described
from cgpfl.errors import CgpflError
from cgpfl.files import load_arrays, save_arrays

TABLES = ("train", "test", "validation")
ARRAYS = ("x", "y", "public", "context", "ids")


class IndexTable(NamedTuple):
    """Positions of each client's samples: ``rows [N, max]``, of which the first ``counts[i]`` count."""

    rows: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[np.ndarray]) -> IndexTable:
        """A table from one index array a client."""
        counts = np.array([len(p) for p in parts], np.int32)
        rows = np.zeros((len(parts), max(int(counts.max(initial=0)), 1)), np.int32)
        for i, part in enumerate(parts):
            rows[i, : len(part)] = part
        return cls(rows, counts)

    def parts(self) -> list[np.ndarray]:
        """One index array a client."""
        return [row[:count] for row, count in zip(self.rows, self.counts, strict=True)]


@dataclass(frozen=True)
class FederatedData:
    """A federation: samples, and who holds them for training, testing and validation."""

    x: np.ndarray
    y: np.ndarray
    classes: int
    train: IndexTable
    test: IndexTable
    validation: IndexTable | None = None
    public: np.ndarray | None = None
    """Positions in x of samples that everybody has ``[P]``, for methods that need such."""
    context: np.ndarray | None = None
    """True context of each client ``[N]``, where it is known. For scoring; no method sees it."""
    scale: float = 1.0
    """Model inputs are x * scale + shift."""
    shift: float = 0.0
    ids: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    """Client ids, a permutation of 0..N-1: random draws follow the id, not the place in the table."""
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Where the data came from and how it was split, for the record."""
    made: tuple[dict[str, Any], dict[str, Any]] | None = dataclasses.field(default=None, repr=False, compare=False)
    """The arguments of :func:`~cgpfl.data.make_data`, and what it gave."""

    def __post_init__(self) -> None:
        if self.ids.size == 0:
            object.__setattr__(self, "ids", np.arange(self.clients, dtype=np.int32))
        _check(self)

    def __repr__(self) -> str:
        return described(self)

    @property
    def clients(self) -> int:
        """N."""
        return len(self.train.counts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.x.shape[1:])

    @cached_property
    def digest(self) -> str:
        """Hash of samples, labels, contexts and tables: the same hash is the same problem. Computed once."""
        h = hashlib.sha256()
        tables = [t for t in (self.train, self.test, self.validation) if t is not None]
        arrays = [
            np.array([self.scale, self.shift]),
            self.x,
            self.y,
            *(a for t in tables for a in (*t.parts(), t.counts)),
            self.ids,
        ]
        for array in [*arrays, *(a for a in (self.context, self.public) if a is not None)]:
            h.update(f"{array.dtype.str}{array.shape}".encode())
            h.update(np.ascontiguousarray(array).data)  # no copy of the samples
        return h.hexdigest()[:16]

    @property
    def recipe(self) -> dict[str, Any] | None:
        """The arguments of :func:`~cgpfl.data.make_data` that give this; None if it was made, or changed, by hand."""
        if self.made is None:
            return None
        recipe, gave = self.made
        return recipe if all(getattr(self, name) is value for name, value in gave.items()) else None

    def made_by(self, recipe: dict[str, Any]) -> FederatedData:
        """Note that these arguments of :func:`~cgpfl.data.make_data` gave this."""
        gave = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("about", "made")}
        object.__setattr__(self, "made", (recipe, gave))
        return self

    def save(self, path: Path) -> None:
        """Samples, labels and who holds them in one safetensors file, for :meth:`load`."""
        arrays = {name: value for name in ARRAYS if (value := getattr(self, name)) is not None}
        for name in TABLES:
            if (table := getattr(self, name)) is not None:
                arrays |= {f"{name}.rows": table.rows, f"{name}.counts": table.counts}
        save_arrays(path, arrays, {name: getattr(self, name) for name in ("classes", "scale", "shift", "about")})

    @classmethod
    def load(cls, path: Path) -> FederatedData:
        """What :meth:`save` wrote."""
        if not path.exists():
            raise CgpflError(f"data {path}: does not exist")
        arrays, facts = load_arrays(path)
        there = [name for name in TABLES if f"{name}.rows" in arrays]
        tables: dict[str, Any] = {n: IndexTable(arrays.pop(f"{n}.rows"), arrays.pop(f"{n}.counts")) for n in there}
        return cls(**{**arrays, **tables, **facts})

    @property
    def nbytes(self) -> int:
        """Of samples, labels and tables."""
        tables = [t for t in (self.train, self.test, self.validation) if t is not None]
        return self.x.nbytes + self.y.nbytes + sum(t.rows.nbytes for t in tables)

    def permute(self, order: Sequence[int]) -> FederatedData:
        """The same federation with its clients listed in another order, each keeping its id."""
        index = np.asarray(order)

        def table(t: IndexTable) -> IndexTable:
            return IndexTable(t.rows[index], t.counts[index])

        return dataclasses.replace(
            self,
            train=table(self.train),
            test=table(self.test),
            validation=None if self.validation is None else table(self.validation),
            context=None if self.context is None else self.context[index],
            ids=self.ids[index],
        )

    def client(self, i: int, part: str = "train") -> tuple[np.ndarray, np.ndarray]:
        """Samples and labels of client ``i``: part "train", "test" or "validation"."""
        table = {"train": self.train, "test": self.test, "validation": self.validation}[part]
        rows = np.zeros(0, np.int32) if table is None else table.parts()[i]
        return self.x[rows] * np.float32(self.scale) + np.float32(self.shift), self.y[rows]

    def summary(self) -> dict[str, Any]:
        """Facts for the run folder."""
        contexts = None if self.context is None else len(np.unique(self.context))
        return {
            **self.about,
            "clients": self.clients,
            "samples": int(self.train.counts.sum() + self.test.counts.sum())
            + (0 if self.validation is None else int(self.validation.counts.sum())),
            "train_samples": int(self.train.counts.sum()),
            "test_samples": int(self.test.counts.sum()),
            "smallest_client": int(self.train.counts.min()),
            "largest_client": int(self.train.counts.max()),
            "shape": list(self.shape),
            "classes": self.classes,
            "scale": self.scale,
            "shift": self.shift,
            **({} if self.public is None else {"public_samples": len(self.public)}),
            "true_contexts": contexts,
            "split_hash": self.digest,
        }

    # Ways to make one

    @classmethod
    def from_parts(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        parts: Sequence[np.ndarray],
        *,
        test: float = 0.25,
        validation: float = 0.0,
        seed: int = 0,
        classes: int | None = None,
        **more: Any,
    ) -> FederatedData:
        """From flat arrays and each client's positions in them; train/test/validation cut inside each client."""
        x, y = _arrays(x, y)
        cuts = _cut(parts, test, validation, seed)
        return cls(
            x=x,
            y=y,
            classes=_classes(y, classes),
            train=IndexTable.of([c[0] for c in cuts]),
            test=IndexTable.of([c[1] for c in cuts]),
            validation=IndexTable.of([c[2] for c in cuts]) if validation > 0 else None,
            **more,
        )

    @classmethod
    def from_arrays(
        cls, x: np.ndarray, y: np.ndarray, client: np.ndarray, *, context: Sequence[int] | None = None, **more: Any
    ) -> FederatedData:
        """From flat arrays: samples ``x [n, ...]``, labels ``y [n]`` and the client ``[n]`` of each sample.

        Clients are 0..N-1. Further arguments: ``test``, ``validation`` (shares), ``seed``, ``classes``,
        ``scale``, ``shift`` (model inputs are x * scale + shift); ``context [N]`` if the true contexts are known.
        """
        owner = np.asarray(client)
        if owner.shape != np.asarray(y).shape[:1] or owner.ndim != 1 or not np.issubdtype(owner.dtype, np.integer):
            raise CgpflError(
                f"client: has shape {owner.shape} and type {owner.dtype}; needs one integer a sample, {np.shape(y)[:1]}"
            )
        if owner.size == 0 or owner.min() < 0:
            raise CgpflError("client: must be numbers from 0 up, at least one")
        found = np.unique(owner)
        if len(found) != found[-1] + 1:
            missing = int(np.flatnonzero(found != np.arange(len(found)))[0])
            raise CgpflError(f"client {missing}: has 0 samples; number the clients 0..N-1 without gaps")
        parts = [np.flatnonzero(owner == i) for i in found]
        return cls.from_parts(x, y, parts, context=_contexts(context), **more)

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[tuple[np.ndarray, np.ndarray]],
        test: Sequence[tuple[np.ndarray, np.ndarray]] | float = 0.25,
        *,
        context: Sequence[int] | None = None,
        public: tuple[np.ndarray, np.ndarray] | None = None,
        **more: Any,
    ) -> FederatedData:
        """From one pair (x, y) a client; ``test`` is a share to hold out, or one test pair a client.

        ``public`` is a pair (x, y) that everybody has, for the methods that need one (FedMD, DAPPER).
        """
        pairs = [_arrays(cx, cy, f"client {i}") for i, (cx, cy) in enumerate(clients)]
        if not pairs:
            raise CgpflError("clients: the list is empty; give one pair (x, y) a client")
        own = isinstance(test, int | float)
        held = [] if own else [_arrays(cx, cy, f"client {i}, test") for i, (cx, cy) in enumerate(test)]  # type: ignore[arg-type]
        everybody = [] if public is None else [_arrays(*public, "public")]
        cut = [name for name in ("validation", "seed") if name in more]
        if not own and cut:
            raise CgpflError(f"{cut[0]}: only goes with a share for test; here the test samples are given")
        if not own and len(held) != len(pairs):
            raise CgpflError(f"test: has {len(held)} clients; must be {len(pairs)}, one pair (x, y) a client")
        blocks = (*pairs, *held, *everybody)
        shapes = {p[0].shape[1:] for p in blocks}
        if len(shapes) > 1:
            raise CgpflError(f"clients: samples have different shapes: {', '.join(map(str, sorted(shapes)))}")
        x = np.concatenate([p[0] for p in blocks])
        y = np.concatenate([p[1] for p in blocks])
        ends = np.cumsum([len(p[1]) for p in blocks])
        parts = [np.arange(end - len(p[1]), end, dtype=np.int32) for end, p in zip(ends, blocks, strict=True)]
        more |= {"context": _contexts(context), "public": parts.pop() if everybody else None}
        if own:
            return cls.from_parts(x, y, parts, test=float(test), **more)  # type: ignore[arg-type]
        return cls(
            x=x,
            y=y,
            classes=_classes(y, more.pop("classes", None)),
            train=IndexTable.of(parts[: len(pairs)]),
            test=IndexTable.of(parts[len(pairs) :]),
            **more,
        )


def _contexts(context: Sequence[int] | None) -> np.ndarray | None:
    return None if context is None else np.asarray(context)


def _arrays(x: Any, y: Any, where: str = "data") -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
        raise CgpflError(f"{where}: x {x.shape} and y {y.shape}; must be x [n, features...] and y [n]")
    if not (np.issubdtype(x.dtype, np.number) and np.isrealobj(x)):
        raise CgpflError(f"{where}: x has type {x.dtype}; must be numbers")
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        raise CgpflError(f"{where}: x has NaN or infinite values, first at sample {_first_bad(x)}; remove or fill them")
    if not np.issubdtype(y.dtype, np.integer):
        raise CgpflError(f"{where}: y has type {y.dtype}; must be integer labels 0..classes-1")
    if y.size and (y.min() < 0 or y.max() >= 2**31):
        worst = int(y.min() if y.min() < 0 else y.max())
        raise CgpflError(f"{where}: labels out of range: {worst}; must be 0..classes-1")
    return (x.astype(np.float32) if x.dtype not in (np.uint8, np.float32) else x), y.astype(np.int32)


def _first_bad(x: np.ndarray) -> int:
    return int(np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1))[0])


def _classes(y: np.ndarray, classes: int | None) -> int:
    found = int(y.max(initial=-1)) + 1
    if classes is not None and found > classes:
        raise CgpflError(f"y: labels out of range: {found - 1}; must be 0..{classes - 1}")
    return max(found if classes is None else classes, 2)


def _cut(
    parts: Sequence[np.ndarray], test: float, validation: float, seed: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Shuffle each client's samples and cut them into train, test and validation."""
    if not (0 < test < 1 and 0 <= validation < 1 and test + validation < 1):
        raise CgpflError(
            f"test = {test:g}, validation = {validation:g}: shares must be >= 0 (test > 0) and sum to less than 1"
        )
    cuts = []
    for i, part in enumerate(parts):
        order = np.random.default_rng([seed, 1, i]).permutation(np.asarray(part))
        held = max(round(len(part) * test), 1)
        extra = max(round(len(part) * validation), 1) if validation > 0 else 0
        if len(part) < held + extra + 1:
            needed = "train and test" if extra == 0 else "train, test and validation"
            raise CgpflError(f"client {i}: has {len(part)} samples; needs at least one each to {needed}")
        train = len(part) - held - extra
        cuts.append((order[:train], order[train : train + held], order[train + held :]))
    return cuts


def _check(data: FederatedData) -> None:
    tables = [t for t in (data.train, data.test, data.validation) if t is not None]
    for name, table in zip(("training", "test", "validation"), tables, strict=False):
        empty = np.flatnonzero(table.counts == 0)
        if empty.size or len(table.counts) != data.clients:
            who = f"client {empty[0]}" if empty.size else f"{len(table.counts)} of {data.clients} clients"
            raise CgpflError(f"{who}: no {name} samples; every client needs at least one")
    if data.clients == 0:
        raise CgpflError("data: no clients")
    if data.public is not None and not len(data.public):
        raise CgpflError("public: no samples; leave it out, or give at least one")
    used = np.concatenate([*(p for t in tables for p in t.parts()), *([] if data.public is None else [data.public])])
    if used.min() < 0 or used.max() >= len(data.y):
        raise CgpflError(f"split: sample {int(used.max())} does not exist; there are {len(data.y)}")
    seen, counts = np.unique(used, return_counts=True)
    if counts.max() > 1:
        raise CgpflError(
            f"split: sample {int(seen[counts.argmax()])} is used {int(counts.max())} times; each may be once"
        )
    if data.y.min() < 0 or data.y.max() >= data.classes:
        raise CgpflError(f"y: labels must be 0..{data.classes - 1}; found {int(data.y.min())}..{int(data.y.max())}")
    if data.context is not None and data.context.shape != (data.clients,):
        raise CgpflError(f"context: has shape {data.context.shape}; must be one number a client, ({data.clients},)")
    if sorted(data.ids.tolist()) != list(range(data.clients)):
        raise CgpflError(f"ids: must be each of 0..{data.clients - 1} once")
