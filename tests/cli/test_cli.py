"""The command line as a user runs it: real folders, and real processes where they are stopped or wait."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import typer
from safetensors.numpy import load_file

from cgpfl import __version__
from cgpfl.cli.app import page
from cgpfl.errors import CgpflError, NeedsError
from helpers import cgpfl, start, summary_without_times

SMALL = ["--clients", "8", "--set", "data.contexts=2", "--rounds", "6"]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    flags = ["--method", "local", "--method", "cgpfl", "--method", "cgpfl-heur", "--set", "cgpfl.contexts=2"]
    done = cgpfl("run", *SMALL, *flags, "--out", folder, "--seed", 1)
    return folder, done.stdout


def test_run_prints_a_table_and_no_colour_codes(run_folder):
    folder, out = run_folder
    assert out.splitlines()[-1] == f"report: {folder / 'report.html'}"
    assert (folder / "report.html").stat().st_size < 5e6
    assert "\x1b" not in out
    assert "worst tenth" in out
    assert "8 clients" in out
    assert all(len(line) <= 110 for line in out.splitlines())
    rows = [line.split()[0] for line in out.splitlines() if line and "%" in line and "round" not in line]
    assert rows == ["local", "cgpfl", "cgpfl-heur"]
    told = [line for line in out.splitlines() if line.startswith("cgpfl-heur: ")]
    assert "contexts of" in told[0]  # K of cgpfl was given
    assert all(len(line) <= 80 for line in told)


def test_run_folder_holds_what_it_promises(run_folder):
    folder, _ = run_folder
    summary = summary_without_times(folder)
    assert set(summary) >= {"methods", "data", "seed"}
    heur = summary["methods"]["cgpfl-heur"]
    assert set(heur) >= {"accuracy", "contexts", "rounds", "bytes_up", "bytes_down"}
    assert set(heur["accuracy"]) >= {"pooled", "mean", "worst_tenth"}
    assert set(heur["contexts"]) >= {"k", "ari", "assignment", "sizes", "sentence", "curve"}
    assert isinstance(heur["notes"], list)
    assert summary["methods"]["local"]["contexts"] is None
    metrics = pd.read_parquet(folder / "metrics.parquet")
    assert set(metrics["method"]) == {"local", "cgpfl", "cgpfl-heur"}
    assert len(metrics) == 3 * 6 * 8
    figures = {p.name for p in (folder / "figures").glob("*.png")}
    assert figures == {"accuracy.png", "contexts-cgpfl.png", "contexts-cgpfl-heur.png", "choosing-k-cgpfl-heur.png"}
    assert (folder / "split.txt").read_text().strip() == summary["data"]["split_hash"]


def test_config_is_complete_and_reruns_to_the_same_summary(run_folder, tmp_path):
    folder, _ = run_folder
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config["seed"] == 1
    assert config["method"][1]["prox"] == 1.0
    assert config["data"]["seed"] == "same"
    cgpfl("run", folder / "config.toml", "--out", tmp_path / "again")
    assert summary_without_times(folder) == summary_without_times(tmp_path / "again")
    cgpfl("run", folder / "config.toml", "--out", tmp_path / "other", "--seed", 2)
    assert summary_without_times(folder) != summary_without_times(tmp_path / "other")


def test_default_folders_are_numbered_and_talk_as_asked(tmp_path):
    out = {}
    for n, flag in ((1, "--verbose"), (2, "--quiet")):
        out[flag] = cgpfl("run", *SMALL, "--rounds", 2, "--method", "local", flag, cwd=tmp_path).stdout
        assert (tmp_path / "runs" / f"digits-rotation-{n}" / "report.html").exists()
    assert out["--quiet"] == ""
    assert [line.split()[:3] for line in out["--verbose"].splitlines()[:2]] == [["local", "round", t] for t in "12"]
    assert "choose one" in cgpfl("run", "--quiet", "--verbose", code=2, cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--method", "fedprxo"], "no method 'fedprxo'; did you mean fedprox? there are local, fedavg, fedavg-ft"),
        (["--set", "cgpfl.prx=1"], "cgpfl: no hyper-parameter 'prx'; did you mean prox? it has prox, personal_rate"),
        (["--set", "roundz=3"], "command line: no setting 'roundz'; did you mean rounds? there are seed, rounds"),
        (["--set", "data.cleint=3"], "data: no setting 'cleint'; did you mean client? there are client, label"),
        (["--set", "rounds"], "must be key=value"),
        (["--set", "ifca.rate=1"], "no method 'ifca' in this run; it has local"),
        (
            ["--model", "resnett"],
            "no model 'resnett'; did you mean resnet? there are mlr, dnn, cnn, resnet",
        ),
        (["--set", "model.hidden=3"], "model mlr: no setting 'hidden'"),
        (["--split", "spiral"], "no split 'spiral'; there are rotation"),
        (["--data", "mnits"], "no data 'mnits'; did you mean mnist? there are digits"),
        (["--set", "cgpfl.contexts=41"], "contexts = 41: must be at most the number of clients, 40"),
        (["--set", "cgpfl.contexts=0"], "contexts = 0: must be an integer >= 1"),
        (["--set", "fedavg.rate=-0.1"], "fedavg: rate = -0.1: must be a number > 0"),
        (["--set", "pfedme.prox=-1"], "pfedme: prox = -1.0: must be a number >= 0"),
        (["--set", "cgpfl.warmup=two"], "cgpfl: warmup = 'two': must be an integer >= 0"),
        (["--clients", "2000"], "clients = 2000: too many for 1797 samples"),
        (["--clients", "0"], "data: clients = 0: must be an integer >= 1"),
        (["--rounds", "0"], "rounds = 0: must be an integer >= 1"),
        (["--set", "participation=2"], "participation = 2.0"),
        (["--method", "local", "--method", "local"], "'local' is there twice"),
        (["--rounds", "abc"], "Invalid value for '--rounds'"),
        (["--wat"], "No such option"),
        (["--set", "rounds=99999999999"], "rounds = 99999999999: must be an integer >= 1 and <= 1,000,000,000"),
        (["--set", "model.l2=inf"], "model mlr: l2 = inf"),
        (["--set", "model.label=x"], "model: has no label"),
        (["--set", "seed=4294967296"], "seed = 4294967296"),
        (["--rounds", "5"], "cgpfl: warmup = 5: takes 200 answers of clients and the run has 200"),
        (["--set", "participation=half"], "participation = 'half': must be a number > 0 and <= 1"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, args, message):
    done = cgpfl("run", *args, "--out", tmp_path / "run", code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("arrays", "split", "message"),
    [
        ({"x": np.full((9, 2), np.nan), "y": np.zeros(9, int)}, "iid", "NaN or infinite values, first at sample 0"),
        ({"x": np.zeros((9, 2)), "y": np.zeros(8, int)}, "iid", "x (9, 2) and y (8,)"),
        ({"x": np.zeros((9, 2)), "y": np.zeros(9, int)}, "own", "does not say whose a sample is"),
        ({"x": np.zeros((9, 2)), "y": np.full(9, np.nan), "client": np.arange(9) % 2}, "own", "has no label"),
        ({"x": np.zeros((9, 2)), "y": np.zeros(9, int), "client": np.arange(9) % 3}, "own", "has its own 3 clients"),
        ({"x": np.zeros((9, 2)), "y": np.zeros(9, int)}, "rotation", "not images"),
    ],
)
def test_bad_arrays_are_one_line(tmp_path, arrays, split, message):
    file = npz(tmp_path / "mine.npz", **arrays)
    flags = ["--clients", 2, "--set", "data.contexts=1", "--out", tmp_path / "run"]
    done = cgpfl("run", "--data", file, "--split", split, *flags, code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_an_existing_folder_is_never_touched(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    done = cgpfl("run", *SMALL, "--method", "local", "--out", tmp_path / "run", code=2)
    assert "exists already" in done.stderr
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_an_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    done = cgpfl("run", *SMALL, "--method", "local", "--out", tmp_path / "file" / "run", code=2)
    assert "cannot be created" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = ", "not valid TOML"),
        ('rounds = "ten"', "rounds = 'ten': must be an integer >= 1"),
        ("data = 3", "must be a section [data]"),
        ("[[method]]\nname = 'cgpfl'\nprox = 'much'", "cgpfl: prox = 'much'"),
        ("[[method]]\nlabel = 'x'", "method 1: needs a name"),
        ("method = []", "method: none given"),
        ("method = 3", "method: must be sections [[method]]"),
        ("method = [3]", "method 1: must be a section with a name"),
        ("[data]\nclients = true", "data: clients = True: must be an integer >= 1"),
        ("[model]\nname = 3", "model: name and label must be text"),
        ("\x00", "not valid TOML"),
        ("[[method]]\nname = 'local'\nlabel = '../up'", "label '../up'"),
    ],
)
def test_corrupt_configs(tmp_path, text, message):
    (tmp_path / "config.toml").write_text(text)
    done = cgpfl("run", tmp_path / "config.toml", "--out", tmp_path / "run", code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_missing_files(tmp_path):
    assert "no such file" in cgpfl("run", tmp_path / "none.toml", code=2).stderr
    assert "no such folder" in cgpfl("resume", tmp_path / "none", code=2).stderr
    assert "has no config.toml" in cgpfl("resume", tmp_path, code=2).stderr


def test_divergence_stops_that_method_alone(tmp_path):
    flags = ["--method", "local", "--method", "cgpfl", "--method", "fedavg", "--set", "cgpfl.contexts=2"]
    done = cgpfl("run", *SMALL, "--rounds", 16, *flags, "--set", "cgpfl.prox=100", "--out", tmp_path / "run")
    assert "cgpfl: diverged in round" in done.stderr
    assert "prox x personal_rate = 10, and the inner steps need it below 2" in done.stderr
    methods = summary_without_times(tmp_path / "run")["methods"]
    assert methods["cgpfl"]["diverged"] == methods["cgpfl"]["rounds"] < 16
    assert methods["local"]["rounds"] == methods["fedavg"]["rounds"] == 16
    assert methods["fedavg"]["diverged"] is None


LONG = ["--clients", "8", "--rounds", "60000", "--method", "local", "--method", "cgpfl"]
LONG += ["--set", "data.contexts=2", "--set", "cgpfl.contexts=2", "--set", "checkpoint_seconds=0"]


def wait_for(condition, process, seconds=180):
    """Until ``condition()``; fails if the process ends first or the time is up."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def at_round(folder, method):
    from cgpfl.experiment.checkpoint import MethodFolder

    checkpoint = MethodFolder(folder / "methods" / method)
    return checkpoint.facts()["round"] if checkpoint.exists() else 0


