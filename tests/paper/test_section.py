"""A part's text, tables and figures as files, and as one page."""

import base64
import csv
import json
import re

import pytest

from cgpfl.files import save_csv
from cgpfl.paper.page import render, write_page
from cgpfl.paper.section import Figure, Section, Verdict
from cgpfl.tables import Table

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
NUMBERS = Table("Table <1>", ["method", "a & b"], [["x<y", "1.0"], ["λ", "2.5 ± 0.1"]], "a note", [[1, 1]])
WORDS = Table("Words", ["setting", "remark"], [["first", "w" * 41]])
FIRST = Section(
    "first",
    "One & two",
    ["Plain <b>text</b>.", "Before\n\n```\na < b\n  kept\n```\nafter"],
    [NUMBERS, WORDS],
    [Figure("curve", 'A "curve" <of> two')],
    [Verdict("It <works>.", "reproduced", "1 & 2."), Verdict("It flies.", "not", "no wings.")],
)
SECOND = Section("second", "Another", verdicts=[Verdict("It swims.", "partly", "a little.")])


def saved(folder, *sections):
    for section in sections:
        section.save(folder / section.name)
        for figure in section.figures:
            (folder / section.name / f"{figure.name}.svg").write_bytes(SVG)


def test_a_section_comes_back_as_it_was(tmp_path):
    saved(tmp_path, FIRST, SECOND)
    assert Section.load(tmp_path / "first") == FIRST
    assert Section.load(tmp_path / "second") == SECOND
    assert "± 0.1" in (tmp_path / "first" / "section.json").read_text(encoding="utf-8")


def test_markdown(tmp_path):
    assert NUMBERS.markdown().splitlines() == [
        "**Table <1>**",
        "",
        "| method | a & b |",
        "|---|--:|",
        "| x<y | 1.0 |",
        "| λ | **2.5 ± 0.1** |",
        "",
        "a note",
    ]
    saved(tmp_path, FIRST)
    text = (tmp_path / "first" / "first.md").read_text(encoding="utf-8")
    order = [
        "# One & two\n\n",
        "Plain <b>text</b>.\n\n",
        NUMBERS.markdown(),
        WORDS.markdown(),
        '![A "curve" <of> two](curve.png)',
        "**It <works>.** Reproduced: 1 & 2.",
        "**It flies.** Not: no wings.",
    ]
    places = [text.find(piece) for piece in order]
    assert -1 not in places
    assert places == sorted(places)


def test_csv(tmp_path):
    rows = [{"a": 1, "b": "x, y"}, {"a": "", "b": 'said "no"'}]
    save_csv(tmp_path / "new" / "t.csv", rows)
    content = (tmp_path / "new" / "t.csv").read_bytes()
    assert content == b'a,b\n1,"x, y"\n,"said ""no"""\n'
    with (tmp_path / "new" / "t.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{k: str(v) for k, v in row.items()} for row in rows]
    with pytest.raises(ValueError, match="c"):
        save_csv(tmp_path / "t.csv", [{"a": 1}, {"c": 1}])
    assert not (tmp_path / "t.csv").exists()


@pytest.fixture
def page(tmp_path):
    saved(tmp_path, FIRST, SECOND)
    return render("Title <&>", 'Lead "words"', [FIRST, SECOND], tmp_path, ["fact <1>", "fact 2"])


def test_the_page_has_every_section_and_nothing_of_the_text_is_markup(page):
    assert page.startswith("<!doctype html>\n")
    assert "<title>Title &lt;&amp;&gt;</title>" in page
    assert "<h1>Title &lt;&amp;&gt;</h1>" in page
    for section in (FIRST, SECOND):
        assert f'<section id="{section.name}">' in page
        assert f'<a href="#{section.name}">' in page
    assert "Plain &lt;b&gt;text&lt;/b&gt;." in page
    assert "<caption>Table &lt;1&gt;</caption>" in page
    assert "<td>x&lt;y</td><td>1.0</td>" in page
    assert "<td>λ</td><td><b>2.5 ± 0.1</b></td>" in page
    assert "<th>a &amp; b</th>" in page
    assert '<p class="note">a note</p>' in page
    assert "<li>fact &lt;1&gt;</li><li>fact 2</li>" in page
    assert "<pre>a &lt; b\n  kept\n</pre>" in page
    assert "<p>Before</p>" in page
    assert "<p>after</p>" in page
    assert "```" not in page


def test_the_page_tells_the_claims_with_their_verdicts(page):
    claims = page[page.index("The paper's claims") : page.index('<section id="first">')]
    assert re.findall(r'<span class="verdict (\w+)">(\w+)</span>', claims) == [
        ("reproduced", "reproduced"),
        ("not", "not"),
        ("partly", "partly"),
    ]
    assert "It &lt;works&gt;." in claims
    assert "1 &amp; 2." in claims
    style = page[page.index("<style>") : page.index("</style>")]
    assert all(f".{verdict} {{ background" in style for verdict in ("reproduced", "partly", "not"))
    assert "The paper's claims" not in render("t", "l", [], None, [])


def test_long_words_wrap_and_numbers_do_not(page):
    assert '<table class="words"><caption>Words</caption>' in page
    assert "<table><caption>Table &lt;1&gt;</caption>" in page


def test_pictures_are_inside_and_nothing_is_loaded_from_elsewhere(page):
    picture = f"data:image/svg+xml;base64,{base64.b64encode(SVG).decode()}"
    caption = "A &quot;curve&quot; &lt;of&gt; two"
    assert f'<img alt="{caption}" src="{picture}"><figcaption>{caption}</figcaption>' in page
    references = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(references) == 3
    assert all(r.startswith(("#", "data:")) for r in references)
    assert not re.search(r"https?://|url\(|@import|<script|<link", page)


def test_a_picture_that_is_not_there_is_named(tmp_path):
    saved(tmp_path, FIRST)
    (tmp_path / "first" / "curve.svg").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        render("t", "l", [FIRST], tmp_path, [])
    assert caught.value.filename == str(tmp_path / "first" / "curve.svg")


def test_a_page_is_written_whole(tmp_path):
    write_page(tmp_path / "index.html", "λ")
    assert (tmp_path / "index.html").read_bytes() == "λ".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["index.html"]
    saved(tmp_path, SECOND)
    assert json.loads((tmp_path / "second" / "section.json").read_text())["name"] == "second"
