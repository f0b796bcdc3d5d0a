"""Imports point downward only, however they are written, and ``import cgpfl`` stays quick."""

import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

from rooms import SOURCE, Import, imports, imports_of

COMMON = {
    "errors",
    "files",
    "folders",
    "registry",
    "tree",
    "batch",
    "hyperparameters",
    "metrics",
    "objectives",
    "tables",
}
ALLOWED = {
    "contexts": set(),
    "models": set(),
    "data": set(),
    "report": set(),
    "rounds": set(),
    "attacks": set(),
    "algorithms": {"attacks", "contexts", "rounds"},
    "engine": {"attacks", "algorithms", "models", "data", "rounds"},
    "experiment": {"algorithms", "attacks", "contexts", "models", "data", "engine", "report", "rounds"},
    "paper": {"algorithms", "contexts", "models", "data", "engine", "experiment", "report"},
    "battery": {"algorithms", "models", "data", "engine", "experiment", "report"},
    "advice": {"algorithms", "data", "engine", "experiment", "report"},
    "auditing": {"algorithms", "attacks", "data", "engine", "experiment", "report", "rounds"},
    "deploy": {"algorithms", "data", "engine", "experiment", "models", "rounds"},
    "inference": {"algorithms", "data", "engine", "experiment", "models"},
    "testing": {"algorithms", "models", "data", "engine", "experiment"},
    "trackers": {"experiment"},
    "__main__": {"cli"},
    "cli": {
        "advice",
        "algorithms",
        "auditing",
        "battery",
        "data",
        "deploy",
        "engine",
        "experiment",
        "paper",
        "report",
        "inference",
        "trackers",
    },
}


UNTOLD = {
    "__init__.py": "the package's names, by the table beside it",
    "engine/flower/worker.py": "what makes a node; its caller says it in a string, which counts there",
    "inference/nodes.py": "onnx and onnxruntime",
    "registry.py": "what users name",
    "trackers.py": "the trackers",
}
"""Files that import by a name made at run time, and what."""


def files_of(room):
    return [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else sorted((SOURCE / room).rglob("*.py"))


@pytest.mark.parametrize("room", [*ALLOWED, *sorted(COMMON)])
def test_imports_point_downward(room):
    assert files_of(room)
    allowed = ALLOWED.get(room, set()) | COMMON | {room}
    for path in files_of(room):
        name = path.relative_to(SOURCE).as_posix()
        wrong = [i for i in imports_of(path) if i.room not in allowed and (i.room != "?" or name not in UNTOLD)]
        assert not wrong, f"{name}: " + ", ".join(f"line {i.line} imports {i.room} ({i.kind})" for i in sorted(wrong))


def test_there_is_a_downward():
    """No room is below itself, by whatever way."""
    below = {room: ALLOWED[room] for room in ALLOWED}
    assert set(TopologicalSorter(below).static_order()) == set(ALLOWED)
    common = {name: {i.room for i in imports_of(SOURCE / f"{name}.py")} - {name, "?"} for name in COMMON}
    assert set(TopologicalSorter(common).static_order()) == COMMON


def test_names_made_at_run_time_are_where_it_says():
    for name in UNTOLD:
        assert "?" in {i.room for i in imports_of(SOURCE / name)}, name


@pytest.mark.parametrize(
    ("source", "room", "kind"),
    [
        ("import cgpfl.paper", "paper", "top"),
        ("import cgpfl.paper.make as m, os", "paper", "top"),
        ("from cgpfl.paper.make import make", "paper", "top"),
        ("from cgpfl import paper", "paper", "top"),
        ("from cgpfl import paper as p", "paper", "top"),
        ("from cgpfl import compare", "experiment", "top"),  # the package's own name for it
        ("from cgpfl import *", "?", "top"),
        ("from ..paper import make", "paper", "top"),
        ("from .. import paper", "paper", "top"),
        ("import cgpfl\ncgpfl.run()", "experiment", "top"),
        ("import cgpfl as c\ndef f():\n    c.paper.make()", "paper", "lazy"),
        ("import cgpfl.data\ncgpfl.paper.make()", "paper", "top"),
        ("try:\n    import cgpfl.paper\nexcept ImportError:\n    pass", "paper", "top"),
        ("class A:\n    from cgpfl import paper", "paper", "top"),
        ("def f():\n    from cgpfl.paper import make", "paper", "lazy"),
        ("async def f():\n    import cgpfl.paper", "paper", "lazy"),
        ("f = lambda: __import__('cgpfl.paper')", "paper", "text"),
        ("if TYPE_CHECKING:\n    from cgpfl.paper import make", "paper", "types"),
        ("if typing.TYPE_CHECKING:\n    import cgpfl.paper", "paper", "types"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import cgpfl.paper", "paper", "top"),
        ("import importlib\nimportlib.import_module('cgpfl.paper')", "paper", "text"),
        ("from importlib import import_module as load\nload('cgpfl.paper')", "paper", "text"),
        ("from importlib import import_module as load\nload(name)", "?", "text"),
        ("import importlib\nimportlib.import_module(f'cgpfl.{room}')", "?", "text"),
        ("import importlib\nimportlib.import_module(f'{top}.paper')", "?", "text"),
        ("import importlib\nimportlib.import_module(f'cgpfl.paper.{name}')", "paper", "text"),
        ("import importlib\nimportlib.import_module('cgp' + 'fl.paper')", "?", "text"),
        ("import importlib\nimportlib.import_module('..paper', __name__)", "?", "text"),
        ("import importlib\nimportlib.import_module(name=which)", "?", "text"),
        ("import importlib\nload = importlib.import_module", "?", "text"),
        ("import importlib\ngetattr(importlib, 'import_module')", "?", "text"),
        ("LOADER = 'cgpfl.paper.make:make'", "paper", "text"),
        ("command = ['python', '-m', 'cgpfl.paper']", "paper", "text"),
        ("import sys\nsys.modules['cgpfl.paper']", "paper", "text"),
        ("name = 'cgpfl.' + room", "?", "text"),
        ("exec('import cgpfl' + '.paper')", "?", "text"),
    ],
)
def test_no_way_to_import_is_missed(source, room, kind):
    assert (room, kind) in {(i.room, i.kind) for i in imports(source)}


@pytest.mark.parametrize(
    "source",
    [
        '"""Of :mod:`cgpfl.paper`, see cgpfl.paper."""',
        "import os, numpy\nfrom pathlib import Path",
        "from cgpfl import __version__",
        "import importlib\nimportlib.import_module('onnx')",
        "print(f'cgpfl: {message}')",
        "tags = {'cgpfl.nothing': 1}",
        "cgpfl = {}\ncgpfl.paper",  # no module of that name here
    ],
)
def test_what_is_no_import_is_none(source):
    assert imports(source) == set()


def test_a_package_s_own_file_is_its_room():
    assert imports("from .x import y\nfrom .. import data", "cgpfl.engine.__init__") == {
        Import("engine", "top", 1),
        Import("data", "top", 2),
    }


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
