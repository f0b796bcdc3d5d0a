"""The round that is timed, against a loop over clients in NumPy."""

import numpy as np
import pytest

from benchmarks.bench.check import TOLERANCE, check_round, difference
from benchmarks.bench.ours import Ours
from benchmarks.bench.work import Case
from cgpfl.errors import CgpflError

CLIENTS = 4


def numpy_client(start, x, y, rule):
    """A client's round with the MLR, as written in the papers → (θ, upload)."""
    theta = np.concatenate([start["weight"], start["bias"][:, None]], axis=1).astype(np.float64)
    omega = theta.copy()
    for images, labels in zip(x, y, strict=True):
        inputs = np.concatenate([images.reshape(len(images), -1), np.ones((len(images), 1))], axis=1)
        for _ in range(rule.inner_steps):
            logits = inputs @ theta.T
            chances = np.exp(logits - logits.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            gradient = (chances - np.eye(10)[labels]).T @ inputs / len(labels) + rule.l2 * theta
            theta = theta - rule.rate * (gradient + rule.prox * (theta - omega))
        if rule.pull is not None:
            omega = omega - rule.pull * (omega - theta)
    return theta, theta if rule.pull is None else omega


def joined(params):
    return np.concatenate([params["weight"], params["bias"][..., None]], axis=-1)


@pytest.mark.parametrize("method", [pytest.param("cgpfl", marks=pytest.mark.slow), "pfedme", "fedavg"])
def test_a_round_is_that_of_a_numpy_loop(method):
    ours = Ours(Case(method, "mlr", CLIENTS, samples=160))
    expected = ours.client_rounds(CLIENTS)
    assert expected.x.shape == (CLIENTS, 10, 20, 28, 28)
    loop = [numpy_client(expected.start, x, y, ours.rule) for x, y in zip(expected.x, expected.y, strict=True)]
    theta, upload = (np.stack(parts) for parts in zip(*loop, strict=True))
    start = joined(expected.start)
    assert difference(upload, joined(expected.upload), start) < TOLERANCE
    ours.advance(1)  # the whole compiled round
    if method == "fedavg":
        weights = ours.data.train.counts / ours.data.train.counts.sum()
        mean = np.tensordot(weights, upload, axes=1)
        assert difference(mean, joined(ours.drive.state.server), start) < TOLERANCE
        return
    assert difference(theta, joined(expected.personal), start) < TOLERANCE
    assert difference(theta, joined(ours.drive.state.clients), start) < TOLERANCE
    assert check_round(ours, expected) < TOLERANCE
    if method == "pfedme":
        assert difference(upload.mean(axis=0), joined(ours.drive.state.server)[0], start) < TOLERANCE
    ours.advance(1)
    with pytest.raises(CgpflError, match="the compiled round does not compute the client's round"):
        check_round(ours, expected)  # a second round is another


def test_nothing_is_timed_of_what_diverges():
    ours = Ours(Case("fedavg", "mlr", CLIENTS, samples=160))
    broken = {k: v * np.nan for k, v in ours.drive.state.server.items()}
    ours.drive.state = ours.drive.state._replace(server=broken)
    with pytest.raises(CgpflError, match="fedavg mlr, 4 clients: diverged in round 1"):
        ours.advance(1)
