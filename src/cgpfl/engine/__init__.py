"""Where methods run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cgpfl.engine.drive import Drive as Drive
    from cgpfl.engine.drive import Engine as Engine
    from cgpfl.engine.drive import Traffic as Traffic
    from cgpfl.engine.placement import engine_for as engine_for
    from cgpfl.engine.round import State as State
    from cgpfl.engine.settings import Settings as Settings
    from cgpfl.engine.simulation import Simulation as Simulation
    from cgpfl.engine.simulation import check_start as check_start
    from cgpfl.engine.simulation import simulate as simulate
    from cgpfl.engine.stream import Streamed as Streamed

_HOME = {"State": "round", "Streamed": "stream", "engine_for": "placement", "Settings": "settings"}
_HOME |= dict.fromkeys(("Drive", "Engine", "Traffic"), "drive")
_HOME |= dict.fromkeys(("Simulation", "check_start", "simulate"), "simulation")


def __getattr__(name: str) -> Any:
    """Import what is asked for, and not before: a deployment's small processes must not wait for JAX."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"cgpfl.engine.{_HOME[name]}"), name)
