"""The live page in a real browser, and its server."""

import json
import shutil
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from browser import METHODS, keep, lines, until
from cgpfl.errors import CgpflError
from cgpfl.report.events import Follower, seconds_left
from cgpfl.report.files import newest, recorded
from cgpfl.report.serve import serve
from run_folders import make

CHART = "document.querySelector(`[data-key='curves/live'] .chart`)"


@contextmanager
def serving(runs, port=0):
    with serve(runs, port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def going_on(run_folder, tmp_path):
    """A run as it looked when it had just begun, and its later events."""
    folder = tmp_path / "live"
    folder.mkdir()
    for name in ("config.toml", "federation.safetensors"):
        shutil.copy(run_folder / name, folder)
    events = (run_folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(events[:4]))  # opened, local started, two of its rounds
    return folder, events[4:]


def more(folder, events):
    with (folder / "events.jsonl").open("a") as file:
        file.write("".join(events))


def points(page, count):
    """Wait until the first method of the curves has so many points."""
    until(page, f"{CHART}?.data?.find(t => t.meta === 'method')?.x.length === {count}")


def test_the_page_gains_points_while_the_run_goes_on(opened, going_on):
    folder, later = going_on
    with serving([folder]) as server:
        page = opened(server.url)
        points(page, 2)
        assert page.locator("#head .badge").text_content() == "running"
        assert "2 of 8" in page.locator("#table").text_content()
        more(folder, later[:3])
        points(page, 5)
        until(page, "document.querySelector('#table').textContent.includes('5 of 8')")
        assert page.locator("#live").text_content() == "live"
        more(folder, later[3:])
        until(page, "document.querySelector('#head .badge').textContent === 'finished'")
        assert lines(page, "curves/live") == [[m, 8] for m in METHODS]
        keep(page, "watch-desktop-light")


def test_zoom_and_choices_survive_news(opened, going_on):
    folder, later = going_on
    with serving([folder]) as server:
        page = opened(server.url)
        points(page, 2)
        page.select_option("#y", "loss")
        page.evaluate(f"Plotly.relayout({CHART}, {{'xaxis.range': [1, 3]}})")
        more(folder, later[:3])
        points(page, 5)
        assert page.evaluate(f"{CHART}._fullLayout.xaxis.range") == [1, 3]
        assert page.evaluate(f"{CHART}._fullLayout.yaxis.title.text") == "test loss"


def test_it_reconnects(opened, going_on):
    folder, later = going_on
    with serving([folder]) as server:
        port = server.server_port
        page = opened(server.url)
        points(page, 2)
    until(page, "document.querySelector('#live').textContent === 'reconnecting'")
    more(folder, later[:2])
    with serving([folder], port):
        points(page, 4)
        assert page.locator("#live").text_content() == "live"
    opened.wrong[:] = [text for text in opened.wrong if "ERR_CONNECTION_REFUSED" not in text]  # as it must say


def test_two_runs_and_one_that_has_not_begun(opened, going_on, tmp_path):
    folder, _ = going_on
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    shutil.copy(folder / "config.toml", fresh)
    with serving([folder, fresh]) as server:
        page = opened(server.url)
        assert page.locator("#head .badge").all_text_contents() == ["running", "waiting"]
        points(page, 2)
        shutil.copy(folder / "events.jsonl", fresh)
        until(page, "document.querySelectorAll('#head .badge')[1].textContent === 'running'")


def get(url, **headers):
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10)


def test_only_this_machine_may_ask(going_on):
    folder, _ = going_on
    with serving([folder]) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert json.loads(get(server.url + "data").read())["page"]["live"] is True
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(server.url, Host="evil.example:80")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(server.url + "etc/passwd")


def test_what_a_browser_is_told(going_on):
    folder, _ = going_on
    with serving([folder]) as server:
        for path in ("", "data", "events", "favicon.ico"):
            with get(server.url + path) as answer:
                rules = answer.headers["Content-Security-Policy"]
                for rule in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
                    assert rule in rules
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers.get_all("Cache-Control") == ["no-store"]


def test_connections_are_limited(going_on, monkeypatch):
    folder, _ = going_on
    monkeypatch.setattr("cgpfl.report.serve.MOST", 3)
    with serving([folder]) as server:
        held = [get(server.url + "events") for _ in range(3)]
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(server.url + "data")
        held.pop().close()
        for one in held:
            one.close()
        more(folder, ["{}\n"])  # whoever is gone is noticed when there is news
        deadline = time.monotonic() + 20
        while True:
            try:
                assert json.loads(get(server.url + "data").read())["page"]["live"]
                break
            except urllib.error.HTTPError:
                assert time.monotonic() < deadline
                more(folder, ["{}\n"])
                time.sleep(0.2)


