"""What a user should know of a method, from results that never were."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cgpfl.cli.terminal import remarks
from cgpfl.data import Form
from cgpfl.experiment.folder import summarise
from cgpfl.experiment.notes import against
from cgpfl.experiment.result import Outcome

N = 25
"""Test samples of each client."""


def outcome(name, correct, *, label=None, contexts=None, distance=None, diverged=None, notes=()):
    """Clients that answered ``correct`` of N times in the last round, and never before."""
    correct = np.asarray(correct, float)
    who = np.arange(len(correct))
    frames = [pd.DataFrame({"round": t, "client": who, "n": N, "correct": c}) for t, c in ((1, 0), (2, correct))]
    clients = pd.concat(frames).dropna()
    if distance is not None:
        clients["distance"] = distance
    found = None if contexts is None else {"k": contexts, "alone": contexts == len(correct)}
    scores = {"pooled": float(np.nansum(correct) / N / len(correct))}
    summary = {"accuracy": scores, "contexts": found, "diverged": diverged, "notes": list(notes)}
    data = SimpleNamespace(summary=lambda: {"clients": len(correct)}, form=lambda: Form((1,), 2))
    model = SimpleNamespace(settings=dict)
    return Outcome(label or name, name, 0, data, model, summary, pd.DataFrame(), clients, None)


LOCAL = outcome("local", [12, 12, 12, 12])  # 48 of 100
FEDAVG = outcome("fedavg", [15, 15, 15, 15], distance=0.0)  # 60 of 100


@pytest.mark.parametrize(
    ("own", "lines"),
    [
        (outcome("cgpfl", [25, 12, 12, 12], contexts=2), []),
        (
            outcome("cgpfl", [25, 15, 8, 7], contexts=2),
            [
                "contexts do not help: 5.0 points below fedavg",
                "2 of 4 clients do worse than alone, the worst by 20 points",
            ],
        ),
        (outcome("cgpfl", [15] * 4, contexts=2), ["contexts do not help: no better than fedavg"]),
        (outcome("cgpfl", [15] * 4, contexts=1), ["no better than fedavg"]),
        (
            outcome("ifca", [11, 12, 12, 12], contexts=2),
            [
                "contexts do not help: 13.0 points below fedavg, 1.0 below local",
                "1 of 4 clients does worse than alone, by 4 points",
            ],
        ),
        (outcome("cgpfl-auto", [11, 13, 12, 12], contexts=4), ["12.0 points below fedavg"]),  # alone: local training
        (outcome("ditto", [13, 13, 11, 11], distance=1.0), ["12.0 points below fedavg, no better than local"]),
        (outcome("fedprox", [8] * 4, distance=0.0), []),  # one model for all: not what is asked here
        (outcome("fedper", [25, 25, 25, 2]), []),  # personal, but without contexts: clients are not counted
        (outcome("cgpfl", [1] * 4, contexts=2, diverged=2), []),
    ],
)
def test_against_the_references_of_the_same_run(own, lines):
    assert against(own, [LOCAL, FEDAVG, own]) == lines
    assert all(len(f"cgpfl-auto: {line}") <= 80 for line in lines)


def test_references_that_are_missing_or_lost():
    own = outcome("ifca", [11, 12, 12, 12], contexts=2)
    assert against(own, [own]) == []
    assert against(own, [own, outcome("fedavg", [15] * 4, diverged=2)]) == []
    named = [outcome("local", [12] * 4, label="mine"), outcome("local", [2] * 4, label="poor")]
    assert against(own, [*named, own])[0] == "contexts do not help: 1.0 points below mine"


def test_clients_are_compared_with_themselves():
    """One could not be evaluated with the one method, one not with the other."""
    nan = np.nan
    local = outcome("local", [12, nan, 12, 12])
    own = outcome("ifca", [25, 25, nan, 11], contexts=2)
    assert against(own, [local, own]) == ["1 of 2 clients does worse than alone, by 4 points"]


def test_notes_are_in_the_summary():
    own = outcome("ifca", [11, 12, 12, 12], contexts=2, notes=["K is odd"])
    summary = json.loads(json.dumps(summarise([LOCAL, FEDAVG, own])))
    assert summary["methods"]["local"]["notes"] == summary["methods"]["fedavg"]["notes"] == []
    first, second, third = summary["methods"]["ifca"]["notes"]
    assert (first, third) == ("K is odd", "1 of 4 clients does worse than alone, by 4 points")
    assert second.startswith("contexts do not help")


def test_lines_of_the_terminal_fit():
    sentence = "4 contexts of 10 clients each; " + "clients inside a context hardly differ; " * 3
    found = {"chosen": True, "sentence": sentence}
    lines = remarks("cgpfl-auto", {"contexts": found, "notes": ["K = 1: no contexts found"]})
    assert lines[0].startswith("cgpfl-auto: 4 contexts of 10 clients each; clients inside")
    assert all(len(line) <= 80 for line in lines)
    assert all(line.startswith("  ") for line in lines[1:-1])
    assert lines[-1] == "cgpfl-auto: K = 1: no contexts found"
    given = {"contexts": found | {"chosen": False}, "notes": []}
    assert remarks("ifca", given) == remarks("local", {"contexts": None, "notes": []}) == []
