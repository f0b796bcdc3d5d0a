"""The servers of many runs: mapped, as on an accelerator, they are what they are one after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import CFL, CGPFL, FLHC, Cohort, Task
from cgpfl.engine import blocks
from cgpfl.engine.together import stack
from helpers import Instead, Quadratic

CLIENTS, ROUNDS, RUNS = 8, 5, 4
EVERYONE = [1] * CLIENTS
HALVES = ([1, 0] * 4, [0, 1] * 4)
# Who answers, round by round: everyone; one half, then the other; nobody at first; everyone.
PRESENT = np.array([(EVERYONE, HALVES[t % 2], EVERYONE if t > 1 else [0] * CLIENTS, EVERYONE) for t in range(ROUNDS)])


def uploads():
    """Four pairs of clients at (±1, ±0.3), with noise that differs between rounds and runs."""
    rng = np.random.default_rng(0)
    corners = np.repeat([[1, 0.3], [1, -0.3], [-1, 0.3], [-1, -0.3]], 2, axis=0)
    return (corners + 0.02 * rng.standard_normal((ROUNDS, RUNS, CLIENTS, 2))).astype(np.float32)


def servers(methods, backend, unused, monkeypatch):
    """The runs' servers after each round, as on ``backend``; an error if that uses ``unused`` of JAX."""
    task = Task(initial={"w": jnp.zeros(2)}, model=Quadratic((2,), 2), clients=CLIENTS)
    method = stack(methods, np.arange(len(methods)))
    keys = jax.random.split(jax.random.key(0), RUNS)
    states = [jax.jit(jax.vmap(lambda m, k: m.init_server(task, k)))(method, keys)]
    ids = jnp.tile(jnp.arange(CLIENTS), (RUNS, 1))

    @jax.jit
    def aggregate(state, uploaded, weights):
        args = (method, state, {"w": uploaded}, Cohort(ids, weights), keys)
        return blocks.over_servers(lambda m, *of_round: m.aggregate(*of_round), args)

    with monkeypatch.context() as patch:
        patch.setattr(blocks, "jax", Instead(jax, default_backend=lambda: backend, **{unused: None}))
        for uploaded, present in zip(uploads(), PRESENT, strict=True):
            states.append(aggregate(states[-1], jnp.asarray(uploaded), jnp.asarray(10 * present)))
    return states[1:]


def plain(state):
    """The state's leaves in NumPy; keys as their numbers."""
    is_key = [jnp.issubdtype(v.dtype, jax.dtypes.prng_key) for v in jax.tree.leaves(state)]
    return [np.asarray(jax.random.key_data(v) if k else v) for k, v in zip(is_key, jax.tree.leaves(state), strict=True)]


# The groups of each run after each round: how far the runs are differs, so that a round takes several branches.
@pytest.mark.parametrize(
    ("methods", "k"),
    [
        pytest.param(
            [CGPFL(contexts="auto", warmup=1, mu=m) for m in (1e3, 1e3, 1e3, 0.0)],
            [[4, 1, 1, 1], [4, 4, 1, 1], [4, 4, 4, 1], [4, 4, 4, 1], [4, 4, 4, 1]],
            id="cgpfl",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [CFL(rest=0.1, unrest=u) for u in (0.2, 0.2, 0.2, 10.0)],
            [[2, 1, 1, 1], [3, 2, 1, 1], [4, 2, 2, 1], [4, 3, 3, 1], [4, 4, 4, 1]],
            id="cfl",
        ),
        pytest.param(
            [FLHC(warmup=1, threshold=t, metric="euclidean") for t in (0.3, 0.3, 0.3, 1.0)],
            [[1, 1, 1, 1], [4, 1, 1, 2], [4, 4, 1, 2], [4, 4, 4, 2], [4, 4, 4, 2]],
            id="fl-hc",
        ),
    ],
)
def test_mapped_servers_are_servers_one_after_the_other(methods, k, monkeypatch):
    mapped = servers(methods, "gpu", "lax", monkeypatch)
    in_turn = servers(methods, "cpu", "vmap", monkeypatch)
    assert [s.k.tolist() for s in mapped] == k
    for t, (one, other) in enumerate(zip(mapped, in_turn, strict=True)):
        for a, b in zip(plain(one), plain(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"round {t}")
