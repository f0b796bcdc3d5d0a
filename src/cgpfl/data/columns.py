"""A table's columns: which there are, of what kind, and how a row of them becomes a model's input.

Everything here is fitted by statistics that clients can compute and send without a sample leaving them: counts, means
and sums of squares of the numbers, the values of the categories, how many are missing (:class:`Statistics`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cgpfl.errors import CgpflError

ENCODINGS = ("one-hot", "codes")
MOST_VALUES = 1000
"""Categories of a column that are encoded one by one."""
FAR = 1e4
"""Standard deviations from 0 at which float32 has too few digits for what varies."""
MISSING = "(missing)"
"""The category of a cell without a value."""


@dataclass(frozen=True)
class Column:
    """One column: a number or a category."""

    name: str
    values: tuple[str, ...] | None = None
    """The categories; None: numbers."""
    missing: bool = False
    """Whether a number may be missing: a second input then says so."""
    mean: float = 0.0
    """Of the numbers there are; stands for a missing one."""
    std: float = 1.0
    offset: float = 0.0
    """What is taken from numbers before they are float32: their mean, where they hardly vary beside it (times, ids)."""

    @property
    def is_number(self) -> bool:
        return self.values is None


@dataclass(frozen=True)
class Statistics:
    """What one client says of one column; :meth:`merge` gives the federation's."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Σ (x − mean)²."""
    missing: int = 0
    values: frozenset[str] = frozenset()
    is_number: bool = True

    def merge(self, other: Statistics) -> Statistics:
        """Of both clients' samples together (Chan, Golub, LeVeque: Updating formulae, 1979)."""
        count = self.count + other.count
        if self.count == 0 or other.count == 0:
            full = other if self.count == 0 else self
            mean, squares = full.mean, full.squares
        else:
            apart = other.mean - self.mean
            mean = self.mean + apart * other.count / count
            squares = self.squares + other.squares + apart * apart * self.count * other.count / count
        known = [s for s in (self, other) if s.count] or [self]
        return Statistics(
            *(count, mean, squares, self.missing + other.missing, self.values | other.values),
            is_number=all(s.is_number for s in known),
        )

    @property
    def std(self) -> float:
        """1 where nothing varies."""
        spread = (self.squares / self.count) ** 0.5 if self.count else 0.0
        return spread if spread > 1e-12 * max(1.0, abs(self.mean)) else 1.0


