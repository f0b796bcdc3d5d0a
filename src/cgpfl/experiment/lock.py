"""One writer of a run folder: whoever comes second is told who is first.

The lock is the system's (flock) on ``run.lock``: it ends with its process, however that ends, so a file that a killed
run left behind locks nothing. The file says whose it is. ``cgpfl deploy`` takes it, too, beside a lock of its own.
Whoever has it removes what a killed writer had half written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from cgpfl.engine.processes import by_the_first
from cgpfl.errors import CgpflError
from cgpfl.files import no_link

LOCK = "run.lock"
WITHOUT = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system says that has no locks."""
UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.part|\.clients-\w+\.part")
"""Names of what is being written (files.py, checkpoint.py)."""
RECENT = 60.0


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the one writer of a run folder that is there; of several processes of one run the first is."""
    held: list[int] = []
    try:
        by_the_first(lambda: held.append(take(folder)))
        yield
    finally:
        for handle in held:
            os.close(handle)


def take(folder: Path) -> int:
    """Lock a folder → the open file that holds the lock; an error that names who has it."""
    path = folder / LOCK
    no_link(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        raise CgpflError(f"run {folder}: cannot be written to: {error.strerror or error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in WITHOUT:
            return handle
        who = _who(os.pread(handle, 4096, 0))
        os.close(handle)
        raise CgpflError(f"run {folder}: is being written by {who}; wait for its end, or choose another") from error
    about = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now().isoformat(" ", "seconds")}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(about).encode(), 0)
    _sweep(folder)
    return handle


def _sweep(folder: Path) -> None:
    """Remove files that were never finished; in the folder itself a report, in figures pictures may be about to be."""
    for part in folder.rglob("*.part"):
        with contextlib.suppress(OSError):
            if not UNFINISHED.fullmatch(part.name) or (
                part.parent in (folder, folder / "figures") and time.time() - part.lstat().st_mtime < RECENT
            ):
                continue
            if part.is_dir() and not part.is_symlink():
                shutil.rmtree(part)
            else:
                part.unlink()


def _who(content: bytes) -> str:
    """Who holds a lock, by what it wrote."""
    try:
        about = json.loads(content)
        return f"process {about['pid']} on {about['host']} since {about['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
