"""What goes down to a node and comes up from it, as plain data. Nothing heavy is imported here."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from safetensors.numpy import load, save


class RefusedError(Exception):
    """What came over the wire is not what was asked for; the text says why."""


SHORT = 200
"""Characters of what a node says that reach a log."""


def cleaned(text: Any, most: int = SHORT) -> str:
    """What a node said as one short line: no control characters, no other lines; it goes to logs and terminals."""
    words = " ".join(str(text)[: 8 * most].split())
    line = "".join(c for c in words if c.isprintable())
    return line if len(line) <= most else line[: most - 1] + "…"


def trouble(error: BaseException) -> str:
    """What the server may know of a node's error, beside that there is one: nothing but a full disk."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "its disk is full" if full else ""


@dataclass(frozen=True)
class Order:
    """What the server asks of a client: rounds count from 0, -1 is none."""

    token: str
    """Which run of which method: states of other runs are not touched."""
    client: int
    """Whom it is for."""
    base: int
    """Rounds after which the server last counted this client's answer; its state then is where it goes on."""
    train: int = -1
    evaluate: int = -1


@dataclass(frozen=True)
class Reply:
    """What a client answers."""

    client: int
    samples: int
    """m_i, its training samples."""
    tests: int
    """Its test samples."""
    anew: bool = False
    """Whether it had lost its state and began anew."""
    metrics: dict[str, float | list[float]] = field(default_factory=dict)
    """Named numbers, or the sums a metric is made of; none without evaluation."""
    upload: dict[str, np.ndarray] = field(default_factory=dict)
    """Named arrays; none without training."""
    told: str = ""
    """What it says of its data, as JSON, where a server without a form asks."""

    def facts(self) -> dict[str, Any]:
        """All but the arrays."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "upload"}


def called(names: Sequence[str], client: int) -> str:
    """A client for people: ``client 3``, or ``client charité`` where nodes have names."""
    return f"client {names[client] if names else client}"


def to_bytes(facts: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Facts and named arrays as bytes (safetensors): what passes between the processes of a node."""
    packed = {f"array:{name}": np.asarray(v, order="C") for name, v in arrays.items()}
    return save({**packed, "facts": np.frombuffer(json.dumps(facts).encode(), np.uint8)})


def from_bytes(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The way back from :func:`to_bytes`."""
    found = load(content)
    facts = json.loads(found.pop("facts").tobytes())
    return facts, {name.removeprefix("array:"): v for name, v in found.items()}
