"""Where methods run."""

from cgpfl.engine.round import State
from cgpfl.engine.simulate import Simulation, Traffic, check_start, simulate

__all__ = ["Simulation", "State", "Traffic", "check_start", "simulate"]
