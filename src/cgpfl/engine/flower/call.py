"""Handing an order to the node's worker, from the process that Flower starts for it.

The worker is found by a socket in a folder that only this user can enter. It is started when there is none, ends with
the process that Flower's small ones come from, and is replaced when it does not answer in time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.engine.flower.orders import from_bytes, to_bytes
from cgpfl.errors import CgpflError

START_SECONDS = 120.0


def call(
    place: Path, loader: str, facts: dict[str, Any], arrays: Mapping[str, np.ndarray], seconds: float
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the worker of the node that keeps its state in ``place`` says to facts and arrays, within ``seconds``.

    ``loader``, "module:function", makes the node from the facts, in the worker.
    """
    content, until = to_bytes(facts, arrays), time.monotonic() + seconds
    for last in (False, True):
        connection = _connected(place, loader)
        try:
            put(connection, content, until)
            return from_bytes(take(connection, until))
        except TimeoutError as error:
            _end(connection)
            raise CgpflError(f"the node's worker did not answer within {seconds:g} s and was ended") from error
        except (OSError, EOFError) as error:
            # It may have ended for another order's sake; doing one twice is harmless, it says where it goes on.
            if last:
                why = f"{type(error).__name__}; {_log(place)} may say why"
                raise CgpflError(f"the node's worker is gone ({why})") from error
        finally:
            connection.close()
    raise AssertionError


def put(connection: socket.socket, content: bytes, until: float | None = None) -> None:
    """Send bytes, their number first; TimeoutError where that is not done at ``until``."""
    _allow(connection, until)
    connection.sendall(struct.pack("!Q", len(content)))
    connection.sendall(content)


def take(connection: socket.socket, until: float | None = None) -> bytes:
    """Receive what :func:`put` sent."""
    (length,) = struct.unpack("!Q", _exactly(connection, 8, until))
    return _exactly(connection, length, until)


def _allow(connection: socket.socket, until: float | None) -> None:
    if until is not None:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)


def _exactly(connection: socket.socket, length: int, until: float | None) -> bytes:
    parts, left = [], length
    while left:
        _allow(connection, until)
        part = connection.recv(min(1 << 20, left))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def socket_of(place: Path) -> Path:
    """The worker's socket; paths of sockets are short, so it is not in ``place`` itself."""
    folder = Path(tempfile.gettempdir()) / f"cgpfl-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise CgpflError(f"{folder}: must be a folder of this user alone (mode 700)")
    return folder / f"{hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:24]}.sock"


def _log(place: Path) -> Path:
    return place / "worker.log"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _connected(place: Path, loader: str) -> socket.socket:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    address = socket_of(place)
    with _locked(address.with_suffix(".lock")):
        connection = _try(address)
        if connection is not None:
            return connection
        with _log(place).open("ab") as log:
            command = [sys.executable, "-m", "cgpfl.engine.flower.worker", str(address), loader, str(os.getppid())]
            worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and worker.poll() is None:
            connection = _try(address)
            if connection is not None:
                return connection
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        raise CgpflError(f"the node's worker did not start; {_log(place)} may say why")


def _try(address: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(address))
    except OSError:
        connection.close()
        return None
    return connection


def _end(connection: socket.socket) -> None:
    """End the worker at the other end, where the system says which it is."""
    with contextlib.suppress(OSError, AttributeError):
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        os.kill(struct.unpack("3i", told)[0], signal.SIGKILL)
