"""One writer of a run folder."""

import os
import re
import subprocess
import sys

import pytest

import cgpfl as package
from cgpfl.errors import CgpflError
from cgpfl.experiment.lock import LOCK, take, writing
from helpers import cgpfl

CONFIG = 'rounds = 1\n[data]\nclients = 4\n[[method]]\nname = "local"\n'
HOLD = """
import sys
from pathlib import Path
from cgpfl.experiment.lock import take
take(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    """A run folder that another process writes to, and the process."""
    (tmp_path / "config.toml").write_text(CONFIG)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        yield tmp_path, other
        other.kill()


def test_the_second_writer_is_told_who_is_first(held):
    folder, other = held
    line = rf"is being written by process {other.pid} on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.search(line, cgpfl("resume", folder, code=2).stderr)
    (folder / "config.toml").write_text(CONFIG + "[compare]\nseeds = 1\n")
    done = cgpfl("resume", folder, code=2)
    assert re.search(line, done.stderr)
    assert len(done.stderr.splitlines()) == 1
    with pytest.raises(CgpflError, match=line):
        package.run("local", {"clients": 4}, rounds=1, out=folder, resume=True, progress=False)
    assert sorted(p.name for p in folder.iterdir()) == ["config.toml", LOCK]
    other.kill()
    other.wait()
    with writing(folder):  # what a killed process left locks nothing
        assert str(os.getpid()) in (folder / LOCK).read_text()
        with pytest.raises(CgpflError, match=f"process {os.getpid()}"):  # nor may another thread
            take(folder)
    os.close(take(folder))


def test_a_lock_is_no_link(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / "victim")
    with pytest.raises(CgpflError, match="is a link"):
        take(tmp_path)
    assert (tmp_path / "victim").read_text() == "mine"
