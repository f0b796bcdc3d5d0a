"""Metrics by hand, against scikit-learn, and through every engine."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as oracle
from sklearn.calibration import calibration_curve

import cgpfl
from cgpfl.data import FederatedData
from cgpfl.engine import Streamed, simulate
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.together import Run, simulate_together
from cgpfl.errors import CgpflError
from cgpfl.metrics import (
    DEFAULT,
    METRICS,
    Metric,
    agreement,
    get_metric,
    headline,
    measured,
    name_of,
    of_samples,
    reduced,
)
from cgpfl.objectives import TASKS, objective_of

OF_CLASSES = [name for name, metric in METRICS.items() if "classification" in metric.tasks]
MORE = ["balanced-accuracy", "macro-f1", "auc", "ece"]


@partial(jax.jit, static_argnames="metric")
def program(metric, logits, labels, weights):
    return metric.value(metric.statistics(logits, labels, weights))


def value(name, logits, labels, weights=None):
    """Over one batch."""
    weights = np.ones(len(labels)) if weights is None else weights
    arrays = jnp.asarray(logits, jnp.float32), jnp.asarray(labels), jnp.asarray(weights, jnp.float32)
    return float(program(METRICS[name], *arrays))


def answers(given, classes=3):
    """Logits of a model that gives these answers, all as sure."""
    return 2.0 * np.eye(classes)[given]


def some(seed, samples=300, classes=4, scale=2.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, samples)
    return scale * rng.normal(size=(samples, classes)) + np.eye(classes)[labels], labels


def test_by_hand():
    """Classes 0, 1; 2 is nobody's. Of class 0 three of four are right, of class 1 one of two; one answer is 2."""
    labels, given = [0, 0, 0, 0, 1, 1], [0, 0, 0, 2, 1, 0]
    assert value("accuracy", answers(given), labels) == pytest.approx(4 / 6)
    assert value("balanced-accuracy", answers(given), labels) == pytest.approx((3 / 4 + 1 / 2) / 2)
    # F1 of class 0: 2·3 / (4 given + 4 there), of class 1: 2·1 / (1 + 2)
    assert value("macro-f1", answers(given), labels) == pytest.approx((6 / 8 + 2 / 3) / 2)
    sure = np.exp(2) / (np.exp(2) + 2)
    assert value("ece", answers(given), labels) == pytest.approx(abs(sure - 4 / 6))
    assert value("log-loss", answers(given), labels) == pytest.approx(-np.log(sure) + 2 * 2 / 6)


def test_auc_by_hand():
    """Two classes: of the pairs (own, other) of class 1, one is the wrong way round and one is tied."""
    score, labels = np.array([3.0, 1.0, 1.0, -2.0, 2.0]), [1, 1, 0, 0, 0]
    # of 3: three others below; of 1: one below, one tied, one above
    assert value("auc", np.stack([0 * score, score], 1), labels) == pytest.approx((3 + 1.5) / 6)


@pytest.mark.parametrize("seed", range(3))
def test_scikit_learn_agrees(seed):
    logits, labels = some(seed)
    given, sure = logits.argmax(1), np.asarray(jax.nn.softmax(jnp.asarray(logits)))
    assert value("accuracy", logits, labels) == pytest.approx(oracle.accuracy_score(labels, given))
    assert value("balanced-accuracy", logits, labels) == pytest.approx(oracle.balanced_accuracy_score(labels, given))
    assert value("macro-f1", logits, labels) == pytest.approx(oracle.f1_score(labels, given, average="macro"), abs=1e-6)
    assert value("log-loss", logits, labels) == pytest.approx(oracle.log_loss(labels, sure), rel=1e-5)
    assert value("auc", logits, labels) == pytest.approx(_auc(labels, sure), abs=2e-3)
    right, top = (given == labels).astype(int), sure.max(1)
    true, said = calibration_curve(right, top, n_bins=15)
    held = np.bincount(np.searchsorted(np.linspace(0, 1, 16)[1:-1], top), minlength=15)
    assert value("ece", logits, labels) == pytest.approx((held[held > 0] * abs(true - said)).sum() / len(top), abs=1e-5)


