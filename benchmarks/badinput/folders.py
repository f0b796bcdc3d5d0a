"""Run folders that are damaged: flipped bits, cut, lost and swapped files. Refused, or the right answer."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.badinput.attempt import SLOW, attempt
from benchmarks.crash.equal import without_times
from cgpfl.experiment.config import from_dict
from cgpfl.experiment.experiment import resume_experiment, run_experiment
from cgpfl.experiment.reload import load_published, load_result
from cgpfl.experiment.saved import open_saved
from cgpfl.report.read import read_run
from cgpfl.tree import named

LABELS = ("fedavg", "cgpfl")
VALUES = {
    "rounds": 6,
    "eval_every": 2,
    "checkpoint_seconds": 0,
    "data": {"clients": 4, "contexts": 2, "share": 0.2},
    "method": [{"name": "fedavg"}, {"name": "cgpfl", "contexts": 2}],
}
FREE = ("config.toml", "events.jsonl")
"""What a report shows of these is as it is read: text for people."""
SPARED = ("summary.json", "federation.safetensors", "models.safetensors")
"""A report does without these where they are lost: of a run that has no summary yet, without pictures of contexts."""


def make(folder: Path) -> Path:
    """A finished run of two methods."""
    run_experiment(from_dict(VALUES, "campaign"), folder)
    shutil.rmtree(folder / "figures", ignore_errors=True)
    return folder


def figures(folder: Path) -> Any:
    """What ``cgpfl.Result.load`` says."""
    saved = open_saved(folder)
    return saved.summary, saved.history.to_csv(), saved.clients.to_csv(), saved.table.to_csv()


def exported(label: str, folder: Path) -> Any:
    """What ``cgpfl export`` and ``personalize`` begin with."""
    found = load_published(folder, label)
    return found.data, found.rounds, {k: v.tobytes() for k, v in named(found.server).items()}


def loaded(label: str, folder: Path) -> Any:
    """A result with its personal models."""
    found = load_result(folder, label)
    arrays = {k: v.tobytes() for k, v in named(found.state).items()}
    return found.records.rounds, {k: v.tobytes() for k, v in found.records.values.items()}, arrays


def shown(folder: Path) -> Any:
    """What a report shows."""
    found = read_run(folder)
    return [{k: v for k, v in m.items() if k != "seconds"} for m in found["methods"]]


def resumed(folder: Path) -> Any:
    """What is there after ``cgpfl resume``."""
    finished = resume_experiment(folder)
    return without_times(finished.summary["methods"])


READERS: dict[str, tuple[Callable[[Path], Any], float]] = {
    "figures": (figures, 1.0),
    "shown": (shown, 1.0),
    **{f"export of {label}": (partial(exported, label), 0.5) for label in LABELS},
    **{f"result of {label}": (partial(loaded, label), 0.1) for label in LABELS},
    "resume": (resumed, 0.02),
}
"""By name: who reads, and how often of all damages (some take long)."""


@cache
def right(folder: Path, name: str) -> str:
    """What a reader says of a folder that is whole."""
    with tempfile.TemporaryDirectory() as scratch:
        return repr(READERS[name][0](shutil.copytree(folder, Path(scratch) / "run")))


def damage(folder: Path, draw: random.Random) -> str:
    """Damage one file of a folder → which, and how."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "run.lock")
    file, how = (
        draw.choice(files),
        draw.choice(["flip", "flip", "flip", "cut", "empty", "lose", "swap", "noise", "folder", "link"]),
    )
    content = bytearray(file.read_bytes())
    if how == "flip":
        for _ in range(draw.choice([1, 1, 3, 10])):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        file.write_bytes(content)
    elif how == "cut":
        file.write_bytes(content[: draw.randrange(len(content))])
    elif how == "noise":
        file.write_bytes(draw.randbytes(draw.choice([1, 8, 100, 5000])))
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "swap":
        other = draw.choice(
            [f for f in files if f.suffix == file.suffix and f != file] or [f for f in files if f != file]
        )
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return f"swap {file.relative_to(folder)} {other.relative_to(folder)}"
    else:
        file.unlink()
        if how == "folder":
            file.mkdir()
        elif how == "link":
            file.symlink_to(draw.choice([file.name, "/dev/zero", "/nothing"]))
    return f"{how} {file.relative_to(folder)}"


def damaged(seed: int, whole: Path, readers: tuple[str, ...] = tuple(READERS)) -> tuple[int, list[str]]:
    """A damaged copy, and each reader's answer → (how many read it, what was wrong)."""
    draw, wrong, count = random.Random(seed), list[str](), 0
    for name in readers:
        read, share = READERS[name]
        if draw.random() > share:
            continue
        count += 1

        def trial(scratch: Path, name: str = name, read: Callable[[Path], Any] = read) -> None:
            copy = shutil.copytree(whole, scratch / "run")
            what = damage(copy, draw)
            with contextlib.redirect_stderr(io.StringIO()):
                found = read(copy)
            last = what.split("/")[-1].split()[-1]
            free = name == "shown" and (last in FREE or (last in SPARED and what.startswith(("lose", "link"))))
            if repr(found) != right(whole, name) and not free:
                raise AssertionError(f"{what}: another answer")

        found = attempt(f"{name}, seed {seed}", trial, SLOW if share > 0.2 else 12 * SLOW)  # others may compile
        wrong += [] if found is None else [found]
    return count, wrong
