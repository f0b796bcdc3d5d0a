"""Where methods run."""

from cgpfl.engine.simulate import Simulation, State, Traffic, check_start, simulate

__all__ = ["Simulation", "State", "Traffic", "check_start", "simulate"]