def _auc(labels, sure):
    """Over the classes that are there."""
    there = np.unique(labels)
    return np.mean([oracle.roc_auc_score(labels == c, sure[:, c]) for c in there])


def test_binned_auc_is_off_by_no_more_than_the_help_says():
    logits, labels = some(5, samples=2000, classes=2, scale=0.1)
    score = logits[:, 1] - logits[:, 0]
    place = np.floor((score + 16) * 8)
    own, other = place[labels == 1], place[labels == 0]
    most = (own[:, None] == other).mean() / 2
    exact = oracle.roc_auc_score(labels, score)
    assert abs(value("auc", logits, labels) - exact) <= most + 1e-6
    assert most < 0.06  # scores as close together as these; sharper ones do better


@pytest.mark.parametrize("name", OF_CLASSES)
def test_padding_does_not_count(name):
    logits, labels = some(1, samples=50)
    padded = np.concatenate([logits, np.full((7, 4), 9.0)]), np.concatenate([labels, np.zeros(7, int)])
    weights = np.concatenate([np.ones(50), np.zeros(7)])
    assert value(name, *padded, weights) == pytest.approx(value(name, logits, labels), abs=1e-6)


@pytest.mark.parametrize("name", OF_CLASSES)
def test_sums_of_parts_are_sums_of_the_whole(name):
    (logits, labels), metric = some(2, samples=60), METRICS[name]
    parts = [metric.statistics(jnp.asarray(logits[s]), labels[s], jnp.ones(20)) for s in np.split(np.arange(60), 3)]
    assert float(metric.value(jax.tree.map(lambda *v: sum(v), *parts))) == pytest.approx(value(name, logits, labels))


def test_numbers_and_many_labels_by_hand():
    """Errors 1, 3 and −2 (which does not count); two labels of which (both right), (one said, none true)."""
    found, true, weights = np.array([[2.0], [5.0], [0.0]]), np.array([[1.0], [2.0], [2.0]]), [1, 1, 0]
    assert value("rmse", found, true, weights) == pytest.approx(5**0.5)
    assert value("mae", found, true, weights) == pytest.approx(2)
    outputs, labels = np.array([[1.0, -1.0], [2.0, -3.0]]), np.array([[1, 0], [0, 0]])
    assert value("exact-match", outputs, labels) == pytest.approx(1 / 2)
    assert value("micro-f1", outputs, labels) == pytest.approx(2 * 1 / (2 + 1))
    assert value("perplexity", np.log([[1.0, 3.0], [1.0, 1.0]]), [1, 0]) == pytest.approx((4 / 3 * 2) ** 0.5)


def test_metrics_are_of_tasks():
    """Where nothing is said, a task's own; one of another task is an error, before anything is computed."""
    numbers = objective_of("regression")
    assert [m.name for m in measured(DEFAULT, numbers)] == ["rmse", "mae"]
    assert [m.name for m in measured(["rmse", "r2"], numbers)] == ["rmse"]
    with pytest.raises(
        CgpflError, match="metric 'auc': is for classification; the data's task is regression: r2, rmse"
    ):
        measured(["auc"], numbers)
    assert [headline(task).name for task in TASKS] == ["accuracy", "r2", "label-accuracy", "token-accuracy"]


def test_absent_classes_are_left_out():
    logits, labels = some(3, samples=80, classes=5)
    kept = labels < 3
    logits, labels = logits[kept], labels[kept]
    given, sure = logits.argmax(1), np.asarray(jax.nn.softmax(jnp.asarray(logits)))
    assert set(given) - set(labels)  # some answers are of absent classes
    recall = oracle.recall_score(labels, given, labels=[0, 1, 2], average="macro")
    assert value("balanced-accuracy", logits, labels) == pytest.approx(recall)
    f1 = oracle.f1_score(labels, given, labels=[0, 1, 2], average="macro")
    assert value("macro-f1", logits, labels) == pytest.approx(f1)
    assert value("auc", logits, labels) == pytest.approx(_auc(labels, sure), abs=5e-3)


