"""docs/reproduce.py: the page from a run, and from an earlier one what that does not have."""

import importlib.util
import json
from pathlib import Path

import pytest

from cgpfl.paper.section import Figure, Section, Verdict
from cgpfl.tables import Table


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """The script, with folders of its own and two parts."""
    file = Path(__file__).parents[2] / "docs" / "reproduce.py"
    spec = importlib.util.spec_from_file_location("reproduce", file)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(script, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(script, "FOLDER", tmp_path / "docs" / "reproduction")
    monkeypatch.setattr(script, "PARTS", dict.fromkeys(("table1", "theory")))
    (tmp_path / "docs" / "reproduction.intro.md").write_text("# The paper\n")
    return script


def section(name, number):
    table = Table("Numbers", ["what", "value"], [["one", str(number)]])
    verdict = Verdict(f"Claim of {name}.", "partly", f"{number} of 9.")
    return Section(name, f"Title of {name}", ["A text."], [table], [Figure("picture", "Seen.")], [verdict])


def ran(folder, *sections):
    """The folder of a run."""
    for made in sections:
        made.save(folder / made.name)
        for name in ("picture.png", "picture.svg", "numbers.csv"):
            (folder / made.name / name).write_text(f"{made.tables[0].rows}")
    (folder / "paper.json").write_text(json.dumps({"quick": False, "seeds": 5}))
    (folder / "times.json").write_text(json.dumps({"mnist-mlr first-local": 2.0, "mnist-mlr-tuning local": 3.0}))
    return folder


def test_a_part_that_a_run_does_not_have_stays_and_is_marked(docs, tmp_path):
    first = ran(tmp_path / "first", section("table1", 1), section("theory", 1))
    both = docs.collect(first)
    assert docs.EARLIER not in docs.page(both, first)
    second = ran(tmp_path / "second", section("table1", 2))
    sections = docs.collect(second)
    page = docs.page(sections, second)
    assert "| Claim of table1. | **partly** | 2 of 9. |" in page
    assert "| Claim of theory. | **partly** | *From an earlier run:* 1 of 9. |" in page
    assert "## Title of theory\n\n*From an earlier run.*\n\nA text." in page
    assert "## Title of table1\n\nA text." in page
    files = {p.name for p in (docs.FOLDER / "theory").iterdir()}
    assert files == {"section.json", "picture.png", "numbers.csv"}  # as the first run left them
    assert (docs.FOLDER / "theory" / "numbers.csv").read_text() == "[['one', '1']]"
    assert (docs.FOLDER / "table1" / "numbers.csv").read_text() == "[['one', '2']]"
    assert docs.page(docs.collect(second), second) == page  # again: no second mark


def test_a_mark_that_says_more_is_left_as_it_is(docs, tmp_path):
    kept = section("theory", 1)
    kept.text.insert(0, "From an earlier run, with the rates as first read.")
    kept.save(docs.FOLDER / "theory")
    run = ran(tmp_path / "run", section("table1", 2))
    page = docs.page(docs.collect(run), run)
    assert page.count("From an earlier run") == 2
    assert "\n\n*From an earlier run, with the rates as first read.*\n\nA text." in page


def test_a_part_that_is_nowhere(docs, tmp_path):
    run = ran(tmp_path / "run", section("table1", 2))
    with pytest.raises(SystemExit, match="has no part theory; make it with: cgpfl paper theory"):
        docs.collect(run)


def test_a_place_that_waits_for_numbers(docs, tmp_path):
    (docs.DOCS / "reproduction.intro.md").write_text("# The paper\n\n[FILL: how much]")
    run = ran(tmp_path / "run", section("table1", 2), section("theory", 1))
    with pytest.raises(SystemExit, match="1 places are still marked"):
        docs.page(docs.collect(run), run)


def test_what_a_run_took(docs, tmp_path):
    run = ran(tmp_path / "run", section("table1", 2), section("theory", 1))
    assert "compilation included: tables and figures 2, choice of rates 3." in docs.facts(run)
    assert docs.kind_of("watched mnist-mlr cgpfl-4") == "runs watched round by round"
    assert docs.kind_of("mnist-mlr-random varied-pfedme (+4)") == "variations"
