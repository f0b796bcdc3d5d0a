"""Several real processes over loopback: the same result as one, and what happens when one is lost."""

import json
import re
import shlex
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from cgpfl.engine import processes
from cgpfl.errors import CgpflError, LostError
from cgpfl.experiment.checkpoint import MethodFolder
from helpers import Instead, cgpfl, cgpfl_process, start

RUN = ("run", "--method", "cgpfl", "--clients", "10", "--set", "data.contexts=2")
PATIENCE = 180


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def together(count, *args):
    """``count`` processes of one run."""
    spread = [f"--coordinator=127.0.0.1:{free_port()}", f"--processes={count}"]
    return [start(*args, *spread, f"--process-id={i}") for i in range(count)]


def end(running):
    """(exit code, output, errors) of each."""
    try:
        return [(p.returncode, *out) for p in running for out in [p.communicate(timeout=PATIENCE)]]
    finally:
        for p in running:
            p.kill()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "run"
    cgpfl(*RUN, "--rounds", "12", "--out", out)
    return json.loads((out / "summary.json").read_text())["methods"]["cgpfl"]


def same(summary, expected):
    assert summary["contexts"]["assignment"] == expected["contexts"]["assignment"]
    for name in ("pooled", "mean", "worst_tenth"):
        assert summary["accuracy"][name] == pytest.approx(expected["accuracy"][name], abs=1e-6)


PAGE = (Path(__file__).parents[1] / "docs" / "scale.md").read_text()
BIG = 'rounds = 12\ndata = {clients = 10, contexts = 2}\n[[method]]\nname = "cgpfl"\n'


def slurm(i, count, port):
    """What srun tells its tasks, as far as JAX asks."""
    about = {"JOB_ID": "1", "STEP_NODELIST": "localhost", "NTASKS": count, "PROCID": i, "LOCALID": i}
    return {f"SLURM_{name}": str(value) for name, value in about.items()} | {"JAX_COORDINATOR_PORT": str(port)}


WAYS = {
    "hosts": (r"^host\d\$ cgpfl (.*)$", 2, lambda i, count, port: {}),
    "slurm": (r"^srun .* cgpfl (.*)$", 2, slurm),
    "kubernetes": (r"^cgpfl (.* \$JOB_COMPLETION_INDEX)$", 4, lambda i, count, port: {}),
}
"""How docs/scale.md starts several processes: its lines, how many of them here, and what is in their environment."""


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_several_processes_are_one_run(alone, tmp_path, way):
    """Ten clients on two and on four processes, of which four do not divide ten; by the page's own lines."""
    pattern, count, environment = WAYS[way]
    (tmp_path / "big.toml").write_text(BIG)
    out, port, running = tmp_path / "big", free_port(), []
    found = re.findall(pattern, PAGE, re.MULTILINE)
    for i, line in enumerate(found if len(found) == count else found * count):
        changes = {"/shared/big": str(out), "host1:9876": f"127.0.0.1:{port}", "big-0.big:9876": f"127.0.0.1:{port}"}
        words = [changes.get(word, word) for word in shlex.split(line.replace("$JOB_COMPLETION_INDEX", str(i)))]
        running.append(start(*words, cwd=tmp_path, **environment(i, count, port)))
    (first, *others) = end(running)
    assert len(running) == count
    assert first[0] == 0, first[2]
    assert "cgpfl" in first[1]
    for code, printed, _ in others:
        assert code == 0
        assert [line for line in printed.splitlines() if not line.startswith("[Gloo]")] == []  # one of them talks
    same(json.loads((out / "summary.json").read_text())["methods"]["cgpfl"], alone)
    (resume,) = re.findall(r"^\$ cgpfl (resume .*)$", PAGE, re.MULTILINE)
    assert "cgpfl" in cgpfl(*resume.replace("/shared/big", str(out)).split()).stdout  # it is finished: told again


