"""Errors a user can act on."""

from __future__ import annotations

from collections.abc import Iterable


class CgpflError(ValueError):
    """Bad input. The message is one line: what is wrong, where, and what is allowed.

    The command line prints it without a traceback and exits with code 2.
    """


class LostError(CgpflError):
    """Another process of the run is gone, or cannot be reached."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean NAME? `` where a known name is near; nothing where none is."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}? " if near else ""
