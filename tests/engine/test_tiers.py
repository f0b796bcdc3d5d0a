"""Programs compiled quickly first: the same bits, for speed where a run is long, and nothing is lost if that fails."""

import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))

import frozen

from cgpfl.algorithms import METHODS, FedAvg
from cgpfl.data import FederatedData
from cgpfl.engine import Drive, tiers
from cgpfl.engine import kept as keeping
from cgpfl.engine.drive import Stopped
from cgpfl.engine.kept import Kept
from cgpfl.engine.simulation import Simulation
from cgpfl.engine.together import Run, Together
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.records import Records
from cgpfl.models import as_model
from cgpfl.tree import plain

X = np.random.default_rng(0).normal(size=(48, 4)).astype(np.float32)
DATA = FederatedData.from_arrays(X, (X[:, 0] > 0).astype(int), np.arange(48) % 4, classes=2)
MODEL = as_model("mlr", DATA.shape, 2)
ROUNDS = 6


@pytest.fixture(autouse=True)
def command_line(monkeypatch, tmp_path):
    """Programs are kept, in a folder of this test's."""
    monkeypatch.setenv("CGPFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(keeping, "in_use", lambda: True)
    monkeypatch.setattr(keeping, "_wanted", True)
    monkeypatch.setattr(keeping, "STARTED", time.time())


@pytest.fixture
def compiled(monkeypatch):
    """Whether each program that was compiled was compiled quickly."""
    found, compile_ = [], jax.stages.Lowered.compile

    def spied(self, compiler_options=None):
        found.append(compiler_options == tiers.QUICKLY)
        return compile_(self, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", spied)
    return found


@pytest.fixture
def worth(monkeypatch):
    """Every run is a long one."""
    monkeypatch.setattr(tiers, "PAYS", 0.0)


def engine():
    return Simulation(FedAvg(local_rounds=2), DATA, MODEL, rounds=ROUNDS)


def leaves(state, records):
    return jax.tree.map(np.asarray, jax.tree.leaves(plain((state.server, state.clients, records))))


def run(made=None):
    """Blocks of two rounds; what is compiled for speed is there when the second begins."""
    made, found = engine() if made is None else made, []
    state = made.start()
    for first in range(0, ROUNDS, 2):
        state, records, _ = made.advance(state, first, first + 2)
        found.append(records)
        if made._program.tiers.thread is not None:
            made._program.tiers.thread.join()
    return leaves(state, found)


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def plainly(monkeypatch):
    """The run as it is without all this."""
    with monkeypatch.context() as patch:
        patch.setattr(tiers, "in_tiers", lambda: False)
        return run()


def test_a_short_run_is_never_compiled_for_speed(compiled):
    run()
    assert compiled == [True, True]  # the first state, and rounds
    run()
    assert compiled == [True] * 4


def test_a_long_run_ends_with_the_program_for_speed(monkeypatch, compiled, worth):
    usual = plainly(monkeypatch)
    compiled.clear()
    made = engine()
    same(run(made), usual)
    assert compiled == [True, True, False]
    compiled.clear()
    same(run(), usual)
    assert compiled == [True, False]  # at once


def test_the_next_block_has_it_not_the_one_that_runs(worth):
    made = engine()
    state, _, _ = made.advance(made.start(), 0, 2)
    first = made._program.tiers.program
    made._program.tiers.thread.join()
    assert made._program.tiers.program is not first
    made.advance(state, 2, ROUNDS)
    assert made._program.tiers.fast


def test_what_cannot_be_compiled_for_speed_goes_on(monkeypatch, worth):
    usual, compile_ = plainly(monkeypatch), jax.stages.Lowered.compile

    def refuse(self, compiler_options=None):
        if compiler_options is None:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")
        return compile_(self, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", refuse)
    made = engine()
    same(run(made), usual)
    assert tiers._read(made._program.tiers._note) == ()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_goes_on_with_either_program(monkeypatch, tmp_path, worth, when):
    usual = leaves(*(lambda d: (d.state, d.records.values))(Drive(engine(), Records()).run()))
    for note in keeping.cache_folder().rglob("*.tier"):
        note.unlink()
    if when == "after":
        monkeypatch.setattr(tiers, "PAYS", 1e9)
    folder = MethodFolder(tmp_path / "run")
    made = engine()
    with pytest.raises(Stopped):
        Drive(made, Records(), checkpoints=folder).run(stop=lambda: True)
    assert made._program.tiers.fast == (when == "before")
    if made._program.tiers.thread is not None:
        made._program.tiers.thread.join()
    monkeypatch.setattr(tiers, "PAYS", 0.0)
    drive = Drive(engine(), Records(), checkpoints=folder).run()
    same(leaves(drive.state, drive.records.values), usual)


def test_flags_of_ones_own_and_other_devices_have_one_program(monkeypatch, compiled):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_min_max=true")
    run()
    assert compiled == [False, False]
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(tiers.jax, "default_backend", lambda: "gpu")
    assert not tiers.in_tiers()


class Lowered:
    """Compiled in no time."""

    def compile(self, compiler_options=None):
        return compiler_options


@pytest.fixture
def begun(tmp_path):
    """Whether a program that took a second to compile is compiled for speed after some blocks."""
    note = tmp_path / "note.tier"
    note.write_bytes(b"1.000 0.000")

    def begun(*blocks):
        made = tiers.Tiered(Lowered, note)
        for block in blocks:
            made.ran(*block)
        if made.thread is not None:
            made.thread.join()
        return made.program is None

    return begun


def test_it_pays_where_eight_times_its_compilation_is_left(begun):
    assert not begun((1, 1000, 0.9))  # too early to know
    assert not begun((10, 60, 1.0))  # with what was: 7.9 s
    assert begun((10, 65, 1.0))


def test_rounds_of_earlier_runs_count(begun):
    assert not begun((10, 0, 3.0))
    assert not begun((5, 5, 2.0), (5, 0, 2.0))
    assert begun((10, 0, 1.5))
    assert begun()  # at once


@pytest.mark.parametrize("damaged", [b"", b"1.0", b"fas", b"one two", b"\xff 3"])
def test_a_damaged_note_is_none(tmp_path, damaged):
    (tmp_path / "note.tier").write_bytes(damaged)
    assert tiers._read(tmp_path / "note.tier") == ()
    assert not tiers.Tiered(Lowered, tmp_path / "note.tier").fast


@pytest.mark.long
@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("name", list(METHODS.ours))
def test_every_method_has_the_same_bits_in_both(monkeypatch, name, together):
    data, rounds = frozen.federation(), frozen.LONGER.get(name, frozen.ROUNDS)
    model, method = as_model("mlr", data.shape, data.classes), frozen.small(name)
    found = []
    for in_tiers in (True, False):
        monkeypatch.setattr(tiers, "in_tiers", lambda in_tiers=in_tiers: in_tiers)
        who = frozen.WHO | {"rounds": rounds}
        seeds = [Run(method, data, seed) for seed in (0, 1)]
        made = Together(seeds, model, **who) if together else Simulation(method, data, model, **who)
        state, records, _ = made.advance(made.start(), 0, rounds)
        assert isinstance(made._program, Kept)
        assert made._program.tiers.fast != in_tiers
        found.append(leaves(state, records))
    same(*found)
