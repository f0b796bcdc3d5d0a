"""The pages of advice and inspection in a real browser."""

import numpy as np
import pytest

import cgpfl
from browser import picture
from made_advice import advice, federation, frame


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    table = frame().assign(unit="mm", code=lambda t: np.where(t["outcome"] == "ill", "x", "y"))
    return {
        "advice": advice().save(folder / "advice"),
        "inspection": cgpfl.inspect(federation(table)).save(folder / "inspection"),
    }


@pytest.mark.parametrize("name", ["advice", "inspection"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_fits_the_screen_in_both_colours(opened, pages, name, width, scheme):
    page = opened(pages[name], width=width, scheme=scheme, wait=None)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert dark == (scheme == "dark")
    picture(page, f"{name}-{scheme}")


def test_the_recommended_way_stands_out(opened, pages):
    page = opened(pages["advice"], wait=None)
    assert page.locator("#table tbody tr").count() == 5
    assert page.locator("tr.taken").text_content().startswith("contexts89.")
    assert page.locator("#clients svg rect").count() == 8
    assert page.locator("#samples svg circle").count() == 3
    assert page.locator("#contexts h3").all_text_contents() == ["Context 1", "Context 2"]


def test_findings_are_listed_by_harm(opened, pages):
    page = opened(pages["inspection"], wait=None)
    assert page.locator(".finding .badge").all_text_contents() == ["breaks", "worth knowing"]
    assert page.locator("figure img").count() == 2
