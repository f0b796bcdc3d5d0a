import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.cluster import KMeans as Oracle

from cgpfl.contexts import choose_k, prepare
from cgpfl.contexts.choose import complexity


def planted(k, each=6, d=50, spread=0.2, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((k, d))
    return (np.repeat(centres, each, 0) + spread * rng.standard_normal((k * each, d))).astype(np.float32)


@partial(jax.jit, static_argnames="largest")
def choose(x, m, largest, mu=None):
    return choose_k(prepare(x), m, x.shape[1], jax.random.key(0), largest=largest, mu=mu)


def test_complexity_by_hand():
    # d = 2, m = 8, K = 3: sqrt(2·3/8 · log(e·8/2)) = sqrt(0.75 · (1 + ln 4))
    value = float(complexity(jnp.float32(3), 2, jnp.float32(8)))
    assert value == pytest.approx(math.sqrt(0.75 * (1 + math.log(4))), rel=1e-6)
    # d >= m: d becomes m, and the logarithm log e = 1
    assert float(complexity(jnp.float32(4), 1000, jnp.float32(8))) == pytest.approx(2.0, rel=1e-6)


def test_curve_is_the_formula_with_scikit_learns_clusters():
    x, m = planted(3), np.arange(10, 28).astype(np.float32)
    choice = choose(jnp.asarray(x), jnp.asarray(m), largest=9)
    for k in range(1, 4):  # beyond the planted 3 there are many near-equal optima
        oracle = Oracle(k, n_init=20, random_state=0).fit(x)
        each = ((x - oracle.cluster_centers_[oracle.labels_]) ** 2).sum(1)
        assert float(choice.cost[k - 1]) == pytest.approx(float((m / m.sum()) @ each), rel=1e-3)
    assert float(choice.mu) == pytest.approx(4 / float(choice.cost[0]), rel=1e-6)
    np.testing.assert_allclose(choice.error, choice.complexity + choice.mu * choice.cost)
    assert int(choice.k) == int(np.argmin(np.asarray(choice.error))) + 1


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_finds_the_planted_number_when_data_is_scarce(k):
    x = planted(k, each=40 // k, d=60, seed=k)
    choice = choose(jnp.asarray(x), jnp.full(len(x), 2.0), largest=len(x) // 2)
    assert int(choice.k) == k


def test_plenty_of_data_allows_more_contexts():
    """The bound's point: with m >> d another model costs little, so e(K) keeps falling without structure."""
    x = jnp.asarray(planted(1, each=40, d=60))
    scarce, plenty = (choose(x, jnp.full(40, m), largest=20) for m in (2.0, 1000.0))
    assert int(scarce.k) == 1
    assert int(plenty.k) > 10


def test_mu_moves_the_choice():
    x = planted(4)
    m = jnp.full(24, 30.0)
    assert int(choose(jnp.asarray(x), m, largest=12, mu=0.0).k) == 1
    assert int(choose(jnp.asarray(x), m, largest=12, mu=1e6).k) == 12
    free = choose(jnp.asarray(x), m, largest=12)
    scaled = choose(1000 * jnp.asarray(x), m, largest=12)
    assert int(free.k) == int(scaled.k) == 4
