"""Processes that run a command of ours and die at a chosen moment.

A command runs in a child that is forked from a process which has imported everything and begun nothing: JAX has no
backend yet. So each begins as a new process does, without the seconds of imports. ``time``: SIGKILL from outside.
``between``: SIGKILL before the n-th change of the run folder (a file made, renamed, linked, removed; a folder made).
``inside``: from that change on the kernel ends the process where a file grows beyond some bytes (SIGXFSZ), so in the
middle of a write. ``full``: the same, but the write fails, as on a full disk.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHANGES = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
LONGEST = 300.0
"""Seconds after which a command hangs."""


@dataclass(frozen=True)
class Moment:
    """When, and how, a command dies."""

    kind: str = "never"
    """never, time, between, inside or full."""
    at: float = 0.0
    """Seconds (time), or the number of a change of the folder, from 1."""
    size: int = 0
    """Bytes of a file (inside, full)."""


NEVER = Moment()


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Its exit code; negative: the signal that ended it."""
    said: str
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code in (-signal.SIGKILL, -signal.SIGXFSZ)

    @property
    def is_one_line(self) -> bool:
        """Refused with exit code 2 and a last line for people; no traceback."""
        return self.code == 2 and "Traceback" not in self.said and self.said.strip().splitlines()[-1:] != []


@dataclass
class Command:
    """A command of ours in a process of its own."""

    pid: int
    output: int
    """Where it can be read what it says: a pipe, which no limit on files concerns."""
    began: float
    at: float | None = None
    """Seconds after which something happens to it: SIGKILL, or what ``wait`` is told."""

    def wait(self, then: Callable[[], object] | None = None) -> Ended:
        """To its end; when its moment has come, ``then``."""
        then = then or (lambda: os.kill(self.pid, signal.SIGKILL))
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            now = time.monotonic() - self.began
            if pid:
                return Ended(os.waitstatus_to_exitcode(status), self._said(), now)
            if self.at is not None and now >= self.at:
                self.at = None
                then()
            if now > LONGEST:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return Ended(-signal.SIGALRM, f"hangs: nothing within {LONGEST:g} s", now)
            time.sleep(0.005)

    def _said(self) -> str:
        with os.fdopen(self.output, "rb") as pipe:
            return pipe.read().decode(errors="replace")


IMPORTED = """matplotlib.backends.backend_pdf matplotlib.backends.backend_svg plotly.graph_objects pyarrow.parquet
scipy.stats sklearn.datasets sklearn.metrics cgpfl.cli cgpfl.engine.stream cgpfl.experiment.compare
cgpfl.report.figures cgpfl.report.page"""


def prepare() -> None:
    """Import what commands import, once."""
    os.environ["MPLBACKEND"] = "agg"
    for name in IMPORTED.split():
        importlib.import_module(name)


def start(arguments: Sequence[object], folder: Path, moment: Moment = NEVER) -> Command:
    """Start ``cgpfl ARGUMENTS``, which writes to ``folder``."""
    (output, own), began = os.pipe(), time.monotonic()
    pid = os.fork()
    if pid:
        os.close(own)
        return Command(pid, output, began, moment.at if moment.kind == "time" else None)
    code = 70
    try:
        os.dup2(own, 1)
        os.dup2(own, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        _bound_by_modes()
        count = _die(folder, moment)
        code = _call(arguments)
        if moment.kind == "never":
            os.write(1, f"\n{count[0]} changes\n".encode())
    finally:
        os._exit(code)


def _call(arguments: Sequence[object]) -> int:
    import traceback

    from cgpfl.cli import main
    from cgpfl.engine import drive

    drive.BLOCK_SECONDS = 0.0  # a round a block, so a checkpoint a round
    sys.argv = ["cgpfl", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    return 70


def _die(folder: Path, moment: Moment) -> list[int]:
    """Watch the changes of a folder, and end at the one that was chosen → their number so far."""
    place, count = str(folder), [0]
    if moment.kind == "inside":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

    def watch(event: str, about: Any) -> None:
        if event not in CHANGES or not isinstance(about[0], str | os.PathLike):
            return
        if not os.fspath(about[0]).startswith(place) or (event == "open" and not (about[2] or 0) & WRITING):
            return
        count[0] += 1
        if count[0] != moment.at or moment.kind == "time":
            return
        if moment.kind == "between":
            os.kill(os.getpid(), signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (moment.size, resource.RLIM_INFINITY))

    sys.addaudithook(watch)
    return count


def _bound_by_modes() -> None:
    """Give up root's right to write where modes say no (CAP_DAC_OVERRIDE): read-only must be read-only."""
    if os.geteuid() != 0:
        return
    libc, head, data = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(head, data)
    data[0] &= ~(1 << 1)
    libc.capset(head, data)
