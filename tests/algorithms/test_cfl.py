"""CFL against its equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import CFL, Cohort, FedAvg
from cgpfl.algorithms.groups import Groups
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from helpers import quadratic

# Three clusters, nested: A = clients 0 and 3 pulls against all others, who part into B = 1, 4 and C = 2, 5 later
CENTRES = np.array([[-10, 0.1], [8, 4], [8.1, -4], [-10, -0.1], [8, 4.2], [8, -3.9]])
SIZES = np.array([1, 2, 1, 1, 1, 2])
ROUNDS = 9


def federation():
    pairs = [(np.repeat(c[None], m, 0), np.zeros(m, int)) for c, m in zip(CENTRES, SIZES, strict=True)]
    return FederatedData.from_clients(pairs, test=pairs)


def simulation(method, data):
    return Simulation(method, data, quadratic(data), rounds=ROUNDS)


def cfl(rest):
    return CFL(rate=0.5, local_rounds=1, batch_size=0, rest=rest, unrest=1.0, most=4)


def test_two_splits_by_hand():
    """Every round by hand; the groups of a split, which arithmetic does not give, are the planted ones."""
    sim = simulation(cfl(rest=0.3), federation())
    state = sim.start()
    groups, models = [[0, 1, 2, 3, 4, 5]], [np.zeros(2)]
    parts, splits = [([0, 3], [1, 2, 4, 5]), ([1, 4], [2, 5])], []
    for t in range(ROUNDS):
        # one step of rate ½: Δ_i = ½(c_i − w)
        updates = {i: 0.5 * (CENTRES[i] - w) for g, w in zip(groups, models, strict=True) for i in g}
        for k, group in enumerate(groups):
            mean = np.average([updates[i] for i in group], axis=0, weights=SIZES[group])
            if np.linalg.norm(mean) < 0.3 and max(np.linalg.norm(updates[i]) for i in group) > 1:
                groups[k : k + 1], models[k : k + 1] = parts.pop(0), [models[k], models[k]]
                splits.append(t)
                break
        pairs = zip(groups, models, strict=True)
        models = [w + np.average([updates[i] for i in g], axis=0, weights=SIZES[g]) for g, w in pairs]
        state, records, _ = sim.advance(state, t, t + 1)
        assert records["k"][-1] == len(groups)
        for group, model in zip(groups, models, strict=True):
            for i in group:
                np.testing.assert_allclose(sim.personal(state, i)["w"], model, rtol=1e-5, atol=1e-5)
    assert splits == [3, 7]  # one after the other: B and C agree while A pulls the other way
    context = records["context"][-1]
    assert sorted(context[:3]) == [0, 1, 2]
    np.testing.assert_array_equal(context[:3], context[3:])


def test_clients_keep_their_ids_in_another_order():
    """A split that took places inside the group for ids would lose clients, and double others."""
    data, order = federation(), [4, 2, 0, 5, 1, 3]
    plain, moved = simulation(cfl(rest=0.3), data), simulation(cfl(rest=0.3), data.permute(order))
    a, first, _ = plain.advance(plain.start(), 0, ROUNDS)
    b, second, _ = moved.advance(moved.start(), 0, ROUNDS)
    np.testing.assert_array_equal(a.server.assignment, b.server.assignment)  # by id
    np.testing.assert_array_equal(first["context"][:, order], second["context"])  # by place
    assert len(set(second["context"][-1])) == 3
    for place, i in enumerate(order):
        np.testing.assert_allclose(moved.personal(b, place)["w"], plain.personal(a, i)["w"], atol=1e-5)


def test_without_rest_it_is_fedavg():
    """ε₁ so small that no group ever counts as at rest."""
    data = federation()
    grouped, fedavg = simulation(cfl(rest=1e-9), data), simulation(FedAvg(rate=0.5, local_rounds=1, batch_size=0), data)
    a, records, _ = grouped.advance(grouped.start(), 0, ROUNDS)
    b, _, _ = fedavg.advance(fedavg.start(), 0, ROUNDS)
    assert (records["k"] == 1).all()
    np.testing.assert_allclose(a.server.models["w"][0], b.server["w"], atol=1e-6)


# The server alone: four clients in the plane

regroup = jax.jit(lambda method, server: method.regroup(server))
aggregate = jax.jit(lambda method, *args: method.aggregate(*args, jax.random.key(0)))
LEFT, RIGHT = [-1.0, 0], [1.0, 0]


def groups(updates, samples=(1, 1, 1, 1), assignment=(0, 0, 0, 0), slots=3, heard=True):
    return Groups(
        models={"w": jnp.arange(2.0 * slots).reshape(slots, 2)},
        assignment=jnp.asarray(assignment),
        k=jnp.int32(max(assignment) + 1),
        updates={"w": jnp.asarray(updates, jnp.float32)},
        samples=jnp.asarray(samples, jnp.float32),
        fresh=jnp.full(4, heard),
        round=jnp.int32(1),
        changed=jnp.int32(0),
        settled=jnp.bool_(False),
    )


@pytest.mark.parametrize(
    ("updates", "samples", "rest", "unrest", "split"),
    [
        ([RIGHT, RIGHT, LEFT, LEFT], (1, 1, 1, 1), 0.1, 0.9, True),  # mean 0, longest 1
        ([RIGHT, RIGHT, LEFT, LEFT], (1, 1, 1, 1), 0.1, 1.1, False),  # all are short
        ([RIGHT, RIGHT, LEFT, LEFT], (3, 3, 1, 1), 0.4, 0.9, False),  # the mean by samples is ½ long
        ([RIGHT, RIGHT, LEFT, LEFT], (3, 3, 1, 1), 0.6, 0.9, True),
        ([RIGHT, RIGHT, [-3, 0], [-3, 0]], (3, 3, 1, 1), 0.1, 2.9, True),  # by samples 0, though not by clients
        ([[0.3, 0], [0.3, 0], LEFT, LEFT], (7, 3, 1, 2), 0.1, 0.9, True),  # it is the longest that counts
    ],
)
def test_when_a_group_is_split(updates, samples, rest, unrest, split):
    after = regroup(CFL(rest=rest, unrest=unrest), groups(updates, samples))
    assert after.k == 1 + split
    np.testing.assert_array_equal(after.assignment, [0, 0, 1, 1] if split else [0, 0, 0, 0])
    np.testing.assert_array_equal(after.models["w"][1], [0, 1] if split else [2, 3])  # both parts have the one model


def test_what_is_never_split():
    method = CFL(rest=5.0, unrest=0.5)
    apart = [RIGHT, LEFT, [0, 1], [0, -1]]
    one = regroup(method, groups(apart, assignment=[0, 0, 1, 1]))
    assert (int(one.k), one.assignment.tolist()) == (3, [0, 2, 1, 1])  # two are due: one of them a round
    assert regroup(method, groups(apart, assignment=[0, 1, 2, 2])).k == 3  # no place left
    assert regroup(method, groups([RIGHT, [0.1, 0], [0.2, 0], [0, 0.1]], assignment=[0, 1, 1, 1])).k == 2  # one client


@pytest.mark.parametrize(("linkage", "expected"), [("complete", [0, 0, 1, 1]), ("single", [0, 0, 0, 1])])
def test_the_split_goes_by_angles(linkage, expected):
    """At 0°, 38°, 80° and 130°, of any length: {0, 38} against {80, 130}, or at the widest gap."""
    angles = np.deg2rad([0, 38, 80, 130])
    updates = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.array([[9], [1], [2], [8]])
    after = regroup(CFL(rest=50.0, linkage=linkage), groups(updates))
    np.testing.assert_array_equal(after.assignment, expected)


def answer(server, ids, updates, weights=(1, 1)):
    uploads = {"w": server.models["w"][server.assignment[jnp.asarray(ids)]] + jnp.asarray(updates, jnp.float32)}
    return aggregate(CFL(rest=0.1, unrest=0.9), server, uploads, Cohort(jnp.asarray(ids), jnp.asarray(weights)))


def test_a_group_waits_until_all_its_members_were_heard():
    server = groups(np.zeros((4, 2)), samples=(0, 0, 0, 0), heard=False)
    server = answer(server, [0, 2], [RIGHT, LEFT])
    assert server.k == 1  # at rest and at odds, but 1 and 3 were not asked yet
    server = answer(server, [1, 3], [RIGHT, LEFT], weights=(1, 0))
    assert server.k == 1  # 3 did not answer
    server = answer(server, [1, 3], [RIGHT, LEFT])
    np.testing.assert_array_equal(server.assignment, [0, 0, 1, 1])


def test_the_groups_of_a_split_wait_anew():
    server = regroup(CFL(rest=0.1, unrest=0.9), groups([RIGHT, RIGHT, LEFT, LEFT]))
    assert server.k == 2
    server = answer(server, [0, 2], [LEFT, LEFT])
    assert server.k == 2  # 0 is at odds with what 1 said before the split: that does not count
    server = answer(server, [1, 3], [RIGHT, LEFT])
    np.testing.assert_array_equal(server.assignment, [0, 2, 1, 1])


def test_who_never_answers_is_not_waited_for_for_ever():
    """patience = 3, a group from round 1 on: at odds in rounds 1 and 2, split in round 3 by those who were heard."""
    server = groups(np.zeros((4, 2)), samples=(0, 0, 0, 0), heard=False)
    method = CFL(rest=0.1, unrest=0.9, patience=3)
    for t in (1, 2, 3):
        models = {"w": server.models["w"][server.assignment[jnp.asarray([0, 1, 2])]]}
        uploads = {"w": models["w"] + jnp.asarray([RIGHT, LEFT, LEFT])}
        weights = jnp.asarray([2.0, 1, 1])
        server = method.aggregate(server, uploads, Cohort(jnp.asarray([0, 1, 2]), weights), jax.random.key(0))
        assert int(server.k) == (2 if t == 3 else 1)
    np.testing.assert_array_equal(server.assignment, [0, 1, 1, 0])  # 3 stays where it was
