"""cgpfl paper as a user runs it, on a machine without the data or the device."""

import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest

from cgpfl import cli
from cgpfl.paper import PARTS
from cgpfl.paper.settings import FULL
from helpers import ENVIRONMENT, cgpfl, cgpfl_process


def one_line(done, message):
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("cgpfl: ")
    assert message in line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["nonsense"], f"paper: no part 'nonsense'; there are {', '.join(PARTS)}, all"),
        (["table1", "--device", "tpu"], "--device tpu: must be auto, cpu or gpu"),
    ],
)
def test_paper_refuses_in_one_line(tmp_path, flags, message):
    one_line(cgpfl("paper", *flags, cwd=tmp_path, code=2), message)
    assert not list(tmp_path.iterdir())


def in_this_process(monkeypatch, *arguments):
    """A quick way to the same end, for what is refused before anything is looked for."""
    monkeypatch.setattr(sys, "argv", ["cgpfl", "paper", *arguments])
    with pytest.raises(SystemExit) as done:
        cli.main()
    return done.value.code


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["table1", "tabel2"], "paper: no part 'tabel2'; there are split, "),
        (["table1", "--seeds", "0"], "seeds = 0: must be at least 1"),
        (["table1", "--seeds", "many"], "'--seeds'"),
        (["table1", "--only", "mnist-mlr,cifar"], "paper: no setting 'cifar'; there are mnist-mlr, mnist-dnn, "),
        (["table1", "--only", ""], "paper: no setting ''; there are mnist-mlr, "),
        (["table1", "--only", "mnist-mlr", "--as-is"], "paper: only draws nothing, and as_is computes nothing"),
        (["split", "--as-is"], "is no folder of cgpfl paper; there is nothing to draw"),
        (["table1", "--slow"], "--slow"),
        ([], "PART"),
    ],
)
def test_more_that_is_refused(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    assert in_this_process(monkeypatch, *flags) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith("cgpfl: ")
    assert message in line
    assert told.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is one")
def test_a_gpu_that_is_not_there(tmp_path):
    done = cgpfl_process("paper", "split", "--device", "gpu", cwd=tmp_path, code=2)  # before JAX has looked for devices
    one_line(done, "--device gpu: JAX finds none; install")
    assert not list(tmp_path.iterdir())


def test_the_help_names_every_part(monkeypatch, capsys):
    assert in_this_process(monkeypatch, "--help") == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"{', '.join(PARTS)}, all" in out


def test_the_help_names_every_setting(monkeypatch, capsys):
    assert in_this_process(monkeypatch, "--help") == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"Settings: {', '.join(FULL)}" in out


def test_some_settings_are_asked_for(monkeypatch, capsys, tmp_path):
    """With what the command calls instead of runs."""
    asked = []

    def make(names, folder, **wishes):
        asked.append((names, wishes["only"], wishes["quick"]))
        return SimpleNamespace(seconds=12.3)

    monkeypatch.setattr("cgpfl.paper.make", make)
    some = ("table1", "sweep", "--only", "mnist-mlr, fmnist-mlr", "--out", str(tmp_path))
    assert in_this_process(monkeypatch, *some) == 0
    assert asked == [(["table1", "sweep"], ["mnist-mlr", "fmnist-mlr"], False)]
    out = capsys.readouterr().out
    assert out == "12 s; the runs of mnist-mlr, fmnist-mlr are finished. Without --only all is drawn.\n"
    assert in_this_process(monkeypatch, *some, "--quiet") == 0
    assert capsys.readouterr().out == ""


def test_what_is_there_is_asked_for_and_what_is_left_out_is_told(monkeypatch, capsys, tmp_path):
    asked = []

    def make(names, folder, **wishes):
        asked.append(wishes["as_is"])
        return SimpleNamespace(seconds=1.2, sections=[], folder=folder, skipped={"theory": "K = 1: has not been run"})

    monkeypatch.setattr("cgpfl.paper.make", make)
    assert in_this_process(monkeypatch, "all", "--as-is", "--out", str(tmp_path)) == 0
    assert asked == [True]
    told = capsys.readouterr().out.splitlines()
    assert "theory is left out: K = 1: has not been run" in told


@pytest.mark.slow
def test_without_data_and_without_a_network_it_says_what_to_put_where(tmp_path):
    """Proxies that do not answer, no registries: whatever is tried fails at once."""
    empty = tmp_path / "empty"
    empty.mkdir()
    closed = "http://127.0.0.1:9"
    proxies = {f"{kind}_proxy": closed for kind in ("http", "https", "all")}
    nowhere = {"PIP_NO_INDEX": "1", "PATH": str(empty), "no_proxy": "", "CGPFL_CACHE": str(tmp_path / "cache")}
    kept = {k: v for k, v in ENVIRONMENT.items() if k.lower() not in (*proxies, "no_proxy")}
    command = [sys.executable, "-m", "cgpfl.cli", "paper", "table1", "--quick", "--out", "out"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=empty, timeout=120, env={**kept, **proxies, **nowhere}
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    *news, last = done.stderr.splitlines()
    assert all(line.startswith("mnist: ") for line in news)  # what is tried, as it is tried
    place = tmp_path / "cache" / "data" / "mnist"
    files = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    assert last.startswith(
        f"cgpfl: data mnist: not here and not to be had; put {', '.join(files)} into {place} by hand."
    )
    assert not list(empty.iterdir())
    assert not any(p.is_file() for p in (tmp_path / "cache").rglob("*"))
