"""Liars, for research: what clients that are not honest send, in simulations alone.

An attack is a component of a run (``attack = "sign-flip"``), as the rules of a round are: who lies is drawn from the
run's seed, and what is measured is measured of the honest clients.
"""

from __future__ import annotations

from cgpfl.attacks.base import ATTACKS, Attack, Lying, Nobody, Seen
from cgpfl.attacks.kit import (
    ALIE,
    Counts,
    ForgedContext,
    InnerProduct,
    Noisy,
    Scaling,
    SignFlip,
)
from cgpfl.attacks.poison import Backdoor, LabelFlip

__all__ = [
    "ALIE",
    "ATTACKS",
    "Attack",
    "Backdoor",
    "Counts",
    "ForgedContext",
    "InnerProduct",
    "LabelFlip",
    "Lying",
    "Nobody",
    "Noisy",
    "Scaling",
    "Seen",
    "SignFlip",
]
