"""Parameters that are a client's own, or common to all contexts, around any method."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import CGPFL, IFCA, SCAFFOLD, Cohort, FedAvg, FedPer, Local, Parts, Seamed, Task
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.simulation import Simulation, check_start, simulate
from cgpfl.engine.stream import Streamed
from cgpfl.engine.together import Run, simulate_together
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import parameters, replace
from cgpfl.models import DNN, LoRA
from cgpfl.rounds import Clip, Quantise
from cgpfl.tree import nbytes, size
from golden.frozen import federation

DATA = federation()
MODEL = DNN(DATA.shape, DATA.classes, hidden=5)
SOME = {"rounds": 4, "eval_every": 2, "participation": 0.67, "dropout": 0.2}
STEPS = {"rate": 0.2, "local_rounds": 3, "batch_size": 8}


def test_with_fedavg_it_is_fedper():
    parts, fedper = (
        Simulation(m, DATA, MODEL, **SOME)
        for m in (Parts(FedAvg(**STEPS), private="output.*"), FedPer(private=1, **STEPS))
    )
    assert parts.traffic() == fedper.traffic()
    ends = [s.advance(s.start(), 0, 4) for s in (parts, fedper)]
    for name in ("correct", "loss", "train_loss"):
        np.testing.assert_allclose(ends[0][1][name], ends[1][1][name], rtol=1e-5)
    for i in range(DATA.clients):
        one, other = parts.personal(ends[0][0], i), fedper.personal(ends[1][0], i)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), one, other)


@pytest.mark.parametrize("inner", [FedAvg(**STEPS), SCAFFOLD(**STEPS)], ids=lambda m: m.name)
def test_with_everything_private_it_is_local_training(inner):
    """SCAFFOLD's control variates, kept back as well, cancel then."""
    method = Parts(inner, private="*")
    assert Simulation(method, DATA, MODEL, rounds=1).traffic()[:2] == (0, 0)
    _, records, _ = simulate(method, DATA, MODEL, rounds=3)
    _, local, _ = simulate(Local(**STEPS), DATA, MODEL, rounds=3)
    np.testing.assert_allclose(records["train_loss"], local["train_loss"], rtol=1e-4)


def test_with_nothing_named_it_is_its_method():
    state, _, _ = simulate(Parts(FedAvg(**STEPS), private=""), DATA, MODEL, rounds=2)
    plain, _, _ = simulate(FedAvg(**STEPS), DATA, MODEL, rounds=2)
    jax.tree.map(np.testing.assert_array_equal, state.server.tree, plain.server)


@pytest.mark.slow
def test_what_is_private_stays_and_never_moves_on_the_server():
    method = Parts(CGPFL(contexts=2, warmup=1), private="*bias")
    simulation = Simulation(method, DATA, MODEL, rounds=4)
    first = simulation.start()
    before = jax.tree.map(np.asarray, (first.server.tree.models, first.clients.own))
    traffic, plain = simulation.traffic(), Simulation(method.method, DATA, MODEL, rounds=4).traffic()
    biases = nbytes({k: v["bias"] for k, v in simulation.task.initial.items()})
    assert (plain.message - traffic.message, plain.upload - traffic.upload) == (biases, biases)
    state, _, _ = simulation.advance(first, 0, 4)
    for layer in ("hidden", "output"):
        np.testing.assert_array_equal(state.server.tree.models[layer]["bias"], before[0][layer]["bias"])
        assert np.abs(state.server.tree.models[layer]["weight"] - before[0][layer]["weight"]).max() > 1e-3
        np.testing.assert_array_equal(state.server.tree.drift[layer]["bias"], 0.0)
    for own, was in zip(state.clients.own, before[1], strict=True):
        assert (np.abs(own - was).max(axis=1) > 1e-4).all()  # each client's has moved


def test_common_parameters_are_the_mean_over_contexts_by_members():
    """Three clients in contexts 0, 0, 1; the third of four, in context 1, does not answer."""
    task = Task({"a": jnp.zeros(1), "b": jnp.zeros(1)}, MODEL, 4)
    method = Parts(CGPFL(contexts=(0, 0, 1, 1), server_rate=1.0), private="", common="a")
    server = method.init_server(task, jax.random.key(0))
    values = jnp.array([[1.0], [3.0], [100.0], [8.0]])
    uploads = dataclasses.replace(server, tree={"a": values, "b": values})
    cohort = Cohort(jnp.arange(4), jnp.array([5, 1, 0, 2]))
    new = method.aggregate(server, uploads, cohort, jax.random.key(1)).tree.models
    np.testing.assert_allclose(new["a"], [[4.0], [4.0]])  # (1 + 3 + 8) / 3
    np.testing.assert_allclose(new["b"], [[2.0], [8.0]])
    nobody = method.aggregate(server, uploads, Cohort(jnp.arange(4), jnp.zeros(4, int)), jax.random.key(1)).tree.models
    np.testing.assert_array_equal(nobody["a"], 0.0)


