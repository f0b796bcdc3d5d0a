"""Methods around methods, and the rules of a round around any of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import IFCA, METHODS, MOCHA, SCAFFOLD, Ditto, FedAvg, Local, Seamed, Wrapper, algorithm, component
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.simulation import Simulation, check_start, simulate
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import parameters, replace
from cgpfl.rounds import ByLoss, Clip, Noise, Quantise, RoundRobin, Sparsify
from helpers import points, quadratic


@algorithm
class Doubled(Wrapper):
    """Uploads twice the update: a wrapper as a user writes it."""

    method: Any = component(FedAvg(), "what is doubled", METHODS)

    def train(self, task, message, client, data, key):
        upload, new = self.method.train(task, message, client, data, key)
        return jax.tree.map(lambda u, m: m + 2 * (u - m), upload, message), new


def test_a_wrapper_is_its_method_and_what_it_adds():
    data = points([[0.0], [8.0]])
    model = quadratic(data)
    plain = FedAvg(rate=0.25, local_rounds=1, batch_size=0)
    once, _, _ = simulate(plain, data, model, rounds=1)
    twice, _, _ = simulate(Doubled(plain), data, model, rounds=1)
    assert float(once.server["w"][0]) == pytest.approx(1.0)  # ¼ of the way to 0 and to 8
    assert float(twice.server["w"][0]) == pytest.approx(2.0)
    assert Doubled(plain).name == "fedavg"
    assert Doubled(Ditto()).prox == 1.0


def test_settings_reach_the_method_inside():
    method = replace(Doubled(), {"method": "ditto", "method.prox": 3})
    assert method.method == Ditto(prox=3.0)
    assert parameters(method)["method"]["name"] == "ditto"
    assert replace(Doubled(), parameters(method)) == method
    with pytest.raises(CgpflError, match=r"no hyper-parameter 'prx'; did you mean prox\? it has rate, local_rounds"):
        replace(method, {"method.prx": 3})
    with pytest.raises(CgpflError, match=r"ditto.method: prox = -1.0: must be a number >= 0"):
        replace(method, {"method.prox": -1})


def test_floats_inside_are_traced():
    a, b = Doubled(Ditto(prox=1.0)), Doubled(Ditto(prox=2.0))
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert len(jax.tree.leaves(a)) == 3


DATA = points([[0.0, 0.0], [8.0, 4.0], [2.0, 2.0]])
MODEL = quadratic(DATA)


@pytest.mark.parametrize(
    "method",
    [
        Seamed(FedAvg(local_rounds=2, batch_size=0), outgoing=(Clip(norm=0.5), Noise(scale=0.1))),
        *(
            pytest.param(method, marks=pytest.mark.slow, id=f"{method.name}-{method.sampler.name}")
            for method in (
                Seamed(FedAvg(local_rounds=2, batch_size=0), sampler=RoundRobin(), outgoing=(Quantise(bits=4),)),
                Seamed(IFCA(contexts=2, local_rounds=2), outgoing=(Sparsify(percent=50),)),
                Seamed(SCAFFOLD(local_rounds=2), sampler=ByLoss(), outgoing=(Clip(norm=1.0), Quantise(bits=8))),
            )
        ),
    ],
    ids=lambda m: f"{m.name}-{m.sampler.name}",
)
def test_rules_are_the_same_in_a_loop_over_clients(method):
    settings = {"rounds": 4, "seed": 3, "participation": 0.67, "eval_every": 2}
    state, records, _ = simulate(method, DATA, MODEL, **settings)
    server, _, by_loop = simulate_loop(method, DATA, MODEL, **settings)
    for a, b in zip(jax.tree.leaves(state.server), jax.tree.leaves(server), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(records["loss"], by_loop["loss"], rtol=1e-5)


def test_clipping_by_hand():
    method = Seamed(FedAvg(rate=0.5, local_rounds=1, batch_size=0), outgoing=(Clip(norm=1.0),))
    state, _, _ = simulate(method, points([[0.0], [8.0]]), quadratic(points([[0.0], [8.0]])), rounds=1)
    assert float(state.server["w"][0]) == pytest.approx(0.5)  # updates 0 and 4; 4 is shortened to 1


@pytest.mark.parametrize(
    ("rules", "bytes_"), [((), 8), ((Clip(),), 8), ((Quantise(bits=8),), 4 + 2), ((Sparsify(percent=50),), 8)]
)
def test_bytes_are_those_on_the_wire(rules, bytes_):
    method = Seamed(FedAvg(), outgoing=rules)
    assert Simulation(method, DATA, MODEL, rounds=1).traffic().upload == bytes_


def test_round_robin_asks_each_in_turn():
    method = Seamed(Local(rate=1.0, local_rounds=1), sampler=RoundRobin())
    state, _, _ = simulate(method, DATA, MODEL, rounds=2, participation=0.34)
    moved = np.asarray(state.clients["w"]).any(axis=1)
    np.testing.assert_array_equal(moved, [False, True, False])  # the first two of three; client 0 is at its start


def test_losses_are_told_by_those_who_answer():
    method = Seamed(FedAvg(rate=0.5, local_rounds=1, batch_size=0), sampler=ByLoss(candidates=3.0))
    state, _, _ = simulate(method, points([[0.0], [8.0]]), quadratic(points([[0.0], [8.0]])), rounds=1)
    np.testing.assert_allclose(state.server.losses, [0.0, 32.0])


def test_an_encoder_must_be_the_last_rule():
    with pytest.raises(CgpflError, match="outgoing = quantise, clip: one rule at most may encode"):
        Seamed(FedAvg(), outgoing=(Quantise(), Clip())).check(3, 3, 1)


def test_uploads_that_are_no_updates_are_refused_before_training():
    with pytest.raises(CgpflError, match="mocha: outgoing: its uploads are no updates"):
        check_start([Seamed(MOCHA(), outgoing=(Clip(),))], DATA, MODEL)


def test_a_method_that_sends_nothing_has_nothing_to_clip():
    simulate(Seamed(Local(batch_size=0), outgoing=(Clip(), Quantise())), DATA, MODEL, rounds=1)


def test_noise_differs_between_clients_and_rounds():
    same = points([[1.0], [1.0]])
    method = Seamed(FedAvg(rate=1e-6, local_rounds=1), outgoing=(Noise(scale=1.0),))
    one, _, _ = simulate(method, same, quadratic(same), rounds=1)
    two, _, _ = simulate(method, same, quadratic(same), rounds=2)
    first, second = float(one.server["w"][0]), float(two.server["w"][0])
    assert first != 0.0
    assert second != pytest.approx(2 * first, rel=1e-3)
    assert jnp.isfinite(jnp.array([first, second])).all()