def test_clients_with_one_class_or_nothing():
    logits, ones = answers([1, 1, 0]), [1, 1, 1]
    assert np.isnan(value("auc", logits, ones))
    assert value("balanced-accuracy", logits, ones) == pytest.approx(2 / 3)
    for name in OF_CLASSES:
        assert np.isnan(value(name, logits, ones, np.zeros(3)))


def test_ties_and_certainty():
    """Equal scores are no better than chance; probabilities of 0 and 1 are in the outermost bins."""
    assert value("auc", np.zeros((6, 3)), [0, 0, 1, 1, 2, 2]) == pytest.approx(0.5)
    assert value("auc", 1e4 * np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 0]) == 1
    assert value("ece", 1e4 * np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 0]) == 0


def test_reductions():
    each = np.array([0.5, np.nan, 1.0, *[0.9] * 9])
    found = reduced(each, 0.8)
    assert found["pooled"] == 0.8
    assert found["mean"] == pytest.approx((0.5 + 1 + 8.1) / 11)
    assert found["worst_tenth"] == pytest.approx((0.5 + 0.9) / 2)  # two of eleven
    assert reduced(each, 0.8, higher=False)["worst_tenth"] == pytest.approx((1.0 + 0.9) / 2)
    assert np.isnan(reduced(np.full(3, np.nan), 0.1)["mean"])


def test_agreement():
    assert agreement(np.array([0, 0, 1, 1]), np.array([5, 5, 2, 2])) == 1
    assert agreement(None, np.zeros(4)) is None
    assert agreement(np.arange(200_000), np.arange(200_000)[::-1]) == 1  # no table of all pairs
    truth, found = np.array([0, 0, 1, 1, 1]), np.array([3, 3, 1, 1, 3])
    assert agreement(truth, found, np.array([1, 1, 1, 1, 0], bool)) == 1 > agreement(truth, found)
    assert agreement(truth, found, np.zeros(5, bool)) is None


# Through the engines


