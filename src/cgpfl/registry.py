"""Open names: whatever has a name here may be brought by somebody else.

Wherever a method, model, data set, split, metric, sampler or other component is named – in Python, TOML, on the command
line or in a deployment – three kinds of names are known:

    fedavg                  one of ours
    package.module:Name     anything that can be imported from here
    theirs                  an entry point of an installed package, in the group ``cgpfl.methods`` (``cgpfl.models``, …)
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from cgpfl.errors import CgpflError, did_you_mean, one_line


class Registry(Mapping[str, Any]):
    """The things of one kind, by name. A mapping of ours and of installed packages'; others are found by their path."""

    def __init__(self, kind: str, ours: dict[str, Any], base: type | None = None) -> None:
        self.kind = kind
        self.ours = ours
        self.base = base
        """Of what every one of them must be an object, if it is a component."""
        self._installed: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        if name in self.ours:
            return self.ours[name]
        return self.installed()[name].load()

    def __iter__(self) -> Iterator[str]:
        yield from self.ours
        yield from (name for name in self.installed() if name not in self.ours)

    def __len__(self) -> int:
        return len(set(self.ours) | set(self.installed()))

    def __setitem__(self, name: str, value: Any) -> None:
        """Give something a name, for this process."""
        self.ours[name] = value

    def __delitem__(self, name: str) -> None:
        del self.ours[name]

    def installed(self) -> dict[str, Any]:
        """The entry points of installed packages."""
        if self._installed is None:
            group = f"cgpfl.{self.kind.replace(' ', '_')}s"
            self._installed = {point.name: point for point in entry_points(group=group)}
        return self._installed

    def find(self, name: str) -> Any:
        """What is called ``name``; a one-line error that says what there is."""
        if ":" in name:
            return imported(name, self.kind)
        if name not in self.ours and name not in self.installed():
            raise CgpflError(
                f"no {self.kind} {name!r}; {did_you_mean(name, self)}there are {', '.join(self)}, "
                "or package.module:Name for one of your own"
            )
        try:
            return self[name]
        except Exception as error:  # whatever an installed package raises when it is imported
            raise CgpflError(f"{self.kind} {name}: {one_line(error)}") from error

    def origin(self, name: str) -> str:
        """Where something comes from: ``cgpfl``, or the package or file of its module."""
        if name in self.ours:
            return "cgpfl" if is_ours(self.ours[name]) else "this process"
        if name in self.installed():
            point = self.installed()[name]
            return str(point.dist.name) if point.dist is not None else point.value
        return name.partition(":")[0]


def imported(name: str, kind: str = "component") -> Any:
    """The object at ``package.module:Name``; modules beside the place where a run is started are found, too."""
    module, _, path = name.partition(":")
    if not module or not path or not all(part.isidentifier() for part in [*module.split("."), *path.split(".")]):
        raise CgpflError(f"{kind} {name!r}: must be package.module:Name")
    look_in(Path.cwd())
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise CgpflError(f"{kind} {name}: module {module} cannot be imported: {one_line(error)}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise CgpflError(f"{kind} {name}: {module} has no {path}")
        found = getattr(found, part)
    return found


def look_in(folder: Path) -> None:
    """Find modules in a folder, too; after all others."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)


def own_modules(values: Any) -> dict[str, Path]:
    """The modules that a configuration's values name and that are not installed: name → file or folder."""
    if isinstance(values, dict):
        return {k: v for value in values.values() for k, v in own_modules(value).items()}
    if isinstance(values, list | tuple):
        return {k: v for value in values for k, v in own_modules(value).items()}
    if not isinstance(values, str) or not re.fullmatch(r"[\w.]+:[\w.]+", values) or values.startswith("cgpfl."):
        return {}
    imported(values)
    root = values.partition(":")[0].partition(".")[0]
    module = sys.modules[root]
    file = getattr(module, "__file__", None) or str(Path(next(iter(module.__path__))) / "__init__.py")
    if any(part in ("site-packages", "dist-packages") for part in Path(file).parts):
        return {}
    return {root: Path(file).parent if Path(file).name == "__init__.py" else Path(file)}


def path_of(thing: Any) -> str | None:
    """``package.module:Name`` of a class, a function or an object's class; None if that does not import it."""
    of = thing if hasattr(thing, "__qualname__") else type(thing)
    module, path = getattr(of, "__module__", None), of.__qualname__
    if module in (None, "__main__", "builtins") or "<" in path:
        return None
    try:
        found = imported(f"{module}:{path}")
    except CgpflError:
        return None
    return f"{module}:{path}" if found is of else None


def is_ours(thing: Any) -> bool:
    """Whether something comes with this package."""
    of = thing if hasattr(thing, "__qualname__") else type(thing)
    return str(getattr(of, "__module__", "")).split(".")[0] == "cgpfl"
