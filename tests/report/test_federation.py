import numpy as np
import pytest
from PIL import Image

from cgpfl.report.federation import class_map, draw_federation, size_bars

COUNTS = np.array([[30, 0, 5], [0, 1000, 0]])


def axes():
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def test_every_number_is_in_the_map():
    at = axes()
    class_map(at, COUNTS, ["a", "b", "c"])
    assert {(*t.get_position(), t.get_text()) for t in at.texts} == {(0, 0, "30"), (2, 0, "5"), (1, 1, "1000")}
    assert [t.get_text() for t in at.get_xticklabels()] == ["a", "b", "c"]
    shown = at.images[0].get_array()
    assert shown.mask.tolist() == [[False, True, False], [True, False, True]]


def test_every_client_has_its_bar():
    at = axes()
    size_bars(at, COUNTS.sum(axis=1))
    assert [bar.get_width() for bar in at.patches] == [35, 1000]
    assert [t.get_text() for t in at.texts] == ["35", "1,000"]


@pytest.mark.pictures
@pytest.mark.parametrize("shape", [(1, 2), (40, 10), (200, 10), (5, 100)])
def test_png(tmp_path, shape):
    counts = np.random.default_rng(0).integers(0, 50, shape)
    path = draw_federation(counts, "a federation", tmp_path / "f.png")
    with Image.open(path) as picture:
        wide, tall = picture.size
        pixels = np.asarray(picture.convert("L"))
    assert 500 < wide < 2600
    assert 250 < tall < 2000
    assert pixels.std() > 5


@pytest.mark.pictures
def test_svg_is_the_same_file_each_time(tmp_path):
    files = [draw_federation(COUNTS, "two clients", tmp_path / f"{i}.svg", ["one", "two", "three"]) for i in range(2)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert b"<svg" in files[0].read_bytes()
    other = draw_federation(COUNTS + 1, "two clients", tmp_path / "2.svg", ["one", "two", "three"])
    assert other.read_bytes() != files[0].read_bytes()
