"""Whatever is given to the command line: one line, exit code 2, and soon."""

import os
import signal
import socket
from contextlib import contextmanager

import numpy as np
import pytest

from helpers import cgpfl, cgpfl_process

CONFIG = 'rounds = 1\n[data]\nclients = 4\n[[method]]\nname = "local"\n'
HUGE = "9" * 400


@contextmanager
def soon(seconds=60):
    """An error where it takes longer."""

    def late(number, frame):
        raise TimeoutError("took too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(*args, **more):
    """What is said, in one line that is not too long."""
    with soon():
        done = cgpfl(*args, code=2, **more)
    (line,) = done.stderr.splitlines()
    assert line.startswith("cgpfl: ")
    assert len(line) < 1100
    return line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"rounds = {HUGE}", "rounds"),
        (f"patience = {2**70}", "patience"),
        (f"seed = -{HUGE}", "seed"),
        ("rounds = " + "9" * 5000, "not valid TOML"),
        (f"participation = {HUGE}", "participation"),
        (f"clients_per_block = {2**65}", "clients_per_block"),
        (f"[data]\nclients = {2**65}", "clients"),
        (f"[data]\nlargest = {2**65}", "largest"),
        (f"[data]\nseed = {2**70}", "seed"),
        (f"[data]\nalpha = {HUGE}", "alpha"),
        (f'[[method]]\nname = "fedavg"\nrate = {HUGE}', "rate"),
        (f'[[method]]\nname = "fedavg"\nsteps = {2**70}', "steps"),
        (f'[model]\nname = "mlr"\nl2 = {HUGE}', "l2"),
        (f'[model]\nname = "dnn"\nhidden = {2**70}', "hidden"),
        ("a = " + "[" * 3000 + "]" * 3000, "not valid TOML"),
        ("a = " + "{a=" * 3000 + "1" + "}" * 3000, "not valid TOML"),
        ("a." * 3000 + "a = 1", "a"),
        ("rounds = '" + "x" * 357_030 + "'", "rounds"),
        ("x" * 357_030 + " = 3", "no setting"),
        ("[[method]]\nname = 'local'\nlabel = '" + "a" * 400 + "'", "at most 100"),
        ("rounds = 1e999", "rounds"),
        ("participation = nan", "participation"),
        ("\xff\xfe", "not valid TOML"),
    ],
)
def test_odd_configurations(tmp_path, text, said):
    (tmp_path / "a.toml").write_bytes(text.encode("latin-1"))
    assert said in refused("run", tmp_path / "a.toml", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "setting", [f"rounds={HUGE}", "rounds=" + "9" * 5000, f"fedavg.rate={HUGE}", "rounds=" + "[" * 3000, "a" * 5000]
)
def test_odd_settings(tmp_path, setting):
    refused("run", "--methods", "fedavg", "--set", setting, "--out", tmp_path / "out")


def test_inputs_that_never_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    (tmp_path / "zero.parquet").symlink_to("/dev/zero")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients" / "a.txt").symlink_to("/dev/zero")
    assert "is a pipe; must be a file" in refused("run", tmp_path / "pipe")
    assert "is a device; must be a file" in refused("run", "/dev/zero")
    assert "is a pipe; must be a file" in refused("run", "--data", tmp_path / "pipe.csv", "--out", tmp_path / "a")
    for name in ("zero.npz", "zero.parquet"):
        assert "is a device; must be a file" in refused("run", "--data", tmp_path / name, "--out", tmp_path / "a")
    refused("run", "--data", tmp_path / "loop.csv", "--out", tmp_path / "a")
    refused("run", "--data", tmp_path / "clients", "--out", tmp_path / "a")


def test_run_folders_that_never_end(tmp_path):
    os.mkfifo(tmp_path / "config.toml")
    for command in ("resume", "report", "watch"):
        refused(command, tmp_path)
    (tmp_path / "config.toml").unlink()
    (tmp_path / "config.toml").write_text(CONFIG)
    os.mkfifo(tmp_path / "events.jsonl")
    refused("report", tmp_path)


def test_link_loops(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for command in ("resume", "report"):
        refused(command, loop)
    refused("run", loop)
    refused("run", "--out", loop)
    refused("run", "--out", loop / "a")


def test_a_comparison_whose_configuration_was_lost(tmp_path):
    (tmp_path / "methods").mkdir()
    (tmp_path / "config.toml").touch()
    assert "config.toml names no method" in refused("resume", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.toml", "methods"]


def test_a_note_of_the_split_that_is_no_text(tmp_path):
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "split.txt").write_bytes(b"\xff\xfe\x00")
    assert "its split is" in refused("resume", tmp_path)


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    assert "is no folder" in refused("run", "--out", tmp_path / "file" / "a")
    assert "is a file" in refused("run", "--out", tmp_path / "file")
    assert "a name of 300" in refused("compare", "--out", tmp_path / ("a" * 300))
    assert "a path of" in refused("run", "--out", tmp_path.joinpath(*["a"] * 2000))
    (tmp_path / "taken").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert f"{tmp_path / 'taken'}: exists already" in refused("run", "--out", "~/taken")
    assert f"{tmp_path / 'taken'}: exists already" in refused("compare", "--out", "~/taken")


def test_a_million_classes(tmp_path):
    y = np.arange(1_000_000)
    np.savez(tmp_path / "many.npz", x=np.zeros((len(y), 2), np.uint8), y=y)
    said = refused("run", "--data", tmp_path / "many.npz", "--split", "iid", "--out", tmp_path / "a")
    assert "1,000,000 classes" in said


def test_ports(tmp_path):
    (tmp_path / "config.toml").write_text(CONFIG)
    assert "--port 99999" in refused("watch", tmp_path, "--port", 99999)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "cannot be used" in refused("watch", tmp_path, "--port", taken.getsockname()[1])


def test_a_terminal_that_knows_ascii_alone():
    done = cgpfl_process("methods", "cgpfl", PYTHONIOENCODING="ascii")
    assert "lambda" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.slow
def test_standard_output_that_is_closed():
    import subprocess
    import sys

    command = f"{sys.executable} -m cgpfl.cli methods"
    for shell, code in ((f"{command} >&-", 0), (f"{command} | true; exit ${{PIPESTATUS[0]}}", 141)):
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (code, "")
