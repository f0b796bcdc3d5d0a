"""Files of a run folder that may still be written to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.errors import CgpflError, DamagedError
from cgpfl.files import check_sum, load_arrays, load_facts

EVENTS = "events.jsonl"


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Whatever goes wrong with one file of a run folder is one line that names it; so is a checksum that is another."""
    try:
        check_sum(file)
        yield
    except CgpflError:
        raise
    except Exception as error:
        raise CgpflError(f"run {file.parent}: {file.name} cannot be read ({_short(error)})") from error


@contextmanager
def whole(run: Path) -> Iterator[None]:
    """Whatever is missing or odd in a run folder whose files can be read, in one line."""
    try:
        yield
    except CgpflError:
        raise
    except Exception as error:
        raise CgpflError(
            f"run {run}: cannot be shown, its files are not what a run writes ({_short(error)})"
        ) from error


def _short(error: Exception) -> str:
    """The kind of an error and the beginning of what it says."""
    said = " ".join(str(error).split())
    return type(error).__name__ + (f": {said[:80]}" if said else "")


def read_history(run: Path) -> pd.DataFrame:
    """history.csv of a run or a comparison; labels are text, whatever they look like ("0.1", "NA")."""
    with reading(run / "history.csv"):
        return pd.read_csv(
            run / "history.csv", dtype={"method": str}, keep_default_na=False, na_values=[""], encoding="utf-8"
        )


def load(path: Path, **own: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and facts of a safetensors file; nothing where there is none.

    ``own``: what the facts must say about the file, or else it is another's; it is taken out of them. Files of earlier
    versions do not say it: a ``file`` that does not has no facts, or a ``share``.
    """
    try:
        arrays, facts = load_arrays(path, bare=True) if path.exists() else ({}, {})
    except DamagedError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # gone just now: a resumed run removes what it writes again
            return {}, {}
        raise CgpflError(f"report: {path} {str(error).removeprefix(f'{path}: ')}") from error
    unnamed = "file" in own and "file" not in facts and bool(facts.keys() - {"share"})
    if unnamed or any(facts.get(name, value) != value for name, value in own.items()):
        raise CgpflError(f"report: {path} is another file: it is not what its name says")
    return arrays, {name: value for name, value in facts.items() if name not in own}


def recorded(folder: Path) -> tuple[list[int], dict[str, np.ndarray]]:
    """A method's records so far: evaluated rounds ``[E]`` and arrays ``[E, ...]``."""
    rounds: list[int] = []
    blocks: list[dict[str, np.ndarray]] = []
    counted = 0
    with suppress(DamagedError):  # first: a run that goes on writes records before the state that counts them
        counted = int(load_facts(folder / "state.safetensors").get("records", 0))
    for path in sorted(folder.glob("records-*.safetensors"), key=lambda p: int(p.stem.split("-")[1])):
        arrays, facts = load(path, method=folder.name)
        if arrays:
            if facts.get("rounds", [])[-1:] != [int(path.stem.split("-")[1])]:
                raise CgpflError(f"report: {path} is another file: its records are not of this round")
            rounds += facts["rounds"]
            blocks.append(arrays)
    if len(rounds) < counted:
        raise CgpflError(f"report: {folder} has {len(rounds)} of {counted} records; a file is lost")
    return rounds, {name: np.concatenate([b[name] for b in blocks]) for name in (blocks[0] if blocks else {})}


def begun(path: Path) -> bool:
    """Whether a run has written what a report needs."""
    return any((path / name).exists() for name in ("config.toml", "summary.json", EVENTS))


def newest(path: Path) -> tuple[Any, ...]:
    """Sizes and times of the files that grow while a run goes on."""
    files = [path / EVENTS, path / "summary.json", *sorted(path.glob("methods/*/records-*.safetensors"))]
    found = []
    for file in files:
        with suppress(OSError):  # not there, or gone just now
            facts = file.stat()
            found.append((file.name, facts.st_size, facts.st_mtime_ns))
    return tuple(found)
