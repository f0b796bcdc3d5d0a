"""Files written whole or not at all, and named arrays in them: safetensors, never pickle.

Nothing is written through a link: a file is made under a name that nobody can guess, exclusively, and then takes its
own name. Arrays bear a checksum of everything in their file.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from cgpfl.errors import CgpflError, DamagedError

LONGEST, LONGEST_NAME = 3800, 240
"""Bytes of a folder's path and of a name in it, such that its own files and those being written fit, too."""
MOST_TEXT = 64 << 20
"""Bytes of a text that is read whole."""
CHECKSUM = "sha256"
UNKNOWN = b"0" * 64
"""What stands for the checksum while it is computed."""
SUMS = "sha256sums.txt"
"""Checksums of a folder's files for people, as ``sha256sum --check`` reads them."""


@contextmanager
def written(path: Path, *, sync: bool = True, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write to that becomes ``path`` when all is written; nothing is left of a failure.

    ``sync``: down to the disk, before it gets its name. ``mode``: who may read it, less the process's mask.
    """
    writable(path)
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if not sync:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, survives a power cut
    finally:
        os.close(folder)


def write(path: Path, *content: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a file whole or not at all."""
    with written(path, mode=mode) as file:
        for part in content:
            file.write(part)


def append(path: Path, line: bytes) -> None:
    """Add a line to a file; a last line that was cut off by a crash is ended first."""
    writable(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "ab+") as file:
        cut = file.seek(0, 2) > 0 and (file.seek(-1, 2), file.read())[1] != b"\n"
        file.write(b"\n" * cut + line + b"\n")


def no_link(path: Path) -> None:
    """Refuse to write where a link is: it may lead anywhere."""
    if path.is_symlink():
        raise CgpflError(f"{path}: is a link; must be a file or nothing, remove it")


def writable(path: Path) -> None:
    """Refuse to write where a link or a folder is."""
    no_link(path)
    if path.is_dir():
        raise CgpflError(f"{path}: is a folder; must be a file or nothing, remove it")


def regular(path: Path, what: str = "") -> Path:
    """``path``, which must be a file: a pipe or a device may never end. ``what`` names it in the error."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise CgpflError(f"{what or path}: is a link to nothing") from None
        raise
    except OSError as error:
        raise CgpflError(f"{what or path}: cannot be read: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        raise CgpflError(f"{what or path}: is {_kind(mode)}; must be a file")
    return path


def _kind(mode: int) -> str:
    kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((name for test, name in kinds.items() if test(mode)), "a device")


def read_text(path: Path, what: str = "", errors: str = "strict") -> str:
    """The text of a file, UTF-8, of a bounded size."""
    size = regular(path, what).stat().st_size
    if size > MOST_TEXT:
        raise CgpflError(f"{what or path}: has {size >> 20} MB; must have at most {MOST_TEXT >> 20}")
    return path.read_text(encoding="utf-8", errors=errors)


def a_path(given: Any, what: str = "out") -> Path:
    """A path that was given by hand, with ``~`` for one's home; an error where it can be none."""
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise CgpflError(f"{what}: {type(given).__name__} is no path; must be text or a pathlib.Path")
    text = os.fspath(given)
    if not text or "\0" in text:
        raise CgpflError(f"{what} {text!r}: must be the name of a file or folder")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise CgpflError(f"{what} {text}: there is no such home; write the path out") from error


def check_new(path: Path, what: str = "out") -> None:
    """Whether a folder or file can be made: no name is too long, and the folder that is there can be written to."""
    for part in path.parts:
        if len(os.fsencode(part)) > LONGEST_NAME:
            raise CgpflError(f"{what}: a name of {len(part)} characters; must be at most {LONGEST_NAME}")
    if len(os.fsencode(path.absolute())) > LONGEST:
        raise CgpflError(f"{what}: a path of {len(str(path.absolute()))} characters; must be at most {LONGEST}")
    there = next((p for p in path.absolute().parents if os.path.lexists(p)), Path("/"))
    if not there.is_dir():
        raise CgpflError(f"{what} {path}: cannot be created: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise CgpflError(f"{what} {path}: cannot be created: {there} cannot be written to")


def make_folder(path: Path) -> None:
    """A folder and those above it, however many, where they are not there."""
    missing = [path]
    while not missing[-1].parent.is_dir() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        folder.mkdir(exist_ok=folder != path)


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
    """Named arrays and a few facts in one safetensors file, with a checksum of them among its metadata."""
    named = {k: np.asarray(v, order="C") for k, v in arrays.items()}
    content = memoryview(save(named, {"facts": json.dumps(facts), CHECKSUM: UNKNOWN.decode()}))
    end = 8 + int.from_bytes(content[:8], "little")
    head, rest = bytes(content[:end]), content[end:]
    found = hashlib.sha256(head)
    found.update(rest)
    write(path, _MARK.sub(_mark(found.hexdigest().encode()), head), rest)


_MARK = re.compile(rb'"%s":"([0-9a-f]{64})"' % CHECKSUM.encode())
"""The checksum in a header; quotes within facts have a backslash before them."""


def _mark(digits: bytes) -> bytes:
    return b'"%s":"%s"' % (CHECKSUM.encode(), digits)


def is_whole(path: Path) -> bool:
    """Whether a file of arrays is as it was written; one without a checksum is taken at its word."""
    with path.open("rb") as file:
        start = file.read(8)
        size = int.from_bytes(start, "little")
        head = start + file.read(min(size, 100_000_000))
        marked = _MARK.search(head)
        if marked is None:
            return re.search(rb'"[0-9a-f]{64}"|"%s":' % CHECKSUM.encode(), head) is None  # else it is damaged itself
        found = hashlib.sha256(_MARK.sub(_mark(UNKNOWN), head))
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest().encode() == marked[1]


@contextmanager
def summed(folder: Path, *names: str) -> Iterator[None]:
    """Files that are written inside get their checksums at the end; while they are written there are none."""
    writable(folder / SUMS)
    (folder / SUMS).unlink(missing_ok=True)
    yield
    each = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    write(folder / SUMS, "".join(each).encode())


GONE = "deleted.json"
"""What tells of a run folder whose models were deleted on purpose, by whom it was replaced."""


def not_deleted(folder: Path) -> None:
    """Refuse a run folder whose models and values were deleted because a client is to be forgotten."""
    try:
        about = json.loads(read_text(folder / GONE))
        client, now = about["client"], about["now"]
    except (OSError, ValueError, TypeError, KeyError):
        return
    raise CgpflError(
        f"run {folder}: client {client} was forgotten, and what was learned with it deleted; the run without it is "
        f"{now}"
    )


def unsum(folder: Path) -> None:
    """Take files that are gone out of the checksums."""
    with suppress(OSError):
        lines = read_text(folder / SUMS, errors="replace").splitlines(keepends=True)
        left = [line for line in lines if (folder / line.partition("  ")[2].strip()).exists()]
        write(folder / SUMS, "".join(left).encode())


def check_sum(path: Path) -> None:
    """Refuse what is no file, which may never end, and a file that is not as it was written, if that was noted."""
    if os.path.lexists(path):
        regular(path)
    try:
        lines = read_text(path.parent / SUMS, errors="replace").splitlines()
    except OSError:
        return
    known = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if path.name in known and hashlib.sha256(path.read_bytes()).hexdigest() != known[path.name]:
        how = f"remove {SUMS} if it was changed on purpose"
        raise DamagedError(f"run {path.parent}: {path.name} is damaged: its checksum is another; {how}")


def load_facts(path: Path) -> dict[str, Any]:
    """The facts of :func:`save_arrays` alone, whatever the arrays' size."""
    try:
        with safe_open(regular(path), "np") as file:
            facts: dict[str, Any] = json.loads(file.metadata()["facts"])
            return facts
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path}: cannot be read ({type(error).__name__})") from error


def load_arrays(path: Path, advice: str = "", *, bare: bool = False) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What :func:`save_arrays` wrote; ``advice`` tells the user what to do where that cannot be read.

    ``bare``: there may be no facts, as in somebody else's file.
    """
    more, cause = f"; {advice}" if advice else "", None
    try:
        if is_whole(regular(path)):
            with safe_open(path, "np") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                about = file.metadata() or {}
                return arrays, json.loads(about.get("facts", "{}") if bare else about["facts"])
        reason = "is damaged: its checksum is another"
    except CgpflError as error:  # no file
        raise DamagedError(f"{error}{more}") from error
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        reason, cause = f"cannot be read ({type(error).__name__})", error
    raise DamagedError(f"{path}: {reason}{more}") from cause


def save_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Rows with the same keys, as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    if rows:
        writer.writeheader()
    writer.writerows(rows)
    write(path, text.getvalue().encode())
