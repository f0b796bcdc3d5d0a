"""What a report says is what the run folder says."""

import base64
import gzip
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from browser import METHODS
from cgpfl.errors import CgpflError
from cgpfl.files import save_arrays
from cgpfl.report.figures import draw
from cgpfl.report.files import read_history
from cgpfl.report.page import html, plotly, write_report
from cgpfl.report.read import read_run
from cgpfl.report.shrink import compact
from run_folders import make, write_records


def test_a_finished_run(run_folder):
    run = read_run(run_folder)
    summary = json.loads((run_folder / "summary.json").read_text())
    history = pd.read_csv(run_folder / "history.csv")
    metrics = pd.read_parquet(run_folder / "metrics.parquet")
    assert run["state"] == "finished"
    assert [m["label"] for m in run["methods"]] == METHODS
    for m in run["methods"]:
        rows = history[history["method"] == m["label"]]
        assert m["history"]["round"] == list(range(1, 9))
        np.testing.assert_allclose(m["history"]["accuracy"], rows["accuracy"], rtol=1e-4)
        last = metrics[(metrics["method"] == m["label"]) & (metrics["round"] == 8)]
        assert m["clients"]["correct"] == last["correct"].tolist()
        assert m["clients"]["n"] == last["n"].tolist()
        assert m["summary"]["accuracy"]["pooled"] == pytest.approx(
            summary["methods"][m["label"]]["accuracy"]["pooled"], rel=1e-4
        )


def test_contexts_of_a_finished_run(run_folder):
    summary = json.loads((run_folder / "summary.json").read_text())["methods"]
    run = read_run(run_folder)
    heur = run["methods"][3]["contexts"]
    found = summary["cgpfl-heur"]["contexts"]
    assert [row[-2] for row in heur["map"]] == found["assignment"]
    assert all(sum(row[1::2]) == 8 for row in heur["map"])
    assert heur["ari"][-1] == pytest.approx(found["ari"], rel=1e-4)
    assert heur["curve"]["error"] == pytest.approx(found["curve"]["error"], rel=1e-4)
    assert sum(g["members"] for g in heur["groups"]) == 8
    assert sum(sum(g["labels"]) for g in heur["groups"]) == run["data"]["train_samples"]
    assert run["methods"][0]["contexts"] is None


def test_a_run_that_was_killed_is_read_from_its_events_and_records(run_folder, tmp_path):
    whole = read_run(run_folder)
    folder = tmp_path / "small"
    shutil.copytree(run_folder, folder)
    for name in ("summary.json", "history.csv", "metrics.parquet"):
        (folder / name).unlink()
    lines = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(lines[:-1]) + '{"time": 1, "ki')  # cut off in the last line
    run = read_run(folder)
    assert run["state"] == "running"
    for one, two in zip(run["methods"], whole["methods"], strict=True):
        assert one["history"]["accuracy"] == two["history"]["accuracy"]
        assert one["clients"] == two["clients"]
        assert one["contexts"] == two["contexts"]
        assert one["summary"]["accuracy"] == two["summary"]["accuracy"]


def test_clients_that_could_not_be_evaluated_are_left_out(tmp_path):
    """Client 1 misses the last evaluation, all miss the third; metrics.parquet holds fewer rounds than there were."""
    folder = make(tmp_path / "run", clients=4, rounds=(1, 2, 3), methods=("local", "cgpfl"))
    shutil.rmtree(folder / "methods" / "cgpfl")
    nan = np.nan
    correct = np.array([[1, 2, 3, 4], [5, nan, 7, 8], [nan, nan, nan, nan]], np.float32)
    context = np.array([[0, 0, 0, 0], [0, 1, 0, 1], [0, 1, 0, 1]], np.int32)
    write_records(folder / "methods" / "cgpfl", [1, 2, 3], {"correct": correct, "context": context})
    history = pd.read_csv(folder / "history.csv")
    history[(history["method"] != "cgpfl") | (history["round"] < 3)].to_csv(folder / "history.csv", index=False)
    (folder / "metrics.parquet").write_bytes(b"not needed")
    cgpfl = read_run(folder)["methods"][1]
    assert cgpfl["clients"] == {"client": [0, 2, 3], "correct": [5, 7, 8], "n": [10, 10, 10]}
    assert cgpfl["history"]["ari"] == [0, 1]
    groups = cgpfl["contexts"]["groups"]
    assert [(g["members"], g["accuracy"]) for g in groups] == [(2, 0.6), (2, 0.8)]  # client 1 is a member, too
    correct[1, 3] = nan
    write_records(folder / "methods" / "cgpfl", [1, 2, 3], {"correct": correct, "context": context})
    assert read_run(folder)["methods"][1]["contexts"]["groups"][1]["accuracy"] is None


