"""Traced programs, kept on disk: what was traced once is not traced again.

A block of rounds takes longer to trace and to lower than to load from JAX's compilation cache. So it is kept beside
that cache as StableHLO (:mod:`jax.export`: data, no pickle), under a name made of all it depends on: our sources,
versions, the device, JAX's settings, the form of every argument and every static part. A program with a part that is
not ours – a method, model or metric of the user's – is traced each time: nobody knows whether its source has changed.
Neither does anybody know which of ours were imported, where some have changed since the process began.
So is everything outside of the command line, where our own functions may have been replaced, and what JAX cannot
export.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import re
import time
import types
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cgpfl.engine.cache import in_use
from cgpfl.errors import CgpflError
from cgpfl.files import write
from cgpfl.folders import cache_folder

OURS = ("cgpfl", "jax", "builtins")
"""Packages whose parts are known by version or source."""
VERSIONS = ("jax", "jaxlib", "numpy", "optax")
"""Packages that our own sources call while they are traced."""
ELSEWHERE = ("cache", "log", "num_cpu_devices", "platform")
"""Settings of JAX with these in their names change nothing that is traced."""
UNUSED = 30 * 24 * 3600
"""Seconds after which a program that nobody has loaded is removed."""
STARTED = time.time() - 5.0
"""When this process had imported none of our sources yet."""
_wanted = False


def keep_programs() -> None:
    """Keep programs from now on: for the command line, in whose process nothing of ours is replaced."""
    global _wanted
    _wanted = True


def keeps_programs() -> bool:
    """Whether they are kept in this process."""
    return _wanted and jax.process_count() == 1


@dataclasses.dataclass(frozen=True)
class Kept:
    """A program that was loaded, or is kept from now on."""

    program: Any
    """Compiled, of the arguments' leaves: a jitted one would be compiled again for the states that it gives back, which
    are bound to their device."""
    successor: Any
    """Structure of the argument that is used up."""

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        new, *others = self.program(*jax.tree.leaves(args))
        return (jax.tree.unflatten(self.successor, new), *others)


def kept(function: Any, args: tuple[Any, ...], static: Any, used_up: int) -> Kept | None:
    """``function(*args, static)`` as a function of ``args``, loaded, or traced and kept.

    ``function`` is jitted; it donates argument ``used_up`` and returns that one's successor, in the same form, and
    plain containers beside it. None where programs are not kept, or this one cannot be.
    """
    if not (keeps_programs() and in_use()):
        return None
    leaves, form = jax.tree.flatten(args)
    forms = [_form(leaf) for leaf in leaves]
    try:
        name = _digest((function.__module__, function.__qualname__, described(form), described(static), str(forms)))
    except _UnknownError:
        return None
    given = [len(jax.tree.leaves(arg)) for arg in args]
    first = sum(given[:used_up])
    donated = tuple(range(first, first + given[used_up]))
    file = cache_folder() / "programs" / name
    try:
        exported = _load(file)
        if exported is None:
            exported = _trace(function, form, forms, static, donated)
            _save(file, exported.serialize())
    except (ImportError, ValueError, NotImplementedError):  # not exportable, or the method's own error, said later
        return None
    program = jax.jit(_called(exported), donate_argnums=donated).lower(*forms).compile()
    return Kept(program, jax.tree.structure(args[used_up]))


def _trace(function: Any, form: Any, forms: Sequence[Any], static: Any, donated: tuple[int, ...]) -> Any:
    from jax import export

    def flat(*leaves: Any) -> tuple[Any, ...]:
        new, *others = function.__wrapped__(*jax.tree.unflatten(form, leaves), static)
        return (tuple(jax.tree.leaves(new)), *others)

    return export.export(jax.jit(flat, donate_argnums=donated))(*forms)


def _called(exported: Any) -> Any:
    """What calls an exported program. For a CPU's JAX looks for LAPACK, which imports SciPy; few have any of it."""
    from jax import export

    if exported.platforms == ("cpu",) and b"lapack" not in exported.mlir_module_serialized:
        anywhere = (*exported.disabled_safety_checks, export.DisabledSafetyCheck.platform())
        exported = dataclasses.replace(exported, platforms=("",), disabled_safety_checks=anywhere)
    return exported.call


