"""Operations and bytes, worked out by hand."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.bench.counts import Counts, Layer, count, floor, gradient_operations, layers_of
from benchmarks.bench.run import counts_of
from benchmarks.bench.work import Case, Rule, model_of, rule_of
from cgpfl.batch import Batch
from cgpfl.tree import size

TINY = [Layer(positions=1, inputs=2, outputs=3)]  # d = 2·3 + 3 = 9
MOREAU = Rule(local_rounds=2, inner_steps=3, batch=4, rate=0.1, prox=1.0, pull=0.5, l2=0.0)
SGD = Rule(local_rounds=2, inner_steps=1, batch=4, rate=0.1, prox=0.0, pull=None, l2=0.0)


def test_one_model_for_all():
    # A gradient: 2·4·2·3 = 48 forward, 48 for the weights. A step: 96 + 5·9 = 141.
    # A client: 2·(3·141 + 3·9) = 900. Five: 4500, and 5·9 to add them up.
    # Samples: 5·2·4 of 2 + 4 bytes = 240. Models: 5 uploads and 5 θ, written and read, and the server's: 22·9·4.
    assert count(TINY, MOREAU, clients=5, contexts=1, pixels=2) == Counts(4545, 240 + 792)


def test_contexts_cost_an_assignment():
    assert count(TINY, MOREAU, clients=5, contexts=2, pixels=2) == Counts(4545 + 2 * 5 * 2 * 9, 240 + 24 * 9 * 4)


def test_plain_steps_keep_nothing():
    # A client: 2·(96 + 2·9) = 228. Models: 5 uploads, written and read, and the server's.
    assert count(TINY, SGD, clients=5, contexts=1, pixels=2) == Counts(5 * 228 + 45, 240 + 12 * 9 * 4)


def test_only_later_layers_need_their_inputs_gradient():
    layers = [Layer(3, 2, 5), Layer(1, 5, 2)]
    assert gradient_operations(layers, batch=1) == 2 * (2 * 3 * 2 * 5) + 3 * (2 * 5 * 2)


def test_layers_of_the_cnn():
    # 32 − 4 = 28, pooled 14, 14 − 4 = 10, pooled 5.
    expected = [Layer(28 * 28, 75, 6), Layer(10 * 10, 150, 16), Layer(1, 400, 120), Layer(1, 120, 10)]
    assert layers_of(model_of("cnn")) == expected


@pytest.mark.parametrize("name", ["mlr", "dnn", "cnn"])
def test_layers_hold_every_parameter(name):
    model = model_of(name)
    assert sum(la.parameters for la in layers_of(model)) == size(jax.eval_shape(model.init, jax.random.key(0)))


@pytest.mark.parametrize("name", ["mlr", "dnn"])
def test_the_compiler_counts_about_as_many(name):
    """It also counts biases, activations and the softmax."""
    model = model_of(name)
    params = jax.eval_shape(model.init, jax.random.key(0))
    batch = Batch(jnp.zeros((20, *model.shape)), jnp.zeros(20, jnp.int32), jnp.ones(20))
    counted = jax.jit(jax.grad(model.loss)).lower(params, batch).compile().cost_analysis()["flops"]
    assert 0.8 * counted <= gradient_operations(layers_of(model), 20) <= counted


def test_floor_is_the_larger_time():
    assert floor(Counts(operations=100, bytes=40), 50.0, 10.0) == 4.0
    assert floor(Counts(operations=100, bytes=40), 10.0, 40.0) == 10.0


def test_rules_of_the_methods():
    cgpfl, fedavg = rule_of(Case("cgpfl", "mlr", 40)), rule_of(Case("fedavg", "dnn", 40))
    assert (cgpfl.local_rounds, cgpfl.inner_steps, cgpfl.batch, cgpfl.prox) == (10, 5, 20, 1.0)
    assert (fedavg.local_rounds, fedavg.inner_steps, fedavg.pull, fedavg.l2) == (10, 1, None, 0.0)
    more, less = counts_of(Case("cgpfl", "mlr", 40)), counts_of(Case("pfedme", "mlr", 40))
    assert more.operations - less.operations == 2 * 40 * 4 * 7850
