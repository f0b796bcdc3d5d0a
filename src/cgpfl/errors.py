"""Errors a user can act on."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_OF_ONE, MOST = 200, 1000
"""Characters of one thing in a message (a value, a name, a list), and of all of it."""
_THING = re.compile(
    rf"'[^']{{{MOST_OF_ONE},}}'|\"[^\"]{{{MOST_OF_ONE},}}\"|\[.{{{MOST_OF_ONE},}}\]|\{{.{{{MOST_OF_ONE},}}\}}"
    rf"|\(.{{{MOST_OF_ONE},}}\)|\S{{{MOST_OF_ONE},}}",
    re.DOTALL,
)
_BREAK = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class CgpflError(ValueError):
    """Bad input. The message is one line: what is wrong, where, and what is allowed.

    The command line prints it without a traceback and exits with code 2. However much the user gave, a line of it is
    repeated.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(short(str(message)))


class LostError(CgpflError):
    """Another process of the run is gone, or cannot be reached."""


class NeedsError(CgpflError):
    """A package that is not installed would be needed."""


class DamagedError(CgpflError):
    """A file is not, or no longer, what was written."""


def short(message: str) -> str:
    """A message as one line: long values in it are cut at the end, a long message in the middle."""
    line = _UNPRINTABLE.sub("?", _BREAK.sub(" ", message))
    if len(line) <= MOST_OF_ONE:
        return line
    if len(line) > 100 * MOST:  # before anything is searched in it
        line = _ends(line, 4 * MOST)
    line = _THING.sub(_cut, line)
    return _ends(line, MOST)


def _cut(found: re.Match[str]) -> str:
    text = found[0]
    if "/" in text and len(text) <= MOST - MOST_OF_ONE and not text.startswith(("[", "{", "(")):
        return text  # a path is of use whole
    last = text[-1] if text[0] in "'\"[{(" else ""
    return f"{text[: MOST_OF_ONE - 2]}…{last}"


def _ends(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most * 2 // 3]} … {text[-most // 3 :]}"


def one_line(error: Exception) -> str:
    """What somebody else's code raised: its kind, and what it says."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean NAME? `` where a known name is near; nothing where none is."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower()[:MOST_OF_ONE], list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}? " if near else ""