def same_run(a, b):
    assert summary_without_times(a) == summary_without_times(b)
    pd.testing.assert_frame_equal(pd.read_parquet(a / "metrics.parquet"), pd.read_parquet(b / "metrics.parquet"))
    for method in ("local", "cgpfl"):
        one, two = (load_file(f / "methods" / method / "state.safetensors") for f in (a, b))
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name], err_msg=name)


QUICK = "optimization_level=0" in os.environ.get("XLA_FLAGS", "")  # programs compiled quickly, whose rounds take longer
LAST = 600 if QUICK else 3000  # some seconds, in which a process can be stopped
ROUNDS = ["--rounds", str(LAST), "--set", "eval_every=100"]


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    cgpfl("run", *LONG, *ROUNDS, "--out", folder)
    return folder


slow = pytest.mark.slow


@slow  # in this process: experiment/test_run, experiment/test_given
@pytest.mark.parametrize("kill_at", [("local", 1), ("cgpfl", 3), ("cgpfl", LAST // 3)])
def test_killed_and_resumed_is_the_run_never_stopped(tmp_path, never_stopped, kill_at):
    folder = tmp_path / "run"
    process = start("run", *LONG, *ROUNDS, "--out", folder)
    method, round_ = kill_at
    wait_for(lambda: at_round(folder, method) >= round_, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "summary.json").exists()
    cgpfl("resume", folder)
    same_run(folder, never_stopped)


@slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_a_resumable_run_and_says_how(tmp_path, never_stopped, number):
    folder = tmp_path / "run"
    process = start("run", *LONG, *ROUNDS, "--out", folder)
    wait_for(lambda: at_round(folder, "cgpfl") >= 1, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"cgpfl resume {folder}" in err
    assert "Traceback" not in err
    cgpfl("resume", folder)
    same_run(folder, never_stopped)


def test_resume_of_a_finished_run_changes_nothing(run_folder):
    folder, _ = run_folder
    before = summary_without_times(folder)
    cgpfl("resume", folder)
    assert summary_without_times(folder) == before


def test_resume_notices_what_was_changed(tmp_path):
    folder = tmp_path / "run"
    cgpfl("run", *SMALL, "--method", "local", "--out", folder)
    before = (folder / "summary.json").read_text()
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace("rounds = 6", "rounds = 3"))
    assert "was run with rounds = 6, now 3" in cgpfl("resume", folder, code=2).stderr
    (folder / "config.toml").write_text(config.replace("rate = 0.1", "rate = 0.2"))
    assert "was run with method.rate = 0.1, now 0.2" in cgpfl("resume", folder, code=2).stderr
    assert (folder / "summary.json").read_text() == before


def test_a_disk_error_is_one_line(tmp_path):
    folder = tmp_path / "run"
    cgpfl("run", *SMALL, "--method", "local", "--out", folder)
    (folder / "methods" / "local" / "state.safetensors").unlink()
    next((folder / "methods" / "local").iterdir()).unlink()
    (folder / "methods" / "local").rmdir()
    (folder / "methods" / "local").write_text("in the way")
    done = cgpfl("resume", folder, code=2)
    assert len(done.stderr.strip().splitlines()) == 1


@slow
def test_an_npz_run_resumes_from_anywhere(tmp_path):
    rng = np.random.default_rng(0)
    npz(tmp_path / "mine.npz", x=rng.normal(size=(60, 4)), y=rng.integers(0, 2, 60), client=np.arange(60) % 3)
    cgpfl("run", "--data", "mine.npz", "--split", "own", "--method", "local", "--rounds", 2, "--out", "r", cwd=tmp_path)
    config = tomllib.loads((tmp_path / "r" / "config.toml").read_text())
    assert config["data"]["clients"] == 3
    cgpfl("resume", tmp_path / "r", cwd="/")


def test_lists(tmp_path):
    out = cgpfl("methods").stdout
    assert all(name in out for name in ("local", "fedavg", "pfedme", "cgpfl", "cgpfl-heur", "IJCAI 2022"))
    out = cgpfl("methods", "cgpfl").stdout
    assert "prox" in out
    assert "λ" in out
    assert "no method" in cgpfl("methods", "none", code=2).stderr
    out = cgpfl("data", "list").stdout
    assert "digits" in out
    assert "dirichlet" in out


def test_report_and_watch_of_a_run(run_folder, tmp_path):
    folder, _ = run_folder
    out = cgpfl("report", folder, folder, "--out", tmp_path / "both.html").stdout
    assert out == f"{tmp_path / 'both.html'}\n"
    assert "no such folder" in cgpfl("report", tmp_path / "none", code=2).stderr
    assert (tmp_path / "both.html").read_text().count("<h1>") == 1  # the same run twice is one run
    assert "from 0 to 65535" in cgpfl("watch", folder, "--port", 99999, code=2).stderr
    process = start("watch", folder, "--port", 0)
    url = process.stdout.readline().split()[0]
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(url + "data", timeout=30) as answer:
        assert b'"kind": "run"' in answer.read()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")


def test_watch_waits_for_a_run_that_has_not_begun(run_folder, tmp_path):
    folder, _ = run_folder
    process = start("watch", tmp_path / "later", "--port", 0)
    assert process.stderr.readline() == f"run {tmp_path / 'later'}: not there yet; waiting for it (Ctrl-C ends)\n"
    shutil.copytree(folder, tmp_path / "half")
    (tmp_path / "half").rename(tmp_path / "later")
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 0


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "code"),
    [(RuntimeError("no\nluck"), 2), (FULL, 2), (CgpflError("in the way"), 2), (NeedsError("plotly"), 0)],
)
def test_a_finished_run_never_ends_in_a_traceback_of_its_report(error, code, monkeypatch, tmp_path, capsys):
    """A report that could not be written is no success; one that needs what is not installed is only missed."""

    def broken(runs, out):
        raise error

    monkeypatch.setattr("cgpfl.report.page.write_report", broken)
    with pytest.raises(typer.Exit) if code else nullcontext() as ended:
        page(tmp_path, quiet=False)
    assert code == 0 or ended.value.exit_code == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(error).split()[-1] in said.err
    assert code == 0 or f"{tmp_path} is complete" in said.err


def test_a_full_disk_is_said_of_the_report(run_folder, tmp_path, monkeypatch, capsys):
    folder = shutil.copytree(run_folder[0], tmp_path / "run")

    def full(path, *content):
        raise FULL

    monkeypatch.setattr("cgpfl.report.page.write", full)
    with pytest.raises(typer.Exit) as ended:
        page(folder, quiet=False)
    assert ended.value.exit_code == 2
    assert "cannot be written: No space left on device" in capsys.readouterr().err


def test_the_shell_completes_commands_and_words():
    def complete(line):
        words = line.split(" ")
        env = {**os.environ, "_CGPFL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        code = "import sys; sys.argv = ['cgpfl']; from cgpfl.cli import main; main()"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env).stdout.split()

    assert complete("cgpfl re") == ["resume", "report"]
    assert complete("cgpfl run --split r") == ["rotation", "random"]
    assert complete("cgpfl run --track w") == ["wandb"]


def test_help_is_as_wide_as_the_terminal():
    """No sentence breaks off where a line of the source ends."""
    said = cgpfl("battery", "--help", COLUMNS="80").stdout
    assert "with a small mean and a small worst regret can be switched" in " ".join(said.split())
    lines = [line.rstrip() for line in said.split("\n")]
    at = next(i for i, line in enumerate(lines) if "A method with" in line)
    assert len(lines[at + 1]) > 60


def test_help_is_there_without_heavy_imports():
    code = "import sys, cgpfl.cli\nsys.argv = ['cgpfl', '--help']\n"
    code += "try:\n    cgpfl.cli.main()\nexcept SystemExit:\n    pass\n"
    code += "assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert "resume" in done.stdout
    assert "Exit codes: 0 done; 1 every method diverged; 2 bad input" in done.stdout


def test_the_version_by_script_and_by_module():
    said = subprocess.run([sys.executable, "-m", "cgpfl", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == cgpfl("--version").stdout == cgpfl("version").stdout == f"cgpfl {__version__}\n"
