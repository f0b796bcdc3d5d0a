"""docs/battery.md is made from a run."""

import importlib.util
import json
from pathlib import Path

import pytest

from cgpfl.battery.cells import Outcome
from cgpfl.battery.files import write_all
from cgpfl.battery.problems import PROBLEMS
from cgpfl.battery.regret import regrets
from cgpfl.battery.run import Battery, Wishes
from cgpfl.files import write

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """docs/battery.py, writing elsewhere."""
    spec = importlib.util.spec_from_file_location("battery_page", DOCS / "battery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOLDER", tmp_path / "docs")
    return module


def made(out, problems, quick=False):
    out.mkdir()
    outcomes = [
        Outcome(p, m, [0], [a], [None], [None], [None], 1.0, "a machine")
        for m, a in (("local", 0.5), ("fedavg", 0.6))
        for p in problems
    ]
    wishes = Wishes(tuple(problems), ("local", "fedavg"), 1, 150, quick)
    write(out / "battery.json", json.dumps(wishes.kept).encode())
    write_all(Battery(out, wishes, regrets(outcomes), outcomes, []))
    return out


def test_the_page_has_the_text_and_every_problem(page):
    """After a change to the problems: python docs/battery.py RUN."""
    text = (DOCS / "battery.md").read_text()
    assert page.problems() in text
    assert text.startswith((DOCS / "battery.intro.md").read_text().rstrip())


def test_a_page_from_a_run(page, tmp_path):
    text = page.page(made(tmp_path / "run", list(PROBLEMS)))
    assert "| fedavg | 0.0 | 0.0 |" in text
    assert "](battery/battery.png)" in text
    assert "`cgpfl battery --seeds 1 --rounds 150`" in text
    assert text.count("# How far behind the best?") == 1
    assert sorted(p.name for p in (tmp_path / "docs").iterdir()) == sorted(page.FILES)


def test_what_does_not_belong_on_a_page(page, tmp_path):
    with pytest.raises(SystemExit, match="is a quick run"):
        page.page(made(tmp_path / "quick", list(PROBLEMS), quick=True))
    with pytest.raises(SystemExit, match="has no results on rotations, "):
        page.page(made(tmp_path / "few", ["iid"]))
