"""What the server notes in the warm-up, by hand; folds of a client's samples; the sketch of very much of it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import ClientData
from cgpfl.contexts import add, no_evidence
from cgpfl.contexts import evidence as room
from cgpfl.contexts.evidence import hashed, sketched, width


def samples(count, places):
    """A client whose samples are 100, 101, ...; its table is padded to ``places``."""
    rows = np.zeros(places, np.int32)
    rows[:count] = 100 + np.arange(count)
    return ClientData(None, None, jnp.asarray(rows), jnp.int32(count), jnp.float32(1), jnp.float32(0))


@jax.jit
def five_folds(client, seed):
    return jax.vmap(lambda f: dataclasses.replace(client.fold(f, 5, seed), scale=0, shift=0))(jnp.arange(5))


def folds_of(count, places, seed=7):
    """The samples in each of five folds."""
    found = five_folds(samples(count, places), jnp.uint32(seed))
    assert found.rows.shape == (5, places)
    return [np.asarray(rows[:n]) for rows, n in zip(found.rows, np.asarray(found.count), strict=True)]


@pytest.mark.parametrize("count", [5, 6, 9, 10, 23, 40])
def test_folds_are_a_partition_into_equal_parts(count):
    for seed in (0, 1, 2**32 - 1):
        folds = folds_of(count, 40, seed)
        assert sorted(np.concatenate(folds)) == list(range(100, 100 + count))
        assert {len(f) for f in folds} <= {count // 5, -(-count // 5)}


@jax.jit
def all_but_five_folds(client, seed):
    return jax.vmap(lambda f: dataclasses.replace(client.without(f, 5, seed), scale=0, shift=0))(jnp.arange(5))


@pytest.mark.parametrize(("count", "places"), [(2, 3), (3, 40), (5, 5), (9, 9), (23, 24), (40, 40)])
def test_all_but_a_fold_is_the_rest(count, places):
    """In order, and by the same draw, however long the table."""
    for seed in (0, 7):
        found = all_but_five_folds(samples(count, places), jnp.uint32(seed))
        assert found.rows.shape == (5, places)
        folds = five_folds(samples(count, 40), jnp.uint32(seed))
        for f in range(5):
            blocks = np.arange(-(-count // 5))
            at = 5 * blocks + (f + np.asarray(hashed(jnp.asarray(blocks), jnp.uint32(seed))) % 5) % 5
            fold = set(100 + at[at < count])
            if fold:
                assert fold == set(np.asarray(folds.rows[f, : int(folds.count[f])]))
            rest = sorted(set(range(100, 100 + count)) - fold)
            assert np.asarray(found.rows[f, : int(found.count[f])]).tolist() == rest


def test_one_sample_is_all_there_is():
    found = all_but_five_folds(samples(1, 2), jnp.uint32(7))
    assert found.rows[:, 0].tolist() == [100] * 5
    assert found.count.tolist() == [1] * 5


def test_folds_depend_on_seed_and_count_alone():
    """Not on how far the table is padded; another seed has others."""
    for places in (24, 31):
        for a, b in zip(folds_of(23, 40), folds_of(23, places), strict=True):
            np.testing.assert_array_equal(a, b)
    assert any(set(a) != set(b) for a, b in zip(folds_of(23, 40, 1), folds_of(23, 40, 2), strict=True))


def test_samples_that_follow_each_other_go_to_every_fold():
    """A table sorted by class is no trouble: of any five samples in a row from a multiple of five, one in each."""
    for fold in folds_of(40, 40):
        np.testing.assert_array_equal((fold - 100) // 5, np.arange(8))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_fewer_samples_than_folds(count):
    """Each fold has one sample, and each sample is in one at least."""
    folds = folds_of(count, 40)
    assert [len(f) for f in folds] == [1] * 5
    assert set(np.concatenate(folds)) == set(range(100, 100 + count))


def test_the_hash_is_well_mixed():
    """Signs and folds as fair coins: 4,000 numbers, bounds of four standard errors."""
    bits = np.asarray(hashed(jnp.arange(4000), jnp.uint32(5)))
    assert abs((bits & 1).mean() - 0.5) < 4 * 0.5 / np.sqrt(4000)
    assert (abs(np.bincount(bits % 5) - 800) < 4 * np.sqrt(4000 * 0.2 * 0.8)).all()
    neighbours = (bits[1:] & 1) == (bits[:-1] & 1)
    assert abs(neighbours.mean() - 0.5) < 4 * 0.5 / np.sqrt(4000)
    other = np.asarray(hashed(jnp.arange(4000), jnp.uint32(6)))
    assert abs(((bits & 1) == (other & 1)).mean() - 0.5) < 4 * 0.5 / np.sqrt(4000)


def note(evidence, updates, ids=None, present=None, labels=None, centres=None, warm=1.0):
    updates = np.asarray(updates, np.float32)
    n = len(updates)
    return jax.jit(add)(
        evidence,
        {"a": updates[:, :1], "b": updates[:, 1:]},  # leaves side by side
        np.arange(n, dtype=np.int32) if ids is None else np.asarray(ids, np.int32),
        np.ones(n, np.float32) if present is None else np.asarray(present, np.float32),
        np.zeros(n, np.int32) if labels is None else np.asarray(labels, np.int32),
        np.zeros((1, evidence.sums.shape[-1]), np.float32) if centres is None else np.asarray(centres, np.float32),
        np.float32(warm),
    )


def test_two_clients_over_four_rounds_by_hand():
    """Three folds: rounds 1 and 4 are of fold 0."""
    e = no_evidence(3, 2, 2, jax.random.key(0))
    for updates in ([[3, 1], [1, 1]], [[0, 4], [2, 0]], [[1, 0], [1, 0]], [[5, 0], [1, 2]]):
        e = note(e, updates)
    # Means of the rounds: (2, 1), (1, 2), (1, 0), (3, 1); client 0 is (1, 0), (−1, 2), (0, 0), (2, −1) away from them.
    np.testing.assert_allclose(e.sums[:, 0], [[3, -1], [-1, 2], [0, 0]])
    np.testing.assert_allclose(e.sums[:, 1], -e.sums[:, 0])
    np.testing.assert_allclose(e.counts, [[2, 2], [1, 1], [1, 1]])
    np.testing.assert_allclose(e.common, [[10, 4], [2, 4], [2, 0]])  # once for each client of the round
    np.testing.assert_allclose(e.rounds, [4, 2, 2])
    np.testing.assert_allclose(e.answers, [4, 4])
    means = e.means()
    np.testing.assert_allclose(means[0], [[1.5 + 2.5, -0.5 + 1], [-1.5 + 2.5, 0.5 + 1]])
    np.testing.assert_allclose(means[1:], [[[0, 4], [2, 0]], [[1, 0], [1, 0]]])  # of one round: the update itself


def test_a_clients_fold_follows_its_own_answers():
    """Client 0 answers in rounds 1, 3 and 4, client 2 in the second alone."""
    e = no_evidence(3, 3, 2, jax.random.key(0))
    for ids in ([0, 1], [1, 2], [0, 1], [0, 1]):
        e = note(e, np.eye(2), ids=ids)
    np.testing.assert_allclose(e.counts, [[1, 2, 1], [1, 1, 0], [1, 1, 0]])


def test_who_did_not_answer_leaves_no_trace():
    clean, dirty = (
        note(no_evidence(3, 3, 2, jax.random.key(0)), [[1, 0], bad, [0, 3]], present=[1, 0, 1])
        for bad in ([0, 0], [np.nan, np.inf])
    )
    for a, b in zip(jax.tree.leaves(clean), jax.tree.leaves(dirty), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(clean.sums[0], [[0.5, -1.5], [0, 0], [-0.5, 1.5]])
    np.testing.assert_allclose(clean.answers, [1, 0, 1])
    nobody = note(clean, np.full((3, 2), 9.0), present=[0, 0, 0])
    for a, b in zip(jax.tree.leaves(clean), jax.tree.leaves(nobody), strict=True):
        np.testing.assert_array_equal(a, b)


def test_after_the_warm_up_a_context_stands_where_it_is():
    """Updates count against their context's mean, which is put where the context was; nothing common is noted."""
    e = note(no_evidence(3, 3, 2, jax.random.key(0)), [[1, 0], [3, 0], [7, 7]], labels=[0, 0, 1],
             centres=[[10, 0], [0, 20]], warm=0.0)  # fmt: skip
    np.testing.assert_allclose(e.sums[0], [[9, 0], [11, 0], [0, 20]])
    assert not e.common.any()
    assert not e.rounds.any()


