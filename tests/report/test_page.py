"""The report in a real browser."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from browser import LINES, METHODS, keep, lines, until
from cgpfl.files import SUMS
from cgpfl.report.page import write_report
from run_folders import make, write_records


def choose(page, select, value):
    page.select_option(select, value)


@pytest.fixture(scope="module")
def report(run_folder):
    return write_report([run_folder], run_folder / "report.html")


def draw_all(page):
    page.evaluate("refresh(true)")


def test_every_chart_is_there_with_its_series(opened, report):
    page = opened(report)
    draw_all(page)
    keys = page.evaluate("[...panels.keys()].map(k => k.split('/')[0])")
    assert set(keys) == {
        *("curves", "sorted", "gains", "found", "map", "groups", "labels", "projection", "distances", "k", "q"),
        *("ari", "moved", "distance", "kmeans"),
    }
    assert lines(page, "curves/small") == [[m, 8] for m in METHODS]
    assert lines(page, "sorted/small") == [[m, 8] for m in METHODS]
    assert [name for name, _ in lines(page, "ari/small")] == ["cgpfl", "cgpfl-heur"]
    assert page.locator("#table tbody tr").count() == 4
    full = "c => c.data || c.textContent"
    assert page.evaluate(f"[...document.querySelectorAll('.chart')].filter({full}).length") == len(keys)
    keep(page, "report-desktop-light")


def test_hover_tells_the_accuracy_of_every_method(opened, report):
    page = opened(report)
    box = page.locator("[data-key='curves/small'] .nsewdrag").first
    box.scroll_into_view_if_needed()
    box.hover()
    page.wait_for_selector("[data-key='curves/small'] .hoverlayer .legend text")
    text = page.locator("[data-key='curves/small'] .hoverlayer").text_content()
    assert all(m in text for m in METHODS)
    assert re.search(r"\d\d\.\d%", text)


def test_the_filter_hides_a_method_everywhere_and_references_stay(opened, report):
    page = opened(report)
    draw_all(page)
    page.locator("#filter label", has_text="cgpfl-heur").click()
    draw_all(page)
    for key in ("curves/small", "sorted/small"):
        assert [name for name, _ in lines(page, key)] == ["local", "fedavg", "cgpfl"]
    assert [name for name, _ in lines(page, "ari/small")] == ["cgpfl"]
    assert page.locator("#filter input:disabled").count() == 2
    page.locator("#filter label", has_text="cgpfl-heur").click()
    assert [name for name, _ in lines(page, "curves/small")] == METHODS


def test_axes_can_be_chosen(opened, report):
    page = opened(report)
    choose(page, "#x", "bytes")
    first = page.evaluate(f"({LINES})('curves/small').map(t => t.x[0])")
    assert first[0] == 0  # local training sends nothing
    assert first[1] == first[2] == pytest.approx(8 * 2 * 650 * 4 / 1e6, rel=1e-3)  # 650 floats up, 650 down, 8 clients
    choose(page, "#y", "shared_accuracy")
    assert [name for name, _ in lines(page, "curves/small")] == METHODS[1:]
    assert "Not measured of local" in page.locator("[data-key='curves/small'] .say").text_content()


def test_a_drag_zooms_and_a_new_metric_zooms_out(opened, report):
    page = opened(report)
    area = page.locator("[data-key='curves/small'] .nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 250, steps=4)
    page.mouse.up()
    span = "(r => r[1] - r[0])(document.querySelector(`[data-key='curves/small'] .chart`)._fullLayout.xaxis.range)"
    until(page, f"{span} < 4")
    choose(page, "#y", "loss")
    until(page, f"{span} > 6")


def test_the_chosen_method_is_the_one_drawn(opened, report):
    page = opened(report)
    select = page.locator("[data-key='found/small'] select")
    assert select.input_value() == "cgpfl-heur"
    assert page.locator("[data-key='k/small']").count() == 1
    select.select_option("cgpfl")
    assert page.locator("[data-key='k/small']").count() == 0  # its K was given
    assert page.locator("[data-key='groups/small'] h3").text_content().startswith("cgpfl:")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "dark")])
def test_it_fits_the_screen_in_both_colours(opened, report, width, scheme):
    page = opened(report, width=width, scheme=scheme)
    draw_all(page)
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("ui.dark") == (scheme == "dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert dark == (scheme == "dark")
    keep(page, f"report-{'phone' if width < 500 else 'desktop'}-{scheme}")
    page.click("#theme")
    assert page.evaluate("ui.dark") == (scheme != "dark")


def test_printing_draws_everything_on_white(opened, report, tmp_path):
    page = opened(report, scheme="dark")
    note = "seen.push([ui.dark, [...panels.values()].every(p => p.drawn)])"
    page.evaluate(f"window.seen = []; addEventListener('beforeprint', () => {note})")
    pdf = page.pdf(path=tmp_path / "report.pdf")
    assert page.evaluate("seen") == [[0, True]]
    assert pdf.startswith(b"%PDF")
    assert page.evaluate("ui.dark") == 1


def test_several_runs_stand_side_by_side(opened, run_folder, tmp_path):
    other = make(tmp_path / "other", methods=("local", "ditto", "cgpfl"))
    page = opened(write_report([run_folder, other], tmp_path / "both.html"))
    draw_all(page)
    left, right = (page.locator(f"[data-key='curves/{name}']").bounding_box() for name in ("small", "other"))
    assert left["y"] == right["y"]
    assert left["x"] < right["x"]
    colour = f"key => ({LINES})(key).find(t => t.name === 'cgpfl').line.color"
    assert page.evaluate(colour, "curves/small") == page.evaluate(colour, "curves/other")
    chips = [chip.strip() for chip in page.locator("#filter label").all_text_contents()]
    assert chips == [*METHODS, "ditto"]
    together = page.evaluate(f"({LINES})('overlay/all').map(t => [t.name, t.line.dash])")  # and on common axes
    first, second = [[m, "solid"] for m in METHODS], [[m, "dash"] for m in ("local", "ditto", "cgpfl")]
    assert together == first + second
    said = page.locator("[data-key='overlay/all'] .say").text_content()
    assert "Solid: small, dashes: other." in said
    assert page.locator("#table dl.words").count() == 1  # columns are explained once
    keep(page, "report-two-runs")


def name_clients(folder, names):
    summary = json.loads((folder / "summary.json").read_text())
    summary["data"]["names"] = names
    (folder / SUMS).unlink(missing_ok=True)  # changed on purpose
    (folder / "summary.json").write_text(json.dumps(summary))


TICKS = "document.querySelector(`[data-key='gains/run'] .chart`)._fullLayout.xaxis.ticktext"


def test_clients_have_their_names(opened, tmp_path):
    folder = make(tmp_path / "run", clients=3, methods=("local", "cgpfl"))
    page = opened(write_report([folder], tmp_path / "plain.html"))
    draw_all(page)
    assert sorted(page.evaluate(TICKS)) == ["client 0", "client 1", "client 2"]
    name_clients(folder, ["north", "south <b>", "west"])
    page = opened(write_report([folder], tmp_path / "named.html"))
    draw_all(page)
    assert sorted(page.evaluate(TICKS)) == ["north", "south <b>", "west"]
    told = page.evaluate("document.querySelector(`[data-key='map/run'] .chart`).data[0].customdata.map(row => row[0])")
    assert sorted(told) == ["north", "south <b>", "west"]


def test_one_context_has_nothing_to_compare(opened, tmp_path):
    page = opened(write_report([make(tmp_path / "run", clients=6, rounds=(1, 2, 3), k=1)], tmp_path / "report.html"))
    keys = page.evaluate("[...panels.keys()].map(k => k.split('/')[0])")
    assert not {"map", "q", "distances", "moved"} & set(keys)
    draw_all(page)
    assert "There is one context" in page.locator("[data-key='found/run']").text_content()


def test_axes_of_contexts_and_the_slider_are_labelled(opened, report):
    page = opened(report)
    draw_all(page)
    title = "key => document.querySelector(`[data-key='${key}/small'] .chart`)._fullLayout.yaxis.title.text"
    for key in ("map", "k", "labels", "projection", "distances", "q"):
        assert page.evaluate(title, key), key
    slider = page.locator("[data-key='q/small'] label")
    assert slider.text_content().startswith("up to round ")
    page.locator("[data-key='q/small'] input").fill("7")
    assert page.locator("[data-key='q/small'] output").text_content() == "8"
    assert page.locator("[data-key='q/small'] .say").text_content().startswith("Rounds 7 to 8:")


def test_a_table_says_that_it_scrolls(opened, report):
    hint = "#table .hint.more"
    assert not opened(report).locator(hint).is_visible()
    assert opened(report, width=390).locator(hint).is_visible()


def test_every_column_is_explained_where_it_stands(opened, report):
    page = opened(report)
    columns = page.locator("#table th").all_text_contents()
    assert page.locator("#table dl.words dt").all_text_contents() == columns[1:]


def test_gains_are_of_the_same_client(opened, tmp_path):
    folder = make(tmp_path / "run", methods=("local", "ditto"))  # client i: i of 10 alone, i + 1 by ditto
    correct = np.array([[1, 2, 3, 4], [1, np.nan, 3, 4]], np.float32)
    write_records(folder / "methods" / "ditto", [1, 2], {"correct": correct})
    page = opened(write_report([folder], tmp_path / "report.html"))
    draw_all(page)
    said = page.locator("[data-key='gains/run'] .say").text_content()
    assert said.startswith("3 of 3 clients gain over training alone, 0 lose, 0 end the same; in the middle +10.0")


ODD = {
    "one client, one round": {"clients": 1, "rounds": (1,), "k": 1},
    "everything diverged at once": {"diverged": {"local": 1, "fedavg": 1, "cgpfl": 1}},
    "one diverged later": {"rounds": (1, 2, 3), "diverged": {"cgpfl": 3}},
    "no local training": {"methods": ("fedavg", "ditto")},
    "a thousand clients": {"clients": 1000, "rounds": range(1, 101), "k": 12},
}


@pytest.mark.parametrize("what", ODD)
def test_odd_runs_are_still_readable(opened, tmp_path, what):
    settings = ODD[what]
    file = write_report([make(tmp_path / "run", **settings)], tmp_path / "report.html")
    page = opened(file)
    draw_all(page)
    methods = settings.get("methods", ("local", "fedavg", "cgpfl"))
    diverged = settings.get("diverged", {})
    assert page.locator("#table tbody tr").count() == len(methods)
    assert page.locator("#table .bad").count() == len(diverged)
    drawn = [name for name, _ in lines(page, "curves/run")]
    assert drawn == [m for m in methods if diverged.get(m, 2) > 1]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert file.stat().st_size < 5e6
    keep(page, "report-" + what.replace(",", "").replace(" ", "-"))


def test_forty_clients_and_ten_methods_stay_small(tmp_path):
    methods = ("local", "fedavg", "cgpfl", *(f"cgpfl-{i}" for i in range(7)))
    folder = make(tmp_path / "run", clients=40, rounds=range(1, 101), methods=methods, k=4)
    assert write_report([folder], tmp_path / "report.html").stat().st_size < 5e6


def test_a_metric_can_be_drawn(opened, tmp_path):
    folder = make(tmp_path / "run", rounds=(1, 2), methods=("local", "fedavg"))
    summary = json.loads((folder / "summary.json").read_text())
    summary["metrics"] = {"mine": {"title": "my <own>", "help": "what it is", "percent": False, "higher": False}}
    for facts in summary["methods"].values():
        facts["metrics"] = {"mine": {"pooled": 1.25, "mean": 1.0, "worst_tenth": 2.0, "std": 0.1}}
    (folder / SUMS).unlink(missing_ok=True)  # changed on purpose
    (folder / "summary.json").write_text(json.dumps(summary))
    history = pd.read_csv(folder / "history.csv")
    history.assign(**{"mine": 1.25, "mine/worst_tenth": 2.0}).to_csv(folder / "history.csv", index=False)
    page = opened(write_report([folder], tmp_path / "report.html"))
    assert page.locator("#table tbody tr").first.text_content().count("1.25") == 1
    choose(page, "#y", "mine/worst_tenth")
    draw_all(page)
    assert page.evaluate(f"({LINES})('curves/run').map(t => t.y)") == [[2, 2], [2, 2]]
    axis = page.evaluate("document.querySelector(`[data-key='curves/run'] .chart`)._fullLayout.yaxis.title.text")
    assert axis == "my <own>, worst tenth"
    assert page.locator("#y").input_value() == "mine/worst_tenth"
