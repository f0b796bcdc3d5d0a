"""Imports point downward only, and ``import cgpfl`` stays quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "cgpfl"
COMMON = {"errors", "files", "folders", "tree", "batch", "hyper", "metrics", "tables"}
ALLOWED = {
    "contexts": set(),
    "models": set(),
    "data": set(),
    "report": set(),
    "algorithms": {"contexts"},
    "engine": {"algorithms", "models", "data"},
    "theory": {"algorithms", "contexts", "models", "data", "engine"},
    "experiment": {"algorithms", "contexts", "models", "data", "engine", "report"},
    "paper": {"algorithms", "contexts", "models", "data", "engine", "experiment", "report", "theory"},
    "battery": {"algorithms", "models", "data", "engine", "experiment", "report"},
    "bench": {"algorithms", "models", "data", "engine", "report"},
    "deploy": {"algorithms", "data", "engine", "experiment", "models"},
    "serve": {"algorithms", "data", "engine", "experiment", "models"},
    "testing": {"algorithms", "models", "data", "engine", "experiment"},
    "terminal": {"experiment", "paper", "report"},
    "trackers": {"experiment"},
    "cli": {
        "algorithms",
        "battery",
        "bench",
        "data",
        "deploy",
        "engine",
        "experiment",
        "paper",
        "report",
        "serve",
        "terminal",
        "trackers",
    },
}


def rooms_imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
        for name in names:
            if name.startswith("cgpfl."):
                yield name.split(".")[1]


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_point_downward(room):
    files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else sorted((SOURCE / room).rglob("*.py"))
    assert files
    for path in files:
        strangers = set(rooms_imported(path)) - ALLOWED[room] - COMMON - {room}
        assert not strangers, f"{path.name} imports {strangers}"


def test_every_room_is_listed():
    found = {p.name if p.is_dir() else p.stem for p in SOURCE.iterdir() if p.is_dir() or p.suffix == ".py"}
    assert found - COMMON - {"__init__", "__pycache__"} == set(ALLOWED)


def test_import_is_quick():
    heavy = ("jax", "pandas", "sklearn", "matplotlib", "flax", "scipy", "torch", "onnx", "onnxruntime")
    code = f"import sys, cgpfl; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_public_names_resolve():
    import cgpfl

    assert all(getattr(cgpfl, name) is not None for name in cgpfl.__all__)
    assert set(cgpfl.__all__) <= set(dir(cgpfl))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cgpfl.nothing  # noqa: B018
