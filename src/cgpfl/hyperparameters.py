"""Hyper-parameters: declared once, with meaning and range, checked in one place, and traced by JAX.

Numbers declared as floats are pytree leaves: a program compiled for one λ serves every λ, and a
``vmap`` over a stack of methods runs a whole sweep. Everything else (integers, switches, names) is
part of the program's structure. A hyper-parameter may itself be a component with hyper-parameters of its own
(:func:`component`): a method inside a method, a rule of descent. Its floats are leaves, too, and
``method.prox`` names the one of the inner method.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

from cgpfl.errors import CgpflError, did_you_mean
from cgpfl.registry import Registry, path_of

T = TypeVar("T")
LARGEST_WHOLE, LARGEST = 2**31 - 1, 2**1023
"""Of whole numbers where nobody says, and of whole numbers that are meant as others."""


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

    ``kind`` is the type (by default that of ``default``); ``low`` and ``high`` are allowed values (infinity only as
    ``high``), ``above`` is not itself allowed; ``words`` are the strings allowed instead of a number; with
    ``labels`` a sequence of integers (one a client) is allowed too, with ``labels=str`` one of names.
    ``tune`` is the range, on a logarithmic scale, in which a search looks for good values.
    """
    about = {**locals(), "kind": kind or type(default)}
    del about["default"]
    return dataclasses.field(default=default, metadata=about)


def component(default: Any, meaning: str, registry: Registry, *, many: bool = False) -> Any:
    """A dataclass field that holds a component: one of ``registry``'s names, a table with a name, or an object.

    ``many``: a tuple of them, one after the other; each is reached by its name (``outgoing.clip.norm``).
    """
    about = {"meaning": meaning, "kind": registry, "many": many, "words": (), "labels": False, "tune": None}
    return dataclasses.field(default=default, metadata=about)


