"""What to measure: the flags of ``python -m benchmarks.bench``, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cgpfl.errors import CgpflError

METHODS = ("cgpfl", "pfedme", "fedavg")
MODELS = ("mlr", "dnn", "cnn")
CLIENTS = (40, 400, 4000)
FEWEST, MOST = 4, 15_000
"""CGPFL has K = 4 contexts, and each client needs samples to train on and to test on."""


@dataclass(frozen=True)
class Grid:
    """Every method with every model and number of clients, and the sweep."""

    methods: tuple[str, ...] = METHODS
    models: tuple[str, ...] = MODELS
    clients: tuple[int, ...] = CLIENTS
    rounds: int = 10
    """T: rounds in one call."""
    repeats: int = 5
    """Timings of each contestant; the median counts."""
    limit: float = 60.0
    """Seconds: work whose round is expected to take longer is left out, and timings end after about that long."""
    samples: int = 60_000
    sweep: bool = True
    sweep_rounds: int = 200

    def __post_init__(self) -> None:
        _known("methods", self.methods, METHODS)
        _known("models", self.models, MODELS)
        for n in self.clients:
            if not FEWEST <= n <= MOST:
                raise CgpflError(f"--clients {n}: must be from {FEWEST} to {MOST}")
        for name, value in (("rounds", self.rounds), ("repeats", self.repeats)):
            if value < 1:
                raise CgpflError(f"--{name} {value}: must be at least 1")
        if not self.limit > 0:
            raise CgpflError(f"--limit {self.limit:g}: must be above 0")


def grid_of(
    methods: str | None = None,
    models: str | None = None,
    clients: str | None = None,
    rounds: int | None = None,
    repeats: int | None = None,
    limit: float | None = None,
    sweep: bool = True,
    quick: bool = False,
) -> Grid:
    """The grid that the flags ask for; lists are separated by commas or spaces."""
    counts = None if clients is None else tuple(sorted({_whole(n) for n in _words(clients, "clients")}))
    few = {"clients": (40,), "rounds": 3, "repeats": 2, "sweep_rounds": 20} if quick else {}
    given = {
        "methods": None if methods is None else _words(methods, "methods"),
        "models": None if models is None else _words(models, "models"),
        "clients": counts,
        "rounds": rounds,
        "repeats": repeats,
        "limit": limit,
        "sweep": sweep,
    }
    return Grid(**{**few, **{name: value for name, value in given.items() if value is not None}})  # type: ignore[arg-type]


def check_places(out: Path, json: Path | None) -> None:
    """Refuse a place that cannot be written to, before anything is measured."""
    if out.exists() and not out.is_dir():
        raise CgpflError(f"--out {out}: is a file; give a folder")
    if json is not None and (json.is_dir() or not json.absolute().parent.is_dir()):
        raise CgpflError(f"--json {json}: must be a file in a folder that is there")


def joined(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Command-line arguments with the values of some options as one: ``--models mlr dnn`` → ``--models mlr,dnn``."""
    out: list[str] = []
    taking = False  # whether an option that takes several values has its first
    for argument in arguments:
        if argument.startswith("-"):
            taking = False
            out.append(argument)
        elif taking:
            out[-1] += f",{argument}"
        else:
            taking = bool(out) and out[-1] in options
            out.append(argument)
    return out


def _words(text: str, flag: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(text.replace(",", " ").split()))
    if not found:
        raise CgpflError(f"--{flag}: is empty; name at least one")
    return found


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CgpflError(f"--clients {text}: must be whole numbers, separated by commas") from None


def _known(flag: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise CgpflError(f"--{flag}: no {name!r}; there are {', '.join(known)}")
