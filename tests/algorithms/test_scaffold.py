"""SCAFFOLD against its equations, against FedAvg, and at its fixed point."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms import SCAFFOLD, Cohort, FedAvg
from cgpfl.algorithms.scaffold import Server, Upload
from cgpfl.data import FederatedData
from cgpfl.engine import simulate
from cgpfl.models import Model


@dataclass(frozen=True)
class Bowl(Model):
    """f_i(w) = mean of (a/2)(w − c)² over the client's samples (a, c): each client has a curvature of its own."""

    def init(self, key):
        return {"w": jnp.float32(0)}

    def loss(self, params, batch):
        return self.score(params, batch)[1] / jnp.sum(batch.weight)

    def score(self, params, batch):
        a, c = batch.x[:, 0], batch.x[:, 1]
        return jnp.float32(0), jnp.sum(batch.weight * a / 2 * (params["w"] - c) ** 2)


def bowls(clients, sizes):
    """One client a pair (a, c), with that many samples of it."""
    pairs = [(np.tile(np.float32(ac), (n, 1)), np.zeros(n, int)) for ac, n in zip(clients, sizes, strict=True)]
    data = FederatedData.from_clients(pairs, test=pairs)
    return data, Bowl(data.shape, data.classes)


def test_four_rounds_by_hand():
    """Unequal clients; the mean is over clients, however many samples they have."""
    clients = [(1.0, 1.0), (3.0, 5.0), (0.5, -2.0)]
    data, model = bowls(clients, sizes=(1, 2, 4))
    eta, R, eta_g = 0.1, 3, 0.8
    method = SCAFFOLD(rate=eta, local_rounds=R, server_rate=eta_g, batch_size=0)
    x, c, own = 0.0, 0.0, [0.0, 0.0, 0.0]
    for t in (1, 2, 3, 4):
        moves, changes = [], []
        for i, (a, centre) in enumerate(clients):
            y = x
            for _ in range(R):
                y = y - eta * (a * (y - centre) - own[i] + c)
            new = own[i] - c + (x - y) / (R * eta)
            moves.append(y - x)
            changes.append(new - own[i])
            own[i] = new
        x = x + eta_g * sum(moves) / 3
        c = c + sum(changes) / 3
        state, _, _ = simulate(method, data, model, rounds=t, eval_every=t)
        np.testing.assert_allclose(state.server.model["w"], x, rtol=1e-5)
        np.testing.assert_allclose(state.server.control["w"], c, rtol=1e-5)
        np.testing.assert_allclose(state.clients["w"], own, rtol=1e-5)


def test_equal_clients_are_fedavg(digits, mlr):
    """Then c_i = c in every round and the correction is 0, though neither is."""
    x, y = digits.inputs(0)
    twins = FederatedData.from_clients([(x, y), (x, y)], test=[(x, y), (x, y)], classes=10)
    alone = FederatedData.from_clients([(x, y)], test=[(x, y)], classes=10)
    for data, batch_size in (twins, 0), (alone, 5):  # minibatches differ between clients, so there one client only
        settings = {"rate": 0.2, "local_rounds": 4, "batch_size": batch_size}
        ours, _, _ = simulate(SCAFFOLD(**settings), data, mlr, rounds=3)
        fedavg, _, _ = simulate(FedAvg(**settings), data, mlr, rounds=3)
        np.testing.assert_allclose(ours.server.model["weight"], fedavg.server["weight"], atol=1e-5)
        assert np.abs(ours.server.control["weight"]).max() > 0.05


def test_unequal_clients_are_not_fedavg_after_the_first_round():
    """Before it c = c_i = 0; in the second the correction bites (the other half of the test above)."""
    data, model = bowls([(1.0, 0.0), (4.0, 5.0)], sizes=(2, 2))
    settings = {"rate": 0.1, "local_rounds": 10, "batch_size": 0}
    for rounds, same in (1, True), (2, False):
        ours, _, _ = simulate(SCAFFOLD(**settings), data, model, rounds=rounds, eval_every=rounds)
        fedavg, _, _ = simulate(FedAvg(**settings), data, model, rounds=rounds, eval_every=rounds)
        assert np.isclose(ours.server.model["w"], fedavg.server["w"], atol=1e-5) == same


def test_c_moves_by_the_share_that_answered():
    """N = 4; three are asked, two answer: x moves by their mean, c by 2/4 of theirs; samples do not weigh."""
    server = Server({"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([0.5, 0.0])}, jnp.float32(4))
    moves = {"w": jnp.array([[2.0, 0.0], [100.0, 100.0], [4.0, 2.0]])}
    changes = {"w": jnp.array([[1.0, 1.0], [100.0, 100.0], [0.0, 3.0]])}
    cohort = Cohort(jnp.array([0, 2, 3]), jnp.array([1, 0, 9]))
    after = SCAFFOLD(server_rate=0.5).aggregate(server, Upload(moves, changes), cohort, None)
    np.testing.assert_allclose(after.model["w"], [1 + 0.5 * 3, 2 + 0.5 * 1], rtol=1e-6)
    np.testing.assert_allclose(after.control["w"], [0.5 + 0.5 * 0.5, 0 + 0.5 * 2], rtol=1e-6)
    nobody = SCAFFOLD().aggregate(server, Upload(moves, changes), Cohort(jnp.arange(3), jnp.zeros(3)), None)
    np.testing.assert_array_equal(nobody.model["w"], server.model["w"])
    np.testing.assert_array_equal(nobody.control["w"], server.control["w"])


def test_it_finds_the_minimiser_where_fedavg_does_not():
    """Curvatures 1 and 4, centres 0 and 5, ten steps of 0.1 a round."""
    data, model = bowls([(1.0, 0.0), (4.0, 5.0)], sizes=(2, 2))
    settings = {"rate": 0.1, "local_rounds": 10, "batch_size": 0}
    ours, _, _ = simulate(SCAFFOLD(**settings), data, model, rounds=100, eval_every=100)
    fedavg, _, _ = simulate(FedAvg(**settings), data, model, rounds=100, eval_every=100)
    best = (1 * 0 + 4 * 5) / (1 + 4)
    # FedAvg's client comes (1 − ρ) of the way to its centre in a round, ρ = (1 − ηa)^R, and w balances these ways
    near, far = 1 - 0.9**10, 1 - 0.6**10
    drifted = (near * 0 + far * 5) / (near + far)
    np.testing.assert_allclose(ours.server.model["w"], best, atol=1e-4)
    np.testing.assert_allclose(fedavg.server["w"], drifted, atol=1e-4)
    assert abs(drifted - best) > 0.9
    # at the fixed point c_i is client i's gradient there, and c their mean, 0
    np.testing.assert_allclose(ours.clients["w"], [1 * (best - 0), 4 * (best - 5)], atol=1e-3)
    np.testing.assert_allclose(ours.server.control["w"], 0, atol=1e-3)
