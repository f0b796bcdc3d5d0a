"""Traced programs on disk: loaded instead of traced, bit for bit the same, and never those of other parts."""

import os
import time
from dataclasses import dataclass

import jax
import numpy as np
import pytest

from cgpfl.algorithms import CGPFLAuto, FedAvg, algorithm
from cgpfl.data import FederatedData
from cgpfl.engine import kept as keeping
from cgpfl.engine import round as rounds
from cgpfl.engine.simulation import Simulation
from cgpfl.metrics import METRICS, of_samples
from cgpfl.models import as_model
from cgpfl.tree import plain

X = np.random.default_rng(0).normal(size=(48, 4)).astype(np.float32)
DATA = FederatedData.from_arrays(X, (X[:, 0] > 0).astype(int), np.arange(48) % 4, classes=2)
MODEL = as_model("mlr", DATA.shape, 2)


@algorithm
class Own(FedAvg):
    """A method of the user's."""

    name = "own"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Where programs are kept, as if this were the command line."""
    monkeypatch.setenv("CGPFL_CACHE", str(tmp_path))
    monkeypatch.setattr(keeping, "in_use", lambda: True)
    monkeypatch.setattr(keeping, "_wanted", True)
    monkeypatch.setattr(keeping, "STARTED", time.time())  # sources may have been written just before these tests
    return tmp_path / "programs"


@pytest.fixture
def traced(monkeypatch):
    """One entry for each time that a block of rounds is traced."""
    found, program = [], rounds.program
    monkeypatch.setattr(rounds, "program", lambda *args: found.append(1) or program(*args))
    return found


def run(method, total=3, **settings):
    engine = Simulation(method, DATA, MODEL, rounds=total, **settings)
    state, records, due = engine.advance(engine.start(), 0, 1)
    assert due == [1]
    state, records, _ = engine.advance(state, 1, total)  # of the state that the program itself gave back
    return jax.tree.map(np.asarray, jax.tree.leaves(plain((state.server, state.clients, records))))


def same(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "method",
    [
        FedAvg(local_rounds=2),
        pytest.param(CGPFLAuto(local_rounds=2, restarts=2), marks=pytest.mark.slow),
    ],
    ids=["fedavg", "cgpfl-auto"],
)
def test_a_second_engine_loads_what_the_first_traced(folder, traced, monkeypatch, method):
    total = 3 if method.name == "fedavg" else 5
    first = run(method, total)
    assert len(traced) == len(list(folder.iterdir())) == 1
    same(run(method, total), first)
    assert len(traced) == 1
    monkeypatch.setattr(keeping, "_wanted", False)
    same(run(method, total), first)  # as it is without all this


def test_what_is_in_the_folder_is_checked_and_replaced(folder, traced):
    first = run(FedAvg(local_rounds=2))
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for bad in (whole[:-1], whole[:40] + b"\0" + whole[41:], b"", os.urandom(100)):
        file.write_bytes(bad)
        same(run(FedAvg(local_rounds=2)), first)
        assert keeping._load(file) is not None
    assert len(traced) == 5
    file.unlink()
    file.symlink_to(folder / "nowhere")  # is not written through
    same(run(FedAvg(local_rounds=2)), first)
    assert file.is_symlink()


def test_other_parts_are_other_programs(folder, traced):
    run(FedAvg(local_rounds=2))
    run(FedAvg(local_rounds=2, rate=0.01))  # a number among the arguments
    assert len(traced) == 1
    run(FedAvg(local_rounds=3))
    was = jax.config.values["jax_default_matmul_precision"]
    try:
        jax.config.update("jax_default_matmul_precision", "float32")
        run(FedAvg(local_rounds=2))
    finally:
        jax.config.update("jax_default_matmul_precision", was)
    assert len(traced) == len(list(folder.iterdir())) == 3


def test_nothing_is_kept_of_sources_that_changed_since(folder, monkeypatch):
    keeping._surroundings.cache_clear()
    monkeypatch.setattr(keeping, "STARTED", 0.0)
    run(FedAvg(local_rounds=2))
    assert not folder.exists()


def test_parts_of_the_users_are_not_kept(folder, traced):
    run(Own(local_rounds=2))
    run(FedAvg(local_rounds=2), metrics=[of_samples(lambda outputs, labels: outputs[:, 0], name="mine-kept", help="")])
    del METRICS["mine-kept"]
    assert len(traced) == 2
    assert not folder.exists()


def test_ahead_of_a_run_the_kept_program_is_compiled(folder, traced):
    Simulation(FedAvg(local_rounds=2), DATA, MODEL, rounds=3).compile()
    assert len(traced) == 1
    run(FedAvg(local_rounds=2))
    assert len(traced) == 1


def test_programs_that_nobody_loads_are_removed(folder):
    folder.mkdir()
    old, recent, foreign = folder / ("a" * 64), folder / ("b" * 64), folder / "notes.txt"
    for file in (old, recent, foreign):
        file.write_bytes(b"")
    for file in (old, foreign):
        os.utime(file, (0, time.time() - keeping.UNUSED - 10))
    keeping._save(folder / ("c" * 64), b"program")
    assert {file.name[0] for file in folder.iterdir()} == {"b", "c", "n"}


@dataclass(frozen=True, slots=True)
class Narrow:
    """Without a ``__dict__``."""

    n: int = 1


def test_what_is_not_known_has_no_description():
    assert keeping.described(FedAvg(local_rounds=2)) != keeping.described(FedAvg(local_rounds=3))
    for unknown in (Narrow(), Own(), lambda: 0, object(), {1: test_programs_that_nobody_loads_are_removed}):
        with pytest.raises(keeping._UnknownError):
            keeping.described(unknown)


def test_what_cannot_be_exported_is_traced_as_usual(folder, monkeypatch):
    first = run(FedAvg(local_rounds=2))

    def refuse(*args):
        raise ValueError("Cannot serialize code with custom calls whose targets have no compatibility guarantees")

    for file in folder.iterdir():
        file.unlink()
    monkeypatch.setattr(keeping, "_trace", refuse)
    same(run(FedAvg(local_rounds=2)), first)
    assert not list(folder.iterdir())
