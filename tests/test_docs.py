"""The pages of the methods are what the methods say."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import generate

from cgpfl.algorithms import METHODS

DOCS = Path(generate.__file__).parent


def test_pages_are_up_to_date():
    """After a change to a method: python docs/generate.py."""
    made = generate.everything()
    for name, text in made.items():
        assert (DOCS / "methods" / name).read_text() == text, name
    assert {p.name for p in (DOCS / "methods").glob("*.md")} == set(made)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_is(name):
    method = METHODS[name]
    assert method.citation
    assert method.when
    assert all(f.metadata["meaning"] for f in generate.hyper_parameters(method).values())
    page = next(p for p in generate.pages() if name in p.names)
    text = (DOCS / "methods" / f"{page.name}.md").read_text()
    assert "```text" in text  # its equations
    assert f"`{name}`" in text


def test_links_lead_somewhere():
    for page in (DOCS / "methods").glob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
