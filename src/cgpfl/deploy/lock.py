"""One server a run folder."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cgpfl.errors import CgpflError
from cgpfl.experiment.lock import writing

LOCK = "server.lock"
ASKING = 1.0
"""Seconds in which whoever only asked whether a run is served has let go of the lock."""


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Hold a run folder: two servers of one run would count everything twice, and so would a run beside a server."""
    with (out / LOCK).open("w") as file:
        until = time.monotonic() + ASKING
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise CgpflError(f"run {out}: is being served already; follow it by: cgpfl deploy run") from error
                time.sleep(0.05)
        with writing(out):
            yield


def has_server(out: Path) -> bool:
    """Whether a server is at work on a run folder of this machine; asking needs no right to write."""
    try:
        with (out / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
