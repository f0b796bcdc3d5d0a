"""Programs that are compiled quickly first, and for speed once they are used for long.

On a CPU XLA's fusion emitters take a fifth to half of a program's compilation; rounds without them take a fifth to a
half longer, and have the same bits. So a block of rounds begins without them. Once rounds with that program, those of
earlier runs and all that this one has, take :data:`PAYS` times what compiling it took, the other one is compiled in
another thread, and takes over at the next block; later runs have it at once. Who has flags of XLA of their own gets one
program, as these say.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

from cgpfl.errors import CgpflError
from cgpfl.files import written

QUICKLY = {"xla_cpu_use_fusion_emitters": False}
"""Options of XLA's compiler: less work, the same bits."""
KNOWN = 1.0
"""Seconds of rounds from which those to come are predicted: the first ones are slower than the others."""
PAYS = 8.0
"""The other program takes up to twice as long to compile, and saves a fourth or so of each round."""
FAST = b"fast"
"""The note on a program that was compiled for speed."""


def in_tiers() -> bool:
    """Whether programs are compiled quickly first."""
    return jax.default_backend() == "cpu" and not os.environ.get("XLA_FLAGS")


def quickly(lowered: Any) -> Any:
    """A program that runs once, compiled."""
    return lowered.compile(compiler_options=QUICKLY if in_tiers() else None)


class Tiered:
    """A program compiled quickly, until the same one compiled for speed takes its place."""

    def __init__(self, lower: Callable[[], Any], note: Path) -> None:
        """``lower``: gives the program, lowered. ``note``: a file, for what later runs want to know of it."""
        self._lower, self._note = lower, note
        self._rounds, self._seconds = 0, 0.0
        known = _read(note)
        self.fast = not in_tiers() or known is None
        """Whether the program is compiled for speed, or is being compiled for it."""
        start = time.perf_counter()
        self.program = lower().compile() if self.fast else quickly(lower())
        """Compiled; another one some time later."""
        self._took, self._before = known or (time.perf_counter() - start, 0.0)
        self.thread: threading.Thread | None = None
        """That compiles, or has compiled, for speed."""

    def ran(self, rounds: int, left: int, seconds: float) -> None:
        """A block took so long, and ``left`` rounds are still to come."""
        if self.fast:
            return
        self._rounds, self._seconds = self._rounds + rounds, self._seconds + seconds
        here = self._seconds * (1 + left / self._rounds) if self._seconds >= KNOWN else self._seconds
        if self._before + here > PAYS * self._took:
            self.fast, self.thread = True, threading.Thread(target=self._compile, name="for speed")
            self.thread.start()
        else:
            self._write(f"{self._took:.3f} {self._before + self._seconds:.3f}".encode())

    def _compile(self) -> None:
        with suppress(Exception):  # rounds go on with the program that is there
            self.program = self._lower().compile()
            self._write(FAST)

    def _write(self, known: bytes) -> None:
        with suppress(OSError, CgpflError), written(self._note, sync=False) as file:  # a read-only home costs time only
            file.write(known)


def _read(note: Path) -> tuple[float, float] | tuple[()] | None:
    """Seconds that compiling quickly took, and of rounds so far; nothing if nothing is known, None if it is fast."""
    try:
        known = note.read_bytes()
        if known == FAST:
            return None
        took, ran = map(float, known.split())
        return took, ran
    except (OSError, ValueError):
        return ()
