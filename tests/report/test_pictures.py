"""Pictures written by another process are those that this one writes."""

import sys

import pytest
from matplotlib.ticker import FuncFormatter

from cgpfl.report import pictures

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
