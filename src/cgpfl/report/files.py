"""Files of a run folder that may still be written to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.errors import CgpflError

EVENTS = "events.jsonl"


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and facts of a safetensors file; nothing where there is none."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return {}, {}
    try:
        with safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return arrays, json.loads((file.metadata() or {}).get("facts", "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise CgpflError(f"report: {path} cannot be read ({type(error).__name__})") from error


def recorded(folder: Path) -> tuple[list[int], dict[str, np.ndarray]]:
    """A method's records so far: evaluated rounds ``[E]`` and arrays ``[E, ...]``."""
    rounds: list[int] = []
    blocks: list[dict[str, np.ndarray]] = []
    for path in sorted(folder.glob("records-*.safetensors"), key=lambda p: int(p.stem.split("-")[1])):
        arrays, facts = load(path)
        rounds += facts["rounds"]
        blocks.append(arrays)
    return rounds, {name: np.concatenate([b[name] for b in blocks]) for name in (blocks[0] if blocks else {})}


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a run; a line that was cut off is left out."""
    file = path / EVENTS
    if not file.exists():
        return []
    events = []
    for line in file.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and {"kind", "method", "round", "values"} <= event.keys():
            events.append(event)
    return events


def newest(path: Path) -> tuple[Any, ...]:
    """Sizes and times of the files that grow while a run goes on."""
    files = [path / EVENTS, path / "summary.json", *sorted(path.glob("methods/*/records-*.safetensors"))]
    return tuple((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.exists())
