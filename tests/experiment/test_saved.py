"""A finished run, opened again by Result.load; and the line of a configuration that an error is about."""

import json

import numpy as np
import pandas as pd
import pytest

import cgpfl
from cgpfl.errors import CgpflError
from cgpfl.experiment.lines import line_of, pointing
from run_folders import make

pytestmark = pytest.mark.pictures


@pytest.fixture(scope="module")
def saved(tmp_path_factory, digits):
    """A real run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    result = cgpfl.run("fedavg", digits, rounds=3, out=folder, progress=False)
    return result, cgpfl.Result.load(folder)


def test_what_was_measured_comes_back(saved):
    result, again = saved
    assert list(again) == ["fedavg"]
    assert again.best.accuracy == result.accuracy
    pd.testing.assert_frame_equal(again["fedavg"].history, result.history, check_dtype=False)
    clients = again["fedavg"].clients
    assert clients["correct"].tolist() == result.clients["correct"].tolist()
    row = again.table.iloc[0]
    assert (row["method"], row["accuracy"], row["rounds"]) == ("fedavg", result.accuracy, 3)
    assert again.latex().splitlines()[4].startswith(r"\textbf{fedavg} & \textbf{")
    assert (again.folder / "table.tex").read_text() == again.latex()
    for suffix in (".png", ".svg", ".pdf"):
        assert (again.folder / "figures" / f"accuracy{suffix}").stat().st_size > 3000


def test_models_come_back(saved, digits):
    result, again = saved
    x = digits.client(0, "test")[0]
    np.testing.assert_array_equal(again.best.personal_model(0).logits(x), result.personal_model(0).logits(x))
    assert again.best.result() is again["fedavg"].result()  # read once


def test_the_best_is_first_and_names_are_there(tmp_path):
    folder = make(tmp_path / "run", clients=3, methods=("local", "cgpfl", "fedavg"), diverged={"cgpfl": 1})
    summary = json.loads((folder / "summary.json").read_text())
    summary["data"]["clients"] = ["north", "south", "west"]
    (folder / "summary.json").write_text(json.dumps(summary))
    again = cgpfl.Result.load(folder)
    assert list(again) == ["fedavg", "local", "cgpfl"]  # client i of method j has (i + j) of 10; cgpfl diverged
    assert again.best.accuracy == pytest.approx(0.3)
    assert np.isnan(again["cgpfl"].accuracy)
    assert again.clients[:3]["name"].tolist() == ["north", "south", "west"]
    with pytest.raises(CgpflError, match=r"no method 'fedavgg'; did you mean fedavg\? it has local"):
        again["fedavgg"]


@pytest.mark.slow
def test_a_comparison_comes_back(tmp_path):
    compared = cgpfl.compare(
        ["local"], {"clients": 4, "contexts": 2}, seeds=2, rounds=2, out=tmp_path / "c", progress=False
    )
    again = cgpfl.Result.load(str(tmp_path / "c"))
    assert again.is_comparison
    pd.testing.assert_frame_equal(again.table, compared.table, check_dtype=False)
    assert again.latex() == (tmp_path / "c" / "table.tex").read_text() == compared.shown("table").latex()
    assert len(again["local"].history) == 4  # seeds × rounds
    with pytest.raises(CgpflError, match="is a comparison, which keeps no values of each client"):
        again["local"].clients  # noqa: B018


def test_what_is_no_finished_run_is_one_line(tmp_path):
    with pytest.raises(CgpflError, match="no such folder"):
        cgpfl.Result.load(tmp_path / "none")
    with pytest.raises(CgpflError, match="is it a run folder"):
        cgpfl.Result.load(tmp_path)
    (tmp_path / "config.toml").write_text("rounds = 3\n")
    with pytest.raises(CgpflError, match=f"is not finished; go on by: cgpfl resume {tmp_path}"):
        cgpfl.Result.load(tmp_path)
    (tmp_path / "summary.json").write_text('{"hello": 1}')
    with pytest.raises(CgpflError, match="its files are not what a run writes"):
        cgpfl.Result.load(tmp_path)


CONFIG = """rounds = 1
devices = 8
[data]
source = "/home/ada/mine.npz"
clients = 10
[[method]]
name = "my_own:Mine"
prox = 1.0
[[method]]
name = "ditto"
prox = 1.0
"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("data /home/ada/mine.npz: does not exist", 4),
        ("devices = 8: JAX finds 2", 2),
        ("method my_own:Mine: module my_own cannot be imported", 7),
        ("devices = 80: JAX finds 2", None),
        ("data /home/ada/mine.npz2: does not exist", None),
        ("ditto: prox = 1.0: must be more", None),  # which of the two?
        ("out runs/x: exists already", None),
    ],
)
def test_the_line_to_edit(tmp_path, message, line):
    file = tmp_path / "c.toml"
    file.write_text(CONFIG)
    found = line_of(file, message)
    assert (found and found[0]) == line
    with pytest.raises(CgpflError) as error, pointing(file):
        raise CgpflError(message)
    end = "" if line is None else f"; edit line {line} of {file}: {CONFIG.splitlines()[line - 1]}"
    assert str(error.value) == message + end
