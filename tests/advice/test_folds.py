"""Folds: every sample tested once in each cut, by models that saw neither it nor what chose their rates by it."""

import numpy as np
import pytest

import cgpfl
from cgpfl.advice.folds import deal, everything, make_folds


@pytest.fixture(scope="module")
def folds():
    return make_folds(cgpfl.make_data("digits", "iid", clients=6, share=0.2, validation=0.1), 5, seed=3)


def test_every_sample_is_tested_once_in_each_of_two_cuts(folds):
    assert (folds.cuts, len(folds.outer)) == (2, 10)
    cuts = folds.outer[:5], folds.outer[5:]
    for i, own in enumerate(everything(folds.data)):
        for cut in cuts:
            tested = np.concatenate([d.test.parts()[i] for d in cut])
            assert sorted(tested) == sorted(own)
            assert np.ptp([d.test.counts[i] for d in cut]) <= 1
        assert set(cuts[0][0].test.parts()[i]) not in [set(d.test.parts()[i]) for d in cuts[1]]


def test_rates_are_chosen_without_the_test_fold(folds):
    for outer, inner in zip(folds.outer, folds.inner, strict=True):
        for i in range(6):
            seen = set(inner.train.parts()[i]) | set(inner.test.parts()[i])
            assert seen == set(outer.train.parts()[i])
            assert not set(inner.train.parts()[i]) & set(inner.test.parts()[i])
            assert not seen & set(outer.test.parts()[i])


def test_smaller_shares_are_of_the_training_fold(folds):
    quarter, half = folds.smaller
    for outer, few, more in zip(folds.outer, quarter, half, strict=True):
        for i in range(6):
            assert set(few.train.parts()[i]) <= set(more.train.parts()[i]) < set(outer.train.parts()[i])
            assert np.array_equal(few.test.parts()[i], outer.test.parts()[i])
        assert few.train.counts.sum() == pytest.approx(outer.train.counts.sum() / 4, abs=6)


def test_folds_have_alike_many_of_each_class():
    kinds = np.repeat([0, 1, 2], [10, 10, 5])
    found = deal(kinds, 5, np.random.default_rng(0))
    for kind, size in ((0, 2), (1, 2), (2, 1)):
        assert np.bincount(found[kinds == kind], minlength=5).tolist() == [size] * 5


def test_clients_with_too_few_samples_are_left_out_by_name():
    x = np.zeros((14, 2), np.float32)
    data = cgpfl.FederatedData.from_arrays(x, np.arange(14) % 2, ["a"] * 6 + ["b"] * 3 + ["c"] * 5)
    folds = make_folds(data, 5, 0)
    assert folds.left_out == ("b",)
    assert folds.data.names == ("a", "c")
    with pytest.raises(cgpfl.CgpflError, match="1 clients have at least 6 samples"):
        make_folds(data, 6, 0)
