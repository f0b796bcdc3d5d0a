"""When a round counts, what the server knows between two of them, and what one brought."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cgpfl.engine.flower.bounds import AUTO
from cgpfl.engine.flower.checks import Answer
from cgpfl.engine.flower.orders import Order


class Nodes(Protocol):
    """Those who can be asked, by client id."""

    def ask(
        self,
        orders: Mapping[int, tuple[Order, Mapping[str, np.ndarray]]],
        deadline: float,
    ) -> dict[int, Answer]:
        """Send each client its order and message; the answers that came within ``deadline`` seconds."""
        ...


@dataclass(frozen=True)
class Rules:
    """When a round counts."""

    deadline: float = 60.0
    """Seconds that clients have for a round."""
    minimum: int = 1
    """Answers without which a round is repeated."""
    repeats: int = 2
    """How often, before the run stops."""
    largest: float | str = AUTO
    """Largest norm of an upload; 0 = any; "auto": of an update, by the cohort's median."""
    most: int = 0
    """Samples that a client may say it has; 0: by the cohort's median."""


@dataclass(frozen=True)
class ServerState:
    """Everything the server knows between two rounds; all of it is in a checkpoint."""

    server: Any
    t: int
    """Rounds completed."""
    heard: np.ndarray
    """``[N]``: the round (from 1) in which each client's answer last counted; 0 = never."""
    samples: np.ndarray
    """``[N]``: training samples of each client, 0 = not yet known."""
    tests: np.ndarray
    answers: int = 0
    """Uploads counted so far."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    """Names this run to the nodes."""


@dataclass(frozen=True)
class RoundOutcome:
    """What one round brought."""

    state: ServerState
    record: dict[str, np.ndarray] | None
    """The evaluation of the round before, if one was due: per client ``[N]``, NaN where it is missing."""
    answered: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    anew: tuple[int, ...] = ()
