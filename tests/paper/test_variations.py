"""What else the paper leaves open, varied one thing at a time around the first reading."""

import dataclasses
import re

import numpy as np
import pytest

from cgpfl.data.splits import split
from cgpfl.hyperparameters import hyper_parameters
from cgpfl.paper.published import table_1
from cgpfl.paper.settings import FULL, competitors, family
from cgpfl.paper.tuning import GRID
from cgpfl.paper.variations import VARIATIONS, VARIED, _variants
from handmade import plan, runs, tiny

BASE = FULL["mnist-mlr"]
WHOLE = plan(None, {}, FULL)


def changed(one, other):
    """Names of the fields in which two dataclasses differ."""
    return {f.name for f in dataclasses.fields(one) if getattr(one, f.name) != getattr(other, f.name)}


def test_one_thing_is_varied_at_a_time():
    found = {}
    for name, setting, change in _variants(WHOLE, BASE):
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


@pytest.mark.parametrize("name", VARIED)
def test_every_split_can_be_drawn(name):
    """With the sizes the paper states, of 60,000 samples in ten classes, for each seed of the tables."""
    labels = np.arange(60_000) % 10
    for data in {setting.data for _, setting, _ in _variants(WHOLE, FULL[name])}:
        limits = {"spread": data.spread, "smallest": data.smallest, "largest": data.largest}
        for seed in range(5):
            sizes = [len(p) for p in split(labels, data.split, data.clients, seed=seed, **limits)]
            assert data.smallest <= min(sizes) <= max(sizes) <= data.largest


def test_each_cell_has_its_own_file_and_differs_as_its_name_says(tmp_path):
    needed = VARIATIONS.needs(plan(tmp_path, {}, FULL, seeds=5))
    cells = {cell.name: cell for cell in needed}
    assert all(cell == cells[cell.name] for cell in needed)  # no two under one name
    # 6 variants of 3 methods; on 4 other problems (three splits, other pixels) local training and FedAvg, too.
    # Without batch sizes and two of the splits 3 variants, on 2 other problems; none of the CNN.
    assert len(cells) == 2 * (6 * 3 + 4 * 2) + 2 * (3 * 3 + 2 * 2)
    assert {cell.seeds for cell in cells.values()} == {(0,)}
    assert {cell.setting.eval_every for cell in cells.values()} == {200}  # the last round alone
    assert all(re.fullmatch(r"[a-z0-9./-]+", name) for name in cells)
    own = family(BASE)["pfedme"]
    restart = cells["mnist-mlr/varied-pfedme-restart"].method
    assert {n for n in hyper_parameters(own) if getattr(restart, n) != getattr(own, n)} == {"warm_start"}
    assert cells["mnist-mlr/varied-cgpfl-4-batch-100"].method.batch_size == 100
    pixels = cells["mnist-mlr-pixels/varied-cgpfl-4"]
    assert pixels.setting.pixels == (-1, 1)
    assert pixels.method == family(BASE)["cgpfl-4"]  # as first read
    block = cells["mnist-mlr-block/varied-local"]
    assert block.setting.data.split == "block"
    assert block.method == competitors(BASE)["local"]


@pytest.mark.parametrize("name", ["random", "block", "equal"])
def test_local_training_stands_beside_other_splits(tmp_path, name):
    settings = tiny("mnist-mlr")
    where = plan(tmp_path, {}, settings)
    where.cells.cells |= {c.name: runs(80.0) for c in VARIATIONS.needs(where)}
    where.cells.cells[f"mnist-mlr-{name}/varied-local"] = runs(98.5)
    made = VARIATIONS.make(where)
    table = made.tables[-1]
    assert table.rows[0] == ["published", *(f"{table_1('mnist-mlr', label):.2f}" for label in GRID), "–", "88.63"]
    found = {row[0]: row[1:] for row in table.rows}
    other = next(v for k, v in found.items() if k.startswith(name))
    assert other == ["80.0"] * 3 + ["98.5", "80.0"]
    assert found["batch 100"] == ["80.0"] * 3 + ["", ""]


def test_a_quick_run_has_one_of_them(tmp_path):
    where = plan(tmp_path, {}, tiny(), quick=True)
    assert [c.name for c in VARIATIONS.needs(where)] == [
        f"{name}/varied-{label}-restart" for name in ("mnist-mlr", "fmnist-mlr") for label in GRID
    ]
