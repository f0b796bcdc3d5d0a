"""IFCA against its equations."""

from dataclasses import dataclass
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import IFCA, Cohort, FedAvg
from cgpfl.algorithms.ifca import Server, Upload
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, simulate
from helpers import Quadratic, points, quadratic

# Two planted groups on the line: client i's samples have mean CENTRES[i], there are SIZES[i] of them
CENTRES = np.array([-6.0, -4, -1.5, 4, 6])
SIZES = np.array([1, 3, 2, 4, 2])
SEED = 3  # client 2 starts with the other group's model
RATE, STEPS, ROUNDS = 0.4, 2, 4


@dataclass(frozen=True)
class Drawn(Quadratic):
    """A start for each key."""

    def init(self, key):
        return {"w": 2 * jax.random.normal(key, self.shape)}


def samples(centre, size):
    """``size`` points around ``centre``: the spread adds the same to every model's loss."""
    return (centre + np.linspace(-1, 1, size) * (size > 1))[:, None], np.zeros(size, int)


def federation(test=CENTRES):
    pairs = [samples(c, m) for c, m in zip(CENTRES, SIZES, strict=True)]
    held = [samples(c, m) for c, m in zip(test, SIZES, strict=True)]
    return FederatedData.from_clients(pairs, test=held)


def simulation(data, seed, **settings):
    method = IFCA(rate=RATE, local_rounds=STEPS, batch_size=0, contexts=2, **settings)
    return Simulation(method, data, Drawn(data.shape, data.classes), rounds=ROUNDS, seed=seed)


def nearest(models):
    """argmin_k f_i(ω_k), f_i(w) = ½(w − c_i)² + constant."""
    return abs(CENTRES[:, None] - models[None, :]).argmin(axis=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_by_hand_on_two_planted_groups(weighted):
    sim = simulation(federation(), seed=SEED, weighted=weighted)
    state = sim.start()
    models = np.asarray(state.server.models["w"], float)[:, 0]
    weights = SIZES if weighted else np.ones(5)
    first = nearest(models)
    for t in range(ROUNDS):
        chosen = nearest(models)
        # a step takes w to w − 0.4(w − c): after two, 0.36 of the way is left
        after = CENTRES + 0.6**STEPS * (models[chosen] - CENTRES)
        for k in set(chosen):
            models[k] = (weights * after)[chosen == k].sum() / weights[chosen == k].sum()
        state, records, _ = sim.advance(state, t, t + 1)
        np.testing.assert_allclose(state.server.models["w"][:, 0], models, rtol=1e-5)
        np.testing.assert_array_equal(state.server.assignment, chosen)
        np.testing.assert_array_equal(records["context"][-1], chosen)
    assert (chosen != first).any()  # somebody changed its mind on the way
    assert chosen[0] == chosen[1] == chosen[2] != chosen[3] == chosen[4]
    for i in range(5):
        np.testing.assert_allclose(sim.personal(state, i)["w"], [models[nearest(models)[i]]], rtol=1e-5)


def test_one_model_is_fedavg(digits, mlr):
    common = {"local_rounds": 2, "batch_size": 5}
    ifca, _, _ = simulate(IFCA(contexts=1, weighted=True, **common), digits, mlr, rounds=3)
    fedavg, _, _ = simulate(FedAvg(**common), digits, mlr, rounds=3)
    np.testing.assert_allclose(ifca.server.models["weight"][0], fedavg.server["weight"], atol=1e-6)
    np.testing.assert_allclose(ifca.server.models["bias"][0], fedavg.server["bias"], atol=1e-6)


def test_the_models_start_apart(digits, mlr):
    """The first from everybody's start, the others from starts of their own."""
    sim = Simulation(IFCA(contexts=4), digits, mlr, rounds=1)
    models = sim.start().server.models
    np.testing.assert_array_equal(models["weight"][0], sim.task.initial["weight"])
    for a, b in combinations(np.asarray(models["weight"]), 2):
        assert np.abs(a - b).max() > 0.1


def test_a_model_nobody_chose_stays_bit_for_bit():
    """Model 1 has no client; model 2 was chosen by client 3 alone, who then did not answer."""
    before = jnp.asarray([[0.1, 0.7], [1 / 3, 1e-7], [2.3, -7.1]])
    uploads = Upload(jnp.asarray([0, 0, 2]), {"w": jnp.asarray([[1.0, 2], [3, 6], [50, 50]])})
    cohort = Cohort(jnp.asarray([0, 2, 3]), jnp.asarray([1.0, 3, 0]))
    server = Server({"w": before}, jnp.asarray([1, 1, 1, 1]))
    after = IFCA(contexts=3).aggregate(server, uploads, cohort, jax.random.key(0))
    np.testing.assert_array_equal(after.models["w"][1:], before[1:])
    np.testing.assert_allclose(after.models["w"][0], [2, 4], rtol=1e-6)  # clients 0 and 2 count the same
    np.testing.assert_array_equal(after.assignment, [0, 1, 0, 1])  # 1 was not asked, 3 did not answer


def test_the_choice_is_by_training_loss():
    """Each client's test samples lie where the other group trains: that changes no model and no choice."""
    ends = []
    for test in (CENTRES, -CENTRES):
        sim = simulation(federation(test), SEED, weighted=True)
        state, _, _ = sim.advance(sim.start(), 0, ROUNDS)
        ends.append(state.server)
        models = np.asarray(state.server.models["w"])[:, 0]
        for i in range(5):  # nor what a client uses: the model next to its training samples
            assert sim.personal(state, i)["w"] == models[nearest(models)[i]]
    np.testing.assert_array_equal(ends[0].models["w"], ends[1].models["w"])
    np.testing.assert_array_equal(ends[0].assignment, ends[1].assignment)


def test_models_start_apart_even_where_init_ignores_its_key():
    """A module given with its parameters starts the same from every key: noise of its size sets the others apart."""
    data = points([[1.0, 0.0], [0.0, 1.0]])
    for start in (0.0, 2.0):
        models = Simulation(IFCA(contexts=3), data, quadratic(data, start=start), rounds=1).start().server.models["w"]
        np.testing.assert_array_equal(models[0], [start, start])
        apart = [float(np.abs(models[i] - models[j]).max()) for i, j in ((0, 1), (0, 2), (1, 2))]
        assert min(apart) > 1e-3
