"""Membership attacks on scores whose truth is known."""

import numpy as np
import pytest

from cgpfl.auditing.bounds import auc
from cgpfl.auditing.membership import Pool, by_size, confidence, measured, ratio
from cgpfl.data import FederatedData


@pytest.fixture(scope="module")
def pool():
    pairs = [(np.arange(n, dtype=np.float32)[:, None], np.arange(n) % 2) for n in (8, 12, 40)]
    return Pool.of(FederatedData.from_clients(pairs, test=0.25))


def test_everybody_is_left_out_equally_often(pool):
    gone = np.stack([pool.without(r, 0) for r in range(8)])
    assert gone.sum(axis=2).tolist() == [[2, 3, 10]] * 8
    for i, size in enumerate(pool.size):
        assert gone[:, i, :size].sum(axis=0).tolist() == [2] * size  # 8 times a quarter
        assert not gone[:, i, size:].any()
    assert not np.array_equal(gone[:4], gone[4:])


def test_references_find_what_the_loss_cannot(pool):
    rng, shape = np.random.default_rng(1), pool.rows.shape
    level = 5 * rng.normal(size=shape)  # hard and easy samples
    gone = np.stack([pool.without(r, 0) for r in range(8)])
    references = level + 1.0 * ~gone + 0.3 * rng.normal(size=(8, *shape))
    target = level + 1.0 * pool.member + 0.3 * rng.normal(size=shape)
    by_level, by_ratio = (measured(s, pool) for s in (target, ratio(target, references, gone, pool.known)))
    assert by_level["auc"] < 0.75
    assert by_ratio["auc"] > 0.9
    assert by_ratio["interval"][0] < by_ratio["auc"] <= by_ratio["interval"][1] <= 1
    assert (by_ratio["members"], by_ratio["others"], len(by_ratio["each"])) == (45, 15, 3)
    nothing = ratio(level + 0.3 * rng.normal(size=shape), references, gone, pool.known)
    assert 0.3 < measured(nothing, pool)["auc"] < 0.7


def test_by_size(pool):
    scores = np.where(pool.member, 1.0, 0.0)
    scores[2] = 0.0  # of the largest client nothing is told
    found = by_size(scores, pool)
    assert [(q["clients"], q["from"], q["auc"]) for q in found] == [(1, 6, 1.0), (1, 9, 1.0), (1, 30, 0.5)]


def test_confidence():
    assert confidence(np.array([np.log(2), np.log(4)]), "classification") == pytest.approx([0, -np.log(3)])
    assert confidence(np.array([2.0]), "regression").tolist() == [-2.0]
    assert auc(confidence(np.array([0.0, 50.0]), "classification"), np.array([0.0])) == 0.5
