"""FedPer and FedRep on a model of two scalar layers, and how layers are told apart."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import FedAvg, FedPer, Local
from cgpfl.algorithms.fedper import in_order, layers
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, simulate
from cgpfl.errors import CgpflError
from cgpfl.models import DNN, Model


@dataclass(frozen=True)
class Product(Model):
    """f_i(b, h) = mean of ½(b·h − x)² over the client's points x: a body b under a head h."""

    def init(self, key):
        return {"a_body": {"w": jnp.float32(1.0)}, "b_head": {"w": jnp.float32(0.5)}}

    def loss(self, params, batch):
        return self.score(params, batch)[1] / jnp.sum(batch.weight)

    def score(self, params, batch):
        off = params["a_body"]["w"] * params["b_head"]["w"] - batch.x[:, 0]
        return jnp.float32(0), jnp.sum(batch.weight * off**2) / 2


def federation(clients):
    """One client a list of points."""
    pairs = [(np.float32(points)[:, None], np.zeros(len(points), int)) for points in clients]
    data = FederatedData.from_clients(pairs, test=pairs)
    return data, Product(data.shape, data.classes)


# f_i's mean points are 2, 0.9 and −1, from 1, 2 and 3 samples
UNEQUAL = [[2.0], [0.8, 1.0], [-2.0, -1.0, 0.0]]
MEANS, SIZES = (2.0, 0.9, -1.0), (1, 2, 3)


def test_fedper_by_hand():
    """Body and head step together, both from the values before the step."""
    data, model = federation(UNEQUAL)
    method = FedPer(rate=0.1, local_rounds=2, batch_size=0)
    body, heads = 1.0, [0.5, 0.5, 0.5]
    for _ in range(3):
        bodies = []
        for i, c in enumerate(MEANS):
            b, h = body, heads[i]
            for _ in range(2):
                off = b * h - c
                b, h = b - 0.1 * off * h, h - 0.1 * off * b
            bodies.append(b)
            heads[i] = h
        body = sum(n * b for n, b in zip(SIZES, bodies, strict=True)) / sum(SIZES)
    simulation = Simulation(method, data, model, rounds=3)
    state, _, _ = simulation.advance(simulation.start(), 0, 3)
    for i in range(3):
        personal = simulation.personal(state, i)
        np.testing.assert_allclose(personal["a_body"]["w"], body, rtol=1e-5)
        np.testing.assert_allclose(personal["b_head"]["w"], heads[i], rtol=1e-5)


def test_fedrep_by_hand():
    """Two steps on the head under the body as sent, then three on the body under the new head."""
    data, model = federation(UNEQUAL)
    method = FedPer(rate=0.1, local_rounds=3, head_steps=2, batch_size=0)
    body, heads = 1.0, [0.5, 0.5, 0.5]
    for _ in range(3):
        bodies = []
        for i, c in enumerate(MEANS):
            b, h = body, heads[i]
            for _ in range(2):
                h = h - 0.1 * (b * h - c) * b
            for _ in range(3):
                b = b - 0.1 * (b * h - c) * h
            bodies.append(b)
            heads[i] = h
        body = sum(n * b for n, b in zip(SIZES, bodies, strict=True)) / sum(SIZES)
    state, _, _ = simulate(method, data, model, rounds=3)
    np.testing.assert_allclose(state.server[0], body, rtol=1e-5)
    np.testing.assert_allclose(state.clients[0], heads, rtol=1e-5)
    assert method.gradients() == 3 + 2


@pytest.mark.slow
def test_nothing_private_is_fedavg_and_everything_private_is_local_training():
    """On the same minibatches of two samples."""
    data, model = federation(UNEQUAL)
    settings = {"rate": 0.1, "local_rounds": 3, "batch_size": 2}
    fedavg, _, _ = simulate(FedAvg(**settings), data, model, rounds=3)
    none, _, _ = simulate(FedPer(private=0, **settings), data, model, rounds=3)
    np.testing.assert_allclose(none.server, [fedavg.server["a_body"]["w"], fedavg.server["b_head"]["w"]], rtol=1e-6)
    assert none.clients == ()
    local, _, _ = simulate(Local(**settings), data, model, rounds=3)
    every, _, _ = simulate(FedPer(private=2, **settings), data, model, rounds=3)
    np.testing.assert_allclose(every.clients, [local.clients["a_body"]["w"], local.clients["b_head"]["w"]], rtol=1e-6)
    assert every.server == ()


def test_private_layers_are_not_sent():
    """A DNN 1 → 3 → 2: 3 + 3 numbers in the hidden layer, 6 + 2 in the output layer, 4 bytes each."""
    data, _ = federation(UNEQUAL)
    model = DNN(data.shape, 2, hidden=3)
    sizes = {FedPer(): 24, FedPer(named="hidden"): 32, FedPer(private=0): 56, FedPer(private=2): 0}
    for method, expected in sizes.items():
        traffic = Simulation(method, data, model, rounds=1).traffic()
        assert (traffic.message, traffic.upload) == (expected, expected), method


def test_layers_are_ordered_as_people_count():
    model = {"params": {f"Dense_{i}": {"kernel": jnp.float32(i), "bias": jnp.float32(i)} for i in (0, 10, 2)}}
    assert layers(model) == [f"params/Dense_{i}" for i in (0, 0, 10, 10, 2, 2)]  # JAX's order is the alphabet's
    assert in_order(layers(model)) == ["params/Dense_0", "params/Dense_2", "params/Dense_10"]
    assert FedPer(private=1).cut(model)[1] == (10, 10)
    assert FedPer(private=2).cut(model)[1] == (10, 10, 2, 2)
    assert FedPer(private=9).cut(model)[0] == ()
    # a name is the last part of the path, or all of it; it outweighs ``private``
    assert FedPer(named="Dense_2").cut(model)[1] == (2, 2)
    assert FedPer(named="params/Dense_0, Dense_2").cut(model)[1] == (0, 0, 2, 2)


@pytest.mark.parametrize("named", ["Dense_1", "Dense_2, typo", "Dense_0, typo", "Dense"])
def test_an_unknown_name_is_refused(named):
    """Also beside a name that two layers have."""
    layer = {"kernel": jnp.float32(0)}
    model = {"decoder": {"Dense_0": layer}, "encoder": {"Dense_0": layer, "Dense_2": layer}}
    with pytest.raises(CgpflError, match="encoder/Dense_2") as error:
        FedPer(named=named).cut(model)
    assert "\n" not in str(error.value)
