"""Theorem 4.2's terms, worked out again in NumPy."""

import dataclasses
import math
from importlib import import_module
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from cgpfl.algorithms import CGPFL
from cgpfl.contexts import membership
from cgpfl.engine.problem import Part
from cgpfl.paper.theory import generalization, watch
from cgpfl.paper.theory.generalization import candidates, disagreement
from cgpfl.tree import mix


@pytest.fixture(scope="module")
def run(tiny, tiny_mlr):
    """A run with K = 2 known contexts."""
    method = CGPFL(contexts=(0, 1) * 3, local_rounds=4, context_rate=0.5, batch_size=0)
    return watch(method, tiny, tiny_mlr, rounds=15)


@pytest.fixture(scope="module")
def found(run):
    return generalization(run.simulation, run.state, smoothness=2.0, failure=0.1)


def regrouped(state, labels):
    """The same personal models with other contexts, each at its members' mean."""
    labels = np.asarray(labels)
    p = jnp.asarray(membership(labels, labels.max() + 1))
    server = dataclasses.replace(state.server, models=mix(state.clients, p), assignment=jnp.asarray(labels))
    return state._replace(server=server)


def numpy_models(watched):
    """The run's models as (weight, bias): initial, contexts, personal."""
    omega, theta, start = watched.state.server.models, watched.state.clients, watched.simulation.task.initial
    stacked = [jax.tree.map(lambda x: np.asarray(x)[None], start), omega, theta]
    weight, bias = (np.concatenate([np.asarray(m[name], np.float64) for m in stacked]) for name in ("weight", "bias"))
    return weight, bias


def test_against_numpy(tiny, run, found):
    weight, bias = numpy_models(run)
    assert len(weight) == 1 + 2 + 6
    for i in range(6):
        losses = {}
        for part in ("train", "test"):
            x, y = tiny.inputs(i, part)
            logp = log_softmax(np.einsum("mcd,nd->mnc", weight, x) + bias[:, None], axis=-1)
            losses[part] = -logp[:, np.arange(len(y)), y].mean(axis=1)
            if part == "test":
                pairs = [0.5 * np.abs(np.exp(a) - np.exp(b)).sum(-1).mean() for a, b in combinations(logp, 2)]
        test, train = losses["test"], losses["train"]
        assert found.disagreement[i] == pytest.approx(max(pairs), rel=1e-4)
        assert found.range[i] == pytest.approx(test.max() - test.min(), rel=1e-4)
        assert found.discrepancy[i] == pytest.approx(np.abs(test - train).max(), rel=1e-4)
        assert found.excess[i] == pytest.approx(test[3 + i] - test.min(), abs=1e-5)


def test_any_cut_into_chunks_gives_the_same_disagreement(run, found, monkeypatch):
    monkeypatch.setattr(
        import_module("cgpfl.paper.theory.generalization"), "chunk_size", lambda: 3
    )  # the function has its name, too
    arrays, i = run.simulation.arrays, 5
    part = Part(arrays.test.rows[i], arrays.test.counts[i])
    assert part.rows.shape[0] > 3
    models = candidates(run.simulation, run.state)
    assert float(disagreement(run.simulation.task, models, arrays, part)) == pytest.approx(found.disagreement[i], 1e-5)


def test_the_closed_terms(tiny, run, found):
    counts = tiny.train.counts.astype(float)
    m, d = counts.sum(), 5 * 3 + 3
    np.testing.assert_allclose(found.share, counts / m)
    assert found.confidence == pytest.approx(2 * math.sqrt(math.log(6 / 0.1) / m))
    assert found.complexity == pytest.approx(math.sqrt(d * 2 / m * math.log(math.e * m / d)), rel=1e-5)
    weight, bias = numpy_models(run)
    flat = np.concatenate([weight.reshape(9, -1), bias], axis=1)
    squares = ((flat[3:, None] - flat[None, 1:3]) ** 2).sum(-1)
    assert found.cost == pytest.approx(found.share @ squares.min(1), rel=1e-4)
    assert found.cost_assigned == pytest.approx(found.share @ squares[np.arange(6), [0, 1] * 3], rel=1e-4)
    assert found.distance == pytest.approx((run.simulation.method.prox + 2 / 2) * found.cost)
    parts = (found.confidence, found.complexity, found.distance, found.models, found.samples)
    assert found.total == pytest.approx(sum(parts))
    assert f"at least {found.total:.3g}" in found.explain()


def test_more_contexts_cost_less_and_are_more_complex(run):
    two, three, six = (
        generalization(run.simulation, regrouped(run.state, labels), smoothness=2.0)
        for labels in ((0, 1, 0, 1, 0, 1), (0, 1, 2, 1, 0, 1), (0, 1, 2, 3, 4, 5))
    )
    assert [b.contexts for b in (two, three, six)] == [2, 3, 6]
    assert two.complexity < three.complexity < six.complexity
    assert six.complexity == pytest.approx(math.sqrt(3) * two.complexity, rel=1e-5)
    assert two.cost > three.cost > 1e-4 > six.cost  # at K = N every context is its one client's model
    assert two.confidence == three.confidence == six.confidence


def test_the_definition_of_b_alone_bounds_the_left_hand_side(found):
    """So the theorem would hold without the terms in K: half of its 2B·λ_H is enough."""
    assert 0 < found.measured <= found.models / 2
    assert (found.disagreement <= 1).all()
    assert found.B_ratio >= found.B


def test_fewer_models_give_a_lower_bound_that_is_no_higher(run, found):
    fewer = generalization(run.simulation, run.state, smoothness=2.0, failure=0.1, most=1)
    assert (fewer.disagreement <= found.disagreement + 1e-6).all()
    assert (fewer.range <= found.range + 1e-6).all()
    assert fewer.range.sum() < found.range.sum()
