import numpy as np
import pytest

from cgpfl.data import RULES, split
from cgpfl.data.splits import block_classes, cyclic_classes, sample
from cgpfl.errors import CgpflError

LABELS = np.repeat(np.arange(10), 100)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("clients", [1, 7, 40])
def test_no_sample_twice_none_too_small(rule, clients):
    parts = split(LABELS, rule, clients, seed=3)
    used = np.concatenate(parts)
    assert len(parts) == clients
    assert len(np.unique(used)) == len(used)
    assert min(map(len, parts)) >= 4


@pytest.mark.parametrize("rule", RULES)
def test_seeded(rule):
    same, again, other = (split(LABELS, rule, 10, seed=s) for s in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(same, again, strict=True))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(same, other, strict=True))


def test_iid_uses_everything_equally():
    parts = split(LABELS, "iid", 7, seed=0)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_cyclic_holds_consecutive_classes():
    parts = split(LABELS, "cyclic", 20, held=3, seed=0)
    for i, part in enumerate(parts):
        assert set(LABELS[part]) == {i % 10, (i + 1) % 10, (i + 2) % 10}
    assert cyclic_classes(3, 2, 10) == [[0, 1], [1, 2], [2, 3]]


def test_block_classes_are_disjoint():
    assert block_classes(5, 4, 10) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3], [4, 5, 6, 7]]
    parts = split(LABELS, "block", 6, held=5, seed=0)
    assert set(LABELS[parts[0]]) == {0, 1, 2, 3, 4}
    assert set(LABELS[parts[1]]) == {5, 6, 7, 8, 9}


def test_random_holds_at_most_k_classes():
    parts = split(LABELS, "random", 12, held=2, seed=0)
    assert all(1 <= len(set(LABELS[p])) <= 2 for p in parts)


def test_dirichlet_alpha_is_the_skew():
    def skew(alpha):
        parts = split(LABELS, "dirichlet", 8, alpha=alpha, seed=0)
        shares = np.stack([np.bincount(LABELS[p], minlength=10) / len(p) for p in parts])
        return shares.max(axis=1).mean()

    assert skew(0.1) > skew(1.0) > skew(100.0)


def test_spread_makes_sizes_unequal():
    equal, unequal = (np.array([len(p) for p in split(LABELS, "cyclic", 20, seed=0, spread=s)]) for s in (0, 1.0))
    assert unequal.std() > 3 * equal.std()
    assert unequal.sum() == equal.sum() == 1000


@pytest.mark.parametrize("rule", ["cyclic", "block", "random", "dirichlet"])
def test_no_client_is_over_the_largest(rule):
    def sizes(largest):
        return np.array([len(p) for p in split(LABELS, rule, 20, seed=1, alpha=1.0, spread=0.5, largest=largest)])

    limit = sizes(0).max() - 1
    assert 4 <= sizes(limit).min() <= sizes(limit).max() <= limit


def test_a_limit_that_is_kept_anyway_changes_nothing():
    free, held = (split(LABELS, "cyclic", 20, seed=2, spread=0.3, largest=n) for n in (0, 1000))
    assert all((a == b).all() for a, b in zip(free, held, strict=True))


def test_sample_takes_the_same_share_of_every_class():
    labels = np.repeat([0, 1, 2, 5], [400, 200, 100, 3])
    rows = sample(labels, 0.25, seed=0)
    assert np.bincount(labels[rows]).tolist() == [100, 50, 25, 0, 0, 1]
    assert (np.diff(rows) > 0).all()
    assert (sample(labels, 0.25, seed=0) == rows).all()
    assert (sample(labels, 0.25, seed=1) != rows).any()
    assert np.bincount(labels[sample(labels, 0.001, seed=0)]).tolist() == [1, 1, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "nope", "clients": 4}, "no split 'nope'; there are iid"),
        ({"rule": "iid", "clients": 0}, "at least 1"),
        ({"rule": "iid", "clients": 251}, "too many for 1000 samples at 4 a client; at most 250"),
        ({"rule": "cyclic", "clients": 4, "held": 11}, "between 1 and 10"),
        ({"rule": "dirichlet", "clients": 4, "alpha": 0.0}, "above 0"),
        ({"rule": "dirichlet", "clients": 100, "alpha": 0.01}, "100 draws left a client with under 4 samples"),
        ({"rule": "iid", "clients": 4, "largest": 3}, "largest = 3: must be 0, for no limit, or at least smallest, 4"),
        ({"rule": "iid", "clients": 8, "largest": 124}, "too few for 8 clients to hold all 1000 samples; at least 125"),
        (
            {"rule": "cyclic", "clients": 40, "spread": 3.0, "largest": 30},
            "100 draws left a client with under 4 or over 30 samples; use a smaller spread",
        ),
    ],
)
def test_bad_splits_say_so(settings, message):
    with pytest.raises(CgpflError, match=message):
        split(LABELS, **settings)
