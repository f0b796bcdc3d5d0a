"""Runs that stop when their validation score gets no better."""

import numpy as np
import pytest

import cgpfl
from cgpfl.engine.drive import Recorded, waited
from cgpfl.errors import CgpflError


def records(*curves):
    """Of each run its score in every evaluation."""
    values = np.array(curves, float).T[..., None]
    return Recorded(list(range(len(values))), {"validation_correct": values if len(curves) > 1 else values[:, 0]})


def test_where_it_stops_by_hand():
    """Best at the second evaluation; two without a better one after it, the equal one among them."""
    assert waited(records([1, 3, 3, 2, 9]), 2) == [4]
    assert waited(records([1, 3, 3, 2, 9]), 3) == [None]
    assert waited(records([-5, -6, -7]), 1) == [2]
    assert waited(records([1, 1, 1], [1, 2, 3]), 2) == [3, None]
    assert waited(records([1, 1]), 0) == [None]


SETTINGS = {"rounds": 40, "eval_every": 2, "patience": 3}


@pytest.fixture(scope="module")
def digits():
    return cgpfl.make_data("digits", "iid", clients=4, share=0.2, validation=0.2)


def test_a_run_stops_and_is_finished(digits, tmp_path):
    method = cgpfl.FedAvg(rate=0.5, batch_size=0)
    result = cgpfl.run(method, digits, out=tmp_path / "run", **SETTINGS)
    (end,) = waited(result.records, 3)
    assert result.rounds == result.records.rounds[-1] == 2 * end < 40
    assert cgpfl.Result.load(tmp_path / "run")["fedavg"].result().rounds == result.rounds
    longer = cgpfl.run(method, digits, rounds=result.rounds, eval_every=2)
    np.testing.assert_array_equal(longer.records.values["correct"], result.records.values["correct"])
    compared = cgpfl.compare([method], digits, seeds=2, out=tmp_path / "two", **SETTINGS)
    assert all(r < 40 for r in compared.runs["fedavg"].rounds)


def test_it_needs_validation_samples():
    with pytest.raises(CgpflError, match=r"patience: needs validation samples; set data.validation"):
        cgpfl.run("fedavg", cgpfl.make_data("digits", "iid", clients=2), rounds=2, patience=1)
