"""The whole reproduction on tiny federations, and everything it refuses."""

import csv
import dataclasses
import importlib
import json
import re
import signal

import numpy as np
import pytest

from cgpfl import cli
from cgpfl.data import load
from cgpfl.errors import CgpflError
from cgpfl.experiment.run import Stopped
from cgpfl.paper import PARTS, beyond, bounds, cells, make, sweep, tables, watched
from cgpfl.paper.cells import Cells, federation
from cgpfl.paper.plan import family_cell, k_cell, percent, table_1_cell
from cgpfl.paper.section import Section
from cgpfl.paper.split import counts
from handmade import plan, section, tiny

ROOM = importlib.import_module("cgpfl.paper.make")  # as an attribute of cgpfl.paper it is the function
PICTURES = {
    "split": ["mnist", "fashion-mnist"],
    "table1": ["table1"],
    "table2": ["table2"],
    "figure-k": ["accuracy-over-k", "curves"],
    "figure-heur": ["heur"],
    "figure-contexts": ["contexts"],
    "figure-distances": ["distances"],
    "figure-kmeans": ["kmeans"],
    "theory": ["gradient"],
    "sweep": [],
    "beyond": ["beyond"],
}


@pytest.fixture(scope="module")
def small(sets):
    """Digits as MNIST and as Fashion-MNIST, eight clients, two methods; every batch that is run is noted."""
    settings, ran = tiny(), []
    real = cells.run_batch

    def noted(batch, **more):
        ran.append(batch.label)
        return real(batch, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ROOM, "settings", lambda quick: settings)
        patch.setattr(tables, "ROWS", ("local", "pfedme"))
        patch.setattr(tables, "FAMILY", ("pfedme",))
        patch.setitem(sweep.SWEEPS, "mnist-mlr", sweep.Sweep(methods=("pfedme",)))
        patch.setattr(cells, "run_batch", noted)
        yield ran


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    """The tables first, then split and sweep into the same folder."""
    out = tmp_path_factory.mktemp("paper") / "out"
    first = make(["table2", "table1"], out, quick=True, seeds=2)
    page, ran = (out / "index.html").read_text(encoding="utf-8"), list(small)
    rest = make(["sweep", "split"], out, quick=True, seeds=2)
    return out, first, page, ran, rest


def ours(out):
    """The cells of the folder, by themselves."""
    return Cells(out, [0, 1])


def rows_of(file):
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_parts_are_made_in_the_order_of_the_page(made):
    out, first, _, _, rest = made
    assert [s.name for s in first.sections] == ["table1", "table2"]
    assert [s.name for s in rest.sections] == ["split", "sweep"]
    assert first.folder == out
    assert json.loads((out / "paper.json").read_text()) == {"quick": True, "seeds": 2}


def test_every_part_leaves_its_files(made):
    out, first, _, _, rest = made
    complete(out, [*first.sections, *rest.sections])
    assert [p.verdicts for p in (*first.sections, *rest.sections)] == [[]] * 4  # quick numbers mean little


def complete(out, sections):
    """Whether every part has left its pictures, tables and text."""
    for part in sections:
        folder = out / part.name
        assert sorted(f.name for f in part.figures) == sorted(PICTURES[part.name])
        for kind, head in (("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml")):
            assert {p.stem for p in folder.glob(f"*.{kind}")} == set(PICTURES[part.name])
            assert all(p.read_bytes().startswith(head) for p in folder.glob(f"*.{kind}"))
        assert (folder / f"{part.name}.md").read_text(encoding="utf-8").startswith(f"# {part.title}\n")
        assert Section.load(folder) == part
        assert list(folder.glob("*.csv"))


def test_cells_of_one_method_are_one_program(made, small):
    ran = made[3]
    assert ran == [
        *("mnist-mlr local", "mnist-mlr pfedme-lambda-12 (+1)"),
        *("fmnist-mlr local", "fmnist-mlr pfedme-lambda-12 (+1)"),
    ]
    assert small[len(ran) :] == ["mnist-mlr sweep-pfedme-eta-0.02 (+1)"]


