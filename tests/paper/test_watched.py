"""Runs looked at round by round, and the theorems on runs: from what was seen, given by hand."""

import csv
import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from choices import best_at, given, tried

from cgpfl.errors import CgpflError
from cgpfl.experiment.run import Stopped
from cgpfl.paper import bounds
from cgpfl.paper import watched as room
from cgpfl.paper.bounds import THEORY
from cgpfl.paper.cells import made_with
from cgpfl.paper.settings import at_k
from cgpfl.paper.watched import FIGURE_CONTEXTS, FIGURE_DISTANCES, FIGURE_KMEANS, KEPT, Key, settled, watched
from handmade import plan, tiny

pytestmark = pytest.mark.usefixtures("by_hand")

ROUNDS = 20


@pytest.mark.parametrize(
    ("context", "round_"),
    [
        ([[0, 1], [0, 1], [0, 1]], 1),
        ([[0, 0], [0, 1], [0, 1]], 2),
        ([[0, 0], [0, 0], [0, 1]], 3),
        ([[0, 1], [1, 1], [0, 1], [0, 1]], 3),  # there and back
        ([[0, 1]], 1),
    ],
)
def test_settled(context, round_):
    assert settled(np.array(context)) == round_


def seen(moves=1, distance=None, iterations=1, server=0.001, clients=0.003):
    """A watched run of four clients: the last one changes its context in round ``moves``."""
    context = np.tile([0, 0, 1, 1], (ROUNDS, 1))
    context[: moves - 1, 3] = 0
    steps = np.full(ROUNDS, iterations)
    steps[:3] = (5, 4, 3)
    curve = np.linspace(1.0, 2.0, ROUNDS) if distance is None else np.asarray(distance)
    return SimpleNamespace(
        context=context,
        k=np.full(ROUNDS, 2),
        transition=np.where(np.arange(ROUNDS) < moves, 1.0, 0.0),
        personal_distance=curve,
        upload_distance=curve,
        gap=np.zeros((ROUNDS, 4)),
        kmeans_iterations=steps,
        client_seconds=np.full(ROUNDS, clients),
        server_seconds=np.full(ROUNDS, server),
    )


@pytest.fixture
def watch(monkeypatch, sets):
    """Instead of running: what is put into ``watch.seen``; ``watch.calls`` are the runs asked for."""
    fake = SimpleNamespace(seen=seen(), calls=[], rates=[])

    def run(method, data, model, *, rounds, seed):
        fake.calls.append((method.contexts, data.clients, rounds, seed))
        fake.rates.append((method.context_rate, method.personal_rate))
        return fake.seen

    monkeypatch.setattr(room, "watch", run)
    return fake


@pytest.fixture
def undrawn(monkeypatch):
    """Only what is said of the runs: nothing is drawn into files."""
    monkeypatch.setattr(room, "save_picture", lambda *_: None)
    monkeypatch.setattr(bounds, "save_picture", lambda *_: None)


def where(tmp_path, **more):
    settings = tiny("mnist-mlr", "fmnist-mlr", rounds=ROUNDS, context_rates=(0.06, 1.0), etas=(0.005, 0.1))
    known = given(settings, room.LABELS) | tried(settings["mnist-mlr"], "cgpfl-heur", best_at(4, 3))
    return plan(tmp_path, known, settings, **more)


def test_a_run_is_watched_once(tmp_path, watch):
    of = where(tmp_path)
    key = Key(of.settings["mnist-mlr"], "cgpfl-heur", 1)
    first = watched(of, key)
    assert watch.calls == [("auto", 8, ROUNDS, 1)]
    assert set(first) == set(KEPT)
    np.testing.assert_array_equal(first["context"], watch.seen.context)
    watch.seen = None
    again = watched(where(tmp_path), key)
    assert len(watch.calls) == 1
    for name in KEPT:
        np.testing.assert_array_equal(first[name], again[name])
    assert set(of.cells.times) == {"watched mnist-mlr cgpfl-heur"}
    (file,) = (tmp_path / "watched").iterdir()
    file.write_bytes(b"")
    with pytest.raises(CgpflError, match=r"mnist-mlr-cgpfl-heur-1\.safetensors: cannot be read"):
        watched(of, key)


