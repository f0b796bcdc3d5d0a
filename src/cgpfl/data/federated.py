"""FederatedData: each sample once, and a table of which client holds which.

    x [n, ...]   the samples (uint8 images stay uint8), y [n, ...] their labels, as codes
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

from cgpfl.data import labels as naming
from cgpfl.data.columns import Columns, fitted_to
from cgpfl.data.describe import described
from cgpfl.data.form import Form
from cgpfl.data.samples import answers, cut, owners, pair, samples
from cgpfl.errors import CgpflError
from cgpfl.files import load_arrays, save_arrays
from cgpfl.objectives import objective_of

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

    def of_clients(self, places: Any) -> IndexTable:
        """The rows of some clients, by place."""
        return IndexTable(self.rows[places], self.counts[places])

    def parts(self) -> list[np.ndarray]:
        """One index array a client."""
        return [row[:count] for row, count in zip(self.rows, self.counts, strict=True)]


@dataclass(frozen=True)
class FederatedData:
    """A federation: samples, and who holds them for training, testing and validation."""

    x: np.ndarray
    y: np.ndarray
    """Classes as codes ``[n]``, numbers ``[n, k]``, labels of many ``[n, labels]``, tokens ``[n, T]``: see ``task``."""
    classes: int
    """Outputs of a model: classes, numbers, labels, or the vocabulary."""
    train: IndexTable
    test: IndexTable
    validation: IndexTable | None = None
    public: np.ndarray | None = None
    """Positions in x of samples that everybody has ``[P]``, for methods that need such."""
    context: np.ndarray | None = None
    """True context of each client ``[N]``, where it is known. For scoring; no method sees it."""
    scale: float | np.ndarray = 1.0
    """Model inputs are x * scale + shift; one number, or one a feature."""
    shift: float | np.ndarray = 0.0
    task: str = "classification"
    """What is learned, one of :data:`cgpfl.objectives.TASKS`."""
    labels: tuple[Any, ...] = ()
    """What the classes are called; empty: 0..classes-1."""
    names: tuple[str, ...] = ()
    """What the clients are called; empty: 0..N-1."""
    columns: Columns | None = None
    """Of a table: what the features are."""
    ids: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))
    """Client ids, a permutation of 0..N-1: random draws follow the id, not the place in the table."""
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Where the data came from and how it was split, for the record."""
    made: tuple[dict[str, Any], dict[str, Any]] | None = dataclasses.field(default=None, repr=False, compare=False)
    """The arguments of :func:`~cgpfl.data.make_data`, and what it gave."""

    def __post_init__(self) -> None:
        for name, kind in (("x", np.ndarray), ("y", np.ndarray), ("train", IndexTable), ("test", IndexTable)):
            if not isinstance(getattr(self, name), kind):
                found = type(getattr(self, name)).__name__
                raise CgpflError(f"data: {name} is a {found}, not {kind.__name__}; see FederatedData.from_arrays")
        units: Any = (self.scale, self.shift)
        if any(np.ndim(v) for v in units):  # one form, so that a federation is the same after it was saved
            units = tuple(np.array(v) for v in np.broadcast_arrays(*(np.asarray(v, np.float32) for v in units)))
        elif all(isinstance(v, int | float | np.number) for v in units):
            units = (float(units[0]), float(units[1]))
        object.__setattr__(self, "scale", units[0])
        object.__setattr__(self, "shift", units[1])
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
            np.array([self.scale, self.shift]) if np.ndim(self.scale) == 0 else np.stack([self.scale, self.shift]),
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
        facts = {"classes": self.classes, "task": self.task, "names": list(self.names), "about": self.about}
        save_arrays(path, arrays, {**facts, "form": self.form().facts()})

    @classmethod
    def load(cls, path: Path) -> FederatedData:
        """What :meth:`save` wrote."""
        if not path.exists():
            raise CgpflError(f"data {path}: does not exist")
        arrays, facts = load_arrays(path)
        there = [name for name in TABLES if f"{name}.rows" in arrays]
        tables: dict[str, Any] = {n: IndexTable(arrays.pop(f"{n}.rows"), arrays.pop(f"{n}.counts")) for n in there}
        if "form" not in facts:  # as written before tables had columns
            return cls(**{**arrays, **tables, **facts})
        form = Form.of(facts.pop("form"))
        units = {"scale": form.scale, "shift": form.shift}
        facts["names"] = tuple(facts["names"])
        return cls(**{**arrays, **tables, **facts, **units, "labels": form.labels, "columns": form.columns})

    @property
    def nbytes(self) -> int:
        """Of samples, labels and tables."""
        tables = [t for t in (self.train, self.test, self.validation) if t is not None]
        return self.x.nbytes + self.y.nbytes + sum(t.rows.nbytes for t in tables)

    def permute(self, order: Sequence[int]) -> FederatedData:
        """The same federation with its clients listed in another order, each keeping its id."""
        index = np.asarray(order)
        return dataclasses.replace(
            self,
            train=self.train.of_clients(index),
            test=self.test.of_clients(index),
            validation=None if self.validation is None else self.validation.of_clients(index),
            context=None if self.context is None else self.context[index],
            ids=self.ids[index],
            names=tuple(self.names[i] for i in index) if self.names else (),
        )

    def without(self, *clients: int | str) -> FederatedData:
        """As if these clients, by name or number, had never been there; see :func:`cgpfl.data.without.without`."""
        from cgpfl.data.without import without

        return without(self, clients)

    def name(self, i: int) -> str:
        """What client ``i`` is called."""
        return self.names[i] if self.names else str(i)

    def place(self, client: int | str) -> int:
        """Which client a name, or a number, is."""
        if str(client) in self.names:
            return self.names.index(str(client))
        number = int(client) if isinstance(client, int) or str(client).isdigit() else -1
        named = bool(self.names) and all(name.isdigit() for name in self.names)  # then a number is a name
        if named or not 0 <= number < self.clients:
            known = naming.listed(self.names or range(self.clients))
            raise CgpflError(f"client {client}: there are clients {known}")
        return number

    def form(self, loss: str = "auto") -> Form:
        """What users of its models must know; ``loss``: what training minimises, of :data:`cgpfl.objectives.LOSSES`."""
        known: dict[str, Any] = {}
        if self.task == "regression":
            rows = np.concatenate(self.train.parts())
            each = [naming.moments(self.y[part]) for part in self.train.parts()] if len(rows) else []
            known["centre"], known["spread"] = naming.pooled(each)
        elif self.task == "classification":
            known["counts"] = np.bincount(self.y[np.concatenate(self.train.parts())], minlength=self.classes)
        objective = objective_of(self.task, loss, **known)
        units: list[Any] = [tuple(np.asarray(v).tolist()) if np.ndim(v) else float(v) for v in (self.scale, self.shift)]
        return Form(self.shape, self.classes, units[0], units[1], objective, self.labels, self.columns)

    def with_form(self, form: Form) -> FederatedData:
        """The same samples, named as in another federation."""
        return dataclasses.replace(self, labels=form.labels, columns=form.columns)

    def rows(self, i: int, part: str = "train") -> np.ndarray:
        """Positions of client ``i``'s samples: part "train", "test" or "validation"."""
        table = {"train": self.train, "test": self.test, "validation": self.validation}[part]
        return np.zeros(0, np.int32) if table is None else table.parts()[i]

    def client(self, i: int, part: str = "train") -> tuple[Any, np.ndarray]:
        """Samples and labels of client ``i`` as they were given, a table's as a frame; see :meth:`rows`."""
        rows = self.rows(i, part)
        x = self.x[rows] if self.columns is None else self.columns.decode(self.x[rows])
        y = self.y[rows]
        if self.task == "regression" and y.shape[1] == 1:
            return x, y[:, 0]
        return x, np.array(self.labels)[y] if self.labels and self.task == "classification" else y

    def inputs(self, i: int, part: str = "train") -> tuple[np.ndarray, np.ndarray]:
        """Samples of client ``i`` as models see them, and their labels as codes."""
        rows = self.rows(i, part)
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
            **self.form().facts(),
            **({"task": self.task} if self.task != "classification" else {}),
            **({"names": list(self.names)} if self.names else {}),
            **({} if self.public is None else {"public_samples": len(self.public)}),
            "true_contexts": contexts,
            "split_hash": self.digest,
        }

    # Ways to make one

    @classmethod
    def from_parts(
        cls,
        x: Any,
        y: Any,
        parts: Sequence[np.ndarray],
        *,
        test: float = 0.25,
        validation: float = 0.0,
        seed: int = 0,
        held: np.ndarray | None = None,
        time: np.ndarray | None = None,
        task: str = "auto",
        classes: int | None = None,
        labels: Sequence[Any] = (),
        encoding: str = "one-hot",
        standardise: bool = True,
        **more: Any,
    ) -> FederatedData:
        """From flat arrays and each client's positions in them; train/test/validation cut inside each client.

        ``x`` is an array ``[n, ...]``, or a table's cells (:func:`cgpfl.data.columns.cells`), whose columns are fitted
        to the training samples. ``held [n]``: which samples are test samples, instead of a random share; ``time [n]``:
        the latest share is the test part.
        """
        y, known = answers(y, task, classes, labels)
        names = more.get("names", ())
        cuts = cut(parts, test, validation, seed, names, held, time)
        train = IndexTable.of([c[0] for c in cuts])
        if isinstance(x, dict):
            whose = names or [str(i) for i in range(len(parts))]
            columns = fitted_to(x, [c[0] for c in cuts], whose, encoding, standardise)
            x = columns.encode_cells(x, "data")
            more["columns"] = columns
            more["scale"], more["shift"] = columns.units()
        else:
            x = samples(x)
        if len(x) != len(y):
            raise CgpflError(f"data: x {x.shape} and y {y.shape}; must be x [n, features...] and y [n]")
        return cls(
            x=x,
            y=y,
            train=train,
            test=IndexTable.of([c[1] for c in cuts]),
            validation=IndexTable.of([c[2] for c in cuts]) if validation > 0 else None,
            **known,
            **more,
        )

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, client: Any, *, context: Sequence[int] | None = None, **more: Any
    ) -> FederatedData:
        """From flat arrays: samples ``x [n, ...]``, labels ``y [n]`` and the client ``[n]`` of each sample.

        Clients and labels may be numbers or names. Further arguments: ``test``, ``validation`` (shares), ``seed``,
        ``task``, ``classes``, ``scale``, ``shift`` (model inputs are x * scale + shift); ``context [N]`` if the true
        contexts are known.
        """
        owner, names = owners(client, np.asarray(y).shape[0] if np.ndim(y) else 0)
        parts = [np.flatnonzero(owner == i) for i in range(int(owner.max()) + 1)]
        known = None if context is None else np.asarray(context)
        return cls.from_parts(x, y, parts, context=known, **{"names": names, **more})

    @classmethod
    def from_frame(cls, frame: Any, *, client: str, label: str, **more: Any) -> FederatedData:
        """From a pandas or Polars frame with a column that says whose a row is, and one to be predicted.

        Further arguments: those of :class:`cgpfl.data.tables.Reading` (``task``, ``time``, ``held``, ``categorical``,
        ``ignore``, ``encoding``, ``standardise``) and ``test``, ``validation``, ``seed``, ``smallest``.
        """
        from cgpfl.data.tables import of_frame

        return of_frame(frame, client=client, label=label, **more)

    @classmethod
    def from_folder(cls, folder: str | Path, **more: Any) -> FederatedData:
        """From a folder with a file, or a folder, a client; see :func:`cgpfl.data.folders.read_folder`."""
        from cgpfl.data.build import make_data

        return make_data(str(folder), "own", **more)

    @classmethod
    def from_clients(
        cls,
        clients: Any,
        test: Any = 0.25,
        *,
        context: Sequence[int] | None = None,
        public: tuple[np.ndarray, np.ndarray] | None = None,
        **more: Any,
    ) -> FederatedData:
        """From one pair (x, y) a client, in a list, or in a dict by the clients' names.

        ``test`` is a share to hold out, or one test pair a client. A client may be a ``torch`` data set, a Hugging Face
        ``Dataset`` or a partition of Flower Datasets, too (``label``: its column of labels; where its classes have
        names, they are the labels, in their order).
        ``public`` is a pair (x, y) that everybody has, for the methods that need one (FedMD, DAPPER).
        """
        from cgpfl.data.foreign import class_names, pair_of

        label = more.pop("label", "label")
        if isinstance(clients, dict):
            more = {"names": tuple(map(str, clients)), **more}
            if isinstance(test, dict):
                lacking = [name for name in clients if name not in test]
                if lacking:
                    raise CgpflError(f"test: has no client {lacking[0]!r}; must be one pair (x, y) a client")
                test = [test[name] for name in clients]
            clients = list(clients.values())
        names = more.get("names", ())
        if isinstance(clients, str) or not isinstance(clients, Sequence):
            raise CgpflError(f"clients: {type(clients).__name__} is no list; give one pair (x, y) a client")

        def read(thing: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
            return pair(*pair_of(thing, label, where), where)

        pairs = [read(c, f"client {n}") for n, c in zip(names or range(len(clients)), clients, strict=True)]
        if not pairs:
            raise CgpflError("clients: the list is empty; give one pair (x, y) a client")
        own = isinstance(test, int | float)
        held = [] if own else [read(c, f"client {i}, test") for i, c in enumerate(test)]
        called = dict.fromkeys(name for c in (*clients, *(() if own else test)) for name in class_names(c, label))
        everybody = [] if public is None else [pair(*public, "public")]
        both = [name for name in ("validation", "seed") if name in more]
        if not own and both:
            raise CgpflError(f"{both[0]}: only goes with a share for test; here the test samples are given")
        if not own and len(held) != len(pairs):
            raise CgpflError(f"test: has {len(held)} clients; must be {len(pairs)}, one pair (x, y) a client")
        blocks = (*pairs, *held, *everybody)
        shapes = {p[0].shape[1:] for p in blocks}
        if len(shapes) > 1:
            raise CgpflError(f"clients: samples have different shapes: {', '.join(map(str, sorted(shapes)))}")
        if len({(p[1].shape[1:], p[1].dtype.kind in "US") for p in blocks}) > 1:
            words = f"; some are names of classes, {naming.listed(tuple(called))}" if called else ""
            raise CgpflError(
                f"clients: labels are of different kinds or shapes; must be words, or numbers, of one shape{words}"
            )
        x = np.concatenate([p[0] for p in blocks])
        y = np.concatenate([p[1] for p in blocks])
        if called and y.dtype.kind == "U" and more.get("classes") in (None, len(called)) and not more.get("labels"):
            found = set(y.ravel().tolist())
            wanted = called if "classes" in more else [name for name in called if name in found]
            more["labels"] = [*wanted, *sorted(found - set(called))]
        ends = np.cumsum([len(p[1]) for p in blocks])
        parts = [np.arange(end - len(p[1]), end, dtype=np.int32) for end, p in zip(ends, blocks, strict=True)]
        more["context"] = None if context is None else np.asarray(context)
        more["public"] = parts.pop() if everybody else None
        if own:
            return cls.from_parts(x, y, parts, test=float(test), **more)
        y, known = answers(y, more.pop("task", "auto"), more.pop("classes", None), more.pop("labels", ()))
        return cls(
            x=x,
            y=y,
            train=IndexTable.of(parts[: len(pairs)]),
            test=IndexTable.of(parts[len(pairs) :]),
            **known,
            **more,
        )


def _check(data: FederatedData) -> None:
    tables = [t for t in (data.train, data.test, data.validation) if t is not None]
    for name, table in zip(("training", "test", "validation"), tables, strict=False):
        empty = np.flatnonzero(table.counts == 0)
        if empty.size or len(table.counts) != data.clients:
            who = (
                f"client {data.name(int(empty[0]))}" if empty.size else f"{len(table.counts)} of {data.clients} clients"
            )
            raise CgpflError(f"{who}: no {name} samples; every client needs at least one")
    if data.clients == 0:
        raise CgpflError("data: no clients")
    if data.names and (len(data.names) != data.clients or len(set(data.names)) < data.clients):
        raise CgpflError(f"names: {len(set(data.names))} different ones for {data.clients} clients; give each its own")
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
    coded = data.task in ("classification", "next-token")
    lowest = -1 if data.task == "next-token" else 0
    if coded and (data.y.min() < lowest or data.y.max() >= data.classes):
        raise CgpflError(f"y: labels must be 0..{data.classes - 1}; found {int(data.y.min())}..{int(data.y.max())}")
    if data.task == "next-token" and data.x.ndim == 2 and (data.x.min() < 0 or data.x.max() >= data.classes):
        worst = int(data.x.min() if data.x.min() < 0 else data.x.max())
        raise CgpflError(f"x: token {worst}; tokens must be 0..{data.classes - 1}, or say classes = {worst + 1}")
    if data.context is not None and data.context.shape != (data.clients,):
        raise CgpflError(f"context: has shape {data.context.shape}; must be one number a client, ({data.clients},)")
    if sorted(data.ids.tolist()) != list(range(data.clients)):
        raise CgpflError(f"ids: must be each of 0..{data.clients - 1} once")
