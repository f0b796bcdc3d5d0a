"""The stream of events: what callbacks are told, and the file."""

import json

import jax
import numpy as np
import pandas as pd
import pytest

import cgpfl
from cgpfl.experiment import artifacts, events, run_experiment
from cgpfl.experiment.config import from_dict
from cgpfl.experiment.events import Event, JsonLines
from cgpfl.experiment.run import Interrupted


@pytest.fixture(scope="module")
def told(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("events") / "run"
    events = []
    result = cgpfl.run(
        cgpfl.CGPFL(contexts=2, warmup=1, batch_size=0), digits, rounds=4, out=folder, callbacks=[events.append]
    )
    return result, events, folder


def test_events_come_in_order(told):
    _, events, _ = told
    kinds = ["opened", "started", *["evaluated"] * 4, "ended", "closed"]
    assert [e.kind for e in events] == kinds
    assert [e.round for e in events[2:6]] == [1, 2, 3, 4]
    assert events[0].values["data"]["clients"] == 8
    assert events[1].values["settings"]["contexts"] == 2
    assert events[-1].values == {"state": "finished"}


def test_an_evaluation_is_a_row_of_the_history(told):
    result, events, folder = told
    history = pd.read_csv(folder / "history.csv")
    for event, row in zip(events[2:6], history.to_dict("records"), strict=True):
        for name in ("accuracy", "mean", "loss", "shared_accuracy", "objective_personal", "bytes_up", "gradients", "k"):
            assert event.values[name] == pytest.approx(row[name]), name
    assert events[5].values["ari"] == pytest.approx(result.contexts.ari)
    assert events[6].values["accuracy"] == result.scores


def test_the_file_holds_the_same_events(told):
    _, events, folder = told
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [(v["kind"], v["method"], v["round"]) for v in lines] == [(e.kind, e.method, e.round) for e in events]
    assert lines[3]["values"]["accuracy"] == events[3].values["accuracy"]


def test_a_line_that_was_cut_off_stays_alone(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text('{"kind": "eval')
    JsonLines(file)(Event("closed", values={"state": "stopped", "loss": float("nan")}))
    cut, line = file.read_text().splitlines()
    assert cut == '{"kind": "eval'
    assert json.loads(line)["values"] == {"state": "stopped", "loss": None}


def test_a_run_that_is_stopped_says_so_and_goes_on(digits, tmp_path):
    folder, events = tmp_path / "run", []

    def stop(progress):
        if progress.round >= 1:
            import signal

            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        cgpfl.run("local", digits, rounds=3, out=folder, on_progress=stop, callbacks=[events.append])
    assert events[-1] == Event("closed", values={"state": "stopped"})
    done = events[-2].round
    events.clear()
    cgpfl.run("local", digits, rounds=3, out=folder, resume=True, callbacks=[events.append])
    assert (events[1].kind, events[1].round) == ("started", done)
    assert [e.round for e in events if e.kind == "evaluated"] == list(range(done + 1, 4))


def test_a_callback_must_be_a_function(digits, tmp_path):
    with pytest.raises(cgpfl.CgpflError, match="not a function of one event"):
        cgpfl.run("local", digits, rounds=1, out=tmp_path / "run", callbacks=["tensorboard"])
    with pytest.raises(cgpfl.CgpflError, match="not a function of one event"):
        run_experiment(from_dict({"rounds": 1}, "test"), tmp_path / "run", callbacks=["tensorboard"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("bad", ["opened", "closed", "both", "the run"])
def test_everybody_is_told_that_it_is_over(bad):
    """Whatever raises; and the first error is the one that is seen."""
    heard = []

    def breaks(event):
        if bad in (event.kind, "both"):
            raise ArithmeticError(event.kind)

    def run():
        with events.told([heard.append, breaks, heard.append], {}):
            if bad == "the run":
                raise ArithmeticError(bad)

    with pytest.raises(ArithmeticError, match="opened" if bad == "both" else bad):
        run()
    state = "finished" if bad == "closed" else "stopped"
    assert heard[-2:] == [Event("closed", values={"state": state})] * 2


def test_numbers_of_an_event():
    event = Event(
        "ended", values={"a": 1, "b": {"c": np.float32(0.5), "d": None}, "e": float("nan"), "f": True, "g": [1]}
    )
    assert event.numbers() == {"a": 1.0, "b/c": 0.5}


def test_principal_components_against_svd():
    points = np.random.default_rng(0).normal(size=(7, 5)) * [5, 2, 1, 1, 1]
    place, share = artifacts.principal(points)
    centred = points - points.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(place), np.abs(u[:, :2] * s[:2]), atol=1e-9)
    np.testing.assert_allclose(share, (s**2 / (s**2).sum())[:2])
    assert (np.take_along_axis(place, np.abs(place).argmax(axis=0)[None], 0) > 0).all()
    place, share = artifacts.principal(np.ones((1, 3)))
    assert place.tolist() == [[0, 0]]
    assert share == [0, 0]


def test_distances_between_models():
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    np.testing.assert_allclose(artifacts.distances(points), [[0, 5, 1], [5, 0, 18**0.5], [1, 18**0.5, 0]])


def test_distances_of_very_many_contexts_are_left_out(told, monkeypatch):
    monkeypatch.setattr(artifacts, "MOST_DISTANCES", 1)
    assert set(artifacts.models(told[0])[0]) == {"context", "client", "place"}


def test_places_of_models(told, digits):
    result, _, folder = told
    arrays, about = artifacts.models(result)
    assert arrays["client"].tolist() == list(range(8))
    flat = np.concatenate([np.asarray(v).reshape(2, -1) for v in jax.tree.leaves(result.state.server.models)], axis=1)
    used = np.unique(result.contexts.assignment)
    np.testing.assert_allclose(arrays["distance"], np.linalg.norm(flat[used][:, None] - flat[used], axis=-1), atol=1e-5)
    assert arrays["place"].shape == (8 + len(used), 2)
    assert 0 < sum(about["share"]) <= 1
    assert (folder / "methods" / "cgpfl" / "models.safetensors").exists()


def test_who_holds_what(digits):
    arrays = artifacts.federation(digits)
    assert arrays["labels"].sum() == digits.train.counts.sum()
    assert arrays["labels"][3].tolist() == np.bincount(digits.client(3)[1], minlength=10).tolist()
    assert arrays["context"].tolist() == digits.context.tolist()
