"""cgpfl compare as a user runs it: real folders, and a real process where it is stopped."""

import json
import signal
import time

import numpy as np
import pandas as pd
import pytest

from helpers import cgpfl, start, summary_without_times

TINY = ["--methods", "ditto", "--clients", "8", "--set", "data.contexts=2", "--rounds", "4", "--seeds", "2"]


def test_compare_prints_a_ranked_table_within_80_columns(tmp_path):
    one = ["--methods", "fedavg", *TINY[2:]]
    out = cgpfl("compare", *one, "--out", tmp_path / "c").stdout
    assert "\x1b" not in out
    lines = out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("method"))
    assert {line.split()[0] for line in lines[head + 1 : head + 3]} == {"local", "fedavg"}
    accuracy = [float(line.split()[1]) for line in lines[head + 1 : head + 3]]
    assert accuracy == sorted(accuracy, reverse=True)
    assert all(len(line.rstrip()) <= 80 for line in lines if str(tmp_path) not in line)
    assert "best" in lines[head + 1]
    # The same again from its own configuration; an existing folder is not touched.
    again = tmp_path / "again"
    cgpfl("compare", tmp_path / "c" / "config.toml", "--out", again)
    assert summary_without_times(tmp_path / "c")["methods"] == summary_without_times(again)["methods"]
    assert "already" in cgpfl("compare", *one, "--out", again, code=2).stderr


@pytest.mark.slow
def test_compare_can_tune_and_says_what_it_chose(tmp_path):
    out = cgpfl("compare", *TINY, "--tune", "--budget", 3, "--out", tmp_path / "c").stdout
    assert "chosen on validation samples:" in out
    line = next(line for line in out.splitlines() if line.strip().startswith("ditto: rate = "))
    assert "of 3 settings" in line
    summary = json.loads((tmp_path / "c" / "summary.json").read_text())
    assert len(summary["methods"]["ditto"]["tried"]) == 3


@pytest.mark.slow
def test_a_comparison_that_was_stopped_goes_on(tmp_path):
    folder = tmp_path / "c"
    flags = ["--methods", "local,fedavg,pfedme", "--clients", "8", "--set", "data.contexts=2", "--seeds", "2"]
    process = start("compare", *flags, "--rounds", 500, "--out", folder)
    first = folder / "methods" / "local.safetensors"
    deadline = time.monotonic() + 200
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert f"cgpfl resume {folder}" in err
    kept = first.read_bytes()
    assert not (folder / "table.csv").exists()
    out = cgpfl("resume", folder).stdout
    assert "local  " not in out[: out.index("method ")]  # not run again
    assert first.read_bytes() == kept
    assert set(pd.read_csv(folder / "table.csv")["method"]) == {"local", "fedavg", "pfedme"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--methods", "ditto,nobody"], "no method 'nobody'; there are local, fedavg"),
        (["--methods", ""], "no method ''"),
        (["--seeds", "0"], "compare: seeds = 0: must be an integer >= 1"),
        (["--target", "80"], "compare: target = 80.0: must be a number >= 0 and <= 1"),
        (["--budget", "4"], "--budget: only goes with --tune"),
        (["--methods", "ditto", "--set", "ditto.prox=-1"], "ditto: prox = -1.0: must be a number >= 0"),
        (["--methods", "ditto", "--set", "ditto.mu=1"], "ditto: no hyper-parameter 'mu'; it has rate"),
        (["--methods", "l2sgd", "--set", "l2sgd.prox=5"], "l2sgd: rate x prox / coin = 4.5: must be at most 0.5"),
        (["--methods", "fedadam", "--set", "fedadam.optimizer=lion"], "fedadam: optimizer = 'lion': must be \"adam\""),
        (
            ["--methods", "ifca", "--set", "ifca.contexts=99"],
            "ifca: contexts = 99: must be at most the number of clients",
        ),
        (["--methods", "fl-hc", "--rounds", "5"], "fl-hc: warmup = 10: the run has 5 rounds"),
        (["--methods", "fl-hc", "--set", "fl-hc.linkage=ward"], 'fl-hc: linkage = "ward": needs metric = "euclidean"'),
        (["--methods", "hypcluster", "--rounds", "4"], "hypcluster: contexts = 4: takes as many rounds"),
        (
            ["--methods", "fedper", "--set", "fedper.named=foo"],
            "fedper: named: no layer 'foo'; the model has one",
        ),
        (["--tune", "--budget", "0"], "--budget 0: must be at least 2"),
        (["--devices", "99"], "devices = 99: JAX finds"),
        (["--set", "data.public=1.5"], "data: public = 1.5: must be a number >= 0"),
    ],
)
def test_compare_refuses_in_one_line(tmp_path, flags, message):
    done = cgpfl("compare", *flags, cwd=tmp_path, code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_run_says_what_needs_public_data(tmp_path):
    done = cgpfl("run", "--method", "fedmd", "--out", tmp_path / "r", code=2)
    assert "fedmd: needs samples that everybody has; set data.public" in done.stderr
    assert not (tmp_path / "r").exists()


def mine(folder, seed=0):
    """Six clients of one's own, as a file."""
    rng = np.random.default_rng(seed)
    client = np.repeat(np.arange(6), 20)
    y = rng.integers(0, 3, size=120)
    x = rng.standard_normal((120, 4)).astype(np.float32) + y[:, None]
    np.savez(folder / "mine.npz", x=x, y=y, client=client)


@pytest.mark.slow
def test_ones_own_clients_have_no_public_samples(tmp_path):
    mine(tmp_path)
    flags = ["--data", "mine.npz", "--split", "own", "--rounds", 2, "--seeds", 2, "--methods", "ditto,fedmd"]
    out = cgpfl("compare", *flags, "--out", "c", cwd=tmp_path).stdout
    assert "fedmd left out: no public samples" in out
    assert set(pd.read_csv(tmp_path / "c" / "table.csv")["method"]) == {"local", "fedavg", "ditto"}
    # Another problem in the same folder is noticed: other data, then other settings.
    mine(tmp_path, seed=1)
    assert "was run with data = " in cgpfl("resume", "c", cwd=tmp_path, code=2).stderr
    mine(tmp_path)
    config = tmp_path / "c" / "config.toml"
    config.write_text(config.read_text().replace("rounds = 2\n", "rounds = 3\n"))
    assert "was run with rounds = 2, now 3" in cgpfl("resume", "c", cwd=tmp_path, code=2).stderr


def test_all_diverged_is_said_and_exits_with_1(tmp_path):
    flags = ["--methods", "local,fedavg", "--clients", "8", "--rounds", 3, "--seeds", 2]
    rates = ["--set", "local.rate=1e38", "--set", "fedavg.rate=1e38"]
    done = cgpfl("compare", *flags, *rates, "--out", tmp_path / "c", code=1)
    assert "local: diverged (seed 0 in round 1, seed 1 in round 1); likely cause: the rates" in done.stderr
    summary = json.loads((tmp_path / "c" / "summary.json").read_text())
    assert summary["methods"]["local"]["accuracy"] is None
    assert (tmp_path / "c" / "figures" / "ranking.png").exists()
