"""The server's run: checkpoints, resume, the run folder it leaves. Nodes are in this process."""

import json
import shutil
import stat

import numpy as np
import pandas as pd
import pytest
from in_process import Here
from test_faults import happened, make_app

from cgpfl.deploy.agreement import read_agreement
from cgpfl.deploy.apps import errand
from cgpfl.deploy.check import compare, together
from cgpfl.deploy.lock import alone, has_server
from cgpfl.deploy.node import load_node
from cgpfl.deploy.server import run_server
from cgpfl.engine.flower.apps import client_app
from cgpfl.engine.flower.worker import answer
from cgpfl.errors import CgpflError, LostError
from cgpfl.report.page import write_report
from helpers import cgpfl

METHODS = [{"name": "fedavg"}, {"name": "cgpfl", "contexts": 2, "warmup": 1, "batch_size": 0}]


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return make_app(tmp_path_factory.mktemp("deploy") / "app", METHODS, rounds=3, deadline=0.3, join=0.1, repeats=0)


def federation(app, states, behave=None):
    """The app's nodes, with its own ClientApp, data and configuration."""
    agreed = read_agreement(app / "experiment.toml")
    methods = {m["label"]: agreed.method(m["label"]) for m in agreed.values["method"]}
    grid = Here(together(agreed), agreed.model(), methods, states, behave=behave)
    for node in grid.online:
        i = node - 1
        grid.apps[node] = client_app(lambda c, order, arrays: answer(load_node, errand(app, c, order), arrays))
        grid.contexts[node].node_config |= {"data": str(app / "trial-data" / str(i)), "state": str(states / str(i))}
    return grid


def test_noise_of_nodes_is_no_simulations(tmp_path):
    made = make_app(tmp_path / "app", [{"name": "fedavg"}], rounds=1)
    file = made / "experiment.toml"
    file.write_text('outgoing = ["clip", "noise"]\n' + file.read_text())
    with pytest.raises(CgpflError, match="outgoing = noise: nodes' noise is their own"):
        compare(made, tmp_path / "run")


def test_a_run_folder_like_a_simulations(app, tmp_path):
    out = tmp_path / "run"
    run_server(app, federation(app, tmp_path), out)
    assert "fedavg, cgpfl: every client's accuracy in every round equal" in compare(app, out)
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary["methods"]) == ["fedavg", "cgpfl"]
    assert summary["data"]["clients"] == 4
    assert summary["methods"]["cgpfl"]["contexts"]["k"] == 2
    assert happened(out, "finished")
    assert (out / "figures").is_dir()
    said = ("waiting", "say", "progress", "finished")  # by the server, to who follows it
    stream = [e for e in map(json.loads, (out / "events.jsonl").read_text().splitlines()) if e["kind"] not in said]
    seen = [(e["kind"], e["method"], e["round"]) for e in stream]
    assert seen[:5] == [("opened", "", 0), ("started", "fedavg", 0), *(("evaluated", "fedavg", t) for t in (1, 2, 3))]
    assert seen[-2:] == [("ended", "cgpfl", 3), ("closed", "", 0)]
    last = stream[-3]["values"]
    assert last["accuracy"] == pytest.approx(summary["methods"]["cgpfl"]["accuracy"]["pooled"])
    page = write_report([out], out / "report.html").read_text()
    assert '"fedavg"' in page
    assert "cgpfl deploy run APP" in page
    assert "the same numbers again" not in page
    new = cgpfl("personalize", out, "--method", "cgpfl", "--data", app / "trial-data" / "0", "--out", tmp_path / "new")
    assert "← chosen" in new.stdout
    assert (
        "whose clients keep their models"
        in cgpfl("export", out, "--client", 0, "--format", "safetensors", code=2).stderr
    )
    refused = cgpfl("resume", out, code=2)
    assert "is of a deployment; it goes on by: cgpfl deploy run" in refused.stderr


