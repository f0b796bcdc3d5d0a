"""A metric and a column from outside the package: one file, and it is in everything a run leaves behind."""

import json
import sys
import tomllib

import pandas as pd
import pytest

import cgpfl
from helpers import cgpfl as command

MINE = '''
import jax.numpy as jnp


def top_two(outputs, labels):
    """How often the label is among the two likeliest classes."""
    return (jnp.argsort(outputs, axis=-1)[:, -2:] == labels[:, None]).any(axis=-1)
'''
TINY = {"clients": 8, "contexts": 2, "share": 0.2, "smallest": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mine")
    (folder / "my_metrics.py").write_text(MINE)
    return folder


def test_on_the_command_line(place, monkeypatch):
    monkeypatch.syspath_prepend(str(place))
    config = "\n".join(["rounds = 4", 'metrics = ["accuracy", "ece"]', "[data]"])
    config += "".join(f"\n{k} = {v}" for k, v in TINY.items())
    (place / "c.toml").write_text(config)
    flags = ["--method", "local", "--method", "fedavg", "--out", place / "run"]
    flags += ["--metrics", "accuracy, my_metrics:top_two,auc"]  # over the file's
    shown = command("run", place / "c.toml", *flags).stdout
    lines = shown.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("method "))
    head, row = lines[at], next(line for line in lines[at:] if line.startswith("fedavg "))
    assert "top-two" in head
    assert "AUC" in head
    assert "ECE" not in head
    said = "top-two: How often the label is among the two likeliest classes; more is better"
    assert said in " ".join(shown.split())
    summary = json.loads((place / "run" / "summary.json").read_text())
    found = summary["methods"]["fedavg"]["metrics"]["top-two"]
    assert summary["methods"]["fedavg"]["accuracy"]["pooled"] < found["pooled"] < 1
    assert f"{100 * found['pooled']:.1f} %" in row
    assert summary["metrics"]["top-two"]["title"] == "top-two"
    history = pd.read_csv(place / "run" / "history.csv")
    assert history[history["method"] == "fedavg"]["top-two"].iloc[-1] == pytest.approx(found["pooled"])
    clients = pd.read_parquet(place / "run" / "metrics.parquet")
    last = clients[(clients["method"] == "fedavg") & (clients["round"] == 4)]
    assert last["top-two"].mean() == pytest.approx(found["mean"], abs=1e-6)
    assert "my_metrics:top_two" in tomllib.loads((place / "run" / "config.toml").read_text())["metrics"]
    monkeypatch.undo()
    del sys.modules["my_metrics"]
    # The page is made without the module: the folder says what the metric is.
    command("report", place / "run", "--out", place / "page.html")
    page = (place / "page.html").read_text()
    assert ">top-two</th>" in page
    assert '"name":"top-two/worst_tenth","menu":"top-two of the worst tenth"' in page
    assert '"top-two/mean":[' in page
    # And it cannot go on without it.
    said = command("resume", place / "run", code=2).stderr
    assert "metric my_metrics:top_two: module my_metrics cannot be imported" in said


@pytest.mark.slow
def test_in_a_comparison(place, monkeypatch):
    monkeypatch.syspath_prepend(str(place))
    import my_metrics

    compared = cgpfl.compare(
        *(["local"], {"source": "digits", "split": "rotation", **TINY}),
        **{"rounds": 2, "seeds": 2, "out": place / "compared", "metrics": ["accuracy", my_metrics.top_two]},
    )
    table = (place / "compared" / "table.md").read_text()
    assert "| worst tenth | top-two | rounds to" in table
    row = compared.table.iloc[0]
    assert f"{100 * row['top-two']:.1f} ± {100 * row['top-two/std']:.1f}" in table
    summary = json.loads((place / "compared" / "summary.json").read_text())
    assert summary["methods"]["local"]["top-two"] == pytest.approx(
        compared.table.set_index("method")["top-two"]["local"]
    )
    assert summary["metrics"]["top-two"]["higher"] is True
    assert ">top-two</th>" in compared._repr_html_()
    assert "my_metrics:top_two" in (place / "compared" / "config.toml").read_text()


def test_a_run_goes_on_with_the_metrics_it_began_with(place, monkeypatch):
    monkeypatch.syspath_prepend(str(place))
    import my_metrics

    data = cgpfl.make_data("digits", "rotation", seed=0, **TINY)
    once = cgpfl.run("local", data, rounds=2, metrics=["accuracy", my_metrics.top_two], out=place / "python")
    named = ["accuracy", "my_metrics:top_two"]
    again = cgpfl.run("local", data, rounds=2, metrics=named, out=place / "python", resume=True)
    assert again.metrics == once.metrics
    with pytest.raises(cgpfl.CgpflError, match=r"was run with metrics = \['accuracy', 'my_metrics:top_two'\], now"):
        cgpfl.run("local", data, rounds=2, out=place / "python", resume=True)
