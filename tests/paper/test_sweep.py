"""What the paper leaves open: both unstated rates as a grid, and the rest varied one thing at a time."""

import csv
import dataclasses
import re

import numpy as np
import pytest
from choices import given, tried

from cgpfl.data.splits import split
from cgpfl.hyper import hyper_parameters
from cgpfl.paper.published import table_1
from cgpfl.paper.settings import FULL, competitors, family
from cgpfl.paper.sweep import SWEEP, SWEEPS, _variants
from cgpfl.paper.tuning import GRID
from handmade import plan, runs, tiny

pytestmark = pytest.mark.usefixtures("by_hand")
BASE = FULL["mnist-mlr"]
SMALL = {"context_rates": (0.06, 1.0), "etas": (0.005, 0.1)}


def changed(one, other):
    """Names of the fields in which two dataclasses differ."""
    return {f.name for f in dataclasses.fields(one) if getattr(one, f.name) != getattr(other, f.name)}


def test_one_thing_is_varied_at_a_time():
    found = {}
    for name, setting, change in _variants(BASE):
        assert name not in found
        data = changed(setting.data, BASE.data)
        found[name] = data | (changed(setting, BASE) - {"name", "data"}) | set(change)
        assert (setting.name == BASE.name) == (setting == BASE)  # another problem has another name
    assert found == {
        "θ restarts from ω": {"warm_start"},
        "batch 100": {"batch_size"},
        "random classes": {"split"},
        "block classes, σ = 0.4": {"split", "spread"},
        "equal sizes": {"spread"},
        "pixels in [-1, 1]": {"pixels"},
    }


@pytest.mark.parametrize("name", SWEEPS)
def test_every_split_can_be_drawn(name):
    """With the sizes the paper states, of 60,000 samples in ten classes, for each seed of the tables."""
    labels = np.arange(60_000) % 10
    for data in {setting.data for _, setting, _ in _variants(FULL[name])}:
        limits = {"spread": data.spread, "smallest": data.smallest, "largest": data.largest}
        for seed in range(5):
            sizes = [len(p) for p in split(labels, data.split, data.clients, seed=seed, **limits)]
            assert data.smallest <= min(sizes) <= max(sizes) <= data.largest


def test_the_grid_is_every_settings_and_every_methods_of_the_family(tmp_path):
    assert SWEEP.tunes(plan(tmp_path, {}, FULL)) == [(s, label) for s in FULL.values() for label in GRID]


def test_each_cell_has_its_own_file_and_differs_as_its_name_says(tmp_path):
    needed = SWEEP.needs(plan(tmp_path, {}, FULL, seeds=5))
    cells = {cell.name: cell for cell in needed}
    assert all(cell == cells[cell.name] for cell in needed)  # no two under one name
    # 6 variants of 3 methods; on 4 other problems (three splits, other pixels) local training and FedAvg, too.
    # Without batch sizes and two of the splits 3 variants, on 2 other problems; none of the CNN.
    assert len(cells) == 2 * (6 * 3 + 4 * 2) + 2 * (3 * 3 + 2 * 2)
    assert {cell.seeds for cell in cells.values()} == {(0,)}
    assert {cell.setting.eval_every for cell in cells.values()} == {200}  # the last round alone
    assert all(re.fullmatch(r"[a-z0-9./-]+", name) for name in cells)
    own = family(BASE)["pfedme"]
    restart = cells["mnist-mlr/sweep-pfedme-restart"].method
    assert {n for n in hyper_parameters(own) if getattr(restart, n) != getattr(own, n)} == {"warm_start"}
    assert cells["mnist-mlr/sweep-cgpfl-4-batch-100"].method.batch_size == 100
    pixels = cells["mnist-mlr-pixels/sweep-cgpfl-4"]
    assert pixels.setting.pixels == (-1, 1)
    assert pixels.method == family(BASE)["cgpfl-4"]  # as first read
    block = cells["mnist-mlr-block/sweep-local"]
    assert block.setting.data.split == "block"
    assert block.method == competitors(BASE)["local"]


def test_the_grid_as_tables(tmp_path):
    settings = tiny(**SMALL)
    known = given(settings, GRID)
    known |= tried(settings["fmnist-mlr"], "cgpfl-heur", [80.0, 81.0, float("nan"), 85.0], test=77.0)
    where = plan(tmp_path, known, settings, quick=True)
    assert SWEEP.needs(where) == []  # a quick run has the grid alone
    made = SWEEP.make(where)
    assert len(made.tables) == 2 * 3
    heur = made.tables[-1]
    assert heur.title == f"FMNIST-MLR, CGPFL-Heur: validation / test accuracy (%); published {95.18}"
    assert heur.columns == ["2β/N", "η = 0.005", "η = 0.1"]
    assert heur.rows == [["0.06", "80.0 / 77.0", "81.0 / 77.0"], ["1", "diverged", "85.0 / 77.0"]]
    assert heur.strong == [[1, 2]]  # what Table 1 takes
    with (tmp_path / "sweep" / "sweep.csv").open(newline="", encoding="utf-8") as file:
        facts = list(csv.DictReader(file))
    assert len(facts) == 2 * 3 * 4
    assert facts[-1] == {
        **{"setting": "FMNIST-MLR", "variant": "2β/N, η", "method": "cgpfl-heur", "context_rate": "1.0"},
        **{"personal_rate": "0.1", "seed": "100", "rounds": "4", "validation_%": "85.0", "accuracy_%": "77.0"},
    }
    assert len(made.text) == 1


def test_a_grid_after_fewer_rounds_says_so(tmp_path):
    settings = tiny("cifar10-cnn", rounds=6, tune_rounds=2, **SMALL)
    made = SWEEP.make(plan(tmp_path, given(settings, GRID), settings))
    assert [t.title for t in made.tables] == [
        f"CIFAR10-CNN, {name}: validation / test accuracy (%), after 2 of 6 rounds; published {number}"
        for name, number in (("pFedMe (PM)", "68.88"), ("CGPFL (K=4)", "72.78"), ("CGPFL-Heur", "74.75"))
    ]


@pytest.mark.parametrize("name", ["random", "block", "equal"])
def test_local_training_stands_beside_other_splits(tmp_path, name):
    settings = tiny("mnist-mlr", **SMALL)
    where = plan(tmp_path, given(settings, GRID), settings)
    where.cells.cells |= {c.name: runs(80.0) for c in SWEEP.needs(where)}
    where.cells.cells[f"mnist-mlr-{name}/sweep-local"] = runs(98.5)
    made = SWEEP.make(where)
    table = made.tables[-1]
    assert table.rows[0] == ["published", *(f"{table_1('mnist-mlr', label):.2f}" for label in GRID), "–", "88.63"]
    found = {row[0]: row[1:] for row in table.rows}
    other = next(v for k, v in found.items() if k.startswith(name))
    assert other == ["80.0"] * 3 + ["98.5", "80.0"]
    assert found["batch 100"] == ["80.0"] * 3 + ["", ""]
    assert len(made.text) == 2
