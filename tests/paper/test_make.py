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
from cgpfl.paper import PARTS, beyond, bounds, cells, make, sweep, table1, table2, watched
from cgpfl.paper.cells import Cells, federation
from cgpfl.paper.plan import Part, Plan, percent
from cgpfl.paper.readings import FIRST, READINGS, TUNED, family_cell, k_cell, table_1_cell
from cgpfl.paper.section import Section, Verdict
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
    "variations": [],
    "beyond": ["beyond"],
}


SMALL = {"context_rates": (0.06, 1.0), "etas": (0.005, 0.1)}


@pytest.fixture(scope="module")
def small(sets):
    """Digits as MNIST and as Fashion-MNIST, eight clients, two methods; every batch that is run is noted."""
    settings, ran = tiny(**SMALL), []
    real = cells.run_batch

    def noted(batch, **more):
        ran.append(batch.label)
        return real(batch, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ROOM, "settings", lambda quick: settings)
        patch.setattr(table1, "ROWS", ("local", "cgpfl-heur"))
        patch.setattr(table1, "EXTRA", ())
        patch.setattr(table2, "FAMILY", ("cgpfl-heur",))
        patch.setattr(sweep, "GRID", ("cgpfl-heur",))
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


def there(out):
    """A plan over them."""
    return Plan(out, True, tiny(**SMALL), ours(out))


def rows_of(file):
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.slow
def test_parts_are_made_in_the_order_of_the_page(made):
    out, first, _, _, rest = made
    assert [s.name for s in first.sections] == ["table1", "table2"]
    assert [s.name for s in rest.sections] == ["split", "sweep"]
    assert first.folder == out
    assert json.loads((out / "paper.json").read_text()) == {"quick": True, "seeds": 2}


@pytest.mark.slow
def test_every_part_leaves_its_files(made):
    out, first, _, _, rest = made
    complete(out, [*first.sections, *rest.sections])
    assert [p.verdicts for p in (*first.sections, *rest.sections)] == [[]] * 4  # quick numbers mean little


