"""The way from Flower's small process to the node's worker and back, with a worker whose node is made up here."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cgpfl.engine.flower.call import call, socket_of
from cgpfl.errors import CgpflError

LOADER = """
import os, time
from types import SimpleNamespace


def load(facts):
    def work(order, arrays):
        open(facts["pids"], "a").write(f"{os.getpid()}\\n")
        if facts["does"] == "hang":
            time.sleep(600)
        if facts["does"] == "die":
            os._exit(1)
        return SimpleNamespace(facts=lambda: {"pid": os.getpid()}, upload={k: 2 * v for k, v in arrays.items()})

    return SimpleNamespace(work=work)
"""
LARGE = {"w": np.arange(1 << 20, dtype=np.float32)}  # more than a socket holds


class Node:
    def __init__(self, folder):
        self.place, self.pids = folder / "state", folder / "pids"

    def ask(self, does="work", seconds=30.0, arrays=LARGE):
        facts = {"order": {"token": "t", "client": 0, "base": 0}, "node": {"does": does, "pids": str(self.pids)}}
        return call(self.place, "made_up_node:load", facts, arrays, seconds)

    def seen(self):
        return [int(pid) for pid in self.pids.read_text().split()] if self.pids.exists() else []


@pytest.fixture
def node(tmp_path, monkeypatch):
    short = Path(tempfile.mkdtemp(prefix="c"))  # paths of sockets are short
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    (tmp_path / "made_up_node.py").write_text(LOADER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    made = Node(tmp_path)
    yield made
    for pid in set(made.seen()):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(short)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_orders_go_to_one_worker_and_back(node):
    facts, arrays = node.ask()
    np.testing.assert_array_equal(arrays["w"], 2 * LARGE["w"])
    assert node.ask(arrays={})[1] == {}
    assert set(node.seen()) == {facts["pid"]}
    assert socket_of(node.place).parent.stat().st_mode & 0o077 == 0


def test_a_worker_that_hangs_is_ended_and_replaced(node):
    first = node.ask()[0]["pid"]
    began = time.monotonic()
    with pytest.raises(CgpflError, match=r"did not answer within 0\.5 s and was ended"):
        node.ask("hang", seconds=0.5)
    assert time.monotonic() - began < 10
    until(lambda: not alive(first))
    assert node.ask()[0]["pid"] != first


def test_an_order_that_a_busy_worker_does_not_even_read_has_an_end_too(node):
    node.ask()
    ended = []

    def wait():
        with pytest.raises(CgpflError, match="did not answer"):  # of the first worker, nor of the second
            node.ask("hang", seconds=5.0)
        ended.append(True)

    busy = threading.Thread(target=wait, daemon=True)
    busy.start()
    until(lambda: len(node.seen()) == 2)
    with pytest.raises(CgpflError, match=r"did not answer within 0\.5 s"):
        node.ask(seconds=0.5)
    busy.join(30)
    assert ended


def test_a_worker_that_dies_is_told(node):
    with pytest.raises(CgpflError, match=r"worker is gone \(\w+; .*worker.log may say why\)"):
        node.ask("die")
    assert len(set(node.seen())) == 2  # it was tried once more


def test_a_folder_that_others_can_enter_is_refused(node):
    socket_of(node.place).parent.chmod(0o755)
    with pytest.raises(CgpflError, match="must be a folder of this user alone"):
        node.ask()


def test_the_small_process_imports_no_jax():
    code = "import sys, cgpfl.engine.flower.call; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
