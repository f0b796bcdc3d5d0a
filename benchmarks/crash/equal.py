"""Whether two run folders say the same, bit for bit, but for times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from cgpfl.files import load_arrays

TIMES = ("seconds", "time")


def without_times(value: Any) -> Any:
    """JSON without what a clock said."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in TIMES}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def differences(one: Path, two: Path) -> list[str]:
    """What of a finished run's folder is other than in ``one``: states, records, tables, summary."""
    found = []
    for name in ("config.toml", "split.txt", "history.csv"):
        if (one / name).exists() and _plain(one / name) != _plain(two / name):
            found.append(name)
    for path in sorted(one.rglob("summary.json")):
        name = path.relative_to(one)
        if not (two / name).exists() or _json(path) != _json(two / name):
            found.append(str(name))
    for path in sorted(one.rglob("metrics.parquet")):
        name = path.relative_to(one)
        if not (two / name).exists() or not pd.read_parquet(path).equals(pd.read_parquet(two / name)):
            found.append(str(name))
    for name in ("state", "models", "federation"):
        for path in sorted(one.rglob(f"{name}.safetensors")):
            if not (two / path.relative_to(one)).exists() or _arrays(path) != _arrays(two / path.relative_to(one)):
                found.append(str(path.relative_to(one)))
    for path in sorted(one.rglob("clients-*/*.npy")):
        other = two / path.relative_to(one)
        if "before" not in path.parts and other.exists() and path.read_bytes() != other.read_bytes():
            found.append(str(path.relative_to(one)))
    for folder in sorted({p.parent for p in one.rglob("records-*.safetensors")}):
        if records(folder) != records(two / folder.relative_to(one)):
            found.append(f"{folder.relative_to(one)}: records")
    if (one / "report.html").exists() and not (two / "report.html").exists():
        found.append("report.html")
    return found


def records(folder: Path) -> dict[str, list[Any]]:
    """All records of a method, whichever files they are in."""
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("records-*.safetensors")):
        arrays, facts = load_arrays(path)
        found.setdefault("rounds", []).extend(facts["rounds"])
        for name, values in sorted(arrays.items()):
            found.setdefault(name, []).extend(row.tobytes() for row in values)
    return found


def _arrays(path: Path) -> Any:
    arrays, facts = load_arrays(path)
    return {k: (str(v.dtype), v.shape, v.tobytes()) for k, v in arrays.items()}, without_times(facts)


def _json(path: Path) -> Any:
    return without_times(json.loads(path.read_text()))


def _plain(path: Path) -> str:
    return path.read_text() if path.exists() else ""
