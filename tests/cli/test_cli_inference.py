"""personalize, export and predict as typed, and the guide that shows them."""

import contextlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import cgpfl

pytestmark = pytest.mark.slow  # without the command line: inference/
GUIDE = Path(__file__).parents[2] / "docs" / "after-training.md"


def said(*args, code=0):
    """What the command line printed, or its errors if it is to fail."""
    done = cgpfl(*args, code=code)
    return done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """Every command and Python block of the guide, run in order in one folder (only the run is shorter).

    → (the folder, what each command printed, the Python session).
    """
    folder = tmp_path_factory.mktemp("guide")
    session, printed = {"__name__": "guide"}, {}
    with contextlib.chdir(folder):
        for kind, block in re.findall(r"```(sh|python)\n(.*?)```", GUIDE.read_text(), re.DOTALL):
            if kind == "python":
                exec(compile(block, GUIDE.name, "exec"), session)
                continue
            for line in block.strip().splitlines():
                program, *args = shlex.split(line)
                assert program == "cgpfl"
                printed[line] = said(*args, *(["--rounds", "60"] if args[0] == "run" else []))
    return folder, printed, session


@pytest.fixture
def folder(guide, monkeypatch):
    """The guide's folder, from inside."""
    monkeypatch.chdir(guide[0])
    return guide[0]


def test_the_guide_runs(guide):
    folder, printed, session = guide
    assert len(printed) == 6
    made = {p.name for p in (folder / "exports").iterdir()}
    assert made == {"new", "three", "context-0", "from-python", "four"}
    assert session["found"].context in range(len(session["found"].contexts))
    shown = next(out for line, out in printed.items() if "personalize" in line)
    assert "27 samples to train on, 332 held out" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown


def test_default_folders_are_numbered_and_predictions_kept(folder):
    for name in ("digits-fedavg-new_client", "digits-fedavg-new_client-2"):
        out = said("personalize", "runs/digits", "--method", "fedavg", "--data", "new_client")
        assert out.rstrip().splitlines()[-2].endswith(f"exports/{name}")
        assert (folder / "exports" / name / "card.json").exists()
    found = pd.read_csv("predictions.csv")
    assert list(found.columns) == ["sample", "class", "probability", "label"]
    assert len(found) == 332
    card = json.loads(Path("exports/new/card.json").read_text())
    right = (found["class"] == found["label"]).mean()
    assert right == pytest.approx(card["metrics"]["personal"]["accuracy"])


def test_samples_without_labels(folder):
    pd.DataFrame(np.zeros((12, 64))).to_csv("zeros.csv", index=False)
    out = said("predict", "exports/three", "--data", "zeros.csv")
    assert "the first ten of 12" in out
    assert "accuracy" not in out
    assert len(re.findall(r"^\d+ +\d+ +0\.\d{3} *$", out, re.MULTILINE)) == 10


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["personalize", "runs/digits", "--data", "nothing.npz"], "data nothing.npz: no such file or folder"),
        (["personalize", "runs/digits"], "Missing option '--data'"),
        (["personalize", "runs/none", "--data", "new_client"], "run runs/none: no such folder"),
        (
            ["personalize", "runs/digits", "--data", "new_client", "--method", "local"],
            "local: its server sends nothing",
        ),
        (["personalize", "runs/digits", "--data", "new_client", "--steps", "0"], "steps = 0: must be at least 1"),
        (["personalize", "runs/digits", "--data", "new_client/test.npz", "--test", "2"], "test = 2"),
        (["personalize", "runs/digits", "--data", "new_client", "--out", "exports/new"], "exists already"),
        (["personalize", "runs/digits", "--data", "new_client", "--format", "tf"], "format 'tf': must be safetensors"),
        (["export", "runs/digits"], "export: give either --client or --context"),
        (["export", "runs/digits", "--client", "40"], "client 40: there are clients 0..39"),
        (["export", "runs/digits", "--client", "0", "--method", "ifca"], "no method 'ifca'; it has local, fedavg"),
        (["predict", "runs/digits", "--data", "new_client"], "has no card.json"),
        (["predict", "exports/three", "--data", "new_client", "--with", "torch"], "using 'torch'"),
        (["predict", "exports/three", "--data", "new_client", "--out", "predictions.csv"], "exists already"),
        (["predict", "exports/new", "--data", "new_client", "--with", "onnx"], "has no model.onnx"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(folder, args, message):
    before = sorted(folder.rglob("*"))
    line = said(*args, code=2)
    assert message in line
    assert len(line.strip().splitlines()) == 1
    assert sorted(folder.rglob("*")) == before
