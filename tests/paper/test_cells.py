"""Cells: run once, kept on disk, gone on with after a stop, and as many as possible in one program."""

import dataclasses
import json

import numpy as np
import pytest

from cgpfl.algorithms import get_method
from cgpfl.data import load
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import DataConfig
from cgpfl.experiment.run import Stopped
from cgpfl.paper import cells as room
from cgpfl.paper.cells import Cell, Cells, federation
from cgpfl.paper.settings import Setting

RECIPE = DataConfig(split="cyclic", clients=6, spread=0.3)
SETTING = Setting("tiny", RECIPE, "mlr", rounds=4, lr=0.05, adapt_rate=0.1, evaluations=2)
WORK = {"batch_size": 0, "local_rounds": 2, "inner_steps": 2, "personal_rate": 0.05, "global_rate": 0.3}
STIFF = Cell(SETTING, "stiff", get_method("pfedme", {**WORK, "prox": 12.0}))
LOOSE = Cell(SETTING, "loose", get_method("pfedme", {**WORK, "prox": 1.0}))
ALONE = Cell(SETTING, "alone", get_method("local", {"batch_size": 0, "rate": 0.05, "local_rounds": 3}))
SEEDS = [0, 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All three cells, and the batches they were run as: (label, runs)."""
    where, ran = tmp_path_factory.mktemp("cells"), []
    with pytest.MonkeyPatch.context() as patch:
        count(patch, ran)
        Cells(where, SEEDS).finish([STIFF, LOOSE, ALONE, STIFF])
    return where, ran


def count(patch, ran):
    """Note every batch in ``ran``."""
    real = room.run_batch

    def noted(batch, **more):
        ran.append((batch.label, len(batch.todo)))
        return real(batch, **more)

    patch.setattr(room, "run_batch", noted)


def same(one, other, *, exactly=True):
    """Two cells' runs."""
    assert one.seeds == other.seeds
    for a, b in zip(one.records, other.records, strict=True):
        assert a.rounds == b.rounds == [2, 4]
        assert a.values.keys() == b.values.keys()
        for name in a.values:
            if exactly:
                np.testing.assert_array_equal(a.values[name], b.values[name])
            else:
                np.testing.assert_allclose(a.values[name], b.values[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_cells_that_differ_in_numbers_are_one_program(folder):
    where, ran = folder
    assert ran == [("tiny stiff (+1)", 4), ("tiny alone", 2)]
    assert sorted(p.name for p in (where / "cells" / "tiny").iterdir()) == [
        f"{name}.safetensors" for name in ("alone", "loose", "stiff")
    ]


@pytest.mark.slow
def test_each_is_what_it_would_be_alone(folder, tmp_path):
    together, alone = Cells(folder[0], SEEDS), Cells(tmp_path, SEEDS)
    alone.finish([LOOSE])
    same(together.get(LOOSE), alone.get(LOOSE), exactly=False)
    stiff, loose = together.get(STIFF), together.get(LOOSE)
    assert stiff.settings["prox"] == 12.0
    assert loose.settings["prox"] == 1.0
    gap = stiff.records[0].values["train_loss"] - loose.records[0].values["train_loss"]
    assert np.abs(gap).max() > 0.01  # λ makes a difference


def test_what_is_finished_is_not_run_again(folder, monkeypatch):
    where, ran = folder[0], []
    before = {p: p.stat().st_mtime_ns for p in where.rglob("*.safetensors")}
    count(monkeypatch, ran)
    cells = Cells(where, SEEDS)
    assert all(cells.has(c) for c in (STIFF, LOOSE, ALONE))
    cells.finish([STIFF, LOOSE, ALONE])
    assert ran == []
    assert {p: p.stat().st_mtime_ns for p in where.rglob("*.safetensors")} == before
    runs = cells.get(ALONE)
    assert cells.get(ALONE) is runs
    assert runs.accuracy().shape == (2,)
    assert runs.accuracy().min() > 0.3
    assert runs.label == "alone"


def test_a_stopped_run_goes_on_to_the_same_numbers(folder, tmp_path, monkeypatch):
    ran, asked = [], []
    count(monkeypatch, ran)
    kept = tmp_path / "cells" / "tiny" / "stiff.safetensors"

    def stop():
        asked.append(kept.exists())
        return kept.exists()

    with pytest.raises(Stopped):
        Cells(tmp_path, SEEDS, stop=stop).finish([STIFF, LOOSE, ALONE])
    assert asked[-1] is True
    assert asked.count(True) == 1  # the first block of the second batch was the last
    assert not asked[0]
    again = Cells(tmp_path, SEEDS)
    assert [again.has(c) for c in (STIFF, LOOSE, ALONE)] == [True, True, False]
    again.finish([STIFF, LOOSE, ALONE])
    assert [label for label, _ in ran] == ["tiny stiff (+1)", "tiny alone", "tiny alone"]
    never = Cells(folder[0], SEEDS)
    for cell in (STIFF, LOOSE, ALONE):
        same(again.get(cell), never.get(cell))


@pytest.mark.parametrize(
    ("change", "seeds", "message"),
    [
        ({"rounds": 6, "evaluations": 3}, SEEDS, "was run with rounds = 4, now 6"),
        ({"evaluations": 4}, SEEDS, "was run with eval_every = 2, now 1"),
        ({"data": dataclasses.replace(RECIPE, spread=0.0)}, SEEDS, "was run with data = .*'spread': 0.3"),
        ({"pixels": (-1, 1)}, SEEDS, r"was run with pixels = None, now \[-1, 1\]"),
        ({}, [0], r"was run with seeds = \[0, 1\], now \[0\]"),
        ({}, [1, 0], r"was run with seeds = \[0, 1\], now \[1, 0\]"),
    ],
)
def test_a_cell_made_otherwise_is_refused(folder, change, seeds, message):
    other = ALONE._replace(setting=dataclasses.replace(SETTING, **change))
    with pytest.raises(CgpflError, match=message) as caught:
        Cells(folder[0], seeds).get(other)
    assert "alone.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cell_of_another_method_is_refused(folder):
    with pytest.raises(CgpflError, match=r"was run with method.prox = 12.0, now 1.0"):
        Cells(folder[0], SEEDS).get(LOOSE._replace(label="stiff"))
    with pytest.raises(CgpflError, match="was run with method = 'PFedMe', now 'Local"):
        Cells(folder[0], SEEDS).get(ALONE._replace(label="stiff"))


def test_cells_made_otherwise_are_refused_before_anything_runs(folder, monkeypatch):
    ran = []
    count(monkeypatch, ran)
    new = LOOSE._replace(label="new")
    with pytest.raises(CgpflError, match="was run with seeds"):
        Cells(folder[0], [0]).finish([new, ALONE])
    assert ran == []


def test_other_samples_by_the_same_recipe_are_noticed(tmp_path, sets):
    digits = load("digits")
    of = ALONE._replace(setting=dataclasses.replace(SETTING, data=dataclasses.replace(RECIPE, source="mnist")))
    Cells(tmp_path, SEEDS).finish([of])
    sets(digits._replace(x=digits.x[::-1].copy()))
    with pytest.raises(CgpflError, match="was run with splits = "):
        Cells(tmp_path, SEEDS).finish([of])
    sets(digits)
    Cells(tmp_path, SEEDS).finish([of])


def test_a_damaged_cell_is_named(folder, tmp_path):
    file = tmp_path / "cells" / "tiny" / "alone.safetensors"
    file.parent.mkdir(parents=True)
    file.write_bytes((folder[0] / "cells" / "tiny" / "alone.safetensors").read_bytes()[:100])
    with pytest.raises(CgpflError, match=r"alone\.safetensors: (is damaged|cannot be read)"):
        Cells(tmp_path, SEEDS).get(ALONE)


def test_settings_that_cannot_be_run_are_refused_before_anything_runs(tmp_path, monkeypatch):
    ran = []
    count(monkeypatch, ran)
    rash = Cell(SETTING, "rash", get_method("l2sgd", {"rate": 0.05, "prox": 12.0, "coin": 0.1}))
    with pytest.raises(CgpflError, match=r"must be at most 0\.5"):
        Cells(tmp_path, SEEDS).finish([ALONE, rash])
    assert ran == []
    assert not (tmp_path / "cells").exists()


def test_times_add_up(folder, tmp_path):
    times = Cells(folder[0], SEEDS).seconds()
    assert set(times) == {"tiny stiff (+1)", "tiny alone"}
    assert all(v > 0 for v in times.values())
    cells = Cells(tmp_path, SEEDS)
    assert cells.seconds() == {}
    cells.add_seconds("a", 1.5)
    cells.add_seconds("b", 0.126)
    Cells(tmp_path, SEEDS).add_seconds("a", 2.25)
    assert json.loads((tmp_path / "times.json").read_text()) == {"a": 3.75, "b": 0.13}


def test_progress_is_told_up_to_the_last_round(tmp_path):
    told = []
    Cells(tmp_path, SEEDS, told.append).finish([ALONE])
    assert {p.label for p in told} == {"tiny alone"}
    assert [p.round for p in told][-1] == told[-1].rounds == 4


def test_a_federation_is_made_once_and_its_pixels_mapped_on_demand():
    data = federation(SETTING, 0)
    assert federation(dataclasses.replace(SETTING, name="other", rounds=9), 0) is data
    assert federation(SETTING, 1) is not data
    mapped = federation(dataclasses.replace(SETTING, pixels=(-1, 1)), 0)
    assert (mapped.scale, mapped.shift) == (2 / 255, -1.0)
    assert (0 * mapped.scale + mapped.shift, 255 * mapped.scale + mapped.shift) == (-1.0, 1.0)
    assert np.array_equal(mapped.x, data.x)


@pytest.mark.slow
def test_a_cell_may_have_seeds_of_its_own(folder, tmp_path, monkeypatch):
    """In one program with cells of other seeds."""
    cells, ran = Cells(tmp_path, SEEDS), []
    count(monkeypatch, ran)
    other = STIFF._replace(label="other", seeds=(1, 7))
    cells.finish([STIFF._replace(seeds=(0,)), LOOSE, other])
    assert ran == [("tiny stiff (+2)", 5)]
    alone, both = cells.get(STIFF._replace(seeds=(0,))), Cells(folder[0], SEEDS).get(STIFF)
    assert alone.seeds == [0]
    assert alone.accuracy()[0] == pytest.approx(both.accuracy()[0], abs=1e-6)
    assert cells.get(LOOSE).seeds == [0, 1]
    assert cells.get(other).seeds == [1, 7]
    assert cells.get(other).accuracy()[0] == pytest.approx(both.accuracy()[1], abs=1e-6)
    with pytest.raises(CgpflError, match=r"was run with seeds = \[1, 7\], now \[7, 1\]"):
        Cells(tmp_path, SEEDS).get(other._replace(seeds=(7, 1)))


@pytest.mark.slow
def test_other_splits_of_the_same_samples_are_one_program(tmp_path, monkeypatch):
    cells, ran = Cells(tmp_path, SEEDS), []
    count(monkeypatch, ran)

    def variant(name, **data):
        setting = dataclasses.replace(SETTING, name=name, data=dataclasses.replace(RECIPE, **data))
        return ALONE._replace(setting=setting)

    equal, random = variant("equal", spread=0.0), variant("random", split="random")
    held = variant("held", validation=0.15)
    cells.finish([ALONE, equal, random, held])
    assert ran == [("tiny alone (+2)", 6), ("held alone", 2)]  # samples held out are evaluated, too
    for cell in (ALONE, equal, random):
        counts = [federation(cell.setting, s).test.counts for s in SEEDS]
        for own, n in zip(cells.get(cell).records, counts, strict=True):
            assert (own.values["correct"] <= n).all()
    alone = Cells(tmp_path / "again", SEEDS)
    alone.finish([random])
    same(cells.get(random), alone.get(random), exactly=False)
    assert "validation_correct" in cells.get(held).records[0].values


def test_records_that_nothing_is_made_of_are_left_out(folder):
    runs = Cells(folder[0], SEEDS).get(STIFF)
    assert set(runs.records[0].values) == {"correct", "train_loss"}
