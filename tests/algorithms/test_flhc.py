"""FL+HC against its equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import FLHC, Cohort, FedAvg
from cgpfl.algorithms.groups import Groups
from cgpfl.contexts import LINKAGES, METRICS
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from helpers import quadratic

# Clusters {0, 3}, {1, 4}, {2, 5}: in three directions from where FedAvg stands after the warm-up, in one from the start
CENTRES = np.array([[-10, 0.5], [8, 9], [8, -9], [-11, -0.5], [8.5, 8], [7.5, -9.5]]) + 40
SIZES = np.array([1, 2, 1, 3, 1, 2])
WARMUP, ROUNDS = 3, 6


def federation():
    pairs = [(np.repeat(c[None], m, 0), np.zeros(m, int)) for c, m in zip(CENTRES, SIZES, strict=True)]
    return FederatedData.from_clients(pairs, test=pairs)


def simulation(threshold):
    data = federation()
    common = {"rate": 0.5, "local_rounds": 2, "batch_size": 0}
    method = FLHC(warmup=WARMUP, threshold=threshold, **common) if threshold else FedAvg(**common)
    return Simulation(method, data, quadratic(data), rounds=ROUNDS)


def by_hand(groups, rounds):
    """WARMUP rounds of FedAvg, then FedAvg inside the groups → each client's model."""
    models = np.zeros((6, 2))
    for t in range(rounds):
        after = CENTRES + (models - CENTRES) / 4  # two steps of rate ½
        for group in groups if t >= WARMUP else [range(6)]:
            members = list(group)
            models[members] = np.average(after[members], axis=0, weights=SIZES[members])
    return models


@pytest.mark.parametrize(
    ("threshold", "groups"),
    [
        (0.5, [[0, 3], [1, 4], [2, 5]]),  # the planted clusters
        (1e-6, [[0], [1], [2], [3], [4], [5]]),  # nobody is near enough to another: local training from there on
        (1e6, [[0, 1, 2, 3, 4, 5]]),  # everybody is
    ],
)
def test_by_hand(threshold, groups):
    sim = simulation(threshold)
    state = sim.start()
    for t in range(ROUNDS):
        state, records, _ = sim.advance(state, t, t + 1)
        assert records["k"][-1] == (len(groups) if t >= WARMUP else 1)  # in round n + 1, once and for all
        expected = by_hand(groups, t + 1)
        for i in range(6):
            np.testing.assert_allclose(sim.personal(state, i)["w"], expected[i], rtol=1e-5, atol=1e-5)
    context = records["context"][-1]
    assert [np.flatnonzero(context == context[group[0]]).tolist() for group in groups] == groups


def test_one_cluster_is_fedavg():
    """In the warm-up, and for ever where the threshold is above every distance."""
    clusters, one, fedavg = simulation(0.5), simulation(1e6), simulation(None)
    for sim, rounds in ((clusters, WARMUP), (one, ROUNDS)):
        a, _, _ = sim.advance(sim.start(), 0, rounds)
        b, _, _ = fedavg.advance(fedavg.start(), 0, rounds)
        np.testing.assert_allclose(a.server.models["w"][0], b.server["w"], atol=1e-6)


# The server alone: six clients in the plane, their updates in A = {0, 3}, B = {1, 4} and C = {2, 5}. B is A made
# ten times longer, C as long as B at a right angle.

UPDATES = np.array([[1, 0.0], [10, 0.3], [0.2, 10], [1.1, 0.1], [10.5, 0], [0, 10.4]])
regroup = jax.jit(lambda method, server: method.regroup(server))


def groups(updates, slots=6, round=1):
    return Groups(
        models={"w": jnp.zeros((slots, 2)).at[0].set(7.0)},
        assignment=jnp.zeros(6, jnp.int32),
        k=jnp.int32(1),
        updates={"w": jnp.asarray(updates, jnp.float32)},
        samples=jnp.ones(6),
        fresh=jnp.ones(6, bool),
        round=jnp.int32(round),
        changed=jnp.int32(0),
        settled=jnp.bool_(False),
    )


@pytest.mark.parametrize("linkage", LINKAGES)
@pytest.mark.parametrize("metric", METRICS)
def test_clusters_by_metric_and_linkage(metric, linkage):
    """By direction A and B are one cluster, by distance they are two."""
    settings = {"warmup": 1, "metric": metric, "linkage": linkage}
    after = regroup(FLHC(threshold=0.3 if metric == "cosine" else 3.0, **settings), groups(UPDATES))
    expected = [0, 0, 1, 0, 0, 1] if metric == "cosine" else [0, 1, 2, 0, 1, 2]
    np.testing.assert_array_equal(after.assignment, expected)
    assert after.k == max(expected) + 1
    assert after.settled
    if metric != "cosine":
        # 0, 0.9 and 2 on a line: the third joins the first two at a distance that tells the linkages apart
        line = np.array([[0, 0], [0.9, 0], [2, 0], [50, 0], [100, 0], [200, 0]])
        height = {"single": 1.1, "average": 1.55, "ward": 3.2033**0.5, "complete": 2.0}[linkage]
        assert regroup(FLHC(threshold=height - 0.01, **settings), groups(line)).k == 5
        assert regroup(FLHC(threshold=height + 0.01, **settings), groups(line)).k == 4


def test_metrics_differ():
    """(1, 1) from the origin: 2 by blocks, √2 as the crow flies."""
    corner = np.array([[0, 0], [1, 1], [50, 0], [100, 0], [200, 0], [400, 0]])
    for metric, apart in (("manhattan", 2.0), ("euclidean", 2**0.5)):
        settings = {"warmup": 1, "metric": metric, "linkage": "average"}
        assert regroup(FLHC(threshold=apart - 0.01, **settings), groups(corner)).k == 6
        assert regroup(FLHC(threshold=apart + 0.01, **settings), groups(corner)).k == 5


def test_no_more_clusters_than_most():
    """Six alone by the threshold, two places: the nearest are merged until two are left."""
    method = FLHC(threshold=1e-6, metric="euclidean", warmup=1, most=2)
    line = np.array([[0, 0], [90, 0], [3, 0], [1, 0], [100, 0], [7, 0]])
    after = regroup(method, groups(line, slots=2))
    assert after.k == 2
    np.testing.assert_array_equal(after.assignment, [0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(after.models["w"], np.full((2, 2), 7.0))  # all start from the shared model


def test_the_clustering_waits_for_absent_clients():
    """n = 1: after round 1 until all were heard, or 2 rounds more; who was not heard stays in the first cluster."""
    method = FLHC(threshold=3.0, metric="euclidean", warmup=1, patience=2)
    step = jax.jit(lambda server, uploads, cohort: method.aggregate(server, uploads, cohort, jax.random.key(0)))
    server = groups(UPDATES, round=0)  # all were heard, but in the warm-up
    ids = jnp.asarray([0, 1, 2, 3])
    for t in range(4):
        uploads = {"w": server.models["w"][0] + jnp.asarray(UPDATES, jnp.float32)[ids]}
        server = step(server, uploads, Cohort(ids, jnp.asarray([1.0, 1, 1, 0])))
        assert bool(server.settled) == (t == 3)
    np.testing.assert_array_equal(server.assignment, [0, 1, 2, 0, 0, 0])
