"""One writer of a run folder."""

import os
import re
import subprocess
import sys

import pytest

import cgpfl as package
from cgpfl.deploy.lock import alone, has_server
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


def test_what_was_half_written_is_removed_by_the_next_writer(tmp_path):
    place = tmp_path / "methods" / "m"
    (place / ".clients-x1_y.part").mkdir(parents=True)
    (place / "clients-b.part").touch()  # the progress of a method with that label
    gone = [place / f".{'a' * 16}.part", place / ".clients-x1_y.part" / "rows", tmp_path / f".{'b' * 16}.part"]
    kept = [place / "mine.part", place / "state.safetensors", tmp_path / f".{'c' * 16}.part"]
    for file in gone + kept:
        file.write_bytes(b"x")
    os.utime(gone[2], (1, 1))  # the third that is kept is young: a report may be about to be written
    os.close(take(tmp_path))
    assert not any(file.exists() for file in (*gone, place / ".clients-x1_y.part"))
    assert (place / "clients-b.part").exists()
    assert all(file.exists() for file in kept)


def test_a_server_and_a_run_share_their_lock(tmp_path):
    """Each refused its own kind only: a run was resumed beside the server that wrote to the same folder."""
    with alone(tmp_path):
        with pytest.raises(CgpflError, match=f"is being written by process {os.getpid()}"):
            take(tmp_path)
        assert has_server(tmp_path)
    with writing(tmp_path), pytest.raises(CgpflError, match="is being written by process"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass
    assert not has_server(tmp_path)
