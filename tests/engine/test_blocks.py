"""How many clients are computed at once."""

import jax
import jax.numpy as jnp
import pytest

from cgpfl.engine.blocks import client_bytes
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