def complete(out, sections):
    """Whether every part has left its pictures, tables and text."""
    for part in sections:
        folder = out / part.name
        assert sorted(f.name for f in part.figures) == sorted(PICTURES[part.name])
        for kind, head in (("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
            assert {p.stem for p in folder.glob(f"*.{kind}")} == set(PICTURES[part.name])
            assert all(p.read_bytes().startswith(head) for p in folder.glob(f"*.{kind}"))
        assert (folder / f"{part.name}.md").read_text(encoding="utf-8").startswith(f"# {part.title}\n")
        assert Section.load(folder) == part
        assert list(folder.glob("*.csv"))


@pytest.mark.slow
def test_rates_are_chosen_first_and_both_readings_are_one_program(made, small):
    ran = made[3]
    assert ran == [
        *(f"{name}-tuning {what} (+3)" for name in ("mnist-mlr", "fmnist-mlr") for what in TRIED),
        # Both readings of a method, at both λ: 2 seeds at 12, of the others 2 and 1.
        *("mnist-mlr first-local (+1)", "mnist-mlr first-cgpfl-heur (+3)"),
        *("fmnist-mlr first-local (+1)", "fmnist-mlr first-cgpfl-heur (+3)"),
    ]
    assert small[len(ran) :] == []  # the sweep is made of the runs that chose


TRIED = ("local-rate-0.002", "cgpfl-heur-context-rate-0.06-personal-rate-0.005")


@pytest.mark.slow
def test_table_1_has_the_cells_accuracy(made):
    out, where = made[0], there(made[0])
    facts = rows_of(out / "table1" / "table1.csv")
    assert len(facts) == 2 * 2 * 2
    for setting in where.settings.values():
        for label in ("local", "cgpfl-heur"):
            for reading in READINGS:
                mean, std = percent(where.runs(table_1_cell(where, setting, label, reading)))
                row = next(
                    f for f in facts if (f["setting"], f["method"], f["reading"]) == (setting.title, label, reading)
                )
                assert float(row["accuracy_%"]) == pytest.approx(mean, abs=6e-4)
                assert float(row["std"]) == pytest.approx(std, abs=6e-4)
                assert 10 < mean < 100
    shown = next(row for row in section(out / "table1")["tables"][0]["rows"] if row[0] == "Local")
    cells_ = [table_1_cell(where, where.settings["mnist-mlr"], "local", r) for r in (FIRST, TUNED)]
    first, tuned = (percent(where.runs(c)) for c in cells_)
    assert shown[1:4] == ["{:.1f} ± {:.1f}".format(*first), "{:.1f} ± {:.1f}".format(*tuned), "–"]


@pytest.mark.slow
def test_the_choice_in_the_file_is_what_the_tuned_runs_have(made):
    out, where = made[0], there(made[0])
    tried = [f for f in rows_of(out / "table1" / "tuning.csv") if f["setting"] == "MNIST-MLR"]
    assert [f["method"] for f in tried] == ["local"] * 4 + ["cgpfl-heur"] * 4
    heur = tried[4:]
    best = max(heur, key=lambda f: float(f["validation_%"]))
    assert [f["chosen"] for f in heur].count("1") == 1
    assert best["chosen"] == "1"
    own = where.runs(table_1_cell(where, where.settings["mnist-mlr"], "cgpfl-heur")).settings
    assert (str(own["context_rate"]), str(own["personal_rate"])) == (best["context_rate"], best["personal_rate"])
    row = next(f for f in rows_of(out / "sweep" / "sweep.csv") if f["method"] == "cgpfl-heur")
    assert (row["validation_%"], row["accuracy_%"]) == (heur[0]["validation_%"], heur[0]["test_%"])


@pytest.mark.slow
def test_table_2_has_the_cells_accuracy(made):
    out, where = made[0], there(made[0])
    facts = rows_of(out / "table2" / "table2.csv")
    wanted = ("FMNIST-MLR", "cgpfl-heur", "13.0", "tuned")
    row = next(f for f in facts if (f["setting"], f["method"], f["lambda"], f["reading"]) == wanted)
    mean, _ = percent(where.runs(family_cell(where, where.settings["fmnist-mlr"], "cgpfl-heur", 13.0)))
    assert float(row["accuracy_%"]) == pytest.approx(mean, abs=6e-4)
    assert row["published"] == "94.61"


@pytest.mark.slow
def test_the_split_is_told(made):
    out, setting = made[0], tiny(**SMALL)["mnist-mlr"]
    rows = rows_of(out / "split" / "split.csv")
    sizes = counts(federation(setting, 1)).sum(axis=1)
    row = next(r for r in rows if r["set"] == "mnist" and r["seed"] == "1")
    told = {name: int(row[name]) for name in ("smallest", "median", "largest", "all")}
    assert told == {"smallest": sizes.min(), "median": int(np.median(sizes)), "largest": sizes.max(), "all": 1797}
    assert len(rows) == 4


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_page_tells_the_longest_programs_and_the_time_of_all(made, small):
    where = plan(made[0], {}, quick=True)
    where.cells.times = {ROOM.ALL: 5.0, "a": 900.0, "b": 30.0, "c": 20.0, "d": 10.0, "e": 1.0}
    facts = ROOM.facts(where)
    assert "5 s in all, compilation and drawing included" in facts
    assert facts[-1] == "5 programs; the longest: a 900 s, b 30 s, c 20 s, d 10 s"
    where.cells.times = {ROOM.ALL: 1.0}
    assert ROOM.facts(where)[-1] == "0 programs"


@pytest.mark.slow
def test_who_computed_is_noted_once_and_on_the_page(made):
    out = made[0]
    (machine,) = ROOM.machines(out)
    assert machine.endswith("(cpu)")
    assert machine in (out / "index.html").read_text()


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert done == ["mnist-mlr-tuning local-rate-0.002 (+3)"]
    assert len(list((out / "cells" / "mnist-mlr-tuning").iterdir())) == 4
    assert ours(out).seconds().keys() == {*done, ROOM.ALL}
    assert not (out / "index.html").exists()


@pytest.mark.slow
def test_some_settings_first_and_the_others_later(made, small, tmp_path, monkeypatch):
    """Nothing is drawn of some, and what they have is not computed again. Sets of the others need not be there."""
    out, real, asked = tmp_path / "out", ROOM.load, []
    del small[:]

    def load_(source):
        asked.append(source)
        return real(source)

    monkeypatch.setattr(ROOM, "load", load_)
    first = make(["table1", "sweep"], out, quick=True, seeds=2, only=["fmnist-mlr"])
    assert first.sections == []
    assert asked == ["fashion-mnist"]
    assert all(label.startswith("fmnist-mlr") for label in small)
    assert not (out / "table1").exists()
    assert not (out / "index.html").exists()
    assert {p.name for p in (out / "cells").iterdir()} == {"fmnist-mlr", "fmnist-mlr-tuning"}
    done = list(small)
    both = make(["table1", "sweep"], out, quick=True, seeds=2)
    assert [s.name for s in both.sections] == ["table1", "sweep"]
    assert len(small) == 2 * len(done)
    assert all(label.startswith("mnist-mlr") for label in small[len(done) :])
    # What comes of it is what comes of one call.
    whole = section(made[0] / "table1")["tables"]
    assert section(out / "table1")["tables"] == whole


def test_some_settings_of_parts_that_keep_their_runs_elsewhere(small, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(beyond, "_compare", lambda plan, scenario: ran.append(scenario.name))
    monkeypatch.setattr(bounds, "_measure", lambda plan, setting, k: ran.append(f"theory-{k}"))
    make(["theory", "beyond"], tmp_path / "out", quick=True, seeds=1, only=["fmnist-mlr"])
    assert ran == []
    make(["theory", "beyond"], tmp_path / "out", quick=True, seeds=1, only=["fmnist-mlr", "mnist-mlr"])
    assert ran == ["theory-1", "theory-4", "mnist-rotation"]


# An unfinished reproduction, drawn as it is


@pytest.mark.slow
def test_as_is_everything_there_is_drawn_and_nothing_is_run(made, small, monkeypatch):
    """The tables are finished; of the figures no run is there, of the theorems and problems neither."""
    out, first, _, _, rest = made
    before = {p: p.read_bytes() for p in out.rglob("*") if p.suffix in (".csv", ".svg", ".md", ".safetensors", ".json")}
    del small[:]
    for module in (bounds, watched):
        monkeypatch.setattr(module, "watch", None)
    monkeypatch.setattr(beyond, "compare", None)
    again = make(["all"], out, quick=True, seeds=2, as_is=True)
    assert again.sections == [*rest.sections[:1], *first.sections, *rest.sections[1:]]
    assert list(again.skipped) == [
        *(
            "figure-k",
            "figure-heur",
            "mu",
            "figure-contexts",
            "figure-distances",
            "figure-kmeans",
            "theory",
            "variations",
        ),
        "beyond",
    ]
    assert again.skipped["figure-k"] == again.skipped["figure-contexts"] == "none of its runs is finished"
    assert again.skipped["theory"] == "theory, K = 1: has not been run"
    assert again.skipped["beyond"].endswith(": has not been run")
    assert small == []
    assert {p: p.read_bytes() for p in before} == before
    assert {p.name for p in out.iterdir()} == {
        *("paper.json", "times.json", "machines.json", "index.html", "cells"),
        *("split", "table1", "table2", "sweep"),
    }


@pytest.mark.slow
def test_as_is_a_setting_that_is_not_finished_is_left_out_and_told(small, tmp_path):
    out = tmp_path / "out"
    make(["table1", "table2", "sweep"], out, quick=True, seeds=2, only=["fmnist-mlr"])
    del small[:]
    drawn = make(["table1", "table2", "sweep"], out, quick=True, seeds=2, as_is=True)
    one, two, sweep_ = drawn.sections
    assert (small, drawn.skipped) == ([], {})
    assert one.tables[0].rows[0][1:4] == ["–", "–", "–"]
    assert "Not run: MNIST-MLR, tuned: Local, CGPFL-Heur." in one.tables[0].note
    assert [t.title.partition(",")[0] for t in sweep_.tables] == ["FMNIST-MLR"]
    assert [t.columns[0] for t in two.tables] == ["FMNIST-MLR, λ ="]
    assert two.text[-1] == sweep_.text[-1] == "Not run yet: MNIST-MLR."
    # A run of it that is missing is enough.
    next((out / "cells" / "fmnist-mlr").glob("tuned-cgpfl-heur-lambda-13*")).unlink()
    drawn = make(["table1", "table2"], out, quick=True, seeds=2, as_is=True)
    assert ([s.name for s in drawn.sections], drawn.skipped) == (
        ["table1"],
        {"table2": "none of its runs is finished"},
    )


def test_as_is_claims_say_which_settings_they_leave_out(tmp_path, monkeypatch):
    settings = tiny()
    one = next(iter(settings.values()))
    told = [Verdict("It is so.", "reproduced", "everywhere.")]
    part = Part(
        "part",
        "",
        lambda plan: [],
        lambda plan: Section("part", "Part", verdicts=told),
        over=lambda plan: list(plan.settings.values()),
    )
    monkeypatch.setattr(ROOM, "_finished", lambda plan, part, setting: setting == one)
    made = ROOM._as_is(plan(tmp_path, {}, settings), part)
    assert made.verdicts == [Verdict("It is so.", "reproduced", "everywhere. Not run yet: FMNIST-MLR.")]
    assert made.text == ["Not run yet: FMNIST-MLR."]


def test_as_is_and_only_exclude_each_other(tmp_path):
    wishes = {"only": ["mnist-mlr"], "as_is": True}
    refused("only draws nothing, and as_is computes nothing; choose one", ["table1"], tmp_path / "out", **wishes)
    assert not (tmp_path / "out").exists()


def test_as_is_needs_a_folder(small, tmp_path):
    refused("out .*: is no folder of cgpfl paper; there is nothing to draw", ["split"], tmp_path / "out", as_is=True)
    assert not (tmp_path / "out").exists()


def test_a_stop_between_parts(small, tmp_path, monkeypatch):
    """Where nothing is run in cells, as for the split, it is asked for before every part."""
    real = PARTS["split"].make

    def interrupted(where):
        found = real(where)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setitem(PARTS, "split", dataclasses.replace(PARTS["split"], make=interrupted))
    with pytest.raises(Stopped, match="theory"):
        make(["split", "theory"], tmp_path / "out", quick=True, seeds=1)
    assert (tmp_path / "out" / "split" / "section.json").exists()
    assert not (tmp_path / "out" / "theory").exists()


@pytest.mark.long
def test_everything(sets, tmp_path, monkeypatch):
    """All parts as they are, on digits, then again, when nothing is run any more."""
    settings = tiny(rounds=20, evaluations=5, **SMALL)
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
    where = Plan(out, True, settings, ours(out))
    setting = settings["mnist-mlr"]
    for k, label in ((1, "pfedme"), (4, "cgpfl-4")):
        cells_ = k_cell(where, setting, k, FIRST), table_1_cell(where, setting, label, FIRST)
        np.testing.assert_allclose(*(where.runs(c).accuracy()[:1] for c in cells_), atol=0.02)
    assert section(out / "table1")["tables"][0]["rows"][-1][0] == "CGPFL-auto (ours)"
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
        *("split", "table1", "table2", "figure-k", "figure-heur", "mu", "figure-contexts", "figure-distances"),
        *("figure-kmeans", "theory", "sweep", "variations", "beyond"),
    ]
    assert all(part.name == name and part.meaning for name, part in PARTS.items())


def refused(message, names, out, **more):
    with pytest.raises(CgpflError, match=message) as caught:
        make(names, out, **more)
    assert "\n" not in str(caught.value)


def test_an_unknown_part(tmp_path):
    there = "split, table1, table2, figure-k, .*, sweep, variations, beyond, all$"
    refused(f"paper: no part 'table3'; there are {there}", ["table1", "table3"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_setting(tmp_path):
    wishes = {"only": ["mnist-mlr", "mnist"]}
    refused("paper: no setting 'mnist'; there are mnist-mlr, .*fmnist-mlr", ["table1"], tmp_path / "out", **wishes)
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