def _form(leaf: Any) -> jax.ShapeDtypeStruct:
    kind = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(kind.shape, kind.dtype, weak_type=kind.weak_type)


def _load(file: Path) -> Any:
    """A program, or None where there is none, or a damaged one."""
    from jax import export

    try:
        content = file.read_bytes()
    except OSError:
        return None
    checksum, program = content[:32], content[32:]
    if not program or hashlib.sha256(program).digest() != checksum:
        return None
    with suppress(OSError):
        os.utime(file)  # used
    return export.deserialize(bytearray(program))


def _save(file: Path, program: bytes | bytearray) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, hashlib.sha256(program).digest() + bytes(program))
        _tidy(file.parent)
    except (OSError, CgpflError):
        return  # a read-only home, or a link, costs time, nothing else


def _tidy(folder: Path) -> None:
    """Remove programs that were long not used: of other sources, mostly."""
    for file in folder.iterdir():
        ours = re.fullmatch(r"[0-9a-f]{64}|\.[0-9a-f]{16}\.part", file.name)
        if ours and file.lstat().st_mtime < time.time() - UNUSED:
            file.unlink()


class _UnknownError(Exception):
    """A part of a program of which not all is known."""


def described(value: Any) -> str:
    """All of a static part, as a text that is the same in every process; _UnknownError if it is not known."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, jax.tree_util.PyTreeDef):
        node = value.node_data()
        return "*" if node is None else f"{described(node)}({', '.join(map(described, value.children()))})"
    if isinstance(value, dict):
        return described(tuple(value.items()))
    if isinstance(value, (tuple, list)) and type(value).__module__ in ("builtins", "jaxlib"):
        return f"({', '.join(map(described, value))})"
    if isinstance(value, (np.ndarray, np.generic, np.dtype)):
        content = b"" if isinstance(value, np.dtype) else value.tobytes()
        return f"{getattr(value, 'dtype', value)} {getattr(value, 'shape', ())} {hashlib.sha256(content).hexdigest()}"
    if isinstance(value, (type, types.FunctionType)):
        return _named(value)
    if isinstance(value, tuple):  # with names
        return f"{_named(type(value))}({', '.join(map(described, value))})"
    if isinstance(value, functools.partial):
        return described((value.func, value.args, tuple(value.keywords.items())))
    if dataclasses.is_dataclass(value) and hasattr(value, "__dict__"):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        if vars(value).keys() <= fields.keys():
            return f"{_named(type(value))} {described(fields)}"
    raise _UnknownError


def _named(value: Any) -> str:
    """A class or function that is found under its name in a package of ``OURS``."""
    if value.__module__.partition(".")[0] not in OURS or "<" in value.__qualname__:
        raise _UnknownError
    return f"{value.__module__}:{value.__qualname__}"


def _digest(facts: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join((*_surroundings(), _settings(), *facts)).encode()).hexdigest()


def _settings() -> str:
    """JAX's, as they are now."""
    values = sorted(jax.config.values.items())
    return str([(name, str(value)) for name, value in values if not any(word in name for word in ELSEWHERE)])


@functools.cache
def _surroundings() -> tuple[str, ...]:
    """Our sources, what they call, and the device; _UnknownError if the sources may not be what was imported."""
    root, content = Path(__file__).parent.parent, hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        if file.stat().st_ctime > STARTED:
            raise _UnknownError
        content.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    device = jax.devices()[0]
    versions = [metadata.version(name) for name in VERSIONS]
    return (content.hexdigest(), *versions, device.platform, device.device_kind)
