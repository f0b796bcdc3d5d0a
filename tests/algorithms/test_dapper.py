"""DAPPER against its equations."""

import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import DAPPER, Local
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, simulate
from cgpfl.models import as_model
from helpers import points, quadratic

# On the line. Everybody has PUBLIC; a client fits its first samples and keeps the last 30 % (2, 1, 1) to choose by:
# client 0's are like the public ones, client 1's like its own, client 2's between
SAMPLES = [np.array([8.0, 9, 10, 9, 1, 0]), np.array([-3.0, -5, -4]), np.array([5.0, 7, 3])]
KEPT = [2, 1, 1]
PUBLIC = np.array([0.0, 1, 2, 1])
SHARES = np.array([0.0, 0.5, 1.0])
START, RATE, STEPS, ROUNDS = 2.0, 0.4, 2, 3


def pair(x):
    return x[:, None], np.zeros(len(x), int)


def simulation():
    pairs = [pair(x) for x in SAMPLES]
    data = FederatedData.from_clients(pairs, test=pairs, public=pair(PUBLIC))
    method = DAPPER(rate=RATE, local_rounds=STEPS, batch_size=0, grid=3, holdout=0.3)
    return Simulation(method, data, quadratic(data, start=START), rounds=ROUNDS)


def test_by_hand():
    """θ ← θ − η(λ(θ − mean of own) + (1 − λ)(θ − mean of public)), for λ = 0, ½ and 1."""
    sim = simulation()
    state, models = sim.start(), np.full((3, 3), START)
    for t in range(ROUNDS):
        state, _, _ = sim.advance(state, t, t + 1)
        for i, x in enumerate(SAMPLES):
            own = x[: -KEPT[i]].mean()
            for _ in range(STEPS):
                models[i] -= RATE * (SHARES * (models[i] - own) + (1 - SHARES) * (models[i] - PUBLIC.mean()))
        np.testing.assert_allclose(state.clients["w"][:, :, 0], models, rtol=1e-5)
    # each client's choice: the smallest loss on what it kept back
    losses = [[((w - x[-k:]) ** 2).mean() for w in m] for m, x, k in zip(models, SAMPLES, KEPT, strict=True)]
    chosen = np.argmin(losses, axis=1)
    np.testing.assert_array_equal(SHARES[chosen], [0, 1, 0.5])
    for i in range(3):
        np.testing.assert_allclose(sim.personal(state, i)["w"], [models[i, chosen[i]]], rtol=1e-5)


def test_nothing_is_sent():
    traffic = simulation().traffic()
    assert (traffic.message, traffic.upload) == (0, 0)
    assert traffic.gradients == 3 * STEPS


def test_the_ends_of_the_grid_are_local_and_public_training():
    """With a classifier and its regulariser: λ = 1 is Local on the samples fitted, λ = 0 Local on the public ones."""
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(n, 4)).astype(np.float32), rng.integers(3, size=n)) for n in (10, 5)]
    public = (rng.normal(size=(7, 4)).astype(np.float32), rng.integers(3, size=7))
    fitted = [(x[:m], y[:m]) for (x, y), m in zip(clients, (8, 4), strict=True)]  # all but the last fifth
    model = as_model("mlr", (4,), 3, l2=0.1)
    common = {"rate": 0.5, "local_rounds": 3, "batch_size": 0}
    data = FederatedData.from_clients(clients, test=clients, public=public, classes=3)
    dapper, _, _ = simulate(DAPPER(grid=2, holdout=0.2, **common), data, model, rounds=3)
    alone = FederatedData.from_clients([*fitted, public], test=[*clients, public], classes=3)
    local, _, _ = simulate(Local(**common), alone, model, rounds=3)
    for name in ("weight", "bias"):
        ours, theirs = np.asarray(dapper.clients[name]), np.asarray(local.clients[name])
        np.testing.assert_allclose(ours[:, 1], theirs[:2], atol=1e-5)
        np.testing.assert_allclose(ours[:, 0], theirs[[2, 2]], atol=1e-5)


def test_without_public_data_it_says_so():
    data = points([[0.0], [1.0]])
    with pytest.raises(cgpfl.CgpflError) as error:
        cgpfl.run(DAPPER(), data, quadratic(data), rounds=1)
    message = str(error.value)
    assert message.startswith("dapper:")
    assert "data.public" in message
    assert "\n" not in message