@pytest.fixture(scope="module")
def few():
    """Five clients, one with a single class among its test samples, of one more samples than a chunk holds."""
    rng = np.random.default_rng(0)
    sizes, pairs = [12, 9, 70, 8, 14], []
    for i, n in enumerate(sizes):
        y = np.full(n, 1) if i == 3 else rng.permutation(np.arange(n) % 3)
        pairs.append(((rng.normal(size=(n, 4)) + np.eye(4)[y]).astype(np.float32), y))
    test = [(x[: n // 2], y[: n // 2]) for (x, y), n in zip(pairs, sizes, strict=True)]
    test[2] = pairs[2]
    return FederatedData.from_clients(pairs, test=test)


SETTINGS = {"rounds": 4, "eval_every": 2, "metrics": MORE}


@pytest.fixture(scope="module")
def simulated(few):
    return simulate(METRICS_METHOD, few, cgpfl.MLR(few.shape, few.classes), **SETTINGS)


METRICS_METHOD = cgpfl.FedAvg(batch_size=0)


def test_records_are_what_the_models_answer(few, simulated):
    result = cgpfl.run(METRICS_METHOD, few, rounds=4, eval_every=2, metrics=["accuracy", *MORE])
    logits = [result.personal_model(i).logits(few.x[rows]) for i, rows in enumerate(few.test.parts())]
    labels = [few.y[rows] for rows in few.test.parts()]
    for name in MORE:
        each = [value(name, a, b) for a, b in zip(logits, labels, strict=True)]
        np.testing.assert_allclose(result.records.values[name][-1], each, atol=1e-6)
        np.testing.assert_array_equal(result.records.values[name], simulated[1][name])
        whole = value(name, np.concatenate(logits), np.concatenate(labels))
        assert result.metrics[name]["pooled"] == pytest.approx(whole, abs=1e-6)
        assert result.metrics[name]["mean"] == pytest.approx(np.nanmean(each), abs=1e-6)
    assert np.isnan(result.records.values["auc"][-1][3])
    assert "AUC: not defined for 1 of 5 clients, who are not in its mean" in result.summary()["notes"]
    assert result.metrics["accuracy"] == result.scores
    assert result.metrics["log-loss"]["worst_tenth"] == pytest.approx(result.records.values["loss"][-1].max())
    assert {"macro-f1", "macro-f1/mean", "macro-f1/worst_tenth"} <= set(result.history)
    assert "macro-f1" in result.clients


def test_what_is_always_recorded_stays_the_same(few, simulated):
    _, plain, _ = simulate(METRICS_METHOD, few, cgpfl.MLR(few.shape, few.classes), rounds=4, eval_every=2)
    assert not plain.keys() & set(MORE)
    for name, values in plain.items():
        np.testing.assert_array_equal(values, simulated[1][name])


@pytest.mark.slow
def test_all_engines_agree(few, simulated, monkeypatch):
    model = cgpfl.MLR(few.shape, few.classes)
    names = [*MORE, *(f"{name}/pooled" for name in MORE)]
    monkeypatch.setattr("cgpfl.engine.stream.EVALUATED", 2)
    streamed = Streamed(METRICS_METHOD, few, model, **SETTINGS)
    _, stream, _ = streamed.advance(streamed.start(), 0, 4)
    _, _, loop = simulate_loop(METRICS_METHOD, few, model, **SETTINGS)
    other = cgpfl.FedAvg(rate=0.05, batch_size=0)
    runs = [Run(METRICS_METHOD, few, 0), Run(other, few, 1)]
    (_, together, _), _ = simulate_together(runs, model, **SETTINGS)
    for name in names:
        for found in (stream, loop, together):
            np.testing.assert_allclose(found[name], simulated[1][name], atol=2e-5, err_msg=name)


# One's own


def top_two(outputs, labels):
    """How often the label is among the two likeliest classes."""
    best = jnp.argsort(outputs, axis=-1)[:, -2:]
    return (best == labels[:, None]).any(axis=-1)


SPREAD = Metric(
    "spread",
    lambda outputs, labels, weights: {"sum": (outputs.std(axis=-1) * weights).sum(), "n": weights.sum()},
    lambda sums: sums["sum"] / sums["n"],
    title="spread of logits",
    help="standard deviation over classes",
    percent=False,
)


def test_own_metrics_are_found():
    here = __name__
    found = get_metric(f"{here}:top_two")
    assert (found.name, found.help) == ("top-two", "How often the label is among the two likeliest classes.")
    assert get_metric(top_two) is found is get_metric("top-two")
    assert name_of(top_two) == f"{here}:top_two"
    assert name_of(SPREAD) == f"{here}:SPREAD"
    assert name_of(of_samples(lambda a, b: b, name="mine")) == "mine"
    assert value("top-two", [[3, 2, 1], [3, 2, 1]], [1, 2]) == 0.5


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("f1", "no metric 'f1'; there are accuracy, log-loss"),
        ("no.module:x", "metric no.module:x: module no.module cannot be imported"),
        ("math:nothing", "metric math:nothing: math has no nothing"),
        (3, "metric 3: must be a Metric or a function"),
        (dataclasses.replace(SPREAD, name="mean"), "metric 'mean': this name is taken"),
        (dataclasses.replace(SPREAD, name="auc"), "metric 'auc': this name is taken"),
        (lambda a, b: b, "metric '<lambda>': this name is taken or none"),
    ],
)
def test_mistakes(what, said):
    with pytest.raises(CgpflError, match=said.replace("(", r"\(")):
        get_metric(what)


def test_a_setting_of_the_wrong_kind(few):
    with pytest.raises(CgpflError, match="metrics = 'auc': must be a list of names"):
        cgpfl.experiment.config.from_dict({"metrics": "auc"}, "here")
    with pytest.raises(CgpflError, match="no metric 'f1'"):
        cgpfl.run("fedavg", few, metrics=["f1"])
