"""Where methods run."""

from cgpfl.engine.mesh import a_device_a_core
from cgpfl.engine.round import State
from cgpfl.engine.simulate import Simulation, Traffic, check_start, simulate
from cgpfl.engine.stream import Streamed
from cgpfl.engine.where import Engine, engine_for

__all__ = ["Engine", "Simulation", "State", "Streamed", "Traffic", "check_start", "engine_for", "simulate"]

a_device_a_core()