@dataclass(frozen=True)
class Columns:
    """The columns of a table, in order, and how they are encoded.

    A number is one input, and a second one that is 1 where it is missing if it ever was in training; a category is one
    input a value ("one-hot") or its number among the values ("codes": for models that learn an embedding of it). Values
    that training never saw are none of them: all zeros, or the last code.
    """

    columns: tuple[Column, ...]
    encoding: str = "one-hot"
    standardise: bool = True
    """Whether numbers are given to models with mean 0 and standard deviation 1 over the whole federation."""
    label: str = ""
    """The column of what is predicted; may be there or not where a model is used."""
    aside: tuple[str, ...] = ()
    """Columns that are neither: the client's, the time's, what was ignored; the same holds."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of a model's inputs, in order."""
        return tuple(name for c in self.columns for name in self._inputs(c))

    def _inputs(self, column: Column) -> list[str]:
        if column.values is None:
            return [column.name, f"{column.name} missing"] if column.missing else [column.name]
        return [column.name] if self.encoding == "codes" else [f"{column.name} = {v}" for v in column.values]

    @property
    def width(self) -> int:
        """How many inputs a row becomes."""
        return len(self.inputs)

    @property
    def categories(self) -> tuple[int, ...]:
        """Of each input, how many codes it has; 0 for a number. Empty unless encoded as codes."""
        if self.encoding != "codes":
            return ()
        each = [[0] * len(self._inputs(c)) if c.values is None else [len(c.values) + 1] for c in self.columns]
        return tuple(n for part in each for n in part)

    def units(self) -> tuple[np.ndarray | float, np.ndarray | float]:
        """``scale`` and ``shift [width]`` that standardise: inputs are x * scale + shift."""
        if not self.standardise:
            return 1.0, 0.0
        scale, shift = [], []
        for c in self.columns:
            for place in range(len(self._inputs(c))):
                own = c.is_number and place == 0
                scale.append(1 / c.std if own else 1.0)
                shift.append(-(c.mean - c.offset) / c.std if own else 0.0)
        return np.asarray(scale, np.float32), np.asarray(shift, np.float32)

    def encode(self, frame: Any, where: str) -> np.ndarray:
        """Rows of a frame ``[n]`` as ``x [n, width]``, raw: columns are matched by name, and must be these."""
        frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
        targets = [self.label, *(c.strip() for c in self.label.split(","))]
        frame = frame.drop(columns=[c for c in dict.fromkeys([*targets, *self.aside]) if c in frame.columns])
        self.check(frame, where)
        return self.encode_cells(
            cells(frame[list(self.names)], [c.name for c in self.columns if not c.is_number], where), where
        )

    def encode_cells(self, frame: dict[str, np.ndarray], where: str) -> np.ndarray:
        """The same from :func:`cells`."""
        parts = []
        for c in self.columns:
            values = frame[c.name]
            if c.values is None:
                if values.dtype == object:
                    raise CgpflError(f"{where}: column {c.name!r}: must be numbers, found {values[0]!r}")
                gone = np.isnan(values)
                if gone.any() and not c.missing:
                    raise CgpflError(
                        f"{where}: column {c.name!r}: row {int(gone.argmax())} is missing; it never was before"
                    )
                parts.append((np.where(gone, c.mean, values) - c.offset)[:, None])
                parts.extend([gone[:, None].astype(float)] if c.missing else [])
            else:
                parts.append(self._codes(values, c.values))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _codes(self, found: np.ndarray, values: tuple[str, ...]) -> np.ndarray:
        place = {v: i for i, v in enumerate(values)}
        codes = np.array([place.get(v, len(values)) for v in found], np.int64)
        if self.encoding == "codes":
            return codes[:, None].astype(float)
        return np.eye(len(values) + 1)[codes][:, :-1]

    def decode(self, x: np.ndarray) -> Any:
        """The way back: encoded rows as the frame they came from (a value that training never saw is not told)."""
        import pandas as pd

        found: dict[str, Any] = {}
        at = 0
        for c in self.columns:
            part = x[:, at : at + len(self._inputs(c))]
            at += part.shape[1]
            if c.values is None:
                gone = part[:, 1] > 0.5 if c.missing else np.zeros(len(x), bool)
                found[c.name] = np.where(gone, np.nan, part[:, 0].astype(np.float64) + c.offset)
            else:
                values = np.array([*c.values, MISSING], object)
                codes = part[:, 0].astype(int)
                if self.encoding == "one-hot":
                    codes = np.where(part.any(axis=1), part.argmax(axis=1), len(c.values)) if len(c.values) else codes
                cells = values[codes]
                found[c.name] = np.where(cells == MISSING, None, cells)
        return pd.DataFrame(found)

    def check(self, frame: Any, where: str) -> None:
        """A column that is missing, or one too many, is an error."""
        there = [str(c) for c in frame.columns]
        missing = [c for c in self.names if c not in there]
        extra = [c for c in there if c not in self.names]
        if missing or extra:
            parts = [
                f"{what} {', '.join(map(repr, names[:5]))}"
                for what, names in (("lacks", missing), ("has", extra))
                if names
            ]
            raise CgpflError(f"{where}: {' and '.join(parts)}; its columns must be {', '.join(self.names)}")
        twice = [c for c in there if there.count(c) > 1]
        if twice:
            raise CgpflError(f"{where}: column {twice[0]!r} is there {there.count(twice[0])} times")

    def plain(self) -> dict[str, Any]:
        """As plain data, for :meth:`of_plain`."""
        found = asdict(self)
        found["columns"] = [
            {k: list(v) if isinstance(v, tuple) else v for k, v in c.items() if v is not None} for c in found["columns"]
        ]
        return {**found, "aside": list(self.aside)}

    @classmethod
    def of_plain(cls, found: dict[str, Any]) -> Columns:
        columns = [Column(**{**c, "values": tuple(c["values"]) if "values" in c else None}) for c in found["columns"]]
        return cls(tuple(columns), found["encoding"], found["standardise"], found["label"], tuple(found["aside"]))


def cells(frame: Any, categorical: Iterable[str] = (), where: str = "data") -> dict[str, np.ndarray]:
    """A frame's columns: numbers ``[n]`` with NaN where one is missing, or words ``[n]``."""
    unknown = [c for c in categorical if c not in [str(name) for name in frame.columns]]
    if unknown:
        raise CgpflError(
            f"categorical: {where} has no column {unknown[0]!r}; it has {', '.join(map(str, frame.columns))}"
        )
    found: dict[str, np.ndarray] = {}
    for place, name in enumerate(map(str, frame.columns)):
        series = frame.iloc[:, place]
        if name in found:
            raise CgpflError(f"{where}: column {name!r} is there twice")
        if name not in categorical and is_numeric(series):
            found[name] = numbers(series, f"{where}: column {name!r}")
        else:
            _check_kind(series, f"{where}: column {name!r}")
            found[name] = np.array(words(series), object)
    return found


def measure(
    columns: dict[str, np.ndarray], train: Any = slice(None), every: Any = slice(None)
) -> dict[str, Statistics]:
    """Statistics of one client's rows of :func:`cells`: its ``train`` rows' numbers, which values ``every`` row has."""
    return {name: _measure(values[train], values[every]) for name, values in columns.items()}


