"""The learning curve: known laws give known answers."""

import numpy as np
import pytest

from cgpfl.advice.curve import learning_curve

CLIENTS, COUNT = 12, 100
SAMPLES = np.array([10.0, 20.0, 40.0])


def curve(lost, target):
    """Every client loses the same."""
    correct = np.repeat(COUNT * (1 - np.array(lost))[:, None], CLIENTS, axis=1)
    trained = np.repeat(SAMPLES[:, None], CLIENTS, axis=1)
    return learning_curve(correct, trained, np.full(CLIENTS, COUNT), np.full(CLIENTS, COUNT * target))


def test_a_power_law_is_followed():
    """Lost: 1/√m. To halve it takes four times the samples."""
    lost = 1 / np.sqrt(SAMPLES)
    found = curve(lost, 1 - lost[-1] / 2)
    assert found.times == pytest.approx(4.0)
    assert (found.low, found.high) == pytest.approx((4.0, 4.0))
    assert "at least 4.0 times as many" in found.words()


def test_beyond_eight_times_it_is_more_than_that():
    lost = 1 / np.sqrt(SAMPLES)
    assert np.isinf(curve(lost, 1 - lost[-1] / 3).times)
    assert "more than 8 times as many" in curve(lost, 1 - lost[-1] / 3).words()
    assert np.isinf(curve(lost, 1.0).times)


def test_a_curve_that_does_not_fall_tells_nothing():
    assert curve([0.3, 0.3, 0.3], 0.9).times is None
    assert "cannot be told" in curve([0.3, 0.3, 0.3], 0.9).words()


def test_what_alone_reaches_already():
    assert curve([0.5, 0.4, 0.3], 0.7).times == 1.0
    assert "as well with what there is" in curve([0.5, 0.4, 0.3], 0.6).words()
