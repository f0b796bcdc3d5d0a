"""State on disk: atomic, checked, readable by anyone, never pickle.

A method's folder holds ``state.safetensors`` (the newest state, with the round it belongs to, how many records it
counts and what was run as metadata), ``before.safetensors`` (the state before that one) and
``records-NNNNNN.safetensors`` (the evaluations between two checkpoints, named by the last round). Personal states that
are kept off the device are beside them, in ``clients-NNNNNN/``. Records and personal states are written before the
state they belong to, and the state's new name commits them all: what a state does not count is not there. A run that
is killed at any moment resumes from its newest state; where that is damaged, from the one before.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.engine.processes import is_first
from cgpfl.engine.settings import differences
from cgpfl.engine.store import Store
from cgpfl.errors import CgpflError, DamagedError
from cgpfl.experiment.records import Records
from cgpfl.files import load_arrays, no_link, save_arrays
from cgpfl.tree import named, unnamed

STATE, BEFORE = "state.safetensors", "before.safetensors"


def load_checkpoint(path: Path, *facts: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and facts of a file of a method's folder, which must have these ``facts``: it may be another's file."""
    try:
        found = load_arrays(path)
    except DamagedError as error:
        raise DamagedError(f"checkpoint {error}") from error
    for name in facts:
        if name not in found[1]:
            raise DamagedError(f"checkpoint {path}: is another file: it says no {name}")
    return found


def arrays_tree(arrays: dict[str, np.ndarray], like: Any, where: Path) -> Any:
    """Named arrays as a pytree of the form of ``like`` (shapes suffice)."""
    try:
        return unnamed(arrays, like)
    except ValueError as error:
        raise CgpflError(f"checkpoint {where}: {error}") from error


