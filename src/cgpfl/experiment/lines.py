"""Which line of a configuration is to be edited: one that comes from another machine names files that are not here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cgpfl.errors import CgpflError, LostError
from cgpfl.files import read_text

QUOTED = re.compile(r'"([^"]*[/\\:.][^"]*)"|\'([^\']*[/\\:.][^\']*)\'')
"""Text that is a path, a file or package.module:Name."""


@contextmanager
def pointing(config: Path | None) -> Iterator[None]:
    """An error about a value in ``config`` says its line, too, where exactly one line has it."""
    try:
        yield
    except LostError:
        raise
    except CgpflError as error:
        found = None if config is None else line_of(config, str(error))
        if found is None:
            raise
        raise CgpflError(f"{error}; edit line {found[0]} of {config}: {found[1]}") from error


def line_of(config: Path, message: str) -> tuple[int, str] | None:
    """Number (from 1) and text of the one line that ``message`` is about: it has the line's setting, path or name."""
    try:
        lines = read_text(config).splitlines()
    except (OSError, ValueError):
        return None
    found = [(i, line.strip()) for i, line in enumerate(lines, 1) if _is_about(message, line.strip())]
    return found[0] if len(found) == 1 else None


def _is_about(message: str, line: str) -> bool:
    key, equals, _ = line.partition(" = ")
    if not equals or not re.fullmatch(r"[\w.-]+", key):
        return False
    if re.search(rf"(?<![\w.-]){re.escape(line)}(?![\w.])", message):
        return True
    values = ["".join(match.groups(default="")) for match in QUOTED.finditer(line)]
    return any(re.search(rf"(?<![\w./-]){re.escape(value)}(?![\w/-])", message) for value in values)
