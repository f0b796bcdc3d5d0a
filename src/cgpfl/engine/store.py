"""Personal states of many clients, kept off the device between rounds."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cgpfl.errors import DamagedError
from cgpfl.files import write
from cgpfl.tree import Tree

SUMS = "checksums.json"
CHUNK = 4096
"""Clients copied at once to or from a file."""


class Store:
    """A tree of arrays ``[N, ...]`` in host memory or in a file, of which rows are taken and put.

    A client that never took part has no row yet: memory and files are filled only as far as clients are known.
    """

    def __init__(self, like: Tree, clients: int, folder: Path | None = None) -> None:
        """``like``: one client's state (shapes suffice). ``folder``: keep it in files there, not in memory."""
        self.known = np.zeros(clients, bool)

        def one(leaf: Any) -> np.ndarray:
            shape = (clients, *leaf.shape)
            if folder is None or 0 in shape:
                return np.zeros(shape, leaf.dtype)  # the system gives memory when it is written to
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:  # has no name: gone when the process is
                return np.memmap(file, leaf.dtype, "w+", shape=shape)

        self.arrays = jax.tree.map(one, like)

    def take(self, at: np.ndarray) -> Tree:
        """Rows ``at [C]`` → leaves ``[C, ...]``; zeros for a client that is not known."""
        return jax.tree.map(lambda a: a[at], self.arrays)

    def put(self, at: np.ndarray, rows: Tree) -> None:
        """Set rows ``at [C]``."""
        for array, new in zip(jax.tree.leaves(self.arrays), jax.tree.leaves(rows), strict=True):
            array[at] = np.asarray(new)
        self.known[at] = True

    def dump(self, folder: Path) -> None:
        """Write the known clients' rows into the new ``folder``, down to the disk: ids.npy, 0.npy, 1.npy, …

        Beside them checksums.json has the sha256 of each.
        """
        folder.mkdir(parents=True)
        ids = np.flatnonzero(self.known)
        sums = {"ids.npy": _write(folder / "ids.npy", ids, np.arange(len(ids)))}
        for i, array in enumerate(jax.tree.leaves(self.arrays)):
            sums[f"{i}.npy"] = _write(folder / f"{i}.npy", array, ids)
        write(folder / SUMS, json.dumps(sums).encode())
        for place in (folder, folder.parent):
            handle = os.open(place, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)

    def restore(self, folder: Path) -> None:
        """Read what :meth:`dump` wrote."""
        _check(folder)
        ids = np.load(folder / "ids.npy")
        for i, array in enumerate(jax.tree.leaves(self.arrays)):
            if array.size == 0 or not len(ids):
                continue  # nothing can be mapped
            file = np.load(folder / f"{i}.npy", mmap_mode="r")
            if file.dtype.kind == "V" and file.dtype.itemsize == array.dtype.itemsize:
                file = file.view(array.dtype)  # NumPy's files have no name for bfloat16 and its kind
            if file.shape != (len(ids), *array.shape[1:]):
                raise ValueError(f"{folder / f'{i}.npy'} has shape {file.shape}")
            for start in range(0, len(ids), CHUNK):
                array[ids[start : start + CHUNK]] = file[start : start + CHUNK]
        self.known[ids] = True


def _check(folder: Path) -> None:
    """Files as they were written; a folder without checksums, of an earlier version, is taken at its word."""
    if not (folder / SUMS).exists():
        return
    for name, wanted in json.loads((folder / SUMS).read_text()).items():
        with (folder / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != wanted:
                raise DamagedError(f"{name} is damaged: its checksum is another")


def _write(path: Path, array: np.ndarray, rows: np.ndarray) -> str:
    """``array[rows]`` as a .npy file, some rows at a time → its sha256."""
    header, start = io.BytesIO(), {"descr": array.dtype.str, "fortran_order": False}
    np.lib.format.write_array_header_1_0(header, start | {"shape": (len(rows), *array.shape[1:])})
    found = hashlib.sha256(header.getvalue())
    with path.open("xb") as file:
        file.write(header.getvalue())
        for first in range(0, len(rows), CHUNK):
            block = array[rows[first : first + CHUNK]].tobytes()
            found.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return found.hexdigest()