def head(server):
    return json.loads(get(server.url + "data").read())["head"]


def test_a_folder_that_comes_goes_and_comes_again(going_on, tmp_path):
    folder, _ = going_on
    later = tmp_path / "later"
    with serving([later]) as server:
        assert "not there yet" in head(server)
        folder.rename(later)
        assert ">running<" in head(server)
        later.rename(folder)
        assert ">gone<" in head(server)
        assert "is gone" in json.loads(get(server.url + "data").read())["settings"]
        folder.rename(later)
        assert ">running<" in head(server)


def test_events_are_read_on_from_where_they_were(going_on, monkeypatch):
    folder, later = going_on
    follower, parsed = Follower(folder), []
    real = json.loads
    monkeypatch.setattr("cgpfl.report.events.json.loads", lambda line: parsed.append(line) or real(line))
    assert follower.read().methods["local"]["round"] == 2
    before = len([line for line in parsed if line])
    assert before == 4
    more(folder, [later[0], later[1][:20]])  # the second is being written
    assert follower.read().methods["local"]["round"] == 3
    more(folder, [later[1][20:]])
    assert follower.read().methods["local"]["round"] == 4
    assert len([line for line in parsed if line]) <= before + 4
    assert follower.read().methods["local"]["history"].equals(Follower(folder).read().methods["local"]["history"])
    events = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(events[:3]))  # begun anew
    assert follower.read().methods["local"]["round"] == 1


def test_time_left():
    def method(done, rounds, seconds, over=False):
        return {"round": done, "rounds": rounds, "summary": {"seconds": seconds, **({"rounds": done} if over else {})}}

    assert seconds_left({}, ["a"]) is None
    assert seconds_left({"a": method(5, 20, 10.0)}, ["a"]) == 30
    assert seconds_left({"a": method(20, 20, 40.0, True), "b": method(10, 20, 30.0)}, ["a", "b", "c"]) == 30 + 50
    assert seconds_left({"a": method(20, 20, 40.0, True), "b": method(0, 20, None)}, ["a", "b"]) == 40


def test_trouble_is_said_on_the_page_and_goes_away(opened, going_on):
    folder, later = going_on
    config = (folder / "config.toml").read_text()
    with serving([folder]) as server:
        page = opened(server.url)
        points(page, 2)
        (folder / "config.toml").write_text("= =")
        more(folder, later[:1])
        until(page, "document.querySelector('#trouble').textContent.includes('config.toml cannot be read')")
        assert page.locator("#trouble").is_visible()
        (folder / "config.toml").write_text(config)
        more(folder, later[1:2])
        points(page, 4)
        assert page.locator("#trouble").is_hidden()
    opened.wrong[:] = [text for text in opened.wrong if "status of 500" not in text]  # as it must say


def test_whatever_goes_wrong_is_one_line(going_on, monkeypatch):
    folder, _ = going_on

    def broken(runs, live=None):
        raise RuntimeError("no\nluck")

    with serving([folder]) as server:
        monkeypatch.setattr("cgpfl.report.serve.fragments", broken)
        with pytest.raises(urllib.error.HTTPError, match="500") as error:
            get(server.url + "data")
        assert error.value.read() == b"RuntimeError: no luck\n"


def test_files_that_vanish_are_skipped(tmp_path, monkeypatch):
    """A resumed run removes records that it will write again, maybe between being listed and being looked at."""
    folder = make(tmp_path / "run")
    gone = folder / "methods" / "cgpfl" / "records-000009.safetensors"
    before = newest(folder), recorded(folder / "methods" / "cgpfl")[0]
    real = Path.glob
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [*real(self, pattern), gone])
    assert (newest(folder), recorded(folder / "methods" / "cgpfl")[0]) == before


def test_bad_input_is_one_line(going_on, tmp_path):
    folder, _ = going_on
    (tmp_path / "empty").mkdir()
    with pytest.raises(CgpflError, match="is it a run folder"):
        serve([tmp_path / "empty"])
    with serving([folder]) as server, pytest.raises(CgpflError, match=r"--port \d+: cannot be used"):
        serve([folder], server.server_port)
