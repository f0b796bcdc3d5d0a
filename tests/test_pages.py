"""The pages of the documentation: every block of Python and every command in them runs.

Blocks of a page are one session, in a folder of their own. Runs from the command line are of a few rounds here.
``toml`` blocks are files, named in the line after them. ``console`` blocks set a machine up: what they name must exist.
"""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path
from unittest import mock

import pytest
import typer

from cgpfl.cli import app, main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDES = sorted((DOCS / "guides").glob("*.md"))
PAGES = ["getting-started.md", "faq.md", "theory.md", "after-training.md", *(f"guides/{page.name}" for page in GUIDES)]
BLOCK = re.compile(r"```(\w*)\n(.*?)```(?=(.{0,80}))", re.DOTALL)
NEEDS = {"guides/modules.md": ("torch", "equinox"), "guides/example-images.md": ("torch",)}
"""What a page is about and the tests do without: it runs where that is installed (make test-torch)."""
SHORT = {name: ["--rounds", "24"] for name in ("run", "compare", "advise")}


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text())


def command(line):
    """A command of the page, in this process → what it printed."""
    program, *args = shlex.split(line, comments=True)
    assert program == "cgpfl", line
    more = [] if "--help" in args else SHORT.get(args[0], [])
    out = io.StringIO()
    called = mock.patch.object(sys, "argv", ["cgpfl", *args, *more])
    with called, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0, f"{line}: {out.getvalue()}"
    return out.getvalue()


WORKED = {
    page: pytest.mark.slow if "/example-" in page else pytest.mark.long
    for page in PAGES
    if page != "guides/hospitals.md"
}
"""Examples from foreign data to a report are run in every change's tests, the other pages in make test-long, and
hospitals by deploy/test_hospitals.py."""


@pytest.mark.parametrize("page", [pytest.param(page, marks=mark) for page, mark in WORKED.items()])
def test_a_page_runs(page, tmp_path, monkeypatch):
    for name in NEEDS.get(page, ()):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    session = {"__name__": "page"}
    ran = 0
    for kind, block, after in blocks(page):
        if kind == "python":
            exec(compile(block, page, "exec"), session)
            ran += 1
        elif kind == "sh":
            for line in block.strip().splitlines():
                assert command(line).strip(), line
                ran += 1
        elif kind == "toml":
            Path(re.search(r"saved as `([\w.]+)`", after)[1]).write_text(block)
    assert ran


def test_pages_have_no_other_kind_of_block():
    """A block that no test runs is text, and says so."""
    for page in [*PAGES, "index.md", "concepts.md", "glossary.md", "api.md"]:
        kinds = {kind for kind, _, _ in blocks(page)}
        assert kinds <= {"python", "sh", "toml", "console", "text"}, page


def test_what_is_to_be_installed_exists():
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    texts = [(DOCS / page).read_text() for page in PAGES]
    lines = [
        line for page in PAGES for kind, block, _ in blocks(page) if kind == "console" for line in block.split("\n")
    ]
    assert {line.split()[1] for line in lines if line.startswith("make")} <= made
    assert {line.split()[0] for line in lines if line} == {"make", "pip"}
    named = {extra for text in texts for extra in re.findall(r"pip install '(?:cgpfl|\.)\[(\w+)\]'", text)}
    assert named == {"report", "flax", "export", "deploy", "torch", "equinox"}
    assert named <= extras


def written():
    """Every command line in README and pages, without prompts and comments."""
    for file in (ROOT / "README.md", *sorted(DOCS.glob("*.md")), *GUIDES):
        for block in re.findall(r"```(?:sh|text)?\n(.*?)```", file.read_text(), re.DOTALL):
            for line in re.findall(r"(?:^|[$;] *|srun .* )cgpfl ([a-z-].*)$", block, re.MULTILINE):
                yield pytest.param(line.replace("$JOB_COMPLETION_INDEX", "0"), id=f"{file.stem}: {line[:50]}")


@pytest.mark.parametrize("line", [*written()])
def test_a_command_is_one_that_there_is(line):
    """Options and arguments are those of the command; nothing is run."""
    args = shlex.split(line, comments=True)
    found = typer.main.get_command(app)
    while args and hasattr(found, "commands"):
        assert args[0] in found.commands, line
        found = found.commands[args.pop(0)]
    if "--help" not in args:
        found.make_context(found.name, args)
