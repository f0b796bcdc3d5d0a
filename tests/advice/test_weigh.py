"""The rule and its tests, by hand and by SciPy."""

import numpy as np
import pytest
from scipy import stats

from cgpfl.advice.weigh import FEW, of_clients, over_clients, over_folds, paired, weigh

DRAW = np.random.default_rng(3)


def test_over_clients_of_one_size_is_the_paired_t_test():
    counts = np.full((4, 9), 5)
    a, b = DRAW.integers(0, 6, (4, 9)), DRAW.integers(0, 6, (4, 9))
    expected = stats.ttest_rel(a.sum(axis=0) / 20, b.sum(axis=0) / 20).pvalue
    assert over_clients(a - b, counts) == pytest.approx(expected)


def test_over_folds_by_hand():
    """Differences 0.1, 0.2, 0.3 in three folds: mean 0.2, variance 0.01, error √((1/3 + 1/2)·0.01), two degrees."""
    counts = np.full((3, 2), 5)
    apart = np.array([[1, 0], [1, 1], [2, 1]])
    expected = 2 * stats.t.sf(0.2 / np.sqrt(5 / 6 * 0.01), 2)
    assert over_folds(apart, counts) == pytest.approx(expected)


def test_over_folds_of_two_cuts_by_hand():
    """The same three folds twice: variance 0.008, error √((1/6 + 1/2)·0.008), five degrees."""
    counts = np.full((6, 2), 5)
    apart = np.array([[1, 0], [1, 1], [2, 1]] * 2)
    expected = 2 * stats.t.sf(0.2 / np.sqrt(4 / 6 * 0.008), 5)
    assert over_folds(apart, counts, cuts=2) == pytest.approx(expected)


def test_a_large_client_counts_by_its_samples():
    """One client of 90 gains 9 answers, nine of 1 lose one each: the pooled difference is 0."""
    counts = np.array([[90, *[1] * 9]] * 3)
    assert over_clients(np.array([[9, *[-1] * 9]] * 3), counts) == 1.0


def test_few_clients_are_tested_over_folds_alone():
    apart = np.ones((5, FEW - 1)) * np.arange(FEW - 1)  # the same in every fold, much between clients
    assert paired(apart, np.full(apart.shape, 10)) == 0.0
    more = np.concatenate([apart, apart[:, :1]], axis=1)
    assert paired(more, np.full(more.shape, 10)) > 0.0


def ways(**scores):
    """Five ways with these scores, and noise that is the same for nobody."""
    names = ("alone", "one model", "one model, tuned", "contexts", "contexts + personal")
    counts = np.full((5, 20), 10)
    draw = np.random.default_rng(0)
    given = [scores[n.replace(" ", "_").replace(",", "").replace("_+", "")] for n in names]
    return {n: counts * (s + draw.normal(0, 0.03, counts.shape)) for n, s in zip(names, given, strict=True)}, counts


@pytest.mark.parametrize(
    ("scores", "name"),
    [
        ((0.5, 0.9, 0.9, 0.9, 0.9), "one model"),
        ((0.9, 0.5, 0.9, 0.9, 0.9), "alone"),
        ((0.5, 0.5, 0.8, 0.8, 0.8), "one model, tuned"),
        ((0.5, 0.5, 0.7, 0.9, 0.9), "contexts"),
        ((0.5, 0.5, 0.7, 0.8, 0.9), "contexts + personal"),
    ],
)
def test_the_simplest_that_is_not_told_from_the_best(scores, name):
    keys = ("alone", "one_model", "one_model_tuned", "contexts", "contexts_personal")
    verdict = weigh(*ways(**dict(zip(keys, scores, strict=True))))
    assert verdict.name == name
    assert verdict.best in verdict.tied


def test_where_both_simple_ones_tie_the_worst_tenth_decides():
    counts = np.full((5, 20), 10)
    draw = np.random.default_rng(0)
    alone = counts * (0.8 + draw.normal(0, 0.02, counts.shape))
    one = counts * (0.8 + draw.normal(0, 0.02, counts.shape))
    one[:, 0] -= 2.0  # one model fails one client
    one[:, 1:] += 2.0 / 19
    correct = dict.fromkeys(("alone", "one model, tuned", "contexts", "contexts + personal"), alone) | {
        "one model": one
    }
    order = {n: correct[n] for n in ("alone", "one model", "one model, tuned", "contexts", "contexts + personal")}
    assert weigh(order, counts).both_simple
    assert weigh(order, counts).name == "alone"
    assert weigh(order | {"alone": one, "one model": alone}, counts).name == "one model"


def test_what_diverged_is_not_taken():
    correct, counts = ways(alone=0.9, one_model=0.9, one_model_tuned=0.9, contexts=0.9, contexts_personal=0.9)
    verdict = weigh(correct | {"alone": np.full(counts.shape, np.nan)}, counts)
    assert verdict.name == "one model"
    assert "alone" not in verdict.tied


def test_gain_of_a_client():
    counts = np.full((4, 2), 10)
    gain, told = of_clients(np.array([[2, 3], [2, -3], [2, 3], [2, -3]]), counts)
    assert gain.tolist() == [0.2, 0.0]
    assert told.tolist() == [True, False]
