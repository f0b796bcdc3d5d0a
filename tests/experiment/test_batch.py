"""Batches of runs: compiled ahead of their turn, split where memory is short, stopped when asked."""

import os
import threading

import jax
import numpy as np
import pytest

from cgpfl.algorithms import FedAvg, FedMD, Local
from cgpfl.engine.together import Run, Together
from cgpfl.errors import CgpflError
from cgpfl.experiment import batch as room
from cgpfl.experiment.batch import Batch, compiling, run_batch
from cgpfl.experiment.run import Stopped
from helpers import Instead, points, quadratic

DATA = points([[1.0], [2.0], [4.0]])
RATES = (0.5, 0.25, 0.1)


def batch(method, label="some", rounds=5):
    runs = [Run(method(rate=r, local_rounds=1, batch_size=0), DATA, s) for s, r in enumerate(RATES)]
    return Batch(label, runs, quadratic(DATA), {"rounds": rounds, "eval_every": 2})


def by_hand(rate, t):
    """Local's loss after ``t`` rounds, client by client: w = (1 − (1 − rate)^t)·c."""
    return 0.5 * (np.array([1.0, 2.0, 4.0]) * (1 - rate) ** t) ** 2


def right(done):
    assert len(done) == len(RATES)
    for rate, own in zip(RATES, done, strict=True):
        assert (own.answers, own.diverged, own.records.rounds) == (15, None, [2, 4, 5])
        np.testing.assert_allclose(own.records.values["loss"], [by_hand(rate, t) for t in (2, 4, 5)], rtol=1e-4)


@pytest.fixture
def accelerator(monkeypatch):
    """Batches believe in a device that leaves eight cores free; → the threads that compile."""
    threads, compile_ = [], room._compile
    monkeypatch.setattr(room, "jax", Instead(jax, default_backend=lambda: "gpu"))
    monkeypatch.setattr(room, "os", Instead(os, cpu_count=lambda: 8))
    monkeypatch.setattr(room, "_compile", lambda b: threads.append(threading.current_thread()) or compile_(b))
    return threads


@pytest.mark.slow
def test_batches_are_compiled_ahead_in_other_threads(accelerator, programs):
    """Their programs are there before the first has run, and no other is compiled when they do."""
    batches = [batch(Local, "local"), batch(FedAvg, "fedavg")]
    with compiling(batches) as wait:
        wait(0)
        wait(1)
        ahead = programs()
        assert len(ahead) == 4  # first states and rounds
        assert len(accelerator) == 2
        assert threading.main_thread() not in accelerator
        jax.clear_caches()
        local, fedavg = (run_batch(b) for b in batches)
        assert programs() == ahead
    right(local)
    assert [d.answers for d in fedavg] == [15, 15, 15]
    assert not np.allclose(fedavg[0].records.values["loss"], local[0].records.values["loss"], rtol=0.1)


def test_a_batch_that_does_not_compile_says_so_when_it_runs(accelerator):
    """Not before: what comes first still runs."""
    bad = Batch("fedmd", [Run(FedMD(), DATA, 0)], quadratic(DATA), {"rounds": 5})
    with compiling([batch(Local), bad]) as wait:
        wait(0)
        wait(1)
        right(run_batch(batch(Local)))
        with pytest.raises(CgpflError, match="needs samples that everybody has"):
            run_batch(bad)
    assert len(accelerator) == 2


@pytest.mark.parametrize(("backend", "cores", "batches"), [("cpu", 8, 2), ("gpu", 2, 2), ("gpu", 8, 1)])
def test_nothing_is_compiled_ahead_where_it_would_not_help(accelerator, monkeypatch, backend, cores, batches):
    """On a CPU, with few cores, or with nothing to run meanwhile."""
    monkeypatch.setattr(room, "jax", Instead(jax, default_backend=lambda: backend))
    monkeypatch.setattr(room, "os", Instead(os, cpu_count=lambda: cores))
    with compiling([batch(Local)] * batches) as wait:
        for i in range(batches):
            wait(i)
    assert accelerator == []


@pytest.mark.parametrize(("memory", "sizes"), [(1 << 40, [3]), (1, [1, 1, 1])])
def test_runs_that_do_not_fit_go_in_parts(memory, sizes, monkeypatch):
    made, told = [], []
    monkeypatch.setattr("cgpfl.engine.together.memory", lambda: memory)
    monkeypatch.setattr(room, "Together", lambda part, *a, **k: made.append(len(part)) or Together(part, *a, **k))
    right(run_batch(batch(Local, "parts"), on_progress=told.append))
    assert made == sizes
    rounds = [p.round for p in told]
    assert rounds == sorted(rounds)
    assert rounds[-1] == told[-1].rounds == 5
    assert {p.label for p in told} == {"parts"}


@pytest.mark.parametrize("blocks", [1, 2])
def test_stopping_ends_a_batch_after_its_block(blocks):
    told = []
    with pytest.raises(Stopped, match="stopping"):
        run_batch(batch(Local, "stopping"), on_progress=told.append, stop=lambda: len(told) == blocks)
    assert len(told) == blocks
    assert told[-1].round < 5
