"""Every Python block of the README runs, in order, as one session; and so does every command."""

import re
from pathlib import Path

import numpy as np
import pytest

from test_pages import command

README = Path(__file__).parents[1] / "README.md"
ELSEWHERE = {
    "watch": "report/test_live.py",
    "paper": "paper/test_make.py",
    "data get": "data/test_fetch.py",
    "deploy up": "deploy/test_guide.py",
}
"""Commands that do not end, take minutes, or need the network, and the tests that run them."""


@pytest.mark.slow
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


@pytest.mark.long
def test_commands_run(tmp_path, monkeypatch):
    """In order, in one folder, with few rounds and with the files that they name."""
    text = README.read_text()
    block = next(b for b in re.findall(r"```\n(.*?)```", text, re.DOTALL) if b.startswith("cgpfl run"))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 17, (120, 8, 8), dtype=np.uint8), rng.integers(0, 3, 120)
    np.savez("mine.npz", x=x, y=y, client=np.arange(120) % 6)
    shops = rng.integers(0, 4, 160)
    lines = [f"shop {i},{v:.1f},{2 * v + i:.1f}" for i, v in zip(shops, rng.normal(50, 9, 160), strict=True)]
    Path("shops.csv").write_text("\n".join(["shop,visitors,sold", *lines]))
    Path("new").mkdir()
    np.savez("new/mine.npz", x=x[:40], y=y[:40])
    columns = ["label", *(f"p{i}" for i in range(64))]
    rows = [",".join(map(str, [label, *image.ravel()])) for image, label in zip(x[:9], y[:9], strict=True)]
    Path("samples.csv").write_text("\n".join([",".join(columns), *rows]))
    Path("big.toml").write_text('[[method]]\nname = "fedavg"\n')
    ran = []
    for line in block.strip().splitlines():
        name = line.split("#")[0].split("cgpfl ", 1)[1].strip()
        if any(name.startswith(other) for other in ELSEWHERE):
            continue
        if "exports/NAME" in line:
            line = line.replace("NAME", next(Path("exports").iterdir()).name)
        if "runs/mine" in line:
            line = line.replace("runs/mine", str(max(Path("runs").glob("mine*"))))
        assert command(line).strip(), line
        ran.append(name)
    assert len(ran) == 21


@pytest.mark.parametrize("file", ELSEWHERE.values())
def test_what_runs_elsewhere_is_there(file):
    assert (Path(__file__).parent / file).exists()
