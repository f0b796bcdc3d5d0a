"""A few of the campaign's crashes: what was killed comes back bit for bit, and nothing half written stays."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.crash.equal import differences, without_times
from benchmarks.crash.moments import Moment
from benchmarks.crash.simulated import Bench
from cgpfl.files import save_arrays

CAMPAIGN = [sys.executable, "-m", "benchmarks.crash", "--deployed", "0"]


@pytest.mark.slow
def test_a_few():
    """In a process of its own: children are forked from one in which JAX has not begun."""
    few = ["--kills", "6", "--writers", "2", "--full", "2", "--read-only", "2", "--seed", "3"]
    place = Path(__file__).parents[2]
    own = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([*CAMPAIGN, *few], capture_output=True, text=True, timeout=500, cwd=place, env=own)
    assert done.returncode == 0, done.stdout + done.stderr
    for what in ("kills of simulations", "second writers", "full disks", "read-only folders"):
        assert f"{what}: " in done.stdout
    assert "WRONG" not in done.stdout


def made(folder, value=1.0, seconds=1.0):
    place = folder / "methods" / "m"
    place.mkdir(parents=True)
    (folder / "summary.json").write_text(f'{{"a": {value}, "seconds": {seconds}}}')
    state = {"w": np.full(3, value, np.float32)}
    save_arrays(place / "state.safetensors", state, {"round": 2, "seconds": seconds})
    save_arrays(
        folder / "methods" / "m" / "records-000002.safetensors", {"loss": np.full((1, 2), value)}, {"rounds": [2]}
    )
    return folder


def test_folders_are_the_same_but_for_times(tmp_path):
    one, same = made(tmp_path / "one"), made(tmp_path / "same", seconds=9.0)
    assert differences(one, same) == []
    other = made(tmp_path / "other", value=float(np.nextafter(np.float32(1), np.float32(2))))
    assert differences(one, other) == ["summary.json", "methods/m/state.safetensors", "methods/m: records"]
    (same / "methods" / "m" / "state.safetensors").unlink()
    assert differences(one, same) == ["methods/m/state.safetensors"]
    assert without_times({"a": [{"time": 1, "b": 2}]}) == {"a": [{"b": 2}]}


def test_moments_are_of_all_kinds(tmp_path):
    bench = Bench(tmp_path, random.Random(0), {"run": 4.0}, {"run": 70})
    seen = [bench.moment("run") for _ in range(300)]
    assert {m.kind for m in seen} == {"time", "between", "inside"}
    assert all(0 <= m.at <= 4.4 for m in seen if m.kind == "time")
    changes = {m.at for m in seen if m.kind != "time"}
    assert min(changes) == 1
    assert 60 < max(changes) <= 70
    assert Moment().kind == "never"


def test_nodes_are_started_again(monkeypatch):
    """A node that comes back too soon is refused and ends: started once it stayed away; with both gone all ended."""
    pytest.importorskip("flwr")
    from benchmarks.crash import deployed
    from cgpfl.errors import LostError

    monkeypatch.setattr(deployed, "AGAIN", 0.01)
    started, seen = [], threading.Event()

    def node(client):
        started.append(client)
        federation.nodes[client] = SimpleNamespace(alive=len(started) >= 3)
        if len(started) >= 3:
            seen.set()

    link = SimpleNamespace(alive=True, tail=lambda: "")
    nodes = {0: SimpleNamespace(alive=True), 1: SimpleNamespace(alive=False)}
    federation = SimpleNamespace(link=link, nodes=nodes, node=node)
    with deployed.restarting(federation):
        assert seen.wait(20)
        federation.check()  # that every node is gone is not for the server's side to know
        link.alive = False
        with pytest.raises(LostError, match="SuperLink is gone"):
            federation.check()
    assert started == [1, 1, 1]
