"""Every Python block of the README runs, in order, as one session."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 4
    session = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), session)
    assert session["data"].clients == 40
    assert len(session["labels"]) == 5


def test_links_lead_somewhere():
    text = README.read_text()
    targets = [t.split("#")[0] for t in re.findall(r"\]\(([^)]+)\)", text) if not t.startswith("http")]
    assert targets
    for target in targets:
        assert (README.parent / target).exists(), target
