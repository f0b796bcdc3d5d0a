"""The whole benchmark at tiny sizes: that it runs and what it finds equal, not how long it takes."""

import dataclasses
import importlib.util
import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks.bench import run as bench
from benchmarks.bench.check import TOLERANCE
from benchmarks.bench.grid import Grid
from benchmarks.bench.machine import Rates, busy_note, facts, forget_peak, measure, peak_memory, program_memory
from benchmarks.bench.result import Result
from benchmarks.bench.run import cases, remarks, run, run_case, too_much
from benchmarks.bench.sweep import run_sweep
from benchmarks.bench.tabulate import text
from benchmarks.bench.timing import Contestant, interleaved, medians
from benchmarks.bench.work import Case

HAS_TORCH = importlib.util.find_spec("torch") is not None
TINY = Grid(methods=("cgpfl", "fedavg"), models=("mlr",), clients=(4,), rounds=2, repeats=2, samples=160, sweep=False)


@pytest.fixture
def quick_rates(monkeypatch):
    monkeypatch.setattr(bench, "measure", lambda: measure(product=64, array=1024, repeats=1))


@pytest.mark.slow
def test_end_to_end(quick_rates):
    told, kept = [], []
    found = run(TINY, told.append, kept.append)
    assert [(r.case.method, r.case.clients) for r in found.rows] == [("cgpfl", 4), ("fedavg", 4)]
    for row in found.rows:
        assert row.rounds == 2
        assert all(len(values) == 2 for values in row.times.values())
        assert set(row.rivals) == ({"loop", "vmap"} if HAS_TORCH else set())
        assert 0 <= row.difference < TOLERANCE
        assert min(row.ours, row.alone, row.compile, row.memory, row.floor(found.rates)) > 0
    assert len(kept) == 3  # after each case, and at the end
    assert json.dumps(kept[-1].as_dict())
    assert len(told) == 3
    assert "us/floor" in text(found)


def test_without_pytorch(quick_rates, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = run(Grid(("fedavg",), ("mlr",), (4,), rounds=1, repeats=1, samples=160, sweep=False))
    assert found.rows[0].rivals == {}
    assert found.rows[0].difference < TOLERANCE
    assert "pip install torch" in found.notes[0]


@pytest.mark.slow
def test_a_sweep_is_its_single_runs():
    found = run_sweep(rounds=4, prox=(1.0, 5.0), seeds=2)
    assert (found.runs, found.rounds) == (4, 4)
    assert found.difference < 1e-3
    assert found.ratio > 0
    assert found.ratio_again > 0
    assert found.single_first > found.single_again  # the first time it is compiled


@pytest.mark.slow
def test_what_would_take_too_long_or_too_much_is_left_out(monkeypatch):
    grid = Grid(("fedavg",), ("mlr",), (4, 8), rounds=1, repeats=1, samples=160)
    row = run_case(Case("fedavg", "mlr", 4, 160), grid, with_torch=False)
    assert list(remarks(row, grid)) == []
    hurried = dataclasses.replace(row, dropped=("loop, 2 threads",))
    assert list(remarks(hurried, dataclasses.replace(grid, repeats=3))) == [
        "fedavg mlr, 4 clients: 1 of 3 timings; raise --limit for more",
        "fedavg mlr, 4 clients: loop, 2 threads: not timed, 3x slower in a trial; is the machine busy?",
    ]
    slow = Result(grid, {}, Rates(1.0, 1.0), (dataclasses.replace(row, ours=50.0),))
    line = too_much(Case("fedavg", "mlr", 8, 160), slow)
    assert line == "fedavg mlr, 8 clients: left out, a round would take some 100 s; raise --limit to time it"
    assert too_much(Case("cgpfl", "mlr", 8, 160), slow) is None  # another method
    monkeypatch.setattr(bench, "memory", lambda: 2**30)
    line = too_much(Case("cgpfl", "dnn", 4000), slow)
    assert line == "cgpfl dnn, 4000 clients: left out, it may need 9 GB of memory"


def test_cases_go_model_by_model():
    names = [case.name for case in cases(Grid(("cgpfl", "fedavg"), ("mlr", "dnn"), (40, 400)))]
    assert names[:3] == ["cgpfl mlr, 40 clients", "cgpfl mlr, 400 clients", "fedavg mlr, 40 clients"]
    assert len(names) == 8


def test_contestants_take_turns():
    order = []
    contestants = [Contestant("a", lambda: order.append("a")), Contestant("b", lambda: order.append("b"), units=0.5)]
    times = interleaved(contestants, repeats=3, limit=60)
    assert order == ["a", "b"] * 3
    assert [len(v) for v in times.values()] == [3, 3]
    assert interleaved(contestants, repeats=3, limit=0)["a"][1:] == []  # past the limit one turn is enough
    assert medians({"a": [3.0, 1.0, 2.0]}) == {"a": 2.0}


def test_a_busy_machine_is_mentioned(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 9.0, 9.0))
    assert busy_note() is None
    monkeypatch.setattr("os.getloadavg", lambda: (1000.0, 0.0, 0.0))
    assert busy_note().startswith("The machine was busy before this began (load 1000.0")


def test_the_machine_is_described():
    rates = measure(product=32, array=256, repeats=1)
    assert rates.operations > 0
    assert Rates(1.0, 5.0).best(Rates(2.0, 4.0)) == Rates(2.0, 5.0)
    known = facts()
    assert known["cpus"] >= 1
    assert known["jax"]
    forget_peak()
    assert peak_memory() > 10**7


def test_memory_of_a_program():
    """Two arrays of 4,000 bytes in, one of 4,000,000 between, one of 4,000 out."""
    a = jnp.ones(1000)
    program = jax.jit(lambda a, b: jnp.sort(a[:, None] * b, axis=0)[3]).lower(a, a).compile()
    assert program_memory(program) == pytest.approx(12_000 + 4_000_000, rel=0.02)