def test_table_1_has_the_cells_accuracy(made):
    out, settings = made[0], tiny()
    facts = rows_of(out / "table1" / "table1.csv")
    assert len(facts) == 2 * 2
    for setting in settings.values():
        for label in ("local", "pfedme"):
            mean, std = percent(ours(out).get(table_1_cell(setting, label)))
            row = next(f for f in facts if f["setting"] == setting.title and f["method"] == label)
            assert float(row["accuracy_%"]) == pytest.approx(mean, abs=6e-4)
            assert float(row["std"]) == pytest.approx(std, abs=6e-4)
            assert 10 < mean < 100
    shown = next(row for row in section(out / "table1")["tables"][0]["rows"] if row[0] == "Local")
    mean, std = percent(ours(out).get(table_1_cell(settings["mnist-mlr"], "local")))
    assert shown[1:3] == [f"{mean:.1f} ± {std:.1f}", "–"]


def test_table_2_has_the_cells_accuracy(made):
    out, setting = made[0], tiny()["fmnist-mlr"]
    facts = rows_of(out / "table2" / "table2.csv")
    row = next(f for f in facts if f["setting"] == "FMNIST-MLR" and f["method"] == "pfedme" and f["lambda"] == "13.0")
    mean, _ = percent(ours(out).get(family_cell(setting, "pfedme", 13.0)))
    assert float(row["accuracy_%"]) == pytest.approx(mean, abs=6e-4)
    assert row["published"] == "85.49"


def test_the_split_is_told(made):
    out, setting = made[0], tiny()["mnist-mlr"]
    rows = rows_of(out / "split" / "split.csv")
    sizes = counts(federation(setting, 1)).sum(axis=1)
    row = next(r for r in rows if r["set"] == "mnist" and r["seed"] == "1")
    told = {name: int(row[name]) for name in ("smallest", "median", "largest", "all")}
    assert told == {"smallest": sizes.min(), "median": int(np.median(sizes)), "largest": sizes.max(), "all": 1797}
    assert len(rows) == 4


def test_the_page_grows_with_every_call(made):
    out, _, before, _, _ = made
    after = (out / "index.html").read_text(encoding="utf-8")
    named = [re.findall(r'<section id="([^"]+)">', page) for page in (before, after)]
    assert named == [["table1", "table2"], ["split", "table1", "table2", "sweep"]]
    assert before.count("data:image/svg+xml;base64,") == 2
    assert after.count("data:image/svg+xml;base64,") == 4
    assert re.findall(r'(?:src|href)="(?!#|data:)', after) == []
    assert "Quick run" in after
    assert "seeds 0..1" in after


def test_the_page_tells_the_longest_programs_and_the_time_of_all(made, small):
    where = plan(made[0], {}, quick=True)
    where.cells.times = {ROOM.ALL: 5.0, "a": 900.0, "b": 30.0, "c": 20.0, "d": 10.0, "e": 1.0}
    facts = ROOM.facts(where)
    assert "5 s in all, compilation and drawing included" in facts
    assert facts[-1] == "5 programs; the longest: a 900 s, b 30 s, c 20 s, d 10 s"
    where.cells.times = {ROOM.ALL: 1.0}
    assert ROOM.facts(where)[-1] == "0 programs"


def test_who_computed_is_noted_once_and_on_the_page(made):
    out = made[0]
    (machine,) = ROOM.machines(out)
    assert machine.endswith("(cpu)")
    assert machine in (out / "index.html").read_text()


