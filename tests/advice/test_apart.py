"""What sets contexts apart, on tables whose difference is known."""

import numpy as np
import pandas as pd
import pytest

from cgpfl.advice.apart import _between, differences
from made_advice import CLIENTS, federation, frame

CONTEXTS = np.arange(CLIENTS) % 2


def test_an_effect_by_hand():
    """Ten clients with 1 and 3, ten with −1 and 1: means 2 and 0, a pooled variance of 40·1/(40 − 2)."""
    x = np.concatenate([np.tile([1.0, 3.0], 10), np.tile([-1.0, 1.0], 10)])[:, None]
    (found,) = _between(0, x, np.repeat(np.arange(20), 2), np.arange(20) < 10, ["age"], [False])
    assert found.effect == pytest.approx(2 / np.sqrt(40 / 38))
    assert (found.here, found.elsewhere) == (2.0, 0.0)


def test_columns_that_differ_are_found_in_their_order():
    found = [d for d in differences(federation(), CONTEXTS) if not d.given]
    assert {d.what for d in found} == {"age", "city = Oslo", "city = Rome"}
    old = next(d for d in found if d.what == "age" and d.context == 0)
    assert old.effect == pytest.approx(2.0, abs=0.3)
    assert old.here == pytest.approx(60, abs=2)
    assert "higher" in old.words()
    assert [abs(d.effect) for d in found] == sorted((abs(d.effect) for d in found), reverse=True)


def test_labels_that_follow_otherwise_are_found_inside_a_label():
    """The same columns and label shares everywhere, but age means the opposite in the second context."""
    table = frame()
    ward = table["ward"].str[-1].astype(int) % 2
    draw = np.random.default_rng(5)
    table["age"], table["city"] = draw.normal(50, 10, len(table)), "Oslo"
    table["outcome"] = np.where((table["age"] > 50) == (ward == 0), "ill", "well")
    found = differences(federation(table), CONTEXTS)
    assert not [d for d in found if not d.given]
    assert {d.what for d in found if abs(d.effect) > 1} == {"age"}
    assert {d.given for d in found if abs(d.effect) > 1} == {"label ill", "label well"}


def test_one_odd_client_is_no_difference_of_its_context():
    table = frame()
    table["age"] = np.where(table["ward"] == "ward 0", 90.0, 50.0) + np.random.default_rng(0).normal(0, 5, len(table))
    assert "age" not in {d.what for d in differences(federation(table), CONTEXTS)}


def test_shares_of_labels():
    table = pd.concat([frame().assign(outcome=lambda t: np.where(t["ward"].str[-1].astype(int) % 2, "ill", "well"))])
    (first, *_) = [d for d in differences(federation(table), CONTEXTS) if d.what.startswith("label")]
    assert (first.what, first.share) == ("label well", True)
    assert "100 %" in first.words()


def test_a_number_that_follows_otherwise():
    """In the second context the target falls with age."""
    table = frame()
    sign = 1 - 2 * (table["ward"].str[-1].astype(int) % 2)
    draw = np.random.default_rng(5)
    table["age"], table["city"] = draw.normal(50, 10, len(table)), "Oslo"
    table["outcome"] = sign * (table["age"] - 50) + draw.normal(0, 1, len(table))
    first = differences(federation(table, task="regression"), CONTEXTS)[0]
    assert first.what == "correlation of age and outcome"
    assert first.here == pytest.approx(-first.elsewhere, abs=0.2)
    assert abs(first.here) == pytest.approx(1, abs=0.2)
