"""What clients say of their own tables so that a federation can agree on a form: statistics, never a row.

A client says its columns' names; of numbers how many there are, how many are missing, their mean and sum of squares; of
words which values occur; of what is predicted its labels, or the moments of its targets (:class:`Survey`). From these
the server makes the form that everybody encodes by (:func:`common_form`). Clients that do not fit the others are left
out by rule (:func:`agreeing`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cgpfl.data import labels as naming
from cgpfl.data.columns import Columns, Statistics, fitted, measure, merged
from cgpfl.data.form import Form
from cgpfl.data.local import files_of
from cgpfl.data.samples import answers, cut
from cgpfl.data.tables import CLIENTS, SUFFIXES, Reading, read_table, source_of
from cgpfl.errors import CgpflError
from cgpfl.objectives import objective_of

T = TypeVar("T")
FEW_VALUES = 20
"""Words of which a column may have that many however few its rows are; of more, most must occur twice."""
MOST_COLUMNS = 100_000
TASKS = ("classification", "regression", "multi-label")
"""What is learned from tables."""


@dataclass(frozen=True)
class Survey:
    """What one client says of its table."""

    columns: dict[str, Statistics]
    task: str
    """What its column to predict looks like, or what the experiment says it is."""
    labels: tuple[Any, ...] = ()
    """Classes that occur."""
    counts: tuple[int, ...] = ()
    """Training samples of each; only where the loss is balanced by them."""
    moments: tuple[Statistics, ...] = ()
    """Of the targets, for regression."""

    def plain(self) -> dict[str, Any]:
        return {
            "columns": {name: _plain(s) for name, s in self.columns.items()},
            "task": self.task,
            "labels": list(self.labels),
            "counts": list(self.counts),
            "moments": [_plain(s) for s in self.moments],
        }

    @classmethod
    def of_plain(cls, found: Any) -> Survey:
        """What :meth:`plain` gave, from somebody who may send anything: every part is checked."""
        try:
            columns = {str(name): _statistics(s) for name, s in found["columns"].items()}
            task, labels = found["task"], tuple(found["labels"])
            counts = tuple(_whole(n) for n in found["counts"])
            moments = tuple(_statistics(s) for s in found["moments"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CgpflError(f"statistics: cannot be used ({type(error).__name__})") from error
        fine = 0 < len(columns) <= MOST_COLUMNS and task in TASKS and len(counts) in (0, len(labels))
        fine = fine and bool(labels) is (task == "classification") and bool(moments) is (task == "regression")
        if not fine or not all(isinstance(v, bool | int | float | str) for v in labels):
            raise CgpflError("statistics: are not what was asked for")
        return cls(columns, task, labels, counts, moments)


def _plain(s: Statistics) -> dict[str, Any]:
    return {**asdict(s), "values": sorted(s.values)}


def _statistics(found: Any) -> Statistics:
    count, missing = _whole(found["count"]), _whole(found["missing"])
    mean, squares = float(found["mean"]), float(found["squares"])
    values, is_number = found["values"], found["is_number"]
    wrong = not (math.isfinite(mean) and math.isfinite(squares) and squares >= 0 and isinstance(is_number, bool))
    if wrong or not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise ValueError("statistics")
    return Statistics(count, mean, squares, missing, frozenset(values), is_number)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError("a count")
    return value


def survey(path: Path, reading: Reading, *, test: float = 0.25, seed: int = 0, counted: bool = False) -> Survey:
    """What the client whose table is the file or folder ``path`` says of it; ``counted``: with samples of each class.

    Numbers are those of its training samples, which are the same as in :func:`cgpfl.data.load_local`.
    """
    import pandas as pd

    files = files_of(Path(path))
    where = f"data {path}"
    for file in files:
        if file is not None and file.suffix.lower() not in SUFFIXES:
            raise CgpflError(f"data {file}: must be a table ({', '.join(SUFFIXES)})")
    parts = [read_table(file) for file in files if file is not None]
    if len(parts) > 1 and set(parts[0].columns) != set(parts[1].columns):
        raise CgpflError(f"{where}: train and test have other columns")
    whole = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    there = tuple(c for c in reading.ignore if c in whole.columns)
    client = reading.client if reading.client in whole.columns else ""
    source = source_of(whole, replace(reading, ignore=there, client=client), where)
    rows = np.arange(len(parts[0]))
    train = rows if len(parts) > 1 else cut([rows], test, 0.0, seed)[0][0]
    _check_words(source.x, reading, where)
    columns = measure(source.x, train)
    if source.task == "classification":
        codes, known = naming.encode(source.y, f"{where}: {source.table[0] if source.table else 'label'}")
        if any(isinstance(v, str) for v in known) and _is_one_each(len(known), len(codes)):
            raise CgpflError(f"{where}: nearly every row has a label of its own; is that the right column?")
        counts = tuple(np.bincount(codes[train], minlength=len(known)).tolist()) if counted else ()
        return Survey(columns, source.task, known, counts)
    y, _ = answers(source.y, source.task, None, source.labels)
    return Survey(columns, source.task, moments=naming.moments(y[train]) if source.task == "regression" else ())


def _check_words(columns: Mapping[str, np.ndarray], reading: Reading, where: str) -> None:
    """A column of names or numbers of persons must not leave its node because somebody forgot to leave it out."""
    for name, values in columns.items():
        if values.dtype == object and name not in reading.categorical and _is_one_each(len(set(values)), len(values)):
            raise CgpflError(
                f"{where}: column {name!r}: nearly every row has a value of its own, and values would leave this node; "
                "leave it out by ignore, or list it in categorical"
            )


def _is_one_each(different: int, rows: int) -> bool:
    return different > FEW_VALUES and 2 * different > rows


def agreeing(surveys: Mapping[int, Survey]) -> tuple[list[int], dict[int, str]]:
    """Clients whose tables fit together, in order, and why each of the others is left out.

    Most clients decide, of equally many those with the first client: which columns there are; then, column by column,
    whether it holds numbers or words; then what is predicted. Labels are put together, unless more than half of the
    clients have the very same ones: then another label is a mistake.
    """
    left, wrong = dict(sorted(surveys.items())), dict[int, str]()

    def leave(why: Mapping[int, str]) -> None:
        for client, reason in why.items():
            wrong[client] = reason
            del left[client]

    names = _usual({i: frozenset(s.columns) for i, s in left.items()})
    leave({i: _other_columns(s, names) for i, s in left.items() if frozenset(s.columns) != names})
    for name in next(iter(left.values())).columns:
        kinds = {i: s.columns[name].is_number for i, s in left.items() if s.columns[name].count}
        usual = _usual(kinds) if kinds else True
        has = {True: "numbers", False: "words"}
        leave(
            {
                i: f"column {name!r} has {has[kind]}, the others' {has[not kind]}"
                for i, kind in kinds.items()
                if kind != usual
            }
        )
    task = _usual({i: s.task for i, s in left.items()})
    leave({i: f"its label looks like {s.task}, the others' like {task}" for i, s in left.items() if s.task != task})
    words = _usual({i: _has_words(s) for i, s in left.items()})
    own, theirs = ("numbers", "words") if words else ("words", "numbers")
    leave({i: f"its labels are {own}, the others' {theirs}" for i, s in left.items() if _has_words(s) != words})
    sets = {i: frozenset(map(naming.key_of, s.labels)) for i, s in left.items()}
    most = _usual(sets)
    if 2 * sum(own == most for own in sets.values()) > len(sets) and len(sets) > 2:
        odd = {i: next((v for v in left[i].labels if naming.key_of(v) not in most), None) for i in left}
        leave({i: f"label {v!r} is nobody else's" for i, v in odd.items() if v is not None})
    return list(left), wrong


def _has_words(s: Survey) -> bool:
    return any(isinstance(v, str) for v in s.labels)


def _usual(each: Mapping[int, T]) -> T:
    """What most clients have; of equally many, what the first client of them has."""
    return Counter(each.values()).most_common(1)[0][0]


def _other_columns(s: Survey, names: frozenset[str]) -> str:
    lacks, more = sorted(names - frozenset(s.columns)), sorted(frozenset(s.columns) - names)
    return " and ".join([f"lacks column {c!r}" for c in lacks[:1]] + [f"has column {c!r} more" for c in more[:1]])


def common_form(surveys: Sequence[Survey], whose: Sequence[str], reading: Reading, loss: str = "auto") -> Form:
    """The form of a federation whose clients, ``whose`` in order, say this; they must fit together."""
    columns = fitted(merged([s.columns for s in surveys], whose), reading.encoding, reading.standardise)
    aside = dict.fromkeys([*((reading.client,) if reading.client else CLIENTS), *reading.ignore])
    columns = replace(columns, label=reading.label, aside=tuple(aside))
    task, known = surveys[0].task, dict[str, Any]()
    if task == "classification":
        union = {naming.key_of(v): v for s in surveys for v in s.labels}
        _check_guess(list(union.values()), reading)
        labels = naming.encode(np.array([*union.values()], object), f"label {reading.label}")[1]
        found = answers(np.array(labels, object), task, None, ())[1]
        total = {naming.key_of(v): 0 for v in labels}
        for s in surveys:
            for v, n in zip(s.labels, s.counts, strict=False):
                total[naming.key_of(v)] += n
        known, named, classes = {"counts": list(total.values())}, found["labels"], found["classes"]
    else:
        targets = tuple(part.strip() for part in reading.label.split(","))
        named, classes = targets if task == "multi-label" else (), len(targets)
        if task == "regression":
            if {len(s.moments) for s in surveys} != {classes}:
                raise CgpflError(f"statistics: moments of {classes} targets were asked for")
            known["centre"], known["spread"] = naming.pooled([s.moments for s in surveys])
    scale, shift = (tuple(np.asarray(v).tolist()) if np.ndim(v) else float(v) for v in columns.units())
    return Form((columns.width,), classes, scale, shift, objective_of(task, loss, **known), named, columns)


def _check_guess(values: list[Any], reading: Reading) -> None:
    """Few whole numbers on each client may be too many for classes in all."""
    if reading.task == "auto" and naming.guess_task(np.array(values)) != "classification":
        raise CgpflError(
            f"label {reading.label!r}: has {len(values)} different whole numbers in all; "
            "say task = classification or regression"
        )


def check_fits(own: Survey, columns: Columns, reading: Reading, where: str) -> None:
    """Numbers where the federation has words would be values that nobody knows: an error."""
    for c in columns.columns:
        mine = own.columns.get(c.name)
        if mine is not None and mine.count and mine.is_number and not c.is_number and c.name not in reading.categorical:
            raise CgpflError(
                f"{where}: column {c.name!r}: has numbers; must be words, such as {', '.join((c.values or ())[:3])}"
            )