def test_again_nothing_is_run(made, small):
    out = made[0]
    before = {p: p.read_bytes() for p in out.rglob("*") if p.suffix in (".csv", ".svg", ".md", ".safetensors")}
    del small[:]
    times = ours(out).seconds()
    make(["split", "table1", "table2", "sweep"], out, quick=True, seeds=2)
    assert small == []
    assert {p: p.read_bytes() for p in out.rglob("*") if p.suffix in (".csv", ".svg", ".md", ".safetensors")} == before
    later = ours(out).seconds()
    assert later.pop(ROOM.ALL) == times.pop(ROOM.ALL)  # drawing again is not computing
    assert later == times


def test_a_stop_keeps_what_is_finished_and_counts_its_time(made, small, tmp_path, monkeypatch):
    out = tmp_path / "out"
    real, done = Cells._run, []

    def run(self, batch, group):
        real(self, batch, group)
        done.append(batch.label)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Cells, "_run", run)
    with pytest.raises(Stopped):
        make(["table1"], out, quick=True, seeds=2)
    monkeypatch.undo()
    assert done == ["mnist-mlr local"]
    assert [p.name for p in (out / "cells" / "mnist-mlr").iterdir()] == ["local.safetensors"]
    assert ours(out).seconds().keys() == {"mnist-mlr local", ROOM.ALL}
    assert not (out / "index.html").exists()


def test_a_stop_between_parts(small, tmp_path, monkeypatch):
    """Where nothing is run in cells, as for the split, it is asked for before every part."""
    real = PARTS["split"].make

    def interrupted(where):
        found = real(where)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setitem(PARTS, "split", dataclasses.replace(PARTS["split"], make=interrupted))
    with pytest.raises(Stopped, match="figure-contexts"):
        make(["split", "figure-contexts"], tmp_path / "out", quick=True, seeds=1)
    assert (tmp_path / "out" / "split" / "section.json").exists()
    assert not (tmp_path / "out" / "watched").exists()


@pytest.mark.long
def test_everything(sets, tmp_path, monkeypatch):
    """All parts as they are, on digits, then again, when nothing is run any more."""
    settings = tiny(rounds=20, evaluations=5)
    data = {"source": "mnist", "split": "rotation", "clients": 8, "contexts": 2, "share": 0.5}
    monkeypatch.setattr(ROOM, "settings", lambda quick: settings)
    monkeypatch.setattr(beyond, "scenarios", lambda quick: [beyond.Scenario("rotation", "MNIST, 2 rotations", data)])
    out = tmp_path / "out"
    made = make(["all"], out, quick=True, seeds=2)
    assert [s.name for s in made.sections] == list(PARTS)
    complete(out, made.sections)
    page = (out / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<section id="([^"]+)">', page) == list(PARTS)
    assert page.count("data:image/svg+xml;base64,") == sum(map(len, PICTURES.values()))
    # One context in the sweep over K is pFedMe, four are CGPFL with K = 4.
    known = ours(out)
    for k, label in ((1, "pfedme"), (4, "cgpfl-4")):
        pair = (k_cell(settings["mnist-mlr"], k), family_cell(settings["mnist-mlr"], label))
        np.testing.assert_allclose(*(known.get(c).accuracy() for c in pair), atol=0.02)
    measured = json.loads((out / "theory" / "k-4.json").read_text())
    assert measured["k"] == 4
    assert measured["exact_rounds"] == [5, 10, 15, 20]  # a quick plan: four of them
    assert len(measured["terms"]) == 3
    assert measured["total"] > measured["complexity"] + measured["distance"] > 0
    shown = next(row for row in section(out / "theory")["tables"][0]["rows"] if row[0] == "4")
    assert shown[-2:] == [f"{measured['total']:.3g}", f"{measured['left']:.3g}"]
    facts = {f["method"]: f for f in rows_of(out / "beyond" / "beyond.csv")}
    assert len(facts["cgpfl-heur"]["ari"].split()) == 2
    for module in (bounds, watched):
        monkeypatch.setattr(module, "watch", None)
    monkeypatch.setattr(cells, "run_batch", None)
    monkeypatch.setattr(beyond, "compare", None)
    assert make(["all"], out, quick=True, seeds=2).sections == made.sections


