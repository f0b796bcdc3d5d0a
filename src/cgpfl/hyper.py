"""Hyper-parameters: declared once, with meaning and range, checked in one place, and traced by JAX.

Numbers declared as floats are pytree leaves: a program compiled for one λ serves every λ, and a
``vmap`` over a stack of methods runs a whole sweep. Everything else (integers, switches, names) is
part of the program's structure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

from cgpfl.errors import CgpflError

T = TypeVar("T")


def hyper(
    default: Any,
    meaning: str,
    *,
    kind: type | None = None,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    words: tuple[str, ...] = (),
    labels: bool | type = False,
    tune: tuple[float, float] | None = None,
) -> Any:
    """A dataclass field with a meaning and a range.

    ``kind`` is the type (by default that of ``default``); ``low`` and ``high`` are allowed values,
    ``above`` is not itself allowed; ``words`` are the strings allowed instead of a number; with
    ``labels`` a sequence of integers (one a client) is allowed too, with ``labels=str`` one of names.
    ``tune`` is the range, on a logarithmic scale, in which a search looks for good values.
    """
    about = {
        "meaning": meaning,
        "kind": kind or type(default),
        "low": low,
        "above": above,
        "high": high,
        "words": words,
        "labels": labels,
        "tune": tune,
    }
    return dataclasses.field(default=default, metadata=about)


@dataclass_transform(frozen_default=True)
def algorithm(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass whose float hyper-parameters are JAX pytree leaves."""
    cls = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    names = tuple(f.name for f in fields)
    floats = frozenset(f.name for f in fields if f.metadata.get("kind") is float)

    def flatten(method: Any) -> tuple[tuple[Any, ...], Any]:
        leaves = tuple(n for n in names if n in floats and not isinstance(getattr(method, n), str))
        static = tuple((n, getattr(method, n)) for n in names if n not in leaves)
        return tuple(getattr(method, n) for n in leaves), (leaves, static)

    def unflatten(structure: Any, values: Any) -> Any:
        leaves, static = structure
        method = object.__new__(cls)
        for name, value in (*zip(leaves, values, strict=True), *static):
            object.__setattr__(method, name, value)
        return method

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def hyper_parameters(cls: type | Any) -> dict[str, dataclasses.Field[Any]]:
    """The hyper-parameters of a method's class, by name."""
    return {f.name: f for f in dataclasses.fields(cls)}


def allowed(field: dataclasses.Field[Any]) -> str:
    """The allowed values of a hyper-parameter, in words."""
    about = field.metadata
    parts: list[str] = []
    if about["kind"] in (bool, str):
        if about["kind"] is bool or not about["words"]:
            parts.append("true or false" if about["kind"] is bool else "text")
    elif about["kind"] in (int, float):
        number = "an integer" if about["kind"] is int else "a number"
        bounds = [
            f"{sign} {about[key]:g}"
            for sign, key in ((">", "above"), (">=", "low"), ("<=", "high"))
            if about[key] is not None
        ]
        parts.append(" ".join([number, " and ".join(bounds)]).strip())
    parts.extend(f'"{word}"' for word in about["words"])
    if about["labels"]:
        parts.append("a list of names" if about["labels"] is str else "one label a client")
    return " or ".join(parts)


def validate(settings: Any, where: str | None = None) -> None:
    """Check every hyper-parameter's type and range; raise a one-line :class:`CgpflError`."""
    for name, field in hyper_parameters(settings).items():
        value = getattr(settings, name)
        if "kind" in field.metadata and not _is_allowed(value, field.metadata):
            label = where or getattr(settings, "name", type(settings).__name__)
            raise CgpflError(f"{label}: {name} = {value!r}: must be {allowed(field)}")


def from_values(cls: type[T], values: Any, where: str) -> T:
    """A checked dataclass of hyper-parameters from plain values; ``where`` names their origin in errors."""
    if not isinstance(values, dict):
        raise CgpflError(f"{where}: must be a section with keys, got {values!r}")
    known = {n: f for n, f in hyper_parameters(cls).items() if f.metadata}
    for name in values:
        if name not in known:
            raise CgpflError(f"{where}: no setting {name!r}; there are {', '.join(known)}")
    made = cls(**{n: _plain(v, known[n]) for n, v in values.items()})
    validate(made, where)
    return made


def replace(method: T, settings: dict[str, Any], label: str | None = None) -> T:
    """A copy of ``method`` with other hyper-parameters, checked; ``label`` names it in errors."""
    known = hyper_parameters(method)
    label = label or getattr(method, "name", "") or type(method).__name__
    for name in settings:
        if name not in known:
            raise CgpflError(f"{label}: no hyper-parameter {name!r}; it has {', '.join(known)}")
    changed: T = dataclasses.replace(method, **{n: _plain(v, known[n]) for n, v in settings.items()})  # type: ignore[type-var]
    validate(changed, label)
    return changed


def normalised(method: T) -> T:
    """``method`` with its values as its fields mean them, checked: NumPy numbers and arrays are fine."""
    return replace(method, {n: getattr(method, n) for n in hyper_parameters(method)})


def _plain(value: Any, field: dataclasses.Field[Any]) -> Any:
    """A value as the field means it: 1 for 1.0, a list or an array for a tuple, NumPy's numbers."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if field.metadata.get("kind") is float and type(value) is int:
        return float(value)
    return tuple(_plain(v, field) for v in value) if isinstance(value, list | tuple) else value


def _is_allowed(value: Any, about: Any) -> bool:
    if isinstance(value, str):
        return value in about["words"] or (about["kind"] is str and not about["words"])
    if isinstance(value, tuple):
        if about["labels"] is str:
            return all(isinstance(v, str) for v in value)
        return bool(about["labels"]) and all(type(v) is int and v >= 0 for v in value) and len(value) > 0
    kind = about["kind"]
    checks: dict[type, Callable[[Any], bool]] = {
        str: lambda v: False,
        bool: lambda v: isinstance(v, bool),
        int: lambda v: isinstance(v, int) and not isinstance(v, bool),
        float: lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    }
    if kind is float and isinstance(value, jax.Array):  # traced, or one of a stack in a sweep
        return True
    if not checks[kind](value) or (kind is float and not math.isfinite(value)):
        return False
    return (
        (about["low"] is None or value >= about["low"])
        and (about["above"] is None or value > about["above"])
        and (about["high"] is None or value <= about["high"])
    )
