"""A small battery from wishes to files; what is kept, and what is refused."""

import importlib
import json
import os
import signal
import sys

import pytest

from cgpfl import cli
from cgpfl.algorithms import METHODS
from cgpfl.algorithms.wrapper import standing_alone
from cgpfl.battery.cells import Cell, Unit, load, model_of, units
from cgpfl.battery.problems import PROBLEMS, federation
from cgpfl.battery.processes import shares
from cgpfl.battery.run import Tally, Wishes, run, wishes_of
from cgpfl.engine import simulate
from cgpfl.errors import CgpflError
from cgpfl.experiment.run import Progress, Stopped
from helpers import cgpfl_process, start

ROOM = importlib.import_module("cgpfl.battery.run")
SMALL = ["ten", "writers"]


def small(methods="local,fedavg", seeds=2, rounds=2, **more):
    return wishes_of(SMALL, methods, seeds, rounds, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two problems of one form, two methods; everything told."""
    out, told = tmp_path_factory.mktemp("battery") / "out", []
    return out, run(small(), out, on_progress=told.append), told


def test_a_battery_leaves_its_files(made):
    out, battery, told = made
    names = ["battery.json", "battery.csv", "regrets.csv", "contexts.csv", "BATTERY.md"]
    names += [f"battery.{kind}" for kind in ("png", "svg", "pdf")]
    assert sorted(p.name for p in out.iterdir()) == sorted([*names, "cells"])
    cells = sorted(str(p.relative_to(out / "cells")) for p in out.glob("cells/*/*"))
    assert cells == [f"{p}/{m}.0-1.json" for p in SMALL for m in ("fedavg", "local")]
    assert json.loads((out / "battery.json").read_text()) == {"seeds": 2, "rounds": 2, "quick": False}
    assert set(battery.regrets.methods) == {"local", "fedavg"}
    assert battery.regrets.problems == ["writers", "ten"]  # in the order of the tables
    assert all(0 < a < 1 for o in battery.outcomes for a in o.accuracy)
    assert {p.label for p in told} == {"local", "fedavg"}
    last = [p for p in told if p.label == "fedavg"][-1]
    assert (last.round, last.rounds) == (2, 2)


def test_one_program_a_form_gives_what_a_run_alone_gives(made):
    """Stacked with other problems and seeds, a run has the numbers of the engine's own."""
    _, battery, _ = made
    (found,) = (o for o in battery.outcomes if (o.problem, o.method) == ("ten", "fedavg"))
    data = federation("ten", 1)
    _, records, _ = simulate(METHODS["fedavg"], data, model_of("ten"), rounds=2, seed=1)
    assert found.accuracy[1] == pytest.approx(records["correct"][-1].sum() / data.test.counts.sum(), abs=1e-6)


@pytest.mark.slow
def test_what_is_finished_is_kept(made, monkeypatch):
    out, battery, _ = made
    ran, real = [], ROOM.run_batch

    def noted(batch, **more):
        ran.append((batch.label, len(batch.todo)))
        return real(batch, **more)

    monkeypatch.setattr(ROOM, "run_batch", noted)
    before = {p: p.stat().st_mtime_ns for p in out.glob("cells/*/*")}
    again = run(small(), out)
    assert ran == []
    assert again.outcomes == battery.outcomes
    (out / "cells" / "ten" / "local.0-1.json").unlink()
    run(small(), out, jobs=2)  # one program: no processes
    assert ran == [("local", 2)]
    assert {p for p, t in before.items() if p.stat().st_mtime_ns != t} == {out / "cells" / "ten" / "local.0-1.json"}


def test_other_wishes_are_refused(made, tmp_path):
    out, _, _ = made
    with pytest.raises(CgpflError, match=r"was made with seeds = 2, now 3; choose another --out"):
        run(small(seeds=3), out)
    with pytest.raises(CgpflError, match=r"was made with rounds = 2, now 4"):
        run(small(rounds=4), out)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CgpflError, match="exists and is no folder of cgpfl battery"):
        run(small(), tmp_path)
    with pytest.raises(CgpflError, match="exists and is no folder"):
        run(small(), tmp_path / "notes.txt")
    with pytest.raises(CgpflError, match="cannot be created"):
        run(small(), tmp_path / "notes.txt" / "under")
    with pytest.raises(CgpflError, match="jobs = 0: must be at least 1"):
        run(small(), tmp_path / "new", jobs=0)
    with pytest.raises(CgpflError, match=r"cgpfl: warmup = 5: takes .* answers"):
        run(small("cgpfl"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_cell_made_otherwise_is_refused(made, tmp_path):
    out, _, _ = made
    cell = Cell("ten", "local", (0, 1))
    values = json.loads(cell.file(out).read_text())
    file = cell.file(tmp_path)
    file.parent.mkdir(parents=True)
    for name, value in (("method.rate", 0.3), ("splits", ["other", "other"])):
        file.write_text(json.dumps({**values, "made_with": {**values["made_with"], name: value}}))
        with pytest.raises(CgpflError, match=f"was run with {name} = "):
            load(cell, tmp_path, 2)
    for broken in ("{", "[]", "{}"):
        file.write_text(broken)
        with pytest.raises(CgpflError, match=r"cannot be read .* delete it to run it anew"):
            load(cell, tmp_path, 2)


def test_ctrl_c_keeps_what_is_finished(made, tmp_path):
    def tell(progress):
        if progress.label == "fedavg":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Stopped):
        run(small(), tmp_path / "out", on_progress=tell)
    assert sorted(p.name for p in (tmp_path / "out").glob("cells/*/*")) == ["local.0-1.json"] * 2
    assert not (tmp_path / "out" / "BATTERY.md").exists()


def test_wishes():
    every = wishes_of()
    assert (every.problems, every.methods) == (tuple(PROBLEMS), tuple(standing_alone()))
    assert (every.seeds, every.rounds) == (5, 150)
    assert wishes_of(methods="ditto").methods == ("local", "fedavg", "ditto")  # these two always
    quick = wishes_of(quick=True)
    assert (quick.seeds, quick.rounds) == (2, 20)
    assert {"local", "fedavg"} < set(quick.methods) < set(METHODS)
    for wrong, message in (
        ({"methods": "fedavgg"}, "no method 'fedavgg'; did you mean fedavg"),
        ({"problems": ["idd"]}, "no problem 'idd'"),
        ({"seeds": 0}, "seeds = 0: must be at least 1"),
        ({"rounds": 0}, "rounds = 0: must be at least 1"),
        ({"more_seeds": -1}, "contexts-seeds = -1: must be at least 0"),
    ):
        with pytest.raises(CgpflError, match=message):
            wishes_of(**wrong)


def test_more_seeds_for_contexts(monkeypatch):
    """Beside those of the tables, or all where the method is not in them."""
    monkeypatch.setattr(ROOM, "CHOOSES", "ifca")
    with_it = wishes_of(["ten"], "ifca", 2, 3, more_seeds=5)
    assert with_it.more_cells() == [Cell("ten", "ifca", (2, 3, 4))]
    assert wishes_of(["ten"], "ditto", 2, 3, more_seeds=2).more_cells() == [Cell("ten", "ifca", (0, 1))]
    assert wishes_of(["ten"], "ifca", 2, 3, more_seeds=2).more_cells() == []
    monkeypatch.setattr(ROOM, "CHOOSES", "nobody")
    with pytest.raises(CgpflError, match="contexts-seeds: is for nobody, and there is no such method"):
        wishes_of(more_seeds=3)


def test_a_method_is_a_program_a_form():
    wishes = Wishes(tuple(PROBLEMS), ("local", "fedavg"), 5, 150)
    found = units(wishes.cells())
    assert len(found) == 8
    assert sum(len(u.cells()) for u in found) == 2 * len(PROBLEMS)
    assert all(len({PROBLEMS[p].form for p in u.problems}) == 1 for u in found)
    assert [u.method for u in found] == ["local"] * 4 + ["fedavg"] * 4


def test_a_methods_programs_are_one_bar():
    a, b = Unit("fedavg", (0,), ("ten",)), Unit("fedavg", (0,), ("iid",))
    told = []
    tally = Tally([a, b], 10, told.append)
    tally.tell(a, Progress("", 10, 10, 0.5, 2.0, None))
    tally.tell(b, Progress("", 4, 10, 0.6, 1.0, 3.0))
    assert [(p.label, p.round, p.rounds, p.accuracy) for p in told] == [
        ("fedavg", 10, 20, 0.5),
        ("fedavg", 14, 20, 0.6),
    ]
    assert told[0].seconds == pytest.approx(2.0, abs=0.1)


def test_cores_are_shared_out():
    assert shares([0, 1], 2) == [(0,), (1,)]
    assert shares([0, 1, 2, 3, 4], 2) == [(0, 1), (2, 3, 4)]
    assert shares([3, 7], 3) == [(3,), (7,), (3,)]


def command(monkeypatch, capsys, *args):
    """``cgpfl battery`` in this process → exit code, lines of standard output, lines of the error."""
    monkeypatch.setattr(sys, "argv", ["cgpfl", "battery", *map(str, args)])
    with pytest.raises(SystemExit) as done:
        cli.main()
    told = capsys.readouterr()
    return done.value.code, told.out.splitlines(), told.err.splitlines()


def test_the_command(made, monkeypatch, capsys):
    out, _, _ = made
    flags = ("--methods", "fedavg", "--seeds", 2, "--rounds", 2, "--out", out)
    code, lines, errors = command(monkeypatch, capsys, *SMALL, *flags)
    assert (code, errors) == (0, [])
    assert lines[1].split() == ["method", "mean", "worst", "on", "best", "within", "0.5"]
    assert {lines[2].split()[0], lines[3].split()[0]} == {"local", "fedavg"}
    assert max(map(len, lines[:-1])) <= 80
    assert lines[-1] == f"tables, picture and every run: {out}"
    assert command(monkeypatch, capsys, *SMALL, *flags, "--quiet") == (0, [], [])


def test_the_list(monkeypatch, capsys):
    code, lines, _ = command(monkeypatch, capsys, "--list")
    assert code == 0
    assert [line.split()[0] for line in lines if line.strip()] == ["problem", *PROBLEMS]
    assert max(len(line.rstrip()) for line in lines) <= 80


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["nonsense"], "battery: no problem 'nonsense'; there are rotations, "),
        (["iid", "--methods", "ditto,mine"], "no method 'mine'; there are local, "),
        (["--seeds", "0"], "seeds = 0: must be at least 1"),
        (["--jobs", "0"], "jobs = 0: must be at least 1"),
        (["--rounds", "many"], "'--rounds'"),
        (["--device", "tpu"], "--device tpu: must be auto, cpu or gpu"),
        (["ten", "--rounds", "3", "--methods", "cgpfl-heur"], "warmup = 5: takes"),
    ],
)
def test_refused_in_one_line(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    code, lines, errors = command(monkeypatch, capsys, *flags)
    assert (code, lines, len(errors)) == (2, [], 1)
    assert errors[0].startswith("cgpfl: ")
    assert message in errors[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_in_two_processes_the_same_comes_out(made, tmp_path):
    """As in one, one program each; a worker that fails is heard of. In a process that is not pytest's."""
    out, battery, _ = made
    flags = ("--methods", "fedavg", "--seeds", 2, "--rounds", 2, "--jobs", 2)
    done = cgpfl_process("battery", *SMALL, *flags, "--out", "two", cwd=tmp_path)
    assert "fedavg" in done.stdout
    for o in battery.outcomes:
        other = load(Cell(o.problem, o.method, (0, 1)), tmp_path / "two", 2)
        assert other.accuracy == pytest.approx(o.accuracy, abs=1e-6)
    (tmp_path / "three" / "cells").mkdir(parents=True)
    (tmp_path / "three" / "battery.json").write_text((out / "battery.json").read_text())
    (tmp_path / "three" / "cells" / "ten").write_text("in the way")
    done = cgpfl_process("battery", *SMALL, *flags, "--out", "three", cwd=tmp_path, code=2)
    assert done.stderr.startswith("cgpfl: battery: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_ctrl_c_with_two_processes(tmp_path):
    flags = ("--methods", "fedavg,ditto", "--seeds", "2", "--rounds", "100000", "--jobs", "2", "--out", "out")
    process = start("battery", *SMALL, *flags, cwd=tmp_path)
    process.stdout.readline()  # something runs
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "Stopped; what is finished is saved. The same command goes on with the rest.\n"
