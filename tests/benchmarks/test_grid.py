"""The flags of python -m benchmarks.bench, and what it refuses in one line."""

import sys

import pytest

from benchmarks.bench.__main__ import app
from benchmarks.bench.grid import CLIENTS, METHODS, MODELS, Grid, grid_of, joined
from cgpfl.cli import main


def bench(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    with pytest.raises(SystemExit) as done:
        main(app)
    return done.value.code


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--methods", "cgpfl", "ditto"], "--methods: no 'ditto'; there are cgpfl, pfedme, fedavg"),
        (["--models", "mlr,resnet"], "--models: no 'resnet'; there are mlr, dnn, cnn"),
        (["--clients", "40", "few"], "--clients few: must be whole numbers"),
        (["--clients", "3"], "--clients 3: must be from 4 to 15000"),
        (["--clients", "20000"], "--clients 20000: must be from 4 to 15000"),
        (["--models", ","], "--models: is empty; name at least one"),
        (["--rounds", "0"], "--rounds 0: must be at least 1"),
        (["--repeats", "0"], "--repeats 0: must be at least 1"),
        (["--repeats", "x"], "'--repeats'"),
        (["--limit", "0"], "--limit 0: must be above 0"),
        (["--device", "tpu"], "--device tpu: must be auto, cpu or gpu"),
        (["--out", "taken"], "--out taken: is a file; give a folder"),
        (["--json", "nowhere/b.json"], "--json nowhere/b.json: must be a file in a folder that is there"),
        (["stray"], "stray"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    assert bench(monkeypatch, *flags) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith("cgpfl: ")
    assert message in line
    assert told.out == ""
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_the_command(tmp_path, monkeypatch, capsys):
    """Flags arrive, files are written, the table is printed."""
    from benchmarks.bench import run

    asked = []

    def measured(grid, tell, keep):
        asked.append(grid)
        tell("a step")
        found = run.Result(grid, run.facts(), run.measure(32, 256, 1), notes=("nothing was timed",))
        keep(found)
        return found

    monkeypatch.setattr(run, "run", measured)
    monkeypatch.chdir(tmp_path)
    flags = ["--models", "mlr", "dnn", "--methods", "cgpfl", "--clients", "400", "40", "--quick", "--no-sweep"]
    assert bench(monkeypatch, *flags, "--out", "out", "--json", "b.json") == 0
    assert asked == [Grid(("cgpfl",), ("mlr", "dnn"), (40, 400), 3, 2, sweep=False, sweep_rounds=20)]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["bench.json", "bench.md"]
    assert (tmp_path / "b.json").read_text() == (tmp_path / "out" / "bench.json").read_text()
    told = capsys.readouterr()
    assert told.err == "a step\n"
    assert told.out.endswith("nothing was timed\n\ntable, plot and every timing: out\n")


def test_defaults():
    assert grid_of() == Grid(METHODS, MODELS, CLIENTS)
    assert grid_of(quick=True).clients == (40,)
    assert grid_of(quick=True, clients="40 400", rounds=7) == Grid(
        clients=(40, 400), rounds=7, repeats=2, sweep_rounds=20
    )


def test_lists_are_joined():
    several = ("--models", "--clients")
    assert joined(["--models", "mlr", "dnn", "--out", "x", "y"], several) == ["--models", "mlr,dnn", "--out", "x", "y"]
    assert joined(["--models=mlr", "dnn"], several) == ["--models=mlr", "dnn"]
    assert joined([], several) == []
