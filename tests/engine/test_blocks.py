"""How many clients are computed at once."""

import jax
import jax.numpy as jnp
import pytest

from cgpfl.engine.blocks import client_bytes, record_capacity
from cgpfl.models import as_model

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="only a CPU's caches are that small")


def unfolded(params, x):
    """An array of ``[B, 1000]`` on the way from ``[B, 4]`` to the logits."""
    return jnp.tanh(jnp.repeat(x, 250, axis=1)).reshape(len(x), 2, -1).sum(axis=-1) * params["w"]


def inside(how):
    """The same, hidden in a function of its own, a loop or a branch."""
    ruled = jax.custom_jvp(unfolded)
    ruled.defjvps(None, None)
    return {
        "plain": unfolded,
        "call": jax.jit(unfolded),
        "rule": ruled,
        "loop": lambda p, x: jax.lax.scan(lambda c, _: (c, unfolded(p, x)), 0.0, None, length=1)[1][0],
        "branch": lambda p, x: jax.lax.cond(x[0, 0] > 0, unfolded, lambda p, x: jnp.zeros((len(x), 2)), p, x),
    }[how]


@pytest.mark.parametrize("how", ["plain", "call", "rule", "loop", "branch"])
def test_the_largest_array_counts_wherever_it_is_made(how):
    model = as_model((lambda key: {"w": jnp.ones(2)}, inside(how)), (4,), 2)
    assert client_bytes(model, {"w": jnp.ones(2)}) == 2 * 20 * 1000 * 4


def test_runs_of_about_one_length_have_one_size_of_records():
    """16, 32 or 64 evaluations at once; of 10,000 clients 64 take 31 MB, of 100,000 only 6 fit, of very many 1."""
    assert [record_capacity(rounds, 1, 8) for rounds in (1, 16, 17, 32, 33, 5000)] == [16, 16, 32, 32, 64, 64]
    assert [record_capacity(rounds, 10, 8) for rounds in (160, 161)] == [16, 32]
    assert [record_capacity(5000, 1, clients) for clients in (10_000, 100_000, 10_000_000)] == [64, 6, 1]
    assert record_capacity(3, 1, 100_000) == 6
