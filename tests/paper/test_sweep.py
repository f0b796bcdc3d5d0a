"""What the paper leaves open, varied one thing at a time."""

import csv
import dataclasses
import re

import numpy as np
import pytest

from cgpfl.data.splits import split
from cgpfl.hyper import hyper_parameters
from cgpfl.paper.published import table_1
from cgpfl.paper.settings import FULL, competitors, family
from cgpfl.paper.sweep import SWEEP, SWEEPS, _variants
from handmade import plan, runs, tiny

BASE = FULL["mnist-mlr"]
SWEPT = SWEEPS["mnist-mlr"].methods


def changed(one, other):
    """Names of the fields in which two dataclasses differ."""
    return {f.name for f in dataclasses.fields(one) if getattr(one, f.name) != getattr(other, f.name)}


def test_one_thing_is_varied_at_a_time():
    """η goes with two of them, since it is what they are most sensitive to."""
    found = {}
    for name, setting, change in _variants(BASE, quick=False):
        assert name not in found
        data = changed(setting.data, BASE.data)
        found[name] = data | (changed(setting, BASE) - {"name", "data"}) | set(change)
        assert (setting.name == BASE.name) == (setting == BASE)  # another problem has another name
    etas = {f"η = {eta}" for eta in ("0.005", "0.02", "0.05", "0.1")}
    assert found == {
        **{eta: {"personal_rate"} for eta in etas},
        **{f"{eta}, θ restarts from ω": {"personal_rate", "warm_start"} for eta in etas},
        "batch 5": {"batch_size"},
        "batch 100": {"batch_size"},
        "random classes": {"split"},
        "block classes, σ = 0.4": {"split", "spread"},
        "equal sizes": {"spread"},
        **{f"pixels in [-1, 1], {eta}": {"pixels", "personal_rate"} for eta in etas},
    }


@pytest.mark.parametrize("name", SWEEPS)
def test_every_split_can_be_drawn(name):
    """With the sizes the paper states, of 60,000 samples in ten classes, for each seed of the tables."""
    labels = np.arange(60_000) % 10
    for data in {setting.data for _, setting, _ in _variants(FULL[name], quick=False)}:
        limits = {"spread": data.spread, "smallest": data.smallest, "largest": data.largest}
        for seed in range(5):
            sizes = [len(p) for p in split(labels, data.split, data.clients, seed=seed, **limits)]
            assert data.smallest <= min(sizes) <= max(sizes) <= data.largest


def test_each_cell_has_its_own_file_and_differs_as_its_name_says(tmp_path):
    needed = SWEEP.needs(plan(tmp_path, {}, FULL))
    cells = {cell.name: cell for cell in needed}
    assert all(cell == cells[cell.name] for cell in needed)  # no two under one name
    # 17 variants of 3 methods; on 4 other problems (three splits, other pixels) local training and FedAvg, too
    mlr = 17 * 3 + 4 * 2
    # without batch sizes and two of the splits: 13 variants; with three values of η and two methods: 10
    dnn, cnn = 13 * 3 + 2 * 2, 10 * 2 + 2 * 2
    assert len(cells) == 2 * mlr + 2 * dnn + cnn
    assert {cell.seeds for name, cell in cells.items() if "-mlr" in name} == {None}
    assert {cell.seeds for name, cell in cells.items() if "-mlr" not in name} == {1}
    assert all(re.fullmatch(r"[a-z0-9./-]+", name) for name in cells)
    eta = cells["mnist-mlr/sweep-pfedme-eta-0.02"].method
    own = family(BASE)["pfedme"]
    assert {n for n in hyper_parameters(own) if getattr(eta, n) != getattr(own, n)} == {"personal_rate"}
    assert cells["mnist-mlr/sweep-cgpfl-4-eta-0.005"].method == family(BASE)["cgpfl-4"]  # as in the tables
    restart = cells["fmnist-mlr/sweep-cgpfl-heur-eta-0.1-restart"].method
    assert (restart.personal_rate, restart.warm_start, restart.context_rate) == (0.1, False, 0.06)
    assert cells["mnist-mlr/sweep-cgpfl-4-batch-5"].method.batch_size == 5
    pixels = cells["mnist-mlr-pixels/sweep-cgpfl-4-eta-0.05"]
    assert pixels.setting.pixels == (-1, 1)
    assert pixels.method.personal_rate == 0.05
    assert cells["cifar10-cnn-pixels/sweep-local"].setting.pixels == (-2, 2)  # its own are in [-1, 1]
    block = cells["mnist-mlr-block/sweep-local"]
    assert block.setting.data.split == "block"
    assert block.method == competitors(BASE)["local"]


def test_the_sweep_as_a_table(tmp_path):
    settings = tiny()
    where = plan(tmp_path, {}, settings, quick=True)
    needed = SWEEP.needs(where)
    assert [c.name for c in needed] == [
        f"mnist-mlr/sweep-{label}-eta-{eta}" for eta in ("0.02", "0.1") for label in SWEPT
    ]
    where.cells.cells |= {c.name: runs(80.0 + i, 82.0 + i) for i, c in enumerate(needed)}
    made = SWEEP.make(where)
    (table,) = made.tables
    assert table.rows == [
        ["published", *(f"{table_1('mnist-mlr', label):.2f}" for label in SWEPT), "–", "88.63"],
        ["η = 0.02", "81.0 ± 1.4", "82.0 ± 1.4", "83.0 ± 1.4", "", ""],
        ["η = 0.1", "84.0 ± 1.4", "85.0 ± 1.4", "86.0 ± 1.4", "", ""],
    ]
    with (tmp_path / "sweep" / "sweep.csv").open(newline="", encoding="utf-8") as file:
        last = list(csv.DictReader(file))[-1]
    assert last.pop("std") == "1.414"
    assert last == {"setting": "MNIST-MLR", "variant": "η = 0.1", "method": "cgpfl-heur", "accuracy_%": "86.0"}


@pytest.mark.parametrize("name", ["random", "block", "equal"])
def test_local_training_stands_beside_other_splits(tmp_path, name):
    settings = tiny("mnist-mlr")
    where = plan(tmp_path, {}, settings)
    where.cells.cells |= {c.name: runs(80.0, 82.0) for c in SWEEP.needs(where)}
    where.cells.cells[f"mnist-mlr-{name}/sweep-local"] = runs(98.0, 99.0)
    (table,) = SWEEP.make(where).tables
    found = {row[0]: row[4:] for row in table.rows}
    other = next(v for k, v in found.items() if k.startswith(name))
    assert other == ["98.5 ± 0.7", "81.0 ± 1.4"]
    assert found["batch 5"] == ["", ""]