def test_a_stop_is_heard_before_a_run_is_watched(tmp_path, watch):
    of = where(tmp_path)
    key = Key(of.settings["mnist-mlr"], "cgpfl-4", 0)
    of.cells.stop = lambda: True
    with pytest.raises(Stopped, match="mnist-mlr-cgpfl-4-0"):
        watched(of, key)
    assert watch.calls == []
    with pytest.raises(Stopped, match="theory, K = 1"):
        THEORY.make(of)
    of.cells.stop = lambda: False
    watched(of, key)
    of.cells.stop = lambda: True
    assert set(watched(of, key)) == set(KEPT)  # what is there needs no run
    assert len(watch.calls) == 1


def test_what_was_seen_otherwise_is_refused(tmp_path, watch):
    watched(where(tmp_path), Key(where(tmp_path).settings["mnist-mlr"], "cgpfl-4", 0))
    longer = dataclasses.replace(where(tmp_path).settings["mnist-mlr"], rounds=ROUNDS + 1, tune_rounds=ROUNDS)
    with pytest.raises(CgpflError, match=r"mnist-mlr-cgpfl-4-0\.safetensors: was run with rounds = 20, now 21"):
        watched(where(tmp_path), Key(longer, "cgpfl-4", 0))
    assert len(watch.calls) == 1


def test_two_methods_and_three_seeds_at_most_are_watched(tmp_path, watch, undrawn):
    FIGURE_CONTEXTS.make(where(tmp_path, seeds=5))
    assert watch.calls == [(k, 8, ROUNDS, seed) for k in (4, "auto") for seed in (0, 1, 2)]
    FIGURE_DISTANCES.make(where(tmp_path, seeds=5))
    FIGURE_KMEANS.make(where(tmp_path, seeds=5))
    assert len(watch.calls) == 6  # the three figures share them
    assert watch.rates == [(0.06, 0.005)] * 3 + [(1.0, 0.1)] * 3  # those chosen for each
    assert {(s.name, label) for s, label in FIGURE_KMEANS.tunes(where(tmp_path))} == {
        ("mnist-mlr", label) for label in room.LABELS
    }


def test_runs_are_watched_ahead_of_the_figures_where_that_is_asked(tmp_path, watch):
    FIGURE_CONTEXTS.prepare(where(tmp_path))
    assert len(watch.calls) == 4
    without = where(tmp_path)
    del without.settings["mnist-mlr"]
    FIGURE_CONTEXTS.prepare(without)
    THEORY.prepare(without)  # nothing of it is asked for
    assert len(watch.calls) == 4


@pytest.mark.parametrize(("moves", "verdict"), [(1, "reproduced"), (2, "reproduced"), (3, "not")])
def test_contexts_settle_in_the_first_tenth(tmp_path, watch, undrawn, moves, verdict):
    watch.seen = seen(moves=moves)
    made = FIGURE_CONTEXTS.make(where(tmp_path))
    assert made.verdicts[0].verdict == verdict
    assert f"in round {moves} at the latest, of 20" in made.verdicts[0].evidence
    assert made.tables[0].rows == [
        ["MNIST-MLR, CGPFL (K=4)", "2 2", f"{moves} {moves}"],
        ["MNIST-MLR, CGPFL-Heur", "2 2", f"{moves} {moves}"],
    ]
    with (tmp_path / "figure-contexts" / "contexts.csv").open(newline="") as file:
        facts = list(csv.DictReader(file))
    assert [(f["method"], f["seed"], f["K"], f["settled_in_round"]) for f in facts] == [
        (label, str(seed), "2", str(moves)) for label in ("cgpfl-4", "cgpfl-heur") for seed in (0, 1)
    ]


@pytest.mark.parametrize(("end", "verdict"), [(1.01, "reproduced"), (1.05, "not"), (0.9, "not")])
def test_distances_converge_if_they_change_little_at_the_end(tmp_path, watch, undrawn, end, verdict):
    watch.seen = seen(distance=np.concatenate([np.linspace(0, 1, 15), [1.0], np.linspace(1, end, 4)]))
    made = FIGURE_DISTANCES.make(where(tmp_path))
    assert made.verdicts[0].verdict == verdict
    assert f": {100 * (end - 1):+.1f} %, " in made.verdicts[0].evidence
    with (tmp_path / "figure-distances" / "distances.csv").open(newline="") as file:
        facts = list(csv.DictReader(file))
    assert [(f["round"], f["mean_distance"]) for f in facts[:2]] == [("1", "0.0"), ("11", "0.71429")]
    assert len(facts) == 2 * 2 * 2  # methods, models, rounds