def test_it_goes_on_where_it_stopped(app, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run_server(app, federation(app, tmp_path / "a"), whole)
    lost = dict.fromkeys(range(4), lambda order, answer: None if order["train"] == 1 else answer)
    with pytest.raises(LostError, match="round 2: 0 answers"):
        run_server(app, federation(app, tmp_path / "b", lost), parts)
    assert "the run stops, with round 1 saved" in happened(parts, "stopped")[0]["message"]
    assert not (parts / "summary.json").exists()
    run_server(app, federation(app, tmp_path / "b"), parts)
    pd.testing.assert_frame_equal(
        pd.read_parquet(whole / "metrics.parquet"), pd.read_parquet(parts / "metrics.parquet")
    )
    for label in ("fedavg", "cgpfl"):
        a, b = ((f / "methods" / label / "state.safetensors").read_bytes() for f in (whole, parts))
        assert a[-2000:] == b[-2000:]  # the arrays; facts before them have times


def test_a_folder_of_another_experiment_is_refused(app, tmp_path):
    out = tmp_path / "run"
    lost = dict.fromkeys(range(4), lambda order, answer: None if order["train"] == 1 else answer)
    with pytest.raises(LostError):
        run_server(app, federation(app, tmp_path, lost), out)
    other = shutil.copytree(app, tmp_path / "other")
    text = (other / "experiment.toml").read_text()
    (other / "experiment.toml").write_text(text.replace("seed = 0", "seed = 1", 1))
    with pytest.raises(CgpflError, match="was run with seed = 0, now 1; start a new run"):
        run_server(other, federation(other, tmp_path), out)


def test_one_server_a_run(app, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    with alone(out):
        assert has_server(out)
        with pytest.raises(CgpflError, match="is being served already; follow it by: cgpfl deploy run"):
            run_server(app, federation(app, tmp_path), out)
    assert not has_server(out)
    assert not (out / "events.jsonl").exists()


@pytest.mark.slow
def test_a_client_with_a_new_key_goes_on(app, tmp_path):
    out = tmp_path / "run"
    lost = dict.fromkeys(range(4), lambda order, answer: None if order["train"] == 1 else answer)
    with pytest.raises(LostError):
        run_server(app, federation(app, tmp_path, lost), out)
    other = federation(app, tmp_path)
    other.apps[9], other.contexts[9] = other.apps[2], other.contexts[2]  # client 1 has a new key, so a new node id
    other.online = [1, 9, 3, 4]
    run_server(app, other, out)
    assert not any("had lost its state" in e["line"] for e in happened(out, "say"))
    assert (
        json.loads((out / "summary.json").read_text())["data"]["train_samples"]
        == together(read_agreement(app / "experiment.toml")).train.counts.sum()
    )


def test_a_run_folder_names_no_nodes_and_no_runs(app, tmp_path):
    """Tokens and ids of nodes were in a checkpoint that anybody may read."""
    out = tmp_path / "run"
    grid = federation(app, tmp_path)
    run_server(app, grid, out)
    tokens = {m.content.config_records["order"]["token"] for m in grid.sent if "order" in m.content}
    assert len(tokens) == 2
    assert stat.S_IMODE((out / "server.json").stat().st_mode) == 0o600
    for file in (f for f in out.rglob("*") if f.is_file() and f.name != "server.json"):
        assert not any(token.encode() in file.read_bytes() for token in tokens), file
        assert b"claims" not in file.read_bytes() or file.suffix == ".html", file


def test_a_node_that_was_never_there_is_missing_and_that_is_said(app, tmp_path):
    grid = federation(app, tmp_path)
    grid.online.remove(3)
    run_server(app, grid, tmp_path / "run")
    metrics = pd.read_parquet(tmp_path / "run" / "metrics.parquet")
    assert sorted(set(metrics["client"])) == [0, 1, 3]
    assert any("never heard of: client 2" in e["line"] for e in happened(tmp_path / "run", "say"))
    assert np.isfinite(
        json.loads((tmp_path / "run" / "summary.json").read_text())["methods"]["cgpfl"]["accuracy"]["mean"]
    )


def test_a_node_with_unusable_data_keeps_why_to_itself(app, tmp_path, capsys):
    broken = shutil.copytree(app, tmp_path / "app")
    grid = federation(broken, tmp_path)
    (broken / "trial-data" / "1" / "train.npz").write_bytes(b"secret path inside")
    run_server(broken, grid, tmp_path / "run")
    told = " ".join(e["line"] for e in happened(tmp_path / "run", "say"))
    assert "client 1: refused, its node cannot take part; its log says why" in told
    assert "trial-data" not in told
    assert "train.npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("dropout = 0.0", "dropout = 0.5"), "dropout = 0.5: is for simulations"),
        (('name = "fedavg"', 'name = "fedmd"'), "needs samples that everybody has"),
        (("clients = 4\nshape", "clients = 4\nminimum = 9\nshape"), "minimum = 9: there are only 4 clients"),
        (("classes = 10", "classes = 1"), "classes = 1: must be an integer >= 2"),
        (("deadline =", "dead = 1\ndeadline ="), "no setting 'dead'"),
    ],
)
def test_what_cannot_be_deployed_is_said_before_it_begins(app, tmp_path, change, message):
    other = shutil.copytree(app, tmp_path / "other")
    text = (other / "experiment.toml").read_text()
    if "minimum" in change[1]:
        text = text.replace("minimum = 1\n", "")
    assert change[0] in text
    text = text.replace(change[0], change[1], 1)
    if "fedmd" in change[1]:  # its own settings are not FedAvg's
        head, _, rest = text.partition('name = "fedmd"')
        text = head + 'name = "fedmd"\nlabel = "fedmd"\n\n[[method]]' + rest.partition("[[method]]")[2]
    (other / "experiment.toml").write_text(text)
    done = cgpfl("deploy", "up", other, "--out", tmp_path / "run", code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_trial_that_is_refused_leaves_no_folder(tmp_path, monkeypatch):
    """The corrected command is not told to go on with it; the folder of one that begins is its user's alone."""
    from cgpfl.deploy import layout

    out, line = tmp_path / "runs" / "trial", ["deploy", "up", "--nodes", "2", "--rounds", "1"]
    for flags, message in ((["--dropout", "0.3"], "is for simulations"), (["--set", "deploy.minimum=9"], "only 2 cl")):
        assert message in cgpfl(*line, *flags, "--out", out, code=2).stderr
        assert not out.parent.exists()

    def stop(folder, *_):
        raise CgpflError(f"{folder.name} is there")

    monkeypatch.setattr(layout, "prepare_trial_data", stop)
    assert "app is there" in cgpfl(*line, "--out", out, code=2).stderr
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
