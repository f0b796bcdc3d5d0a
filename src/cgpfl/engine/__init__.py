"""Where methods run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cgpfl.engine.drive import Drive, Engine, Traffic
    from cgpfl.engine.placement import engine_for
    from cgpfl.engine.round import State
    from cgpfl.engine.settings import Settings
    from cgpfl.engine.simulation import Simulation, check_start, simulate
    from cgpfl.engine.stream import Streamed

__all__ = [
    "Drive",
    "Engine",
    "Settings",
    "Simulation",
    "State",
    "Streamed",
    "Traffic",
    "check_start",
    "engine_for",
    "simulate",
]
_HOME = {"State": "round", "Streamed": "stream", "engine_for": "placement", "Settings": "settings"}
_HOME |= dict.fromkeys(("Drive", "Engine", "Traffic"), "drive")


def __getattr__(name: str) -> Any:
    """Import what is asked for, and not before: a deployment's small processes must not wait for JAX."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"cgpfl.engine.{_HOME.get(name, 'simulation')}"), name)
