import sys
import types

import pytest

from cgpfl.algorithms import METHODS, Ditto, FedAvg, get_method
from cgpfl.errors import CgpflError
from cgpfl.registry import Registry, imported, path_of


def test_ours_by_name_and_anybodys_by_path():
    assert get_method("ditto", {"prox": 2}) == Ditto(prox=2.0)
    assert get_method("cgpfl.algorithms.ditto:Ditto", {"prox": 2}) == Ditto(prox=2.0)
    assert METHODS.origin("ditto") == "cgpfl"


def test_an_unknown_name_says_what_there_is():
    with pytest.raises(
        CgpflError, match=r"'fedavgg'; did you mean fedavg\? there are local, fedavg, .*package.module:Name"
    ):
        get_method("fedavgg")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no.such.module:Thing", "module no.such.module cannot be imported"),
        ("cgpfl.algorithms.ditto:Dito", "has no Dito"),
        (":x", "must be package.module:Name"),
        ("cgpfl.errors:CgpflError", "is no method"),
        ("os:path.join", "is no method"),
    ],
)
def test_what_cannot_be_used_says_why_in_a_line(name, why):
    with pytest.raises(CgpflError, match=why) as error:
        get_method(name)
    assert "\n" not in str(error.value)


def test_entry_points_of_installed_packages(monkeypatch):
    class Point:
        name, value, dist = "theirs", "theirs:FedAvg", types.SimpleNamespace(name="their-package")

        def load(self):
            return FedAvg

    registry = Registry("method", {"ours": FedAvg()})
    monkeypatch.setattr("cgpfl.registry.entry_points", lambda group: [Point()] if group == "cgpfl.methods" else [])
    assert list(registry) == ["ours", "theirs"]
    assert registry.find("theirs") is FedAvg
    assert registry.origin("theirs") == "their-package"


def test_modules_beside_the_run_are_found(tmp_path, monkeypatch):
    (tmp_path / "beside_the_run.py").write_text("def thing():\n    return 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert imported("beside_the_run:thing")() == 3


def test_where_a_thing_is_imported_from():
    assert path_of(Ditto()) == "cgpfl.algorithms.ditto:Ditto"
    assert path_of(lambda: 0) is None