def test_an_old_folder_is_read_from_its_metrics(tmp_path):
    whole = read_run(make(tmp_path / "whole" / "run", rounds=(1, 2, 3)))
    folder = make(tmp_path / "run", rounds=(1, 2, 3))
    (folder / "federation.safetensors").unlink()
    shutil.rmtree(folder / "methods")
    assert [m["clients"] for m in read_run(folder)["methods"]] == [m["clients"] for m in whole["methods"]]
    metrics = pd.read_parquet(folder / "metrics.parquet")
    missed = (metrics["client"] == 2) & (metrics["round"] == 3) & (metrics["method"] == "cgpfl")
    metrics[~missed].to_parquet(folder / "metrics.parquet")
    local, _, cgpfl = read_run(folder)["methods"]
    assert local["clients"]["client"] == [0, 1, 2, 3]
    assert (cgpfl["clients"]["client"], cgpfl["clients"]["correct"]) == ([0, 1, 3], [2, 3, 5])


@pytest.mark.pictures
def test_labels_that_look_like_numbers_or_nothing(tmp_path):
    labels = ("0.10", "NA", "1e3")
    folder = make(tmp_path / "run", methods=labels)
    assert [m["history"]["round"] for m in read_run(folder)["methods"]] == [[1, 2]] * 3
    assert sorted(set(read_history(folder)["method"])) == sorted(labels)
    assert [path.name for path in draw(folder)] == ["accuracy.png", "accuracy.svg", "accuracy.pdf"]


def event(kind, method="", round_=0, **values):
    return json.dumps({"kind": kind, "method": method, "round": round_, "values": values}) + "\n"


