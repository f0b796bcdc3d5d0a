"""The golden runs, to rounding: another processor or version of JAX adds in another order."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import frozen as golden

from cgpfl.algorithms import METHODS

A_FEW = ("fedavg", "scaffold", "cgpfl-heur")


def _of(name, engine):
    return golden.apart(golden.run(name, engine), golden.frozen()[f"{name}/{engine}"])


@pytest.mark.parametrize("name", A_FEW)
def test_the_numbers_are_as_they_were(name):
    assert _of(name, "simulation") < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("engine", golden.ENGINES)
@pytest.mark.parametrize("name", list(METHODS.ours))
def test_every_method_in_every_engine(name, engine):
    assert _of(name, engine) < 1e-4
