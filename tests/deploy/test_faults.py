"""A federation of real processes in which everything goes wrong, and the numbers that must come out of it.

One long run instead of one a fault: starting processes is most of the time. Nothing waits for a fixed time: every
wait is for an event, with a bound.
"""

import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cgpfl.deploy.agreement import Deployment, read_agreement
from cgpfl.deploy.check import together
from cgpfl.deploy.follow import events
from cgpfl.deploy.layout import TRIAL_DATA, write_app, write_trial_data
from cgpfl.deploy.orphans import descendants
from cgpfl.deploy.trial import trial
from cgpfl.engine.reference import simulate_loop
from cgpfl.errors import LostError
from cgpfl.experiment.config import from_dict
from cgpfl.experiment.events import EVENTS
from cgpfl.files import load_arrays
from cgpfl.tree import named

ROUNDS = 6
HOOK = Path(__file__).parent / "hook"
PATHS = os.pathsep.join([str(HOOK), os.environ.get("PYTHONPATH", "")])
PATIENCE = 240.0


def make_app(folder, methods, *, clients=4, rounds=ROUNDS, **deploy):
    """An app on digits, with its nodes' data."""
    values = {"rounds": rounds, "data": {"clients": clients, "contexts": 2, "share": 0.3}, "method": methods}
    experiment = from_dict(values, "test")
    data = experiment.data.build(0)
    facts = {"clients": clients, "shape": data.shape, "classes": data.classes, "scale": data.scale, "shift": data.shift}
    write_app(folder, experiment, Deployment(**facts, **deploy))
    write_trial_data(folder, data)
    return folder


