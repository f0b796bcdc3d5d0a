"""State on disk: atomic, readable by anyone, never pickle.

A method's folder holds ``state.safetensors`` (the newest state, with the round it belongs to and what
was run as metadata) and ``records-NNNNNN.safetensors`` (the evaluations between two checkpoints, named by
the last round). Personal states that are kept off the device are beside it, in ``clients-NNNNNN/``. Records
and personal states are written before the state they belong to, so a run that is killed at any moment
resumes from a state all of whose records are there.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.engine.processes import is_first
from cgpfl.engine.settings import UNSAID
from cgpfl.engine.store import Store
from cgpfl.errors import CgpflError
from cgpfl.experiment.records import Records
from cgpfl.files import load_arrays, save_arrays
from cgpfl.tree import named, unnamed

STATE = "state.safetensors"


def load_checkpoint(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and facts of a file of a method's folder."""
    try:
        return load_arrays(path, f"delete the folder {path.parent} to run this method anew")
    except CgpflError as error:
        raise CgpflError(f"checkpoint {error}") from error


def arrays_tree(arrays: dict[str, np.ndarray], like: Any, where: Path) -> Any:
    """Named arrays as a pytree of the form of ``like`` (shapes suffice)."""
    try:
        return unnamed(arrays, like)
    except ValueError as error:
        raise CgpflError(f"checkpoint {where}: {error}") from error


def check_same(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A checkpoint must be of the run that its folder describes (see :func:`cgpfl.experiment.run.fingerprint`)."""
    now = json.loads(json.dumps(now))  # as it is written
    for name in now | before:
        was, is_ = (of.get(name, UNSAID.get(name)) for of in (before, now))
        if was != is_:
            raise CgpflError(f"checkpoint {path}: was run with {name} = {was!r}, now {is_!r}; start a new run")


class MethodFolder:
    """Checkpoints of one method in a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: Any, facts: dict[str, Any], new: Records) -> None:
        """Write the records since the last save, then the state. ``facts`` has the round it is at."""
        self.path.mkdir(parents=True, exist_ok=True)
        if new.rounds:
            name = f"records-{new.rounds[-1]:06d}.safetensors"
            save_arrays(self.path / name, new.values, {"rounds": new.rounds})
        kept: set[Path] = set()
        if isinstance(getattr(state, "clients", None), Store):
            self._save_clients(state.clients, facts["round"])
            kept = {self._clients(facts["round"])}
            state = state._replace(clients=())
        save_arrays(self.path / STATE, named(state), facts)
        for old in set(self.path.glob("clients-*")) - kept:
            shutil.rmtree(old)

    def store(self) -> str:
        """Where the run that was saved here kept its personal states."""
        return "host" if any(self.path.glob("clients-*[0-9]")) else "device"

    def _clients(self, round_: int) -> Path:
        """Where many clients' personal states after a round are."""
        return self.path / f"clients-{round_:06d}"

    def _save_clients(self, store: Store, round_: int) -> None:
        part = self._clients(round_).with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        store.dump(part)
        shutil.rmtree(self._clients(round_), ignore_errors=True)
        part.replace(self._clients(round_))

    def _load_clients(self, store: Store, round_: int) -> None:
        folder = self._clients(round_)
        try:
            store.restore(folder)
        except (OSError, ValueError, IndexError) as error:
            raise CgpflError(
                f"checkpoint {folder}: cannot be read ({type(error).__name__}); "
                f"delete the folder {self.path} to run this method anew"
            ) from error

    def exists(self) -> bool:
        return (self.path / STATE).exists()

    def facts(self) -> dict[str, Any]:
        """The facts saved with the state."""
        return load_checkpoint(self.path / STATE)[1]

    def load(self, like: Any, what: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any], Records]:
        """The newest state, its facts and all records up to it; it must be of the run ``what``, if that is said.

        Records of rounds after the state (the run was killed between the two) are removed: those rounds
        will be run and recorded again.
        """
        arrays, facts = load_checkpoint(self.path / STATE)
        records = Records()
        for path in sorted(self.path.glob("records-*.safetensors"), key=lambda p: int(p.stem.split("-")[1])):
            if int(path.stem.split("-")[1]) <= facts["round"]:
                values, of = load_checkpoint(path)
                records.add(of["rounds"], values)
            elif is_first():
                path.unlink(missing_ok=True)
        if len(records.rounds) != facts["records"]:
            raise CgpflError(
                f"checkpoint {self.path}: has {len(records.rounds)} of {facts['records']} records; "
                "delete this folder to run the method anew"
            )
        wanted = isinstance(getattr(like, "clients", None), Store)
        if wanted != (self.store() == "host"):
            was, now = ('"host" or "disk"', '"device"') if self.store() == "host" else ('"device"', '"host" or "disk"')
            raise CgpflError(f"checkpoint {self.path}: was run with store = {was}, now {now}; use what it was")
        if not wanted:
            state = arrays_tree(arrays, like, self.path / STATE)
            check_same(self.path, facts.get("run", {}), facts.get("run", {}) if what is None else what)
            return state, facts, records
        self._load_clients(like.clients, facts["round"])
        state = arrays_tree(arrays, like._replace(clients=()), self.path / STATE)
        check_same(self.path, facts.get("run", {}), facts.get("run", {}) if what is None else what)
        return state._replace(clients=like.clients), facts, records