def check_same(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A checkpoint must be of the run that its folder describes (see :func:`cgpfl.experiment.run.fingerprint`)."""
    for name, was, is_ in differences(before, now):
        raise CgpflError(f"checkpoint {path}: was run with {name} = {was!r}, now {is_!r}; start a new run")


class MethodFolder:
    """Checkpoints of one method in a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._counted: list[Path] | None = None
        """Files of records that the state counts; None: not known yet."""
        self._newest_is_good = True

    def save(self, state: Any, facts: dict[str, Any], new: Records) -> None:
        """Write the records since the last save, then the state. ``facts`` has the round it is at."""
        no_link(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        if self._counted is None:
            self._counted = self._files(self.facts().get("records", 0))[0] if self.exists() else []
        for left in set(self.path.glob("records-*.safetensors")) - set(self._counted):
            left.unlink(missing_ok=True)  # of rounds that no state counts
        if new.rounds:
            file = self.path / f"records-{new.rounds[-1]:06d}.safetensors"
            save_arrays(file, new.values, {"rounds": new.rounds, "method": self.path.name})
            self._counted = [*(one for one in self._counted if one != file), file]
        kept: set[Path] = set()
        if isinstance(getattr(state, "clients", None), Store):
            self._save_clients(state.clients, facts["round"])
            kept = {self._clients(facts["round"])}
            state = state._replace(clients=())
        if self._newest_is_good and (self.path / STATE).exists():
            self._keep_before()
        save_arrays(self.path / STATE, named(state), facts)
        self._newest_is_good = True
        if kept and (self.path / BEFORE).exists():
            kept.add(self._clients(load_checkpoint(self.path / BEFORE, "round")[1]["round"]))
        for old in set(self.path.glob("clients-*")) - kept:
            shutil.rmtree(old)

    def _keep_before(self) -> None:
        """The newest state, under its second name, too."""
        part = self.path / f".{secrets.token_hex(8)}.part"
        try:
            os.link(self.path / STATE, part)
        except OSError:  # a file system without
            shutil.copyfile(self.path / STATE, part)
        part.replace(self.path / BEFORE)
        part.unlink(missing_ok=True)  # to rename one name of a file to another of its names does nothing

    def store(self) -> str:
        """Where the run that was saved here kept its personal states."""
        return "host" if any(self.path.glob("clients-*[0-9]")) else "device"

    def _clients(self, round_: int) -> Path:
        """Where many clients' personal states after a round are."""
        return self.path / f"clients-{round_:06d}"

    def _save_clients(self, store: Store, round_: int) -> None:
        part = Path(tempfile.mkdtemp(".part", ".clients-", self.path))
        store.dump(part / "rows")
        shutil.rmtree(self._clients(round_), ignore_errors=True)
        (part / "rows").replace(self._clients(round_))
        part.rmdir()

    def _load_clients(self, store: Store, round_: int) -> None:
        folder = self._clients(round_)
        try:
            store.restore(folder)
        except (OSError, ValueError, IndexError) as error:
            reason = str(error) if isinstance(error, CgpflError) else f"cannot be read ({type(error).__name__})"
            raise DamagedError(f"checkpoint {folder}: {reason}") from error

    def exists(self) -> bool:
        """Whether there is a state, or was one."""
        return (self.path / STATE).exists() or (self.path / BEFORE).exists()

    def facts(self) -> dict[str, Any]:
        """The facts saved with the newest state that can be read."""
        try:
            return load_checkpoint(self.path / STATE, "round")[1]
        except DamagedError:
            if not (self.path / BEFORE).exists():
                raise
            return load_checkpoint(self.path / BEFORE, "round")[1]

    def load(self, like: Any, what: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any], Records]:
        """The newest state, its facts and the records it counts; it must be of the run ``what``, if that is said.

        Where something of it is damaged, the state before it, and a line on standard error. Records that the state
        does not count (the run was killed between the two) will be run and recorded again. A folder where a file must
        be is refused: the next state could not be written there.
        """
        for path in (self.path / STATE, self.path / BEFORE, *sorted(self.path.glob("records-*.safetensors"))):
            if path.is_dir():
                raise CgpflError(f"checkpoint {path}: is a folder; must be a file or nothing, remove it")
        try:
            return self._load(STATE, like, what)
        except DamagedError as error:
            try:
                found = self._load(BEFORE, like, what)
            except DamagedError:
                raise CgpflError(f"{error}; delete the folder {self.path} to run this method anew") from error
            self._newest_is_good = False
            if is_first():
                print(f"{error}; going on from the one before it, round {found[1]['round']}", file=sys.stderr)
            return found

    def _files(self, count: int) -> tuple[list[Path], Records]:
        """The files that hold the first ``count`` records, and these; of a round that is there twice, the later."""
        records, files = Records(), list[Path]()
        for path in sorted(self.path.glob("records-*.safetensors"), key=_number):
            if len(records.rounds) >= count:
                break
            values, of = load_checkpoint(path, "rounds")
            if of["rounds"][-1:] != [_number(path)] or of.get("method", self.path.name) != self.path.name:
                raise DamagedError(f"checkpoint {path}: is another file: its records are not of this method and round")
            records = _first(records, sum(t < of["rounds"][0] for t in records.rounds))
            records.add(of["rounds"], values)
            files.append(path)
        if len(records.rounds) < count:
            raise DamagedError(f"checkpoint {self.path}: has {len(records.rounds)} of {count} records")
        return files, _first(records, count)

    def _load(self, name: str, like: Any, what: dict[str, Any] | None) -> tuple[Any, dict[str, Any], Records]:
        arrays, facts = load_checkpoint(self.path / name, "round", "records")
        counted, records = self._files(facts["records"])
        wanted = isinstance(getattr(like, "clients", None), Store)
        if wanted != (self.store() == "host"):
            was, now = ('"host" or "disk"', '"device"') if self.store() == "host" else ('"device"', '"host" or "disk"')
            raise CgpflError(f"checkpoint {self.path}: was run with store = {was}, now {now}; use what it was")
        if wanted:
            self._load_clients(like.clients, facts["round"])
        state = arrays_tree(arrays, like._replace(clients=()) if wanted else like, self.path / name)
        check_same(self.path, facts.get("run", {}), facts.get("run", {}) if what is None else what)
        self._counted = counted
        return state._replace(clients=like.clients) if wanted else state, facts, records


def _number(path: Path) -> int:
    """The last round of a file of records."""
    return int(path.stem.split("-")[1])


def _first(records: Records, count: int) -> Records:
    """The first ``count`` of them."""
    return Records(records.rounds[:count], {k: v[:count] for k, v in records.values.items()} if count else {})