def until(what, condition, seconds=PATIENCE):
    """Wait for a condition, with a bound."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {what} within {seconds:g} s")


def happened(out, kind="progress"):
    return [e["values"] for _, e in events(out / EVENTS) if e["kind"] == kind]


def in_background(run):
    """Call ``run`` in a thread → (thread, list that gets its exception or None)."""
    ended = []

    def call():
        try:
            run()
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread, ended


@contextmanager
def restarting(federation, stop):
    """A function that starts a node again and again, as systemd does, until the end of the block."""
    threads = []

    def loop(client, environment):
        while not stop.is_set():
            federation.node(client, **environment)
            until("end of a node", lambda: stop.is_set() or not federation.nodes[client].alive, 600)

    def again(client, **environment):
        threads.append(threading.Thread(target=loop, args=(client, environment), daemon=True))
        threads[-1].start()

    try:
        yield again
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


@pytest.mark.slow
def test_everything_goes_wrong(tmp_path):
    app = make_app(tmp_path / "app", [{"name": "cgpfl", "contexts": 2}], deadline=40.0, join=12.0, minimum=1, repeats=2)
    out, notes, stop = tmp_path / "run", tmp_path / "notes", threading.Event()
    notes.mkdir()
    hooked = {"PYTHONPATH": PATHS, "HOOK": str(notes)}
    (notes / "2-1").write_text("nan")
    (notes / "0-1").write_text("hang")
    (notes / "1-2").write_text("hang")
    with trial(app, nodes=0) as federation, restarting(federation, stop) as again:
        for client in (0, 1, 2):
            federation.node(client, **hooked)
        _, ended = in_background(lambda: federation.run(out))
        until("first round", lambda: ended or happened(out))
        federation.node(3, **hooked)  # late
        until("client 0 hanging", lambda: ended or (notes / "0-1.here").exists())
        until("second round", lambda: ended or len(happened(out)) >= 2)
        (notes / "0-1").unlink()  # its answer comes, too late
        until("client 1 in its third round", lambda: ended or (notes / "1-2.here").exists())
        federation.nodes[1].kill(signal.SIGKILL)
        (notes / "1-2").unlink()
        again(1, **hooked)
        until("fourth round", lambda: ended or len(happened(out)) >= 4)
        assert not ended
        federation.link.kill(signal.SIGKILL)
        until("end of the run", lambda: ended, 60)
        assert isinstance(ended[0], LostError)
        federation.relink()
        federation.run(out)
    progress = happened(out)
    answered = {e["round"] - 1: set(e["answered"]) for e in progress[:-1]}
    assert sorted(answered) == list(range(ROUNDS))
    assert answered[0] == {0, 1, 2}
    assert 0 not in answered[1]
    assert 2 not in answered[1]
    assert 1 not in answered[2]
    assert 1 in set().union(*(answered[t] for t in (3, 4, 5)))  # welcome back
    assert 3 in answered[ROUNDS - 1]
    told = " ".join(e["line"] for e in happened(out, "say"))
    assert "client 2 refused: " in told
    assert "is not finite" in told
    assert "had lost its state" not in told
    same_as_a_loop(app, out, "cgpfl", answered)


@pytest.mark.slow
def test_too_few_answers_then_a_killed_server(tmp_path):
    rules = {"deadline": 30.0, "join": 60.0, "minimum": 2, "repeats": 1}
    app = make_app(tmp_path / "app", [{"name": "fedavg"}], rounds=4, **rules)
    unreadable(app / TRIAL_DATA / "3")
    out, notes = tmp_path / "run", tmp_path / "notes"
    notes.mkdir()
    for name, what in {"0-0": "shape", "1-1": "round", "1-2": "hang", "2-2": "hang", "0-3": "hang"}.items():
        (notes / name).write_text(what)
    with trial(app, nodes=0) as federation:
        for client in range(4):
            federation.node(client, PYTHONPATH=PATHS, HOOK=str(notes))
        with pytest.raises(LostError, match=r"round 3: 1 answers of at least 2.*, 2 times; .* with round 2 saved"):
            federation.run(out)
        assert [e["round"] for e in happened(out)] == [1, 2]
        for name in ("1-2", "2-2"):
            (notes / name).unlink()
        _, ended = in_background(lambda: federation.run(out))
        until("client 0 in the last round", lambda: ended or (notes / "0-3.here").exists())
        os.kill(server_of(federation), signal.SIGKILL)
        until("end of the run", lambda: ended, 30)
        assert isinstance(ended[0], LostError)
        assert "the server is gone" in str(ended[0])
        (notes / "0-3").unlink()
        federation.run(out)
        own_log = federation.nodes[3].log.read_text()
    answered = {e["round"] - 1: set(e["answered"]) for e in happened(out)[:-1]}
    assert answered == {0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}, 3: {0, 1, 2}}
    told = " ".join(e["line"] for e in happened(out, "say"))
    for line in (
        "round 1: client 0 refused: ",
        "round 2: client 1 refused: answers round 8, not 2",
        "round 3: 1 answers of at least 2; repeated",
        "client 3: refused, its node cannot take part; its log says why",
        "never heard of: client 3",
    ):
        assert line in told
    assert "cgpfl: " in own_log
    assert "mine.csv" in own_log
    assert "mine.csv" not in told  # what is wrong with a node's files is nobody else's business


def unreadable(folder):
    """In the place of a client's data a file that is no table of numbers."""
    for file in folder.iterdir():
        file.unlink()
    (folder / "mine.csv").write_text("label,a\n0,1\n1\n2,x,3\n")


def server_of(federation):
    """The process of the ServerApp, which the SuperLink started."""
    for pid in descendants(federation.link.running.pid):
        if "serverapp" in Path(f"/proc/{pid}/cmdline").read_text():
            return pid
    raise AssertionError("no ServerApp is running")


def same_as_a_loop(app, out, label, answered):
    """The run gave what a loop over clients gives when the same clients answer: nothing lost, nothing counted twice."""
    agreed = read_agreement(app / "experiment.toml")
    method, model, data = agreed.method(label), agreed.model(), together(agreed)
    rounds = agreed.values["rounds"]
    server, _, records = simulate_loop(
        method, data, model, rounds=rounds, eval_every=rounds, answered=lambda t, i: i in answered[t]
    )
    arrays, facts = load_arrays(out / "methods" / label / "state.safetensors")
    for name, value in named(server).items():
        np.testing.assert_array_equal(arrays[f".server{name}"], value, err_msg=name)
    heard = [max((t + 1 for t in answered if i in answered[t]), default=0) for i in range(data.clients)]
    assert facts["deployed"]["heard"] == heard
    summary = json.loads((out / "summary.json").read_text())
    told = happened(out)[-1]["answered"]  # of others nothing is known
    accuracy = records["correct"][-1][told].sum() / data.test.counts[told].sum()
    assert summary["methods"][label]["accuracy"]["pooled"] == pytest.approx(accuracy, abs=1e-12)