@dataclass_transform(frozen_default=True)
def algorithm(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass whose float hyper-parameters, its components' too, are JAX pytree leaves."""
    own: Callable[[Any], None] | None = getattr(cls, "__post_init__", None)

    def check(method: Any) -> None:
        """Whether what was given is of the right kind and in range: said where it is given."""
        if own is not None:
            own(method)
        _check_given(method)

    cls.__post_init__ = check  # type: ignore[attr-defined]
    cls = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    names = tuple(f.name for f in fields)
    floats = frozenset(
        f.name for f in fields if f.metadata.get("kind") is float or is_component(f) or f.metadata.get("child")
    )

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


def is_component(field: dataclasses.Field[Any]) -> bool:
    """Whether a hyper-parameter is itself a component."""
    return isinstance(field.metadata.get("kind"), Registry)


def hyper_parameters(cls: type | Any) -> dict[str, dataclasses.Field[Any]]:
    """The hyper-parameters of a method's class, by name."""
    return {f.name: f for f in dataclasses.fields(cls)}


def nested_parameters(method: Any, within: str = "") -> dict[str, dataclasses.Field[Any]]:
    """The hyper-parameters of a method and of the components in it, by dotted name."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for name, field in hyper_parameters(method).items():
        found[within + name] = field
        for path, inner in _components(method, name, field):
            found |= nested_parameters(inner, f"{within}{path}.")
    return found


def _components(method: Any, name: str, field: dataclasses.Field[Any]) -> list[tuple[str, Any]]:
    """The components in a field, each with its dotted name."""
    value = getattr(method, name, None)
    if not is_component(field) or isinstance(method, type):
        return []
    if field.metadata["many"]:
        return [(f"{name}.{name_in(field.metadata['kind'], one)}", one) for one in value or ()]
    return [(name, value)] if dataclasses.is_dataclass(value) else []


def value_of(method: Any, name: str) -> Any:
    """The value of a hyper-parameter by its dotted name."""
    for part in name.split("."):
        if isinstance(method, tuple):
            method = next(one for one in method if getattr(one, "name", "") == part or path_of(type(one)) == part)
        else:
            method = getattr(method, part)
    return method


def parameters(settings: Any) -> dict[str, Any]:
    """Hyper-parameters, or a dictionary of settings, as plain values; a component as a table with its name."""
    if isinstance(settings, dict):
        return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}
    values: dict[str, Any] = {}
    for name, field in hyper_parameters(settings).items():
        value = getattr(settings, name)
        if is_component(field):
            kind, many = field.metadata["kind"], field.metadata["many"]
            tables = [{"name": name_in(kind, one), **parameters(one)} for one in (value if many else [value])]
            values[name] = tables if many else tables[0]
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            values[name] = dataclasses.asdict(value)
        else:
            values[name] = list(value) if isinstance(value, tuple) else value
    return values


def name_in(registry: Registry, thing: Any) -> str:
    """By which name a component is found again: the registry's, or where it is imported from."""
    kinds = {name: one if isinstance(one, type) else type(one) for name, one in registry.ours.items()}
    same = [name for name, kind in kinds.items() if kind is type(thing)]
    own = getattr(thing, "name", None)
    return own if own in same else same[0] if same else path_of(type(thing)) or type(thing).__name__


def build(registry: Registry, given: Any, where: str) -> Any:
    """A component from its name, a table with a name and settings, a class, or an object."""
    settings: dict[str, Any] = {}
    if isinstance(given, dict):
        settings = dict(given)
        given = settings.pop("name", None)
        if not isinstance(given, str):
            raise CgpflError(f"{where}: needs the name of a {registry.kind}; there are {', '.join(registry)}")
    label = given if isinstance(given, str) else ""
    found = registry.find(given) if isinstance(given, str) else given
    if isinstance(found, type):
        known = hyper_parameters(found) if dataclasses.is_dataclass(found) else {}
        needed = [name for name, field in known.items() if _must_be_given(field)]
        missing = [name for name in needed if name not in settings]
        if missing:
            raise CgpflError(f"{where}: {label or found.__name__}: needs {', '.join(missing)}")
        start = {name: plain(settings.pop(name), known[name], f"{where}: {name}") for name in needed}
        found = found(**start)
    if not dataclasses.is_dataclass(found) or (registry.base is not None and not isinstance(found, registry.base)):
        raise CgpflError(f"{where}: {label or type(found).__name__}: is no {registry.kind}")
    return replace(found, settings, label or None)


def _must_be_given(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _written(bound: float) -> str:
    """A bound, as people write it: 4,294,967,295, 0.01."""
    if math.isinf(bound):
        return "inf"
    return f"{int(bound):,}" if float(bound).is_integer() else f"{bound:g}"


def allowed(field: dataclasses.Field[Any]) -> str:
    """The allowed values of a hyper-parameter, in words."""
    about = field.metadata
    parts: list[str] = []
    if is_component(field):
        return f"a {about['kind'].kind}: {', '.join(about['kind'])}"
    if about["kind"] in (bool, str):
        if about["kind"] is bool or not about["words"]:
            parts.append("true or false" if about["kind"] is bool else "text")
    elif about["kind"] in (int, float):
        number = "an integer" if about["kind"] is int else "a number"
        bounds = [
            f"{sign} {_written(about[key])}"
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
        label = where or getattr(settings, "name", type(settings).__name__)
        if is_component(field):
            for path, inner in _components(settings, name, field):
                validate(inner, f"{label}.{path}")
        elif "kind" in field.metadata:
            _check(value, field, str(label))


def _check(value: Any, field: dataclasses.Field[Any], label: str) -> None:
    """Check one value, as its field means it; ``label`` names whose it is."""
    if not _is_allowed(value, field.metadata):
        most = f" and <= {LARGEST_WHOLE:,}" if _too_large(value, field.metadata) else ""
        raise CgpflError(f"{label}: {field.name} = {_said(value)}: must be {allowed(field)}{most}")


def _check_given(method: Any) -> None:
    """Check plain values that a constructor was given; arrays, of a sweep, and components are checked when used."""
    for name, field in hyper_parameters(method).items():
        value = getattr(method, name)
        if "kind" not in field.metadata or is_component(field) or value is field.default:
            continue
        if isinstance(value, bool | int | float | str | np.generic):
            _check(plain(value, field, name), field, getattr(method, "name", "") or type(method).__name__)


def from_values(cls: type[T], values: Any, where: str) -> T:
    """A checked dataclass of hyper-parameters from plain values; ``where`` names their origin in errors."""
    if not isinstance(values, dict):
        raise CgpflError(f"{where}: must be a section with keys, got {values!r}")
    known = {n: f for n, f in hyper_parameters(cls).items() if f.metadata}
    for name in values:
        if name not in known:
            raise CgpflError(f"{where}: no setting {name!r}; {did_you_mean(name, known)}there are {', '.join(known)}")
    made = cls(**{n: plain(v, known[n], f"{where}: {n}") for n, v in values.items()})
    validate(made, where)
    return made


def replace(method: T, settings: dict[str, Any], label: str | None = None) -> T:
    """A copy of ``method`` with other hyper-parameters, checked; ``label`` names it in errors.

    ``{"method.prox": 3}`` and ``{"method": {"prox": 3}}`` change the component in the field ``method``;
    ``{"method": {"name": "ditto"}}`` replaces it.
    """
    known = hyper_parameters(method)
    label = label or getattr(method, "name", "") or type(method).__name__
    values: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        field, _, rest = name.partition(".")
        if field not in known or (rest and not is_component(known[field])):
            there = nested_parameters(method)
            raise CgpflError(
                f"{label}: no hyper-parameter {name!r}; {did_you_mean(name, there)}it has {', '.join(there)}"
            )
        if rest:
            inner.setdefault(field, {})[rest] = value
        elif is_component(known[field]) and isinstance(value, dict) and "name" not in value:
            inner.setdefault(field, {}).update(value)
        else:
            values[field] = plain(value, known[field], f"{label}: {field}")
    for field, changes in inner.items():
        values[field] = _changed(values.get(field, getattr(method, field)), known[field], changes, f"{label}.{field}")
    for name, value in values.items():
        if "kind" in known[name].metadata and not is_component(known[name]):
            _check(value, known[name], label)
    changed: T = dataclasses.replace(method, **values)  # type: ignore[type-var]
    validate(changed, label)
    return changed


def _changed(value: Any, field: dataclasses.Field[Any], changes: dict[str, Any], label: str) -> Any:
    """A component, or those of a tuple by their names, with other hyper-parameters."""
    if not field.metadata["many"]:
        return replace(value, changes, label)
    found = list(value)
    for path, new in changes.items():
        name, _, rest = path.partition(".")
        places = [i for i, one in enumerate(found) if name_in(field.metadata["kind"], one) == name]
        if not places or not rest:
            there = ", ".join(name_in(field.metadata["kind"], one) for one in found) or "nothing"
            raise CgpflError(f"{label}: no {path!r}; it has {there}")
        found[places[0]] = replace(found[places[0]], {rest: new}, f"{label}.{name}")
    return tuple(found)


def normalised(method: T) -> T:
    """``method`` with its values as its fields mean them, checked: NumPy numbers and arrays are fine."""
    return replace(method, {n: getattr(method, n) for n in hyper_parameters(method)})


def plain(value: Any, field: dataclasses.Field[Any], where: str) -> Any:
    """A value as the field means it: 1 for 1.0, a list or an array for a tuple, NumPy's numbers, a component's name."""
    if is_component(field):
        kind = field.metadata["kind"]
        if not field.metadata["many"]:
            return build(kind, value, where)
        each = value if isinstance(value, list | tuple) else [value]
        return tuple(build(kind, one, where) for one in each)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if field.metadata.get("kind") is float and type(value) is int and abs(value) < LARGEST:
        return float(value)
    return tuple(plain(v, field, where) for v in value) if isinstance(value, list | tuple) else value


def _too_large(value: Any, about: Any) -> bool:
    """Whether a number is beyond what programs compute with: 32 bits of a whole number, or infinite."""
    if about["kind"] is int and type(value) is int:
        return about["high"] is None and abs(value) > LARGEST_WHOLE
    if about["kind"] is float and isinstance(value, int | float):
        if value == math.inf and about["high"] == math.inf:
            return False
        return abs(value) >= LARGEST if isinstance(value, int) else not math.isfinite(value)
    return False


def _said(value: Any) -> str:
    """A value as it is repeated in an error; of a number of very many digits, how many."""
    if type(value) is int and abs(value) >= 10**50:
        return f"an integer of about {int(value.bit_length() * 0.30103) + 1} digits"
    return repr(value)


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
    if kind not in checks or not checks[kind](value) or _too_large(value, about):
        return False
    return (
        (about["low"] is None or value >= about["low"])
        and (about["above"] is None or value > about["above"])
        and (about["high"] is None or value <= about["high"])
    )
