"""Metrics measured on nodes: they send sums, the server makes values of them."""

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict
from in_process import Here

import cgpfl
from cgpfl.engine import simulate
from cgpfl.engine.flower.checks import Answer, check_metrics
from cgpfl.engine.flower.link import Link
from cgpfl.engine.flower.orders import RefusedError
from cgpfl.engine.flower.server import Coordinator, Rules
from cgpfl.metrics import measured

NAMES = ["macro-f1", "auc", "ece"]


def ends(four, model, folder, behave=None):
    """The last evaluation over Flower's messages, and that of a simulation."""
    method, metrics = cgpfl.FedAvg(), measured(NAMES)
    grid = Here(four, model, {"m": method}, folder, metrics=metrics)
    link = Link(grid, 4, tell=lambda line: None)
    link.label = "m"
    rules = Rules(deadline=0.2, repeats=0)
    server = Coordinator(method, model, clients=4, shape=four.shape, rounds=2, metrics=metrics, rules=rules)
    link.wait(0.1, 1)
    state = server.start()
    for _ in range(2):
        state = server.step(state, link).state
    grid.behave = behave or {}
    return server.evaluate(state, link), simulate(method, four, model, rounds=2, metrics=NAMES)[1]


@pytest.mark.slow
def test_as_in_simulation(four, model, tmp_path):
    happened, expected = ends(four, model, tmp_path)
    for name in [*NAMES, *(f"{n}/pooled" for n in NAMES), "correct"]:
        np.testing.assert_allclose(happened.record[name], expected[name][-1], atol=1e-5, err_msg=name)


def test_who_is_not_heard_does_not_count(four, model, tmp_path):
    happened, expected = ends(four, model, tmp_path, {1: lambda order, answer: None})
    for name in NAMES:
        assert np.isnan(happened.record[name][1])
        np.testing.assert_allclose(np.delete(happened.record[name], 1), np.delete(expected[name][-1], 1), atol=1e-5)
        assert np.isfinite(happened.record[f"{name}/pooled"])


@pytest.mark.parametrize(
    ("sums", "said"),
    [([0.0] * 44, "ece has 44 numbers, not 45"), ([np.nan] * 45, "ece is not finite"), (1.0, "ece has 1 numbers")],
)
def test_sums_that_are_none_are_refused(four, model, tmp_path, sums, said):
    def change(order, answer):
        metrics = MetricRecord({**dict(answer.metric_records["metrics"]), "ece": sums})
        return RecordDict({**dict(answer.items()), "metrics": metrics})

    happened, _ = ends(four, model, tmp_path, {2: change})
    assert said in happened.refused[2]
    assert np.isnan(happened.record["ece"][2])


def test_variance_explained_may_be_negative():
    """Of right answers there are none fewer than none."""
    measures = {"correct": np.float32(0)}
    answer = Answer(0, 10, 5, False, {"correct": -3.0}, lambda like: {})
    check_metrics(answer, measures, "regression")
    with pytest.raises(RefusedError, match="correct is -3 of 5"):
        check_metrics(answer, measures, "classification")
    with pytest.raises(RefusedError, match="correct is 6 of 5"):
        check_metrics(Answer(0, 10, 5, False, {"correct": 6.0}, lambda like: {}), measures, "regression")
