"""HypCluster against its equations."""

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms import Cohort, HypCluster
from cgpfl.algorithms.hypcluster import Server, Upload
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from helpers import quadratic

# Six clients in three groups on the line, with other sample counts; all of a client's samples are at its centre
CENTRES = np.array([-10.0, 8, 20, -9.6, 8.5, 20.2])
SIZES = np.array([1, 3, 2, 4, 1, 2])
GROUPS = np.array([0, 1, 2, 0, 1, 2])
K, SEED_STEPS, STEPS, ROUNDS = 3, 6, 2, 6
METHOD = HypCluster(contexts=K, rate=0.5, local_rounds=STEPS, batch_size=0, seed_steps=SEED_STEPS)


def simulation(seed):
    pairs = [(np.full((m, 1), c), np.zeros(m, int)) for c, m in zip(CENTRES, SIZES, strict=True)]
    data = FederatedData.from_clients(pairs, test=pairs)
    return Simulation(METHOD, data, quadratic(data, start=1.0), rounds=ROUNDS, seed=seed)


def descend(w, steps):
    """Each step takes w half of the way to the client's centre."""
    return CENTRES + 0.5**steps * (w - CENTRES)


def nearest(models):
    """Which model fits each client best."""
    return abs(CENTRES[:, None] - models[None, :]).argmin(axis=1)


def test_by_hand():
    sim = simulation(seed=0)
    state, models = sim.start(), np.zeros(0)
    # K rounds each add a hypothesis: what some client trained alone, from everybody's start at 1
    alone = descend(1.0, SEED_STEPS)
    for t in range(K):
        state, records, _ = sim.advance(state, t, t + 1)
        ours = np.asarray(state.server.models["w"], float)[: t + 1, 0]
        chosen = nearest(models) if t else np.zeros(6)
        models = np.append(models, alone[abs(alone - ours[t]).argmin()])
        np.testing.assert_allclose(ours, models, rtol=1e-5)
        np.testing.assert_array_equal(state.server.assignment, chosen)
        assert records["k"][-1] == t + 1
    # then the best hypothesis, two steps, the mean by sample count
    for t in range(K, ROUNDS):
        state, records, _ = sim.advance(state, t, t + 1)
        chosen = nearest(models)
        after = descend(models[chosen], STEPS)
        models = np.array([np.average(after[chosen == k], weights=SIZES[chosen == k]) for k in range(K)])
        np.testing.assert_allclose(state.server.models["w"][:, 0], models, rtol=1e-5)
        np.testing.assert_array_equal(state.server.assignment, chosen)
        assert records["k"][-1] == K
    for i in range(6):
        np.testing.assert_allclose(sim.personal(state, i)["w"], [models[nearest(models)[i]]], rtol=1e-5)


def test_planted_groups_are_found():
    """The start goes where the loss is: whatever the seed, each group gets a model, and its own mean in the end."""
    for seed in range(1, 6):
        sim = simulation(seed)
        state, _, _ = sim.advance(sim.start(), 0, ROUNDS)
        found = np.asarray(state.server.assignment)
        np.testing.assert_array_equal(np.equal.outer(found, found), np.equal.outer(GROUPS, GROUPS))
        for group in range(3):
            mean = np.average(CENTRES[group == GROUPS], weights=SIZES[group == GROUPS])
            model = state.server.models["w"][found[group], 0]  # client g is of group g
            np.testing.assert_allclose(model, mean, atol=0.02)


draw = jax.jit(jax.vmap(METHOD.aggregate, in_axes=(None, None, None, 0)))


def shares(known, loss, weights, keys=6000):
    """How often each of four clients' models is kept, over many keys."""
    uploads = Upload(jnp.zeros(4, jnp.int32), {"w": jnp.arange(4.0)}, jnp.asarray(loss))
    cohort = Cohort(jnp.asarray([0, 1, 2, 3]), jnp.asarray(weights))
    server = Server({"w": jnp.full(K, -1.0)}, jnp.int32(known), jnp.zeros(4, jnp.int32), jnp.zeros(4, bool))
    after = draw(server, uploads, cohort, jax.random.split(jax.random.key(0), keys)).models["w"]
    drawn = np.asarray(after[:, known], int)
    assert (np.delete(after, known, axis=1) == -1).all()  # one hypothesis is added, no other is touched
    return np.bincount(drawn, minlength=4) / keys


def test_the_draw_favours_many_samples_and_high_losses():
    loss, weights = np.array([0.0, 1, 3, 2]), np.array([5.0, 1, 1, 2])
    # the first by samples alone; then m_i·f_i = 0, 1, 3, 4
    np.testing.assert_allclose(shares(0, loss, weights), weights / 9, atol=0.02)
    np.testing.assert_allclose(shares(1, loss, weights), np.array([0, 1, 3, 4]) / 8, atol=0.02)
    np.testing.assert_allclose(shares(2, loss, weights), np.array([0, 1, 3, 4]) / 8, atol=0.02)
    # who did not answer is not drawn, however badly served
    np.testing.assert_allclose(shares(1, loss, weights * [1, 1, 0, 1]), np.array([0, 1, 0, 4]) / 5, atol=0.02)


def test_a_round_without_answers_changes_nothing():
    server = Server({"w": jnp.asarray([1.0, 2, 3])}, jnp.int32(1), jnp.asarray([2, 1, 0, 0]), jnp.zeros(4, bool))
    uploads = Upload(jnp.ones(4, jnp.int32), {"w": jnp.full(4, 9.0)}, jnp.ones(4))
    after = METHOD.aggregate(server, uploads, Cohort(jnp.arange(4), jnp.zeros(4)), jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, after, server)
