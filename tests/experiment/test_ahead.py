"""Engines made ready ahead: each once, none twice, and what fails says so when it runs."""

import threading
import time

import pytest

from cgpfl.experiment import ahead as room
from cgpfl.experiment.ahead import ahead


@pytest.fixture
def wanted(monkeypatch):
    """As on the command line."""
    monkeypatch.setattr(room, "keeps_programs", lambda: True)
    monkeypatch.setattr(room, "use_compilation_cache", lambda: True)
    monkeypatch.setattr(room.jax, "default_backend", lambda: "cpu")


def makers(count, made, wait=None):
    def make(i):
        made.append((i, threading.current_thread().name))
        if wait is not None:
            wait.wait(10)
        return f"engine {i}"

    return [lambda i=i: make(i) for i in range(count)]


def test_from_both_ends_and_each_once(wanted):
    made = []
    with ahead(makers(6, made), 0) as engine:
        found = [engine(i) for i in range(6)]
    assert found[0] is None  # asked for at once: made where it is needed
    assert all(e in (None, f"engine {i}") for i, e in enumerate(found))
    assert len({i for i, _ in made}) == len(made)
    assert {i for i, _ in made} == {i for i, e in enumerate(found) if e is not None}


def test_an_engine_that_is_being_made_is_waited_for(wanted):
    made, go = [], threading.Event()
    with ahead(makers(3, made, go), 0) as engine:
        end = time.monotonic() + 10
        while len(made) < 2:
            assert time.monotonic() < end
        assert engine(0) is None
        threading.Timer(0.1, go.set).start()
        assert [engine(1), engine(2)] == ["engine 1", "engine 2"]
    assert sorted(i for i, _ in made) == [1, 2]
    assert {name for _, name in made} == {"ahead 0", "ahead -1"}


def test_what_cannot_be_made_is_made_again_where_it_runs(wanted):
    def bad():
        raise ValueError("no")

    with ahead([bad, bad, bad], 0) as engine:
        assert [engine(i) for i in range(3)] == [None, None, None]


def test_what_is_finished_is_not_made(wanted):
    made = []
    first, *rest = makers(4, made)
    with ahead([None, first, None, *rest], 0) as engine:
        assert [engine(i) for i in (0, 2)] == [None, None]
        for i in (1, 3, 4, 5):
            engine(i)
    assert 0 not in {i for i, _ in made}  # the first that is not finished


@pytest.mark.parametrize("samples", [0, room.MOST_SAMPLES + 1])
def test_in_python_and_with_much_data_nothing_is_made_ahead(samples, monkeypatch):
    made = []
    monkeypatch.setattr(room, "keeps_programs", lambda: samples > 0)
    with ahead(makers(3, made), samples) as engine:
        assert [engine(i) for i in range(3)] == [None] * 3
    assert made == []


def test_a_run_that_is_stopped_begins_no_other(wanted):
    made, go = [], threading.Event()

    def stopped():
        with ahead(makers(9, made, go), 0):
            while len(made) < 2:
                pass
            threading.Timer(0.1, go.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert len(made) <= 4