def test_a_resumed_run_counts_its_second_time(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    about = {"seed": 0, "data": {"clients": 2, "true_contexts": None}, "model": {"name": "mlr"}}
    first = [event("evaluated", "local", t, accuracy=0.1 * t) for t in (1, 2, 3)]
    second = [event("evaluated", "local", t, accuracy=0.2 * t) for t in (2, 3)]
    events = [
        event("opened", **about),
        event("started", "local", 0, rounds=4),
        *first,
        event("closed", state="stopped"),
    ]
    (folder / "events.jsonl").write_text("".join(events))
    assert read_run(folder)["state"] == "stopped"
    assert read_run(folder)["methods"][0]["history"] == {"round": [1, 2, 3], "accuracy": [0.1, 0.2, 0.3]}
    events += [event("opened", **about), event("started", "local", 1, rounds=4), *second]
    (folder / "events.jsonl").write_text("".join(events))
    assert read_run(folder)["state"] == "running"
    assert read_run(folder)["methods"][0]["history"] == {"round": [1, 2, 3], "accuracy": [0.1, 0.4, 0.6]}
    assert "cgpfl resume" not in html([folder])  # it was made in Python


def test_long_runs_are_thinned_to_their_ends(tmp_path):
    run = read_run(make(tmp_path / "run", clients=5, rounds=range(1, 901)))
    history, contexts = run["methods"][2]["history"], run["methods"][2]["contexts"]
    for rounds in (history["round"], contexts["rounds"]):
        assert len(rounds) == 400
        assert (rounds[0], rounds[-1]) == (1, 900)
    assert contexts["map"][3] == [0, 1, 1, 399]  # client 3 moves to context 1 after the first
    assert contexts["moved"][1] == 2  # clients 1 and 3
    assert run["notes"] == ["Curves show 400 evaluated rounds, evenly spread, where there are more."]


def test_of_very_many_clients_some_are_drawn(tmp_path):
    run = read_run(make(tmp_path / "run", clients=5000, rounds=(1, 2)))
    clients = run["methods"][2]["clients"]["client"]
    assert len(clients) == len(run["methods"][2]["contexts"]["map"]) == 2000
    assert (clients[0], clients[-1]) == (0, 4999)
    assert run["methods"][2]["contexts"]["groups"][0]["members"] == 2500  # of all of them
    assert run["notes"] == ["Charts of clients show 2,000 of 5,000, evenly spread."]


def test_a_comparison(tmp_path):
    folder = tmp_path / "compared"
    folder.mkdir()
    rows = [("a", s, t, 0.1 * t + 0.2 * s) for s in (0, 1) for t in (1, 2)]
    pd.DataFrame(rows, columns=["method", "seed", "round", "accuracy"]).to_csv(folder / "history.csv", index=False)
    facts = {"accuracy": 0.3, "std": 0.1, "mean": 0.3, "worst_tenth": 0.1, "rounds_to_target": None, "megabytes": 1.0}
    facts |= {"gradients": 10, "seconds": 2.0, "diverged": 0, "tied": False}
    data = {"clients": 2, "true_contexts": None, "split_hash": "0"}
    about = {"seeds": [0, 1], "rounds": 2, "target": 0.5, "notes": ["something <added>"], "data": data}
    (folder / "summary.json").write_text(json.dumps({**about, "model": {"name": "mlr"}, "methods": {"a": facts}}))
    history = read_run(folder)["methods"][0]["history"]
    assert history["accuracy"] == [0.2, 0.3]
    assert history["band"] == {"low": [0.1, 0.2], "high": [0.3, 0.4]}
    page = html([folder])
    assert "30.0 ± 10.0" in page
    assert "something &lt;added&gt;" in page


def test_names_cannot_break_the_page(tmp_path):
    folder = make(tmp_path / "run", methods=("local", "a-b"))
    summary = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(summary.replace('"made"', '"</script><b>"'))
    page = html([folder])
    assert "</script><b>" not in page
    assert "&lt;/script&gt;&lt;b&gt; split by up" in page


EVIL = "<img src=x onerror=alert(1)>"


def test_no_value_of_a_summary_is_markup(tmp_path):
    folder = make(tmp_path / "run", methods=("cgpfl", "cgpfl-b"))
    summary = json.loads((folder / "summary.json").read_text())
    summary["methods"]["cgpfl"]["diverged"] = EVIL
    summary["methods"]["cgpfl-b"]["contexts"]["k"] = EVIL
    summary["data"] |= {"clients": 4, "split": EVIL, "split_hash": EVIL}
    summary["model"]["name"] = EVIL
    (folder / "summary.json").write_text(json.dumps(summary))
    page = html([folder])
    assert "<img" not in page
    assert "diverged (&lt;img" in page
    assert "<td><b>&lt;img" in page


def test_a_state_is_one_of_ours(tmp_path):
    about = {"seed": 0, "data": {"clients": 2, "true_contexts": None}, "model": {"name": "mlr"}}
    (tmp_path / "events.jsonl").write_text(event("opened", **about) + event("closed", state=EVIL))
    assert read_run(tmp_path)["state"] == "stopped"


DAMAGE = {
    "config.toml": ("rounds = = 3", "config.toml cannot be read"),
    "summary.json": ('{"hello": "world"}', "its files are not what a run writes"),
    "history.csv": ("", "history.csv cannot be read"),
    "federation.safetensors": ("none", "federation.safetensors cannot be read"),
    "methods/cgpfl/records-000002.safetensors": ("none", "records-000002.safetensors cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder_is_one_line(tmp_path, name):
    folder = make(tmp_path / "run")
    text, said = DAMAGE[name]
    assert (folder / name).exists()
    (folder / name).write_text(text)
    with pytest.raises(CgpflError, match=said) as error:
        html([folder])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["models.safetensors", "records-000002.safetensors"])
def test_methods_whose_files_changed_places(tmp_path, name):
    """Same shapes, same rounds, right checksums: only what they say they are of tells them apart."""
    folder = make(tmp_path / "run", methods=("cgpfl", "cgpfl-b"))
    a, b = (folder / "methods" / label for label in ("cgpfl", "cgpfl-b"))
    for place in (a, b):
        models = {"context": np.arange(2), "client": np.arange(4), "place": np.zeros((6, 2))}
        save_arrays(place / "models.safetensors", models, {"share": [1, 0], "file": "models", "method": place.name})
        records = place / "records-000002.safetensors"
        save_arrays(records, load_file(records), {"rounds": [1, 2], "method": place.name})
    assert read_run(folder)["methods"][0]["contexts"]["models"].keys() == {"context", "client", "place", "share"}
    shutil.copy(a / name, tmp_path)
    shutil.copy(b / name, a / name)
    shutil.copy(tmp_path / name, b / name)
    with pytest.raises(CgpflError, match=rf"cgpfl/{name} is another file: it is not what its name says"):
        read_run(folder)


def test_a_damaged_table_of_an_old_folder_is_one_line(tmp_path):
    folder = make(tmp_path / "run")
    (folder / "federation.safetensors").unlink()
    (folder / "metrics.parquet").write_text("none")
    with pytest.raises(CgpflError, match=r"metrics.parquet cannot be read"):
        read_run(folder)


def test_numbers_of_another_kind_are_one_line(tmp_path):
    folder = make(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    summary["methods"]["local"]["seconds"] = "long"
    (folder / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(CgpflError, match="its files are not what a run writes"):
        html([folder])


def test_what_is_offered_to_go_on(tmp_path):
    """An unfinished comparison is no run, and a deployment goes on by its nodes."""
    compared, deployed = tmp_path / "compared", tmp_path / "deployed"
    for folder, section in ((compared, "[compare]\nseeds = 2\n"), (deployed, "[deploy]\nclients = 2\n")):
        folder.mkdir()
        (folder / "config.toml").write_text(section)
    page = html([compared])
    assert f"cgpfl compare {compared / 'config.toml'}" in page
    assert f"cgpfl resume {compared}" in page
    assert "cgpfl run" not in page
    assert f"cgpfl deploy run APP --out {deployed} " in html([deployed])
    finished = make(tmp_path / "finished")
    (finished / "config.toml").write_text((finished / "config.toml").read_text() + "[deploy]\nclients = 2\n")
    assert f"cgpfl deploy run APP --out {finished}-again " in html([finished])


def test_numbers_are_short_and_json_has_no_nan():
    values = {"a": np.float32(1 / 3), "b": [float("nan"), np.inf], "c": np.arange(2), "d": 123456, "e": None}
    assert compact(values) == {"a": 0.33333, "b": [None, None], "c": [0, 1], "d": 123456, "e": None}


def test_nothing_but_a_report_is_replaced(tmp_path):
    folder = make(tmp_path / "run")
    out = tmp_path / "new" / "report.html"
    write_report([folder], out)
    write_report([folder], out)
    (tmp_path / "thesis.html").write_text("years of work")
    with pytest.raises(CgpflError, match="exists and is not a report"):
        write_report([folder], tmp_path / "thesis.html")
    assert (tmp_path / "thesis.html").read_text() == "years of work"
    with pytest.raises(CgpflError, match="is a folder"):
        write_report([folder], tmp_path)


def test_what_is_not_a_run(tmp_path):
    with pytest.raises(CgpflError, match="no such folder"):
        read_run(tmp_path / "none")
    with pytest.raises(CgpflError, match="is it a run folder"):
        read_run(tmp_path)
    folder = make(tmp_path / "run")
    (folder / "summary.json").write_text("{")
    with pytest.raises(CgpflError, match=r"summary.json cannot be read"):
        read_run(folder)


def test_without_plotly_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CgpflError, match=r"needs plotly; install it with: pip install 'cgpfl\[report\]'"):
        plotly.__wrapped__()


def test_plotly_in_the_page_is_plotly_in_the_package():
    import plotly as package

    inside = gzip.decompress(base64.b64decode(plotly()))
    assert inside == (Path(package.__file__).parent / "package_data" / "plotly.min.js").read_bytes()
