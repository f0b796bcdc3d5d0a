"""MAPPER against its equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import MAPPER, ClientData
from cgpfl.algorithms.steps import held_back
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from helpers import quadratic

# Samples on the line; the last ones of client 0 are unlike its first, those of the others are not
SAMPLES = [np.array([4.0, 6, 5, 1, 0]), np.array([-3.0, -2, -4, -3.2]), np.array([7.0, 8, 9, 8, 9, 8.5])]
START, RATE, STEPS, ROUNDS = 1.0, 0.5, 2, 4


def f(w, x):
    return 0.5 * ((w - x) ** 2).mean()


def mapper(grid, holdout):
    """Round by round (w, v [N], λ [N]): the paper's model interpolation, f_i(w) = ½ mean (w − x)²."""
    w, v, share = START, [START] * 3, [0.5] * 3
    for _ in range(ROUNDS):
        uploads = []
        for i, x in enumerate(SAMPLES):
            kept = round(holdout * len(x))
            fit, choose = (x[:-kept], x[-kept:]) if kept else (x, x)
            tried = []
            for a in [(j + 1) / (grid + 1) for j in range(grid)]:
                u = v[i]
                for _ in range(STEPS):
                    u = u - RATE * a * (a * u + (1 - a) * w - fit.mean())
                tried.append((f(a * u + (1 - a) * w, choose), a, u))
            _, share[i], v[i] = min(tried)
            w_i = w
            for _ in range(STEPS):
                w_i = w_i - RATE * (1 - share[i]) * (share[i] * v[i] + (1 - share[i]) * w_i - fit.mean())
            uploads.append(w_i)
        w = np.average(uploads, weights=[len(x) for x in SAMPLES])
        yield w, np.array(v), np.array(share)


@pytest.mark.parametrize("grid", [1, 2])
def test_by_hand(grid):
    pairs = [(x[:, None], np.zeros(len(x), int)) for x in SAMPLES]
    data = FederatedData.from_clients(pairs, test=pairs)
    chosen = {}
    for holdout in (0.0, 0.4):
        method = MAPPER(rate=RATE, local_rounds=STEPS, batch_size=0, grid=grid, holdout=holdout)
        sim = Simulation(method, data, quadratic(data, start=START), rounds=ROUNDS)
        state = sim.start()
        for t, (w, v, share) in enumerate(mapper(grid, holdout)):
            state, _, _ = sim.advance(state, t, t + 1)
            np.testing.assert_allclose(state.server["w"], [w], rtol=1e-5)
            np.testing.assert_allclose(state.clients.model["w"][:, 0], v, rtol=1e-5)
            np.testing.assert_allclose(state.clients.mixture, share, rtol=1e-6)
        for i in range(3):
            mixed = share[i] * v[i] + (1 - share[i]) * w  # with the w of this round, not the one v was fitted to
            np.testing.assert_allclose(sim.personal(state, i)["w"], [mixed], rtol=1e-5)
        chosen[holdout] = share.tolist()
    if grid == 2:
        # By what it fits, a client trusts its own model most; client 0's last samples tell it not to
        np.testing.assert_allclose(chosen[0.0], [2 / 3, 2 / 3, 2 / 3])
        np.testing.assert_allclose(chosen[0.4], [1 / 3, 2 / 3, 2 / 3])


def test_samples_kept_back_are_disjoint_from_those_fitted():
    """A client of `count` samples in a table of 9 places: rows 10, 11, …, padding -1."""

    @jax.jit
    def parts(count, share):
        rows = jnp.where(jnp.arange(9) < count, 10 + jnp.arange(9), -1)
        zero = jnp.zeros(())
        fit, choose = held_back(ClientData(zero, zero, rows, count, zero, zero), share)
        return fit.rows, fit.count, choose.rows, choose.count

    for count in range(1, 10):
        for share in (0.0, 0.1, 0.2, 0.34, 0.5, 0.9):
            rows, n, others, k = parts(jnp.int32(count), jnp.float32(share))
            fit, choose = np.asarray(rows)[: int(n)].tolist(), np.asarray(others)[: int(k)].tolist()
            everything = [10 + j for j in range(count)]
            if share == 0 or count == 1:
                assert fit == choose == everything
                continue
            assert fit + choose == everything  # in order: the last are kept back
            assert len(choose) == min(max(round(share * count), 1), count - 1)
