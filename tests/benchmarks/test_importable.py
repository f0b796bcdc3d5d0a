"""Benchmarks are run seldom: that they still find what they import is all that is tried of most of them."""

import importlib
import pkgutil
from pathlib import Path

import pytest

OPTIONAL = {"atheris", "torch"}
PLACE = Path(__file__).parents[2] / "benchmarks"
MODULES = [m.name for m in pkgutil.walk_packages([str(PLACE)], "benchmarks.") if not m.name.endswith("__main__")]


def test_every_benchmark_can_be_imported():
    """benchmarks.deployment could not, since a constant had moved."""
    pytest.importorskip("flwr")
    assert {"benchmarks.deployment", "benchmarks.bench.run", "benchmarks.crash.deployed"} <= set(MODULES)
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
