"""Regret by hand, on made-up numbers, and the tables made of it."""

import csv

import numpy as np
import pytest

from cgpfl.battery.cells import Outcome
from cgpfl.battery.files import text, write_all
from cgpfl.battery.regret import Found, found_contexts, regrets
from cgpfl.battery.run import Battery, Wishes

pytestmark = pytest.mark.pictures


def outcome(problem, method, accuracy, diverged=None, k=None, ari=None, first=0):
    n = len(accuracy)
    return Outcome(
        problem,
        method,
        list(range(first, first + n)),
        accuracy,
        diverged or [None] * n,
        k or [None] * n,
        ari or [None] * n,
        1.5,
        "a machine",
    )


MADE_UP = [
    outcome("rotations", "local", [0.70, 0.72]),
    outcome("iid", "local", [0.80, 0.80]),
    outcome("dirichlet", "local", [0.90, 0.92]),
    outcome("rotations", "fedavg", [0.30, 0.32]),
    outcome("iid", "fedavg", [0.96, 0.98]),
    outcome("dirichlet", "fedavg", [0.90, 0.92]),
    outcome("rotations", "ifca", [0.95, 0.97], k=[4, 4], ari=[1.0, 0.9]),
    outcome("iid", "ifca", [0.966, 0.966], k=[4, 1], ari=[0.0, 1.0]),
    outcome("dirichlet", "ifca", [0.90, 0.5], diverged=[None, 7], k=[4, None]),
]


def test_regret_by_hand():
    r = regrets(MADE_UP)
    assert r.problems == ["rotations", "iid", "dirichlet"]
    # means: local 71, 80, 91; fedavg 31, 97, 91; ifca 96, 96.6, 45 (a seed diverged: 90 and 0)
    assert r.methods == ["local", "ifca", "fedavg"]
    assert np.allclose(r.accuracy, [[71, 80, 91], [96, 96.6, 45], [31, 97, 91]])
    assert np.allclose(r.regret, [[25, 17, 0], [0, 0.4, 46], [65, 0, 0]])
    assert np.allclose(r.mean, [14, 46.4 / 3, 65 / 3])
    assert np.allclose(r.worst, [25, 46, 65])
    assert r.where == ["rotations", "dirichlet", "rotations"]
    assert r.within(0.0).tolist() == [1, 1, 2]  # both that share the first place are first
    assert r.within(0.5).tolist() == [1, 2, 2]
    assert r.diverged.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert r.best == ["ifca", "fedavg", "local"]


def test_a_problem_without_a_method_is_a_mistake():
    with pytest.raises(AssertionError, match="missing"):
        regrets(MADE_UP[:-1])


def test_contexts_by_hand():
    more = outcome("rotations", "ifca", [0.9], k=[3], ari=[0.8], first=2)
    first, second, third = found_contexts([*MADE_UP, more], {"rotations": 4, "iid": 1, "dirichlet": None})
    assert first == Found("ifca", "rotations", 4, [0, 1, 2], [4, 4, 3], [1.0, 0.9, 0.8])
    assert first.exact == 1
    assert (second.problem, second.exact) == ("iid", 1)
    assert (third.problem, third.exact, third.k) == ("dirichlet", None, [4, None])


@pytest.fixture
def written(tmp_path):
    wishes = Wishes(("rotations", "iid", "dirichlet"), ("local", "fedavg", "ifca"), 2, 150)
    battery = Battery(tmp_path, wishes, regrets(MADE_UP), MADE_UP, [])
    write_all(battery)
    return battery


def test_the_terminals_table_has_80_columns(written):
    told = text(written)
    assert max(map(len, told.splitlines())) <= 80
    lines = [line.split() for line in told.splitlines()]
    assert lines[1] == ["local", "14.0", "25.0", "rotations", "1/3", "1/3"]
    assert lines[2] == ["ifca†", "15.5", "46.0", "dirichlet", "1/3", "2/3"]
    assert "† a run diverged" in told


def test_the_files(written):
    out = written.folder
    with (out / "battery.csv").open(newline="") as file:
        runs = list(csv.DictReader(file))
    assert len(runs) == 18
    assert runs[12] | {"diverged": ""} == {
        **{"problem": "rotations", "method": "ifca", "seed": "0", "accuracy": "0.95", "k": "4", "ari": "1.0"},
        "diverged": "",
    }
    assert runs[-1]["diverged"] == "7"
    with (out / "regrets.csv").open(newline="") as file:
        rows = {(r["problem"], r["method"]): r for r in csv.DictReader(file)}
    assert float(rows["iid", "ifca"]["regret"]) == pytest.approx(0.4)
    assert float(rows["iid", "ifca"]["accuracy"]) == pytest.approx(0.966)
    assert rows["dirichlet", "ifca"]["diverged"] == "1"
    with (out / "contexts.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 6
    page = (out / "BATTERY.md").read_text()
    for line in (
        "| local | 14.0 | 25.0 | rotations | 1/3 | 1/3 |",
        "| *best accuracy, %* | *96.0* |",
        "| ifca | **0.4** | 46.0 †1 |",
        "| rotations | 4 | 4 4 | 1.00 0.90 | 1/2 |",
        "| dirichlet | – | 4 – | – – | – |",
        "| ifca | 2/4 | 0/2 |",
        "- 14 s of all programs",
    ):
        assert line in page
    assert (out / "battery.png").stat().st_size > 5000
    assert (out / "battery.svg").exists()
