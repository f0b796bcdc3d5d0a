"""Pickled ``.npy`` files of plain values, read without running what a pickle may ask to be run.

A pickle names functions and classes to be called. Here five names are known, and each stands for something of ours that
only keeps values: no function of NumPy or of anybody else is ever called by the file.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from typing import Any

import numpy as np


class _Type:
    """Stands for numpy.dtype: a kind and a size, as "f8", then the order of bytes."""

    def __init__(self, name: str, *_: Any) -> None:
        self.name, self.order = str(name), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = str(state[1])


class _Array:
    """Stands for numpy.ndarray: filled with (version, shape, type, Fortran order, bytes or list of objects)."""

    def __init__(self, *_: Any) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state


def _bytes(text: str, encoding: str) -> bytes:
    """Stands for _codecs.encode: how old pickles hold bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are encoded as {encoding!r}; must be latin1")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): None,  # an argument of _reconstruct, never called
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _bytes,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"asks for {module}.{name}; only arrays and plain values are read")
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("refers to something outside; only arrays and plain values are read")


def read_npy(content: bytes) -> Any:
    """The one object in a ``.npy`` file: arrays of numbers, lists, tuples, dicts, strings and numbers.

    Raises ValueError, in one line, for whatever else is in it.
    """
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"a .npy file of version {version}; must be (1, 0)")
    shape, _, kind = np.lib.format.read_array_header_1_0(file)
    if shape != () or kind.kind != "O":
        raise ValueError(f"a .npy file of {kind} {shape}; must be one object")
    try:
        return _plain(_Reader(file).load())
    except (pickle.UnpicklingError, TypeError, AttributeError, IndexError, KeyError, EOFError, RecursionError) as error:
        raise ValueError(f"pickle: {error}") from error


def _plain(value: Any) -> Any:
    """Stand-ins as what they stand for."""
    if isinstance(value, _Array):
        return _array(*value.state)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise pickle.UnpicklingError(f"holds a {type(value).__name__}; only arrays and plain values are read")


def _array(_: Any, shape: tuple[int, ...], kind: _Type, fortran: bool, data: Any) -> Any:
    """An array of numbers, or the single object of an array without axes."""
    if re.fullmatch("O[48]?", kind.name) and shape == () and isinstance(data, list) and len(data) == 1:
        return _plain(data[0])
    if not re.fullmatch("[biuf][1248]", kind.name) or kind.order not in tuple("<>|=") or not isinstance(data, bytes):
        raise pickle.UnpicklingError(f"holds an array of {kind.name}; must be of numbers")
    flat = np.frombuffer(data, np.dtype(kind.order + kind.name))
    if flat.size != math.prod(shape):
        raise pickle.UnpicklingError(f"holds {flat.size} numbers for an array {shape}")
    return flat.reshape(shape, order="F" if fortran else "C")
