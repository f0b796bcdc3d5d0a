"""A few of the campaign's inputs: a result or one line, whatever is given; of damaged folders the right one or none."""

import random
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from benchmarks.badinput.attempt import HangError, attempt, bounded
from benchmarks.badinput.folders import damaged, make, shown
from benchmarks.badinput.inputs import KINDS
from cgpfl.errors import CgpflError

sys.path.append(str(Path(__file__).parents[1] / "engine" / "flower"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_few(kind):
    found = {seed: attempt(kind.__name__, partial(kind, draw=random.Random(seed))) for seed in range(40)}
    assert not {seed: wrong for seed, wrong in found.items() if wrong is not None}


@pytest.mark.parametrize("name", ["values", "settings", "tables", "arrays"])
def test_well_formed_and_of_no_sense(name):
    hypothesis = pytest.importorskip("hypothesis")
    from benchmarks.badinput.made import KINDS as MADE

    strategy, call = MADE[name]

    def check(value):
        assert attempt(name, lambda folder: call(folder, value)) is None

    checks = list(hypothesis.HealthCheck)
    bounds = hypothesis.settings(
        max_examples=50, deadline=None, database=None, derandomize=True, suppress_health_check=checks
    )
    bounds(hypothesis.given(strategy)(check))()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("campaign") / "whole")


def test_damaged_folders(whole):
    readers = ("figures", "shown", "export of fedavg", "export of cgpfl")
    found = [damaged(seed, whole, readers) for seed in range(12)]
    assert sum(count for count, _ in found) > 20
    assert not [line for _, wrong in found for line in wrong]


def test_a_report_knows_files_that_changed_places(whole, tmp_path):
    right, others = shown(whole), sorted(whole.rglob("*.safetensors"))
    names = ("federation.safetensors", "methods/cgpfl/models.safetensors")
    for name, other in ((name, other) for name in names for other in others if other != whole / name):
        folder = shutil.copytree(whole, tmp_path / f"{names.index(name)}-{others.index(other)}")
        (folder / name).write_bytes(other.read_bytes())
        (folder / other.relative_to(whole)).write_bytes((whole / name).read_bytes())
        with pytest.raises(CgpflError, match=r"report: .* is another file"):
            shown(folder)
    assert repr(shown(shutil.copytree(whole, tmp_path / "copy"))) == repr(right)


def test_malformed_messages_cost_their_sender_alone():
    pytest.importorskip("flwr")
    from benchmarks.badinput.messages import to_node, to_server

    assert to_server(25, seed=5) == (25, [])
    for seed in range(40):
        assert attempt("to a node", partial(to_node, draw=random.Random(seed))) is None


def test_what_is_wrong_is_seen():
    def broken(folder):
        raise KeyError("x")

    def two_lines(folder):
        error = CgpflError("a")
        error.args = ("a\nb",)
        raise error

    def slow():
        with bounded(1):
            while True:
                pass

    assert "KeyError: 'x'" in attempt("a", broken)
    assert attempt("a", two_lines) == "a: not one line: 'a\\nb'"
    assert attempt("a", lambda folder: folder.exists()) is None
    with pytest.raises(HangError):
        slow()
