"""Programs that are compiled quickly first, and for speed where a run is long enough to pay for it.

On a CPU XLA's fusion emitters take a fifth to half of a program's compilation; rounds without them take a fifth to a
half longer, and have the same bits. So a block of rounds begins without them. Once the rounds so far say that many
seconds of them are left, the other program is compiled in another thread, and takes over at the next block. What was
compiled for speed is taken at once the next time. Who has flags of XLA of their own gets one program, as these say.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

QUICKLY = {"xla_cpu_use_fusion_emitters": False}
"""Options of XLA's compiler: less work, the same bits."""
KNOWN = 1.0
"""Seconds of rounds from which the rest is predicted: the first ones are slower than the others."""
LONG = 30.0
"""Seconds of rounds to come for which a program is compiled for speed: it saves a fifth of them, and takes 2 to 12."""


def in_tiers() -> bool:
    """Whether programs are compiled quickly first."""
    return jax.default_backend() == "cpu" and not os.environ.get("XLA_FLAGS")


def quickly(lowered: Any) -> Any:
    """A program that runs once, compiled."""
    return lowered.compile(compiler_options=QUICKLY if in_tiers() else None)


class Tiered:
    """A program compiled quickly, until the same one compiled for speed takes its place."""

    def __init__(self, lower: Callable[[], Any], mark: Path) -> None:
        """``lower``: gives the program, lowered. ``mark``: a file that says it has been compiled for speed."""
        self._lower, self._mark = lower, mark
        self._rounds, self._seconds = 0, 0.0
        self.fast = not in_tiers() or mark.exists()
        """Whether the program is compiled for speed, or is being compiled for it."""
        self.program = lower().compile() if self.fast else quickly(lower())
        """Compiled; another one some time later."""
        self.thread: threading.Thread | None = None
        """That compiles, or has compiled, for speed."""

    def ran(self, rounds: int, left: int, seconds: float) -> None:
        """A block took so long, and ``left`` rounds are still to come."""
        self._rounds, self._seconds = self._rounds + rounds, self._seconds + seconds
        if not self.fast and self._seconds >= KNOWN and self._seconds / self._rounds * left > LONG:
            self.fast, self.thread = True, threading.Thread(target=self._compile, name="for speed")
            self.thread.start()

    def _compile(self) -> None:
        with suppress(Exception):  # rounds go on with the program that is there
            self.program = self._lower().compile()
            self._mark.touch()