@pytest.mark.parametrize(("iterations", "verdict"), [(3, "reproduced"), (4, "partly")])
def test_the_cost_of_kmeans(tmp_path, watch, undrawn, iterations, verdict):
    watch.seen = seen(iterations=iterations)
    made = FIGURE_KMEANS.make(where(tmp_path))
    # Without the first tenth, rounds 1 and 2; the third takes three iterations.
    later = (3 + 17 * iterations) / 18
    assert made.tables[0].rows[0] == ["MNIST-MLR, CGPFL (K=4)", "4.0", f"{later:.1f}", "1.00", "3.00", "25 %"]
    assert made.verdicts[0].verdict == verdict
    assert "is 25–25 % of a round" in made.verdicts[0].evidence
    assert f"at most {iterations} iterations a round" in made.verdicts[0].evidence


def test_a_legend_names_every_line_once(tmp_path, watch, monkeypatch):
    named = []
    monkeypatch.setattr(
        room, "save_picture", lambda picture, *_: named.append([t.get_text() for t in picture.legends[0].texts])
    )
    FIGURE_KMEANS.make(where(tmp_path))
    assert named == [["server, CGPFL (K=4)", "server, CGPFL-Heur", "all clients"]]


# The theorems


def measured(setting, k, slope, exact, every):
    plain = {"terms": [1.0, 20.0, 0.3], "measured": 0.5, "measured_exact": exact, "slope": slope, "below": True}
    more = {"looseness": 42.0, "running": [3.0, 2.0, 1.0], "exact_rounds": [1, 3], "exact": [2.0, 1.0], "L": 1.0}
    words = {"explain_41": f"first <{k}>", "explain_42": "second", "condition": "condition"}
    run = made_with(setting, at_k(setting, k), [0], exact_every=every)
    return {
        "k": k,
        **plain,
        **more,
        "complexity": 0.25,
        "distance": 1.5,
        "total": 1.75,
        "left": 0.125,
        **words,
        "run": run,
    }


@pytest.mark.parametrize(
    ("slopes", "exact", "verdicts"),
    [
        ((-0.9, -0.5, -0.6), (3.0, 2.1, 1.5), ("reproduced", "reproduced")),
        ((-0.9, -0.4, -0.6), (3.0, 2.1, 1.6), ("partly", "partly")),  # a fall by less than 2 at K = 4
        ((-0.1, -0.4, -0.3), (3.0, 2.9, 2.5), ("not", "not")),
    ],
)
def test_the_theorems_from_what_was_measured(tmp_path, sets, undrawn, slopes, exact, verdicts):
    """What is on disk is not measured again: here there is nothing to measure on."""
    (tmp_path / "theory").mkdir()
    setting = where(tmp_path).settings["mnist-mlr"]

    def measure(points):
        every = max(1, setting.rounds // points)
        for k, slope, gradient in zip((1, 2, 4), slopes, exact, strict=True):
            found = measured(setting, k, slope, gradient, every)
            (tmp_path / "theory" / f"k-{k}.json").write_text(json.dumps(found))

    measure(20)
    made = THEORY.make(where(tmp_path))
    assert tuple(v.verdict for v in made.verdicts) == verdicts
    assert f"{slopes[1]:.2f} (K = 2)" in made.verdicts[0].evidence
    assert "the bound is 4e+01 times the measured value or more" in made.verdicts[0].evidence
    row = made.tables[0].rows[2]
    assert row[:5] == ["4", "1 + 20 + 0.3", "0.5", f"{exact[2]:.2g}", f"{slopes[2]:.2f}"]
    assert row[5:] == ["0.25", "1.5", "1.75", "0.125"]
    assert "at the rates of the first reading (2β/N = λ·lr, η = lr)" in made.text[0]
    assert made.text[1] == "K = 4:\n\n```\ncondition\nfirst <4>\nsecond\n```"
    measure(4)
    assert THEORY.make(where(tmp_path, quick=True)).verdicts == []


def test_theory_measured_otherwise_is_refused(tmp_path, sets):
    (tmp_path / "theory").mkdir()
    of = where(tmp_path)
    kept = measured(of.settings["mnist-mlr"], 1, -1.0, 1.0, max(1, of.settings["mnist-mlr"].rounds // 20))
    kept["run"]["method.personal_rate"] = 0.02
    (tmp_path / "theory" / "k-1.json").write_text(json.dumps(kept))
    with pytest.raises(CgpflError, match=r"k-1\.json: was run with method\.personal_rate = 0\.02, now 0\.005"):
        THEORY.make(of)
