"""One input: what is wrong with the answer, if anything."""

from __future__ import annotations

import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cgpfl.errors import CgpflError

SLOW = 10
"""Seconds in which an answer must come; later is a hang."""
LONGEST = 1100
"""Characters of a message."""


class HangError(BaseException):
    """No answer in time."""


@contextmanager
def bounded(seconds: int = SLOW) -> Iterator[None]:
    """What takes longer is ended (between two steps of Python)."""

    def late(number: int, frame: Any) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt(what: str, call: Callable[[Path], Any], seconds: int = SLOW) -> str | None:
    """``call`` with a folder of its own → what is wrong with what came of it: nothing where it ended, or in a line."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with bounded(seconds):
                call(Path(folder))
        except CgpflError as error:
            said = str(error)
            if "\n" in said.strip() or len(said) > LONGEST or not said:
                return f"{what}: not one line: {said[:200]!r}"
        except HangError:
            return f"{what}: nothing within {seconds} s"
        except (Exception, SystemExit):
            return f"{what}: {traceback.format_exc(limit=-4)}"
    return None