# Refusals


def test_all_is_every_part_in_order():
    assert [p.name for p in ROOM.chosen(["all"])] == list(PARTS)
    assert [p.name for p in ROOM.chosen(["beyond", "all"])] == list(PARTS)
    assert [p.name for p in ROOM.chosen(["theory", "split", "theory"])] == ["split", "theory"]
    assert list(PARTS) == [
        *("split", "table1", "table2", "figure-k", "figure-heur", "figure-contexts", "figure-distances"),
        *("figure-kmeans", "theory", "sweep", "beyond"),
    ]
    assert all(part.name == name and part.meaning for name, part in PARTS.items())


def refused(message, names, out, **more):
    with pytest.raises(CgpflError, match=message) as caught:
        make(names, out, **more)
    assert "\n" not in str(caught.value)


def test_an_unknown_part(tmp_path):
    there = "split, table1, table2, figure-k, .*, sweep, beyond, all$"
    refused(f"paper: no part 'table3'; there are {there}", ["table1", "table3"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seeds", [0, -1])
def test_no_seeds(tmp_path, seeds):
    refused(f"seeds = {seeds}: must be at least 1", ["split"], tmp_path / "out", seeds=seeds)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_somebody_else_is_left_alone(small, tmp_path):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.txt").write_text("mine")
    refused("thesis: exists and is no folder of cgpfl paper; choose another", ["split"], out)
    assert [(p.name, p.read_text()) for p in out.iterdir()] == [("chapter.txt", "mine")]


def test_an_empty_folder_will_do(small, tmp_path):
    made = make(["split"], tmp_path, seeds=1)
    assert [s.name for s in made.sections] == ["split"]
    assert json.loads((tmp_path / "paper.json").read_text()) == {"quick": False, "seeds": 1}


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"quick": True, "seeds": 3}, "was made with seeds = 2, now 3; choose another --out"),
        ({"quick": False, "seeds": 2}, "was made with quick = True, now False; choose another --out"),
        ({"quick": False}, "was made with quick = True, now False"),
    ],
)
def test_a_folder_made_otherwise_is_refused(small, tmp_path, wishes, message):
    out = tmp_path / "out"
    make(["split"], out, quick=True)  # two seeds
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    refused(f"out {re.escape(str(out))}: {message}", ["split"], out, **wishes)
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ("table1", ["mnist", "fashion-mnist", "cifar10"]),
        ("split", ["mnist", "fashion-mnist", "cifar10"]),
        ("table2", ["mnist", "fashion-mnist"]),
        ("beyond", ["mnist", "fashion-mnist"]),
    ],
)
def test_data_that_is_missing_is_said_before_anything_is_written(tmp_path, monkeypatch, part, wanted):
    asked = []

    def missing(source):
        asked.append(source)
        if source == wanted[-1]:
            raise CgpflError(f"data {source}: not here")
        return load("digits")

    monkeypatch.setattr(ROOM, "load", missing)
    refused(f"data {wanted[-1]}: not here", [part], tmp_path / "out")
    assert asked == wanted
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made(small, tmp_path):
    (tmp_path / "file").write_text("")
    refused(r"out .*/file/out: cannot be created: Not a directory", ["split"], tmp_path / "file" / "out")


# The command line, in this process


def test_the_command_shows_tables_and_where_the_page_is(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["cgpfl", "paper", "split", "--quick", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert done.value.code == 0
    out = capsys.readouterr().out
    assert "The federation and the settings" in out
    assert "Client sizes" in out
    assert re.search(r"fashion-mnist +1 +[\d,]+ +[\d,]+ +[\d,]+ +1,797", out)
    assert "Every setting and where it comes from" not in out  # words: for the page
    assert out.splitlines()[-1].endswith(f"everything on one page: {tmp_path / 'out' / 'index.html'}")
