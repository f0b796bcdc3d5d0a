"""Problems beyond the paper: their data, and a comparison that is not run twice."""

import csv
import importlib

import numpy as np
import pytest

from cgpfl.data import Source
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import DataConfig
from cgpfl.hyperparameters import from_values
from cgpfl.paper import beyond
from cgpfl.paper.beyond import BEYOND, METHODS, Scenario, scenarios
from handmade import plan

COMPARING = importlib.import_module("cgpfl.experiment.compare")  # as an attribute it is the function


def test_the_problems(sets):
    """60,000 samples, of which 5 % are 75 a client."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (60_000, 3, 3), dtype=np.uint8)
    sets(Source(x, np.tile(np.arange(10), 6000), 10, 1 / 255, 0.0))
    problems = {s.name: s for s in scenarios(quick=False)}
    assert list(problems) == ["mnist-rotation", "fmnist-rotation", "mnist-labels", "mnist-cyclic-5", "mnist-cyclic"]
    data = {name: from_values(DataConfig, s.data, name).build(0) for name, s in problems.items()}
    sizes = {name: d.train.counts + d.test.counts for name, d in data.items()}
    assert {name: (d.clients, sizes[name].sum()) for name, d in data.items()} == {
        **dict.fromkeys(list(problems)[:4], (40, 3000)),
        "mnist-cyclic": (40, 60_000),
    }
    for name in list(problems)[:3]:
        assert set(sizes[name]) == {75}
        assert len(np.unique(data[name].context)) == 4
    for name, low, high in (("mnist-cyclic-5", 20, 250), ("mnist-cyclic", 400, 5000)):
        assert low <= sizes[name].min() < sizes[name].max() <= high
    assert [s.name for s in scenarios(quick=True)] == ["mnist-rotation"]
    labels = [m.get("label", m["name"]) for m in METHODS]
    assert len(set(labels)) == len(METHODS) == 12
    assert set(beyond.QUICK) <= set(labels)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small problem, two methods, two settings of each."""
    out = tmp_path_factory.mktemp("beyond")
    data = {"source": "digits", "split": "rotation", "clients": 6, "contexts": 2, "share": 0.3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beyond, "scenarios", lambda quick: [Scenario("digits", "Digits, 2 rotations, 30 %", data)])
        patch.setattr(beyond, "QUICK", ("local", "fedavg"))
        where = plan(out, {}, quick=True)
        section = BEYOND.make(where)
        patch.setattr(beyond, "compare", None)
        patch.setattr(COMPARING, "run_batch", None)
        again = plan(out, {}, quick=True)
        yield out, where, section, again, BEYOND.make(again)


@pytest.mark.slow
def test_a_finished_comparison_is_not_run_again(made):
    _, where, section, again, second = made
    assert section == second
    assert set(where.cells.times) == {"beyond digits"}
    assert again.cells.times == {}


@pytest.mark.slow
def test_a_comparison_made_otherwise_is_refused(made, monkeypatch):
    out = made[0]
    data = {"source": "digits", "split": "rotation", "clients": 6, "contexts": 2, "share": 0.3}
    monkeypatch.setattr(beyond, "scenarios", lambda quick: [Scenario("digits", "Digits", data)])
    monkeypatch.setattr(beyond, "QUICK", ("local", "fedavg", "ditto"))
    with pytest.raises(CgpflError, match=r"digits\.json: was run with methods = "):
        BEYOND.make(plan(out, {}, quick=True))


@pytest.mark.slow
def test_the_table_has_the_comparisons_numbers(made):
    out, _, section, _, _ = made
    (table,) = section.tables
    assert table.columns == ["method", "Digits, 2 rotations, 30 %"]
    assert [row[0] for row in table.rows] == ["local", "fedavg"]
    with (out / "beyond" / "digits" / "table.csv").open(newline="") as file:
        ranked = list(csv.DictReader(file))
    ours = {row[0]: row[1] for row in table.rows}
    for row in ranked:
        number = f"{100 * float(row['accuracy']):.1f} ± {100 * float(row['std']):.1f}"
        assert ours[row["method"]] == number + (" ≈" if row["tied"] == "True" else "")
    best = ranked[0]["method"]
    assert table.strong == [[["local", "fedavg"].index(best), 1]]
    tied = [row["method"] for row in ranked if row["tied"] == "True"]
    rest = f", not told apart from {', '.join(tied)}" if tied else ""
    assert section.text == [f"Digits, 2 rotations, 30 %: {best} first{rest}."]
    with (out / "beyond" / "beyond.csv").open(newline="", encoding="utf-8") as file:
        facts = {f["method"]: f for f in csv.DictReader(file)}
    assert "rate=" in facts["fedavg"]["chosen"]
    assert "validation_accuracy=" in facts["fedavg"]["chosen"]
    assert facts["local"]["ari"] == ""
