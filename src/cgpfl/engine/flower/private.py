"""A client's private state on its own disk: versioned by the round it belongs to, and durable.

Flower's own state of a node is empty in a new run and lost with the process. Here a version is written after
each round the client trained in, and what it was trained from is kept beside it: the server says which of a
client's rounds counted last, and the client goes on from exactly that one. So a round that is repeated, or one
whose answer came too late, is never applied twice.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.errors import CgpflError
from cgpfl.files import load_arrays, load_facts, save_arrays
from cgpfl.tree import named, unnamed

MESSAGE = "message.safetensors"
RUNS_KEPT = 64
"""Runs (of one method each) whose states are kept on a node; the oldest go first."""


class Private:
    """The states of one client in one run: ``FOLDER/TOKEN/round-000012.safetensors``."""

    def __init__(self, folder: Path, token: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", token) or token.startswith("."):
            raise CgpflError(f"private state: {token!r} is no name of a run")
        self.folder, self.token = folder, token

    @property
    def _own(self) -> Path:
        return self.folder / self.token

    def _file(self, version: int) -> Path:
        return self._own / f"round-{version:06d}.safetensors"

    def versions(self) -> list[int]:
        """Rounds whose state is here, oldest first."""
        return sorted(int(f.stem.split("-")[1]) for f in self._own.glob("round-*.safetensors"))

    def load(self, version: int, like: Any) -> Any | None:
        """The state after round ``version``, or None where it is not here."""
        file = self._file(version)
        if not file.exists():
            return None
        arrays, _ = load_arrays(file, "delete it to start this client anew")
        try:
            return unnamed(arrays, like)
        except ValueError as error:
            raise CgpflError(f"{file}: {error}") from error

    def save(self, version: int, state: Any, base: int) -> None:
        """Keep the state after round ``version`` and that after ``base``, which it was trained from; older ones go.

        Newer ones stay: an order that comes out of turn must not take away what the server has counted since.
        """
        self._prepare()
        save_arrays(self._file(version), named(state), {"round": version, "base": base})
        for other in self.versions():
            if other < version and other != base:
                self._file(other).unlink(missing_ok=True)

    def keep(self, message: Mapping[str, np.ndarray], round_: int, base: int, about: Mapping[str, Any]) -> None:
        """Keep the server's last message, which belongs to the state after ``base``: both make the client's model.

        ``round_``: the round that it ends, from 1. A message that comes out of turn does not replace a newer one.
        """
        file = self._own / MESSAGE
        if file.exists() and load_facts(file)["round"] > round_:
            return
        self._prepare()
        save_arrays(file, dict(message), {**about, "round": round_, "base": base})

    def _prepare(self) -> None:
        if self._own.exists():
            return
        runs = sorted((d for d in self.folder.glob("*") if d.is_dir()), key=lambda d: d.stat().st_mtime)
        for old in runs[: max(0, len(runs) - RUNS_KEPT + 1)]:
            shutil.rmtree(old, ignore_errors=True)
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
