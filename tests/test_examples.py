"""The notebooks run from top to bottom, and what they show is there."""

import json
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def shown(notebook, kind):
    """All outputs of a kind (a MIME type), in order."""
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    return [out["data"][kind] for out in outputs if kind in out.get("data", {})]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Every notebook, executed in a folder of its own."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    finished = {}
    for path in EXAMPLES:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        where = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
        client = nbclient.NotebookClient(notebook, timeout=300, resources=where)
        finished[path.stem] = client.execute()
    return finished


def test_notebooks_are_kept_without_outputs():
    assert len(EXAMPLES) == 3
    for path in EXAMPLES:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), path.name


@pytest.mark.long
def test_first_steps(done):
    notebook = done["1-first-steps"]
    tables = shown(notebook, "text/html")
    assert len(tables) == 3
    for name, table in zip(("local", "fedavg", "cgpfl-heur"), tables, strict=True):
        assert f">{name}<" in table
    assert "1.00" in tables[2]  # ARI: the hidden contexts, exactly
    assert len(shown(notebook, "image/png")) == 2


@pytest.mark.long
def test_own_data_and_model(done):
    tables = shown(done["2-your-data-and-model"], "text/html")
    assert len(tables) == 3
    assert "1.00" in tables[2]


@pytest.mark.long
def test_own_method(done):
    notebook = done["3-your-method"]
    plain, rolling = eval(shown(notebook, "text/plain")[-1])
    assert plain == pytest.approx(rolling, abs=1e-6)  # without momentum it is FedAvg
    assert len(shown(notebook, "image/png")) == 1