def test_models_to_choose_from_start_with_one_common_part():
    task = Simulation(FedAvg(), DATA, MODEL, rounds=1).task
    method = Parts(IFCA(contexts=3), private="", common="hidden.*")
    models = jax.jit(lambda key: method.init_server(task, key).tree.models)(jax.random.key(0))
    np.testing.assert_allclose(models["hidden"]["weight"], np.stack([task.initial["hidden"]["weight"]] * 3), rtol=1e-6)
    output = np.asarray(models["output"]["weight"])
    assert np.abs(output[0] - output[1]).max() > 0.01


FROZEN = dataclasses.replace(LoRA(MODEL, rank=2), frozen="base.*,lora.hidden.*")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "model"),
    [
        (Parts(CGPFL(contexts=(0, 1, 0, 1, 0, 1)), private="hidden.bias", common="output.*"), MODEL),
        (Parts(IFCA(contexts=2, **STEPS), private="*.b"), FROZEN),
    ],
    ids=["cgpfl", "ifca on frozen parameters"],
)
def test_every_engine_computes_the_same(method, model):
    _, records, _ = simulate(method, DATA, model, **SOME)
    _, _, by_loop = simulate_loop(method, DATA, model, **SOME)
    together = simulate_together([Run(method, DATA, seed) for seed in (0, 1)], model, **SOME)
    streamed = Streamed(method, DATA, model, **SOME)
    _, by_stream, _ = streamed.advance(streamed.start(), 0, SOME["rounds"])
    for other in (by_loop, together[0][1], by_stream):
        np.testing.assert_allclose(records["train_loss"], other["train_loss"], rtol=1e-4)
        np.testing.assert_allclose(records["loss"], other["loss"], rtol=1e-4)


def test_rules_of_a_round_see_only_what_leaves():
    whole, parts = FedAvg(**STEPS), Parts(FedAvg(**STEPS), private="*weight")
    rules = (Clip(norm=0.01), Quantise(bits=8))
    simulation = Simulation(Seamed(parts, outgoing=rules), DATA, MODEL, rounds=2)
    assert (
        simulation.traffic().upload < Simulation(Seamed(whole, outgoing=rules), DATA, MODEL, rounds=2).traffic().upload
    )
    first = simulation.start()
    before = jax.tree.map(np.asarray, first.server.tree)
    state, _, _ = simulation.advance(first, 0, 1)
    moved = [state.server.tree[k]["bias"] - before[k]["bias"] for k in before]
    assert 0 < np.sqrt(sum((v**2).sum() for v in moved)) <= 0.0101


def test_settings_reach_the_method_inside():
    method = replace(Parts(), {"method": "ditto", "method.prox": 3, "private": "a.*"})
    assert (method.method.prox, method.private) == (3.0, "a.*")
    assert replace(Parts(), parameters(method)) == method


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            Parts(private="*norm*"),
            r"parts: private = '\*norm\*': matches no parameter; there are hidden.bias, hidden.we",
        ),
        (Parts(private="*bias", common="out*"), "parts: output.bias is both private and common; must be one of them"),
        (Parts(Local()), "parts: private: local sends no parameters that its clients move; must be empty"),
        (Parts(FedPer()), "parts: private: fedper sends no parameters"),
        (Parts(private="", common="*bias"), "parts: common: fedavg has no models of contexts; must be empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(method, message):
    with pytest.raises(CgpflError, match=message):
        check_start([method], DATA, MODEL)


def test_frozen_parameters_are_no_part_of_what_is_trained_or_sent():
    simulation = Simulation(FedAvg(**STEPS), DATA, FROZEN, rounds=2)
    trained = simulation.task.initial["lora"]["output.weight"]
    assert size(simulation.task.initial) == size(trained) == 2 * (5 + 3)
    assert simulation.traffic()[:2] == (nbytes(trained), nbytes(trained))
    state, _, _ = simulation.advance(simulation.start(), 0, 2)
    start, end = FROZEN.init(simulation.keys.model), simulation.personal(state, 0)
    assert jax.tree.structure(end) == jax.tree.structure(start)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), end["base"], start["base"])
    assert np.abs(end["lora"]["output.weight"]["b"]).max() > 1e-3
    np.testing.assert_array_equal(end["lora"]["hidden.weight"]["b"], 0.0)


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        ("bse.*", r"frozen = 'bse\.\*': matches no parameter; there are hidden.bias"),
        ("*", r"frozen = '\*': matches every parameter; some must be left to train"),
    ],
)
def test_what_cannot_be_frozen_is_refused(frozen, message):
    with pytest.raises(CgpflError, match=message):
        check_start([FedAvg()], DATA, dataclasses.replace(MODEL, frozen=frozen))
