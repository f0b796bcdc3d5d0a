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
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.engine.flower.orders import from_bytes, to_bytes
from cgpfl.errors import CgpflError

START_SECONDS = 120.0
END_SECONDS = 1.0
"""In which a worker that broke a connection has ended, if it is to end."""


def call(
    place: Path, loader: str, facts: dict[str, Any], arrays: Mapping[str, np.ndarray], seconds: float
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the worker of the node that keeps its state in ``place`` says to facts and arrays, within ``seconds``.

    ``loader``, "module:function", makes the node from the facts, in the worker.
    """
    content, until = to_bytes(facts, arrays), time.monotonic() + seconds
    broken = 0
    for last in (False, True):
        with _connected(place, loader, broken) as connection, _deadline(connection, until) as late:
            broken = _peer(connection)
            try:
                connection.send_bytes(content)  # bytes alone: nothing is pickled, whoever is at the other end
                return from_bytes(connection.recv_bytes())
            except (OSError, EOFError) as error:
                if late.is_set():
                    raise CgpflError(f"the node's worker did not answer within {seconds:g} s and was ended") from error
                # It may have ended for another order's sake; doing one twice is harmless, it says where it goes on.
                if last:
                    why = f"{type(error).__name__}; {_log(place)} may say why"
                    raise CgpflError(f"the node's worker is gone ({why})") from error
    raise AssertionError


@contextmanager
def _deadline(connection: Connection[Any, Any], until: float) -> Iterator[threading.Event]:
    """At ``until`` the worker is ended, and with it whatever waits here for it to read or to write."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _end(connection)

    timer = threading.Timer(max(0.0, until - time.monotonic()), end)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        timer.join()


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


def _connected(place: Path, loader: str, broken: int) -> Connection[Any, Any]:
    """To the node's worker, or to a new one; not to the process ``broken``, where that is about to end."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    address = socket_of(place)
    with _locked(address.with_suffix(".lock")):
        settled = time.monotonic() + END_SECONDS
        while (connection := _try(address)) is not None:
            if not broken or _peer(connection) != broken or time.monotonic() > settled:
                return connection
            connection.close()  # the socket of a process that ends takes connections for a moment more
            time.sleep(0.02)
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


def _try(address: Path) -> Connection[Any, Any] | None:
    try:
        return Client(str(address), "AF_UNIX")
    except OSError:
        return None


def _line(connection: Connection[Any, Any]) -> socket.socket:
    return socket.socket(fileno=os.dup(connection.fileno()))


def _peer(connection: Connection[Any, Any]) -> int:
    """The process at the other end, where the system says which it is; else 0."""
    with contextlib.suppress(OSError, AttributeError), _line(connection) as line:
        told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", told)[0])
    return 0


def _end(connection: Connection[Any, Any]) -> None:
    """End the worker at the other end, and the connection."""
    if worker := _peer(connection):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    with contextlib.suppress(OSError), _line(connection) as line:
        line.shutdown(socket.SHUT_RDWR)
