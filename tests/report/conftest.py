from pathlib import Path

import pytest

import browser as chromium
from browser import METHODS
from cgpfl.experiment import run_experiment
from cgpfl.experiment.config import from_dict


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """A small real run: 8 clients, 2 hidden contexts, four methods, 8 rounds of steps on all samples (no draws)."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    methods = [{"name": m, "batch_size": 0, **({"contexts": 2} if m == "cgpfl" else {})} for m in METHODS]
    data = {"clients": 8, "contexts": 2}
    run_experiment(from_dict({"rounds": 8, "data": data, "method": methods}, "test"), folder)
    return folder


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium, or the test is skipped."""
    pytest.importorskip("playwright")
    path = chromium.find()
    if path is None:
        pytest.skip("no Chromium here; fetch one with: make browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(**chromium.options(path))
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Opens pages, by default 1280 wide; each must end without an error on its console or a request elsewhere."""
    contexts, wrong = [], []

    def open_page(url, width=1280, height=900, scheme="light", wait="#curves .main-svg"):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: wrong.append(str(e)))
        allowed = ("file:", "data:", "blob:", "http://127.0.0.1")
        page.on("request", lambda r: None if r.url.startswith(allowed) else wrong.append(r.url))
        page.goto(url if "://" in str(url) else Path(url).resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        if wait:
            page.wait_for_selector(wait, state="attached")
        return page

    open_page.wrong = wrong
    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