@pytest.mark.slow
@pytest.mark.parametrize("killed", [1, 0])
def test_a_lost_process_ends_the_others_and_the_run_goes_on_with_fewer(alone, tmp_path, killed):
    out = tmp_path / "run"
    running = together(2, *RUN, "--rounds", "1000000", "--set", "checkpoint_seconds=0", "--out", out)
    state = out / "methods" / "cgpfl" / "state.safetensors"
    deadline = time.monotonic() + PATIENCE
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state.exists()
    running[killed].kill()
    found = end(running)
    code, _, errors = found[1 - killed]
    assert code == 2
    assert "another process was lost" in errors
    assert f"cgpfl resume {out}" in errors

    folder = MethodFolder(state.parent)
    done = folder.facts()["round"]
    one = start("resume", out)
    deadline = time.monotonic() + PATIENCE
    while folder.facts()["round"] <= done and time.monotonic() < deadline:
        time.sleep(0.1)
    one.terminate()
    ((code, _, errors),) = end([one])
    assert code == 130
    assert f"Continue with: cgpfl resume {out}" in errors
    assert folder.facts()["round"] > done


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--coordinator", "here:1"], "--coordinator: needs --processes and --process-id, too (or is auto)"),
        (["--processes", "2"], "--processes, --process-id: only go with --coordinator"),
        (
            ["--coordinator", "nowhere", "--processes", "2", "--process-id", "0"],
            "must be host:port of process 0, or auto",
        ),
        (["--coordinator", "a:1", "--processes", "2", "--process-id", "2"], "--process-id 2: must be in 0..1"),
        (
            ["--coordinator", "a:1", "--devices", "2"],
            "--devices: several processes use all their devices; leave it out",
        ),
        (["--devices", "none"], "--devices none: must be a number from 1, or all"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, given, message):
    settings = SimpleNamespace(update=lambda name, value: None, values=jax.config.values)  # JAX has begun here
    monkeypatch.setattr(processes, "jax", Instead(jax, config=settings))
    done = cgpfl(*RUN, "--out", tmp_path / "run", *given, code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_processes_need_a_folder_they_share():
    alone = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", "1", "--process-id", "0"]
    done = cgpfl_process(*RUN, *alone, code=2)  # joined before JAX has begun
    assert "--coordinator: needs --out, a folder that all processes see" in done.stderr


@pytest.mark.slow
def test_processes_of_other_problems_do_not_run_together(tmp_path):
    args = [[*RUN, "--rounds", "12", "--out", tmp_path / "run", "--seed", str(seed)] for seed in (0, 1)]
    spread = [f"--coordinator=127.0.0.1:{free_port()}", "--processes=2"]
    found = end([start(*own, *spread, f"--process-id={i}") for i, own in enumerate(args)])
    assert [code for code, _, _ in found] == [2, 2]
    assert all("run: not the same in all processes" in errors for _, _, errors in found)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_mistake_in_one_process_ends_the_others(tmp_path):
    spread = [f"--coordinator=127.0.0.1:{free_port()}", "--processes=2", "--out", tmp_path / "run"]
    good = start("run", "--method", "fedavg", *spread, "--process-id=0")
    bad = start("run", "--method", "fedavg", "--data", tmp_path / "no.npz", *spread, "--process-id=1")
    (first, _, errors), (second, _, why) = end([good, bad])
    assert (first, second) == (2, 2)
    assert "no.npz" in why
    assert "another process was lost" in errors
    assert not (tmp_path / "run").exists()


def test_one_process_agrees_with_itself():
    assert processes.gathered(3, True).tolist() == [[3, 1]]
    seen = []
    processes.by_the_first(lambda: seen.append(1))
    assert seen == [1]


def test_an_error_of_the_network_is_a_process_lost(monkeypatch):
    """JAX raises one of two kinds, as it happens in a program or between two; other errors stay what they are."""
    monkeypatch.setattr(processes, "several", lambda: True)
    text = "UNKNOWN: Gloo AllGather failed: Read error [127.0.0.1]:1: Connection reset by peer"
    for error in (jax.errors.JaxRuntimeError(text), ValueError(text)):
        expected = pytest.raises(LostError, match=r"round 3: another process was lost .*; go on by")
        with expected, processes.watched(lambda: "round 3", "go on by"):
            raise error
    said = LostError(f"round 2: another process was lost ({text})")
    for error in (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: memory"), ValueError("a mistake of ours"), said):
        with (
            pytest.raises(type(error), match=f"^{re.escape(str(error))}$"),
            processes.watched(lambda: "round 3", "go on by"),
        ):
            raise error


def test_what_the_first_cannot_do_stops_all(monkeypatch):
    """As each process sees it."""

    def fail():
        raise CgpflError("out there: exists already")

    for first, message in ((True, "out there: exists already"), (False, "process 0 could not go on")):
        monkeypatch.setattr(processes, "several", lambda: True)
        monkeypatch.setattr(processes, "is_first", lambda first=first: first)
        monkeypatch.setattr(processes, "gathered", lambda *numbers: np.array([[1], [0]]))
        with pytest.raises(CgpflError, match=message):
            processes.by_the_first(fail)
