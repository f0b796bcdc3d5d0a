"""A Chromium for the tests. ``python tests/browser.py`` fetches one where there is none (``make browser``).

Looked for: $CGPFL_CHROMIUM, Playwright's own, the one fetched here, the system's. Fetched: Playwright's own, or,
where only package registries can be reached, the build in the npm package @sparticuz/chromium (Linux on x86-64).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from pathlib import Path

PACKAGE = "@sparticuz/chromium@153.0.0"
HOME = Path(sys.prefix) / "chromium"
SHOTS = os.environ.get("CGPFL_SCREENSHOTS")
"""Folder that screenshots are kept in, if it is set."""
METHODS = ["local", "fedavg", "cgpfl", "cgpfl-heur"]
"""Of the small run that pages are tested with."""
LINES = "key => document.querySelector(`[data-key='${key}'] .chart`).data.filter(t => t.meta === 'method')"
"""The traces of a chart that are methods, in JavaScript."""
UNPACK = """
const fs = require("fs"), zlib = require("zlib");
for (const name of ["chromium", "al2023.tar", "fonts.tar"])
  fs.writeFileSync(name, zlib.brotliDecompressSync(fs.readFileSync("package/bin/" + name + ".br")));
"""


def find() -> Path | None:
    """The browser to use, if there is one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
    shells = sorted(own.parents[2].glob("chromium_headless_shell-*/*/*headless*shell*")) if own.name else []
    named = [Path(found) for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))]
    given = [Path(os.environ["CGPFL_CHROMIUM"])] if "CGPFL_CHROMIUM" in os.environ else []
    places = [*given, own, *shells, HOME / "chromium", *named]
    return next((p for p in places if p.is_file() and os.access(p, os.X_OK)), None)


def options(path: Path) -> dict:
    """How to start it: containers have no user namespaces for its sandbox, and some lack its libraries."""
    own = {"LD_LIBRARY_PATH": str(HOME / "lib"), "FONTCONFIG_FILE": str(HOME / "fonts.conf")}
    env = {**os.environ, **(own if path.parent == HOME else {})}
    return {"executable_path": str(path), "args": ["--no-sandbox"], "env": env}


def lines(page, key: str) -> list:
    """The methods a chart shows, and how many points each has."""
    return page.evaluate(f"key => ({LINES})(key).map(t => [t.name, t.x.length])", key)


def until(page, condition: str, seconds: float = 20.0) -> None:
    """Wait until an expression is true. (Playwright's own way evaluates text, which these pages forbid.)"""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"waited too long for {condition}"
        page.wait_for_timeout(50)


def keep(page, name: str) -> None:
    """A screenshot of a whole page that is read on, where they are kept."""
    if SHOTS:
        page.evaluate("refresh(true)")
        page.wait_for_timeout(300)
        picture(page, name)


def picture(page, name: str) -> None:
    """A screenshot of the whole page, where they are kept, to be looked at. A busy Chromium may refuse one."""
    from playwright.sync_api import Error

    refused = ""
    for _ in range(3 if SHOTS else 0):
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        try:
            page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)
            return
        except Error as error:
            refused = str(error).splitlines()[0]
            page.wait_for_timeout(1000)
    if refused:
        warnings.warn(f"no picture of {name}: {refused}", stacklevel=2)


def driver() -> tuple[str, str]:
    """Playwright's own node and its command line."""
    from playwright._impl._driver import compute_driver_executable

    return compute_driver_executable()


def fetch() -> None:
    """Playwright's own browser, or the registry's."""
    node, cli = driver()
    quiet = {"capture_output": True, "text": True}
    if subprocess.run([node, cli, "install", "--only-shell", "chromium"], **quiet).returncode == 0:
        return
    if platform.system() != "Linux" or platform.machine() != "x86_64" or shutil.which("npm") is None:
        print("no Chromium can be fetched here; set CGPFL_CHROMIUM, or the browser tests are skipped")
        return
    with tempfile.TemporaryDirectory(dir=sys.prefix) as name:
        folder = Path(name)
        subprocess.run(["npm", "pack", PACKAGE, "--ignore-scripts"], cwd=folder, check=True, **quiet)
        for archive in [*folder.glob("*.tgz")]:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        subprocess.run([node, "-e", UNPACK], cwd=folder, check=True, **quiet)
        for name in ("al2023.tar", "fonts.tar"):
            with tarfile.open(folder / name) as tar:
                tar.extractall(folder, filter="data")
        (folder / "chromium").chmod(0o755)
        HOME.mkdir(exist_ok=True)
        fonts = "".join(f"<dir>{place}</dir>" for place in ("/usr/share/fonts", HOME / "fonts"))
        (HOME / "fonts.conf").write_text(f"<fontconfig>{fonts}<cachedir>{HOME}/cache</cachedir></fontconfig>")
        for name in ("lib", "fonts", "chromium"):  # the browser last: it is there when everything is
            shutil.rmtree(HOME / name, ignore_errors=True)
            (folder / name).replace(HOME / name)


if __name__ == "__main__":
    if find() is None:
        fetch()
    print(f"Chromium for the tests: {find() or 'none; the browser tests are skipped'}")
