"""docs/guides/hospitals.md, done as it says: three nodes with raw tables, real processes, from init to export."""

import json

import pandas as pd
import pytest
from test_faults import happened

from cgpfl.inference.folder import load_model
from helpers import cgpfl
from test_pages import blocks

PAGE = "guides/hospitals.md"


@pytest.mark.slow
def test_three_hospitals_with_raw_tables(tmp_path, monkeypatch):
    """FedAvg with the default settings is at least as good as training alone; it was 41 % against 68 % unscaled."""
    monkeypatch.chdir(tmp_path)
    session, printed = {"__name__": "page"}, {}
    for kind, block, _ in blocks(PAGE):
        if kind == "python":
            exec(compile(block, PAGE, "exec"), session)
        for line in block.strip().splitlines() if kind == "sh" else []:
            program, command, *rest = line.split()
            assert program == "cgpfl"
            less = ["--rounds", "12"] if command == "run" else []
            done = cgpfl(command, *rest, *less, cwd=tmp_path)
            printed[" ".join([command, *rest[:1]])] = done.stdout + done.stderr
    summary = json.loads((tmp_path / "runs" / "hospitals" / "summary.json").read_text())
    local, fedavg = (summary["methods"][m]["accuracy"]["pooled"] for m in ("local", "fedavg"))
    assert fedavg >= local
    assert fedavg > 0.9
    assert "local, fedavg: every client's accuracy in every round equal" in printed["deploy up"]
    said = [e["line"] for e in happened(tmp_path / "runs" / "hospitals", "say")]
    lines = [text for kind, block, _ in blocks(PAGE) if kind == "text" for text in block.splitlines()]
    assert set(lines[:5]) <= set(said)
    assert "note: inputs differ in scale: income is about" in printed["run --data"]
    model, test = load_model(tmp_path / "exports" / "north"), pd.read_csv("hospitals/trial-data/0/test.csv")
    metrics = pd.read_parquet("runs/hospitals/metrics.parquet")
    last = metrics[(metrics["round"] == 3) & (metrics["client"] == 0)].set_index("method")
    right = (model.predict(test.drop(columns="outcome")) == test["outcome"]).sum()
    assert right == last.loc["fedavg", "correct"]
    assert (pd.read_csv("north.csv")["class"] == test["outcome"]).sum() == right
    assert model.card["of"]["name"] == "north"
    assert load_model(tmp_path / "exports" / "shared").card["of"] == {"shared": True, "clients": 3}
