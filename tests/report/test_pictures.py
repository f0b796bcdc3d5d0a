"""Pictures written by another process are those that this one writes."""

import re
import shutil
import sys
import zlib

import pytest
from matplotlib.ticker import FuncFormatter

from cgpfl.report import pictures
from run_folders import make

pytestmark = pytest.mark.pictures


def painted(formatter=None):
    picture = pictures.blank((3, 2))
    axes = picture.add_subplot()
    axes.plot([0, 1], [1, 3], label="λ = 1")
    axes.legend()
    if formatter is not None:
        axes.xaxis.set_major_formatter(formatter)
    return picture


def test_another_process_writes_the_same_bytes(tmp_path):
    with pictures.beside() as write:
        for name in ("a", "b"):
            pictures.save_picture(painted(), tmp_path / "beside", name, write)
    pictures.save_picture(painted(), tmp_path, "a")
    for name in ("a.pdf", "a.svg", "a.png"):
        assert (tmp_path / "beside" / name).read_bytes() == (tmp_path / name).read_bytes()
    assert (tmp_path / "beside" / "b.pdf").exists()


def test_what_it_cannot_write_is_written_here(tmp_path, monkeypatch):
    with pictures.beside() as write:  # a function without a name cannot be told to another process
        write(painted(FuncFormatter(lambda x, _: f"{x:.2f}")), tmp_path / "x.pdf")
    assert (tmp_path / "x.pdf").read_bytes()[:4] == b"%PDF"
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pictures.beside() as write:
        write(painted(), tmp_path / "y.pdf")
    assert (tmp_path / "y.pdf").read_bytes()[:4] == b"%PDF"


@pytest.fixture
def told(monkeypatch):
    """The folders whose figures this process draws."""
    found = []
    monkeypatch.setattr("cgpfl.report.figures.draw", found.append)
    return found


def test_painters_without_a_run_are_gone_at_the_end(told):
    with pictures.Painters() as painters:
        painters.start()
        painters.start()
        child = painters._child
    assert child.returncode is not None
    assert told == []


@pytest.mark.parametrize("there", [True, False])
def test_what_painters_cannot_draw_is_drawn_here(there, told, tmp_path, monkeypatch):
    """A folder that is no run; and where no process can be started."""
    if not there:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pictures.Painters() as painters:
        painters.draw(tmp_path)
    assert told == [tmp_path]


def test_a_run_that_is_interrupted_is_not_waited_for(told, tmp_path):
    painters = pictures.Painters()

    def interrupted():
        with painters:
            painters.draw(tmp_path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert told == []
    assert painters._child.returncode is not None


def test_painters_draw_what_this_process_would(told, tmp_path):
    from cgpfl.report import figures

    run = make(tmp_path / "run")
    figures._draw(run, pictures.write_picture)
    here = {path.name: path.read_bytes() for path in (run / "figures").iterdir()}
    shutil.rmtree(run / "figures")
    with pictures.Painters() as painters:
        painters.draw(run)
    assert {path.name: path.read_bytes() for path in (run / "figures").iterdir()} == here
    assert told == []


def test_fonts_keep_their_letters_alone(tmp_path):
    """Embedded as TrueType, without the tables that lay out text."""
    from fontTools.subset import Options

    before = list(Options._drop_tables_default)
    content = pictures.write_picture(painted(), tmp_path / "a.pdf").read_bytes()
    fonts = [
        zlib.decompress(part) for part in re.findall(rb"/FlateDecode.{0,80}?stream\n(.*?)\nendstream", content, re.S)
    ]
    letters = [font for font in fonts if font[:4] == b"\0\1\0\0"]
    assert letters
    assert not any(name in font[:400] for font in letters for name in (b"GSUB", b"GPOS", b"GDEF"))
    assert Options._drop_tables_default == before


def test_every_picture_is_drawn_by_one_of_them(tmp_path, monkeypatch):
    from cgpfl.report import figures

    drawn = []
    monkeypatch.setattr(figures, "save_picture", lambda picture, folder, name, write: drawn.append(name) or [])
    run = make(tmp_path / "run")
    figures.draw(run)
    whole, drawn[:] = list(drawn), []
    for i in range(2):
        figures._draw(run, pictures.write_picture, (i, 2))
    assert sorted(drawn) == sorted(whole)
    assert len(whole) > 1
