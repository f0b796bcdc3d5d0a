"""Several runs on common axes, for a paper."""

import numpy as np
import pytest

from cgpfl.errors import CgpflError
from cgpfl.report.overlay import overlay, write_overlay
from cgpfl.report.page import read_runs
from cgpfl.report.pictures import blank
from run_folders import make

pytestmark = pytest.mark.pictures


@pytest.fixture
def runs(tmp_path):
    return [make(tmp_path / "a", methods=("local", "fedavg")), make(tmp_path / "b", methods=("fedavg", "ditto"))]


def test_a_colour_a_method_and_a_style_a_run(runs):
    axes = blank((4, 3)).add_subplot()
    overlay(axes, [run for _, run in read_runs(runs)])
    lines = {line.get_label().split("  ")[0]: line for line in axes.get_lines()}
    assert list(lines) == ["local, a", "fedavg, a", "fedavg, b", "ditto, b"]
    assert lines["fedavg, a"].get_color() == lines["fedavg, b"].get_color() != lines["local, a"].get_color()
    assert lines["fedavg, a"].get_linestyle() == "-"
    assert lines["fedavg, b"].get_linestyle() == "--"
    # Clients 0 to 3 of method j answer (i + j) of 10: 25 % on average of the second, in both rounds.
    np.testing.assert_allclose(lines["fedavg, a"].get_ydata(), [25, 25])
    np.testing.assert_allclose(lines["fedavg, b"].get_ydata(), [15, 15])


def test_files_for_a_paper(runs, tmp_path):
    files = write_overlay(runs, tmp_path / "paper")
    assert [file.name for file in files] == ["curves.png", "curves.svg", "curves.pdf", "table.tex"]
    assert files[2].read_bytes().startswith(b"%PDF")
    text = files[3].read_text()
    assert text.count(r"\begin{tabular}") == 2
    assert text.startswith("% a: made split by up, 4 clients")
    again = write_overlay(runs, tmp_path / "again")
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]  # the same, to the byte


def test_nothing_evaluated_yet(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("rounds = 3\n")
    with pytest.raises(CgpflError, match="nothing was evaluated in"):
        write_overlay([tmp_path / "run"], tmp_path / "paper")
