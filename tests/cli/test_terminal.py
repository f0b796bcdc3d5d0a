"""What is printed while a run goes on, and after it."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from cgpfl.cli.terminal import progress, wrapped
from cgpfl.experiment.progress import in_python, shown_progress
from cgpfl.experiment.run import Progress

DONE = Progress("local", 2000, 2000, 0.5, 1.14, 1760.4)


def test_the_wait_for_the_first_round_is_told(capsys, monkeypatch):
    """Of the first method since the command was given, of the next since the last one ended."""
    clock = iter([100.0 + 4.25, 104.5, 110.0, 110.0, 112.5, 112.5])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with progress(began=100.0) as tell:
        tell(Progress("local", 1, 9, 0.25, 0.5, None))
        tell(Progress("local", 9, 9, 0.5, 3.0, 2.0))
        tell(Progress("fedavg", 1, 9, 0.25, 1.0, None))
    assert capsys.readouterr().out.splitlines() == [
        "local        round 1/9  accuracy  25.0%  first round after 4.5 s",
        "local        round 9/9  accuracy  50.0%  2 rounds/s  3.0 s",
        "fedavg       round 1/9  accuracy  25.0%  first round after 2.5 s",
    ]


def test_numbers_are_written_as_people_do():
    file = io.StringIO()
    with shown_progress(file) as tell:
        tell(DONE)
    assert file.getvalue() == "local        round 2,000/2,000  accuracy  50.0%  1,760 rounds/s  1.1 s\n"


def test_a_script_sees_progress_on_standard_error_unless_it_says_no(capsys):
    own = []
    for wanted, given in ((True, None), (False, None), (True, own.append)):
        with in_python(wanted, given) as tell:
            if tell is not None:
                tell(DONE)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("round 2,000/2,000") == 1
    assert own == [DONE]


def test_a_notebook_has_a_line_a_method_that_changes(monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown = []
    handle = SimpleNamespace(update=lambda line: shown.append(("update", line.data)))

    def show(line, display_id):
        shown.append(("display", line.data))
        return handle

    monkeypatch.setattr(display, "display", show)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    with shown_progress(io.StringIO()) as tell:
        tell(Progress("a<b", 1, 9, 0.25, 0.5, None))
        tell(Progress("a<b", 9, 9, 0.5, 3.0, 2.0))
    assert [kind for kind, _ in shown] == ["display", "update"]
    assert "a&lt;b" in shown[0][1]
    assert '<progress value="9" max="9">' in shown[1][1]


def test_prose_ends_at_80_columns_and_paths_stay_whole():
    path = "/" + "long-name/" * 12
    lines = wrapped(f"note: {'word ' * 30} {path}")
    assert all(len(line) <= 80 or path in line for line in lines)
    assert any(path in line for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