@pytest.mark.parametrize("clients", [40, 400, 4_000, 100_000])
@pytest.mark.parametrize("dimension", [650, 10_000, 407_050, 1_000_000])
def test_evidence_is_bounded(clients, dimension):
    for folds in (3, 5, 10):
        p = width(folds, clients, dimension)
        assert 64 <= p <= dimension
        assert folds * clients * p <= room.EXACT
        assert p == dimension or p & (p - 1) == 0


def test_little_evidence_is_kept_as_it_is():
    assert width(5, 40, 31_400) == 31_400
    assert no_evidence(5, 40, 31, jax.random.key(0)).spread.size == 0


def sketches(monkeypatch, dimension, p, clients=4):
    monkeypatch.setattr(room, "EXACT", 3 * clients * dimension - 1)
    monkeypatch.setattr(room, "width", lambda *sizes: p)
    return no_evidence(3, clients, dimension, jax.random.key(0))


def test_inner_products_of_sketches_are_right_on_average(monkeypatch):
    """Of x and y in 12 coordinates and 4 buckets over 4,000 seeds of signs, to four standard errors."""
    e = dataclasses.replace(sketches(monkeypatch, 12, 4), spread=jnp.linspace(0.5, 2.0, 12))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 12)).astype(np.float32)
    y += x
    rows = jnp.asarray([x, y])

    def inner(seed):
        made = sketched(dataclasses.replace(e, signs=jnp.stack([seed, seed])), rows)
        return jnp.stack([made[0] @ made[1], made[0] @ made[0]])

    found = np.asarray(jax.jit(jax.vmap(inner))(jnp.arange(4000, dtype=jnp.uint32) * 977))
    variance = np.linspace(0.5, 2.0, 12) ** 2
    scaled = 1 / (variance + room.FLOOR * variance.mean())
    for each, exact in zip(found.T, ((x * y * scaled).sum(), (x * x * scaled).sum()), strict=True):
        assert abs(each.mean() - exact) < 4 * each.std() / np.sqrt(len(each))
        assert each.std() > 0.1  # it is a sketch


def test_a_sketch_is_scaled_by_the_first_round_with_two_answers(monkeypatch):
    """One answer has nothing to be compared with: it says nothing of the spread and leaves nothing behind."""
    e = note(sketches(monkeypatch, 6, 2), np.full((1, 6), 7.0), ids=[2])
    assert not e.spread.any()
    assert not e.sums.any()
    assert not e.common.any()
    rng = np.random.default_rng(0)
    updates = rng.standard_normal((4, 6)) * [1, 1, 1, 5, 5, 5]
    e = note(e, updates)
    np.testing.assert_allclose(e.spread, (updates - updates.mean(0)).std(0), rtol=1e-5)
    again = note(e, 100 * updates)
    np.testing.assert_array_equal(again.spread, e.spread)
    np.testing.assert_allclose(np.asarray(e.sums).sum(axis=(0, 1)), 0, atol=1e-5)