def _measure(values: np.ndarray, every: np.ndarray) -> Statistics:
    if values.dtype == object:
        return Statistics(len(values), values=frozenset(every), is_number=False)
    known = values[~np.isnan(values)]
    mean = float(known.mean()) if known.size else 0.0
    return Statistics(known.size, mean, float(np.square(known - mean).sum()), int(np.isnan(every).sum()))


def merged(each: Sequence[dict[str, Statistics]], whose: Sequence[str]) -> dict[str, Statistics]:
    """The federation's statistics; clients with other columns than the first are an error. ``whose``: their names."""
    total = dict(each[0])
    for own, who in zip(each[1:], whose[1:], strict=True):
        lacks, more = [c for c in total if c not in own], [c for c in own if c not in total]
        if lacks or more:
            what = (
                f"lacks column {lacks[0]!r}, which {whose[0]} has"
                if lacks
                else f"has column {more[0]!r}, which {whose[0]} lacks"
            )
            raise CgpflError(f"client {who}: {what}; all clients need the same columns")
        for name, statistics in own.items():
            if statistics.count and total[name].count and statistics.is_number != total[name].is_number:
                ours, theirs = ("numbers", "words") if statistics.is_number else ("words", "numbers")
                raise CgpflError(
                    f"client {who}: column {name!r} has {ours}, other clients have {theirs}; "
                    f"say categorical = [{name!r}], or correct it"
                )
            total[name] = total[name].merge(statistics)
    return total


def fitted(statistics: dict[str, Statistics], encoding: str = "one-hot", standardise: bool = True) -> Columns:
    """The columns of a federation with these statistics."""
    if encoding not in ENCODINGS:
        raise CgpflError(f"encoding = {encoding!r}: must be {' or '.join(ENCODINGS)}")
    found = []
    for name, s in statistics.items():
        if s.is_number:
            far = abs(s.mean) > FAR * s.std
            found.append(Column(name, None, s.missing > 0, s.mean, s.std, s.mean if far else 0.0))
            continue
        if len(s.values) > MOST_VALUES and encoding == "one-hot":
            raise CgpflError(
                f"column {name!r}: has {len(s.values):,} values; leave it out by ignore, or say encoding = 'codes'"
            )
        found.append(Column(name, tuple(sorted(s.values))))
    return Columns(tuple(found), encoding, standardise)


def fitted_to(
    found: dict[str, np.ndarray], parts: Sequence[np.ndarray], whose: Sequence[str], encoding: str, standardise: bool
) -> Columns:
    """The columns of a table's cells ``found``, whose training samples are at ``parts``, one a client."""
    total, every = merged([measure(found, part, part) for part in parts], whose), measure(found)
    # which values there are is the whole table's: splits of other seeds give inputs of the same form
    stated = {n: replace(s, values=every[n].values, missing=every[n].missing) for n, s in total.items()}
    return fitted(stated, encoding, standardise)


def is_numeric(series: Any) -> bool:
    """Whether a column holds numbers (or yes and no)."""
    import pandas as pd

    kind = series.dtype
    if series.isna().all():
        return True
    return bool(pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind))


def numbers(series: Any, where: str) -> np.ndarray:
    """A column as numbers ``[n]``, NaN where one is missing."""
    if series.isna().all():
        return np.full(len(series), np.nan)
    try:
        values = np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan), np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        first = next((v for v in series if not _is_number(v)), None)
        raise CgpflError(f"{where}: must be numbers, found {shown(first)}") from error
    if np.isinf(values).any() or (np.abs(values[np.isfinite(values)]) > 3e38).any():
        first = int(np.flatnonzero(np.isinf(values) | (np.abs(values) > 3e38))[0])
        raise CgpflError(f"{where}: row {first} is {values[first]:g}; must be a finite number of at most 3e38")
    return values


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def shown(value: Any) -> str:
    """A value for a message: as it is, but for numbers of very many digits."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of some {round(value.bit_length() * 0.30103)} digits"
    return repr(value)


def words(series: Any) -> list[str]:
    """A column's cells as text; whole numbers without a point."""
    return [MISSING if gone else word(v) for v, gone in zip(series, series.isna(), strict=True)]


def word(value: Any) -> str:
    """A value as text: 3.0 is 3."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _check_kind(series: Any, where: str) -> None:
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(series.dtype) or pd.api.types.is_timedelta64_dtype(series.dtype):
        raise CgpflError(f"{where}: holds times; leave it out by ignore, or order the samples by it with time")
    odd = next((v for v in series if isinstance(v, list | dict | tuple | np.ndarray | bytes)), None)
    if odd is not None:
        raise CgpflError(f"{where}: a cell is a {type(odd).__name__}; cells must be numbers or words")
