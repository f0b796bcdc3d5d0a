"""Where methods run."""

from cgpfl.engine.simulate import Simulation, State, Traffic, simulate

__all__ = ["Simulation", "State", "Traffic", "simulate"]
