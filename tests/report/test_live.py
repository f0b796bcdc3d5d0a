"""A real run, watched in a real browser while it goes on."""

import signal
import time

import pytest

from browser import keep, until
from cgpfl.report.serve import serve
from helpers import start


@pytest.mark.slow
def test_a_run_is_watched_from_its_first_rounds_to_its_end(opened, tmp_path):
    import threading

    folder = tmp_path / "run"
    small = ["--clients", "8", "--set", "data.contexts=2", "--set", "cgpfl.contexts=2", "--set", "checkpoint_seconds=1"]
    process = start("run", *small, "--method", "local", "--method", "cgpfl", "--rounds", 20000, "--out", folder)
    while not (folder / "config.toml").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    with serve([folder], 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        page = opened(server.url, wait=None)
        count = "page.runs[0].methods.map(m => m.history.round.length).reduce((a, b) => a + b, 0)"
        until(page, f"{count} > 0", 120)
        before = page.evaluate(count)
        until(page, f"{count} > {before}", 120)
        until(page, "page.runs[0].methods.length === 2 && page.runs[0].methods[1].history.round.length > 2", 120)
        until(page, "document.querySelectorAll(`[data-key='map/run']`).length === 1", 120)  # from a checkpoint
        assert page.locator("#head .badge").text_content() == "running"
        keep(page, "watch-a-real-run")
        process.send_signal(signal.SIGINT)
        until(page, "document.querySelector('#head .badge').textContent === 'stopped'", 60)
        assert f"cgpfl resume {folder}" in page.locator("#settings").text_content()
        server.shutdown()
        thread.join()
    assert process.wait(timeout=60) == 130
