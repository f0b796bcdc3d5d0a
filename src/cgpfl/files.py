"""Files written whole or not at all, and named arrays in them: safetensors, never pickle."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from cgpfl.errors import CgpflError


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, survives a power cut
    finally:
        os.close(folder)


def same_wishes(note: Path, asked: dict[str, Any]) -> bool:
    """Whether ``note`` is in its folder; an error where it says that the folder was made with other wishes."""
    if not note.exists():
        return False
    was = json.loads(note.read_text())
    for name, now in asked.items():
        if was.get(name) != now:
            raise CgpflError(
                f"out {note.parent}: was made with {name} = {was.get(name)!r}, now {now!r}; choose another --out"
            )
    return True


def keep_wishes(note: Path, asked: dict[str, Any]) -> None:
    """Write ``note``, in a new folder or in one that is there."""
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CgpflError(f"out {note.parent}: cannot be created: {error.strerror or error}") from error
    write(note, (json.dumps(asked) + "\n").encode())


def save_arrays(path: Path, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Named arrays and a few facts in one safetensors file."""
    content = save({k: np.asarray(v, order="C") for k, v in arrays.items()}, {"facts": json.dumps(facts)})
    write(path, content)


def load_facts(path: Path) -> dict[str, Any]:
    """The facts of :func:`save_arrays` alone, whatever the arrays' size."""
    return _read(path, "", arrays=False)[1]


def load_arrays(path: Path, advice: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What :func:`save_arrays` wrote; ``advice`` tells the user what to do where that cannot be read."""
    return _read(path, advice, arrays=True)


def _read(path: Path, advice: str, *, arrays: bool) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        with safe_open(path, "np") as file:
            found = {name: file.get_tensor(name) for name in (file.keys() if arrays else ())}
            return found, json.loads(file.metadata()["facts"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        reason = f"{path}: cannot be read ({type(error).__name__})"
        raise CgpflError(f"{reason}; {advice}" if advice else reason) from error


def save_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Rows with the same keys, as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    if rows:
        writer.writeheader()
    writer.writerows(rows)
    write(path, text.getvalue().encode())
