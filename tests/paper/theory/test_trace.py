"""A watched run is the simulated run, and what is seen of it is what its definitions say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import pdist

from cgpfl.algorithms import CGPFL, FedAvg, PFedMe
from cgpfl.engine import Simulation
from cgpfl.errors import CgpflError
from cgpfl.paper.theory import contexts_of, inspect, mean_distance, spread, watch
from cgpfl.paper.theory import trace as traced
from helpers import points, quadratic

CENTRES = np.array([[0, 0], [1, 0], [0, 1], [9, 9], [9, 8], [8, 9], [5, -7]], np.float32)
SMALL = CGPFL(contexts=3, local_rounds=3, inner_steps=2, batch_size=0, warmup=0, context_rate=0.3, restarts=2)


@pytest.fixture(scope="module")
def federation():
    data = points(CENTRES)
    return data, quadratic(data, start=1.0)


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-6, atol=1e-6)


def check_against_simulation(method, data, model, **settings):
    seen = watch(method, data, model, rounds=5, seed=3, **settings)
    simulation = Simulation(method, data, model, rounds=5, seed=3, **settings)
    state, records, _ = simulation.advance(simulation.start(), 0, 5)
    same(seen.state, state)
    assert seen.rounds == 5
    np.testing.assert_allclose(seen.gap**2, records["distance"], rtol=1e-3, atol=1e-6)
    assert (seen.client_seconds > 0).all()
    assert (seen.server_seconds > 0).all()
    return seen, records


@pytest.mark.slow
def test_watching_does_not_change_the_run(tiny, tiny_mlr):
    """Minibatches, sampled clients that may not answer, a warm-up, clustering."""
    method = CGPFL(contexts=2, local_rounds=2, warmup=2, restarts=1)
    seen, records = check_against_simulation(method, tiny, tiny_mlr, participation=0.7, dropout=0.3)
    assert seen.k[-1] == 2
    np.testing.assert_array_equal(seen.context, records["context"])
    np.testing.assert_array_equal(seen.kmeans_iterations, records["kmeans_iterations"])


@pytest.mark.slow
def test_pfedme_is_watched_as_one_context(federation):
    seen, _ = check_against_simulation(PFedMe(local_rounds=2), *federation)
    assert (seen.k == 1).all()
    assert (seen.transition == 0).all()


def test_another_seed_and_another_rate_compile_nothing(federation):
    watch(SMALL, *federation, rounds=2, seed=0)
    sizes = [f._cache_size() for f in (traced._work, traced._aggregate, traced._look)]
    watch(CGPFL(**{**SMALL.__dict__, "prox": 3.0}), *federation, rounds=4, seed=1)
    assert [f._cache_size() for f in (traced._work, traced._aggregate, traced._look)] == sizes


def test_what_is_seen_follows_from_the_last_state(federation):
    """Every quantity worked out again in NumPy from Ω, θ and the contexts."""
    seen = watch(SMALL, *federation, rounds=4, exact_every=2)
    models, labels = contexts_of(SMALL, seen.state.server, seen.simulation.arrays.ids)
    omega, labels, theta = np.asarray(models["w"]), np.asarray(labels), np.asarray(seen.state.clients["w"])
    n, used = len(theta), np.unique(labels)
    means = np.array([theta[labels == k].mean(0) for k in used])
    gap = np.linalg.norm(theta - omega[labels], axis=1)
    np.testing.assert_array_equal(seen.context[-1], labels)
    assert seen.k[-1] == len(used) == 3
    np.testing.assert_allclose(seen.gap[-1], gap, rtol=1e-5)
    np.testing.assert_allclose(
        seen.gradient[-1],
        np.mean([np.sum((2 / n * (omega[k] - m)) ** 2) for k, m in zip(used, means, strict=True)]),
        rtol=1e-4,
    )
    np.testing.assert_allclose(
        seen.objective[-1], np.mean([(gap[labels == k] ** 2).mean() / n for k in used]), rtol=1e-5
    )
    np.testing.assert_allclose(seen.omega[-1], (omega**2).sum(), rtol=1e-5)
    within = [((theta[labels == k] - m) ** 2).sum(1).mean() for k, m in zip(used, means, strict=True)]
    np.testing.assert_allclose(seen.diversity[-1], max(within), rtol=1e-5)
    np.testing.assert_allclose(seen.personal_distance[-1], pdist(theta).mean(), rtol=1e-5)
    assert np.isnan(seen.exact_gradient[[0, 2]]).all()
    assert np.isfinite(seen.exact_gradient[[1, 3]]).all()


def test_the_mean_gap_splits_into_gradient_and_diversity():
    """(1/N)Σ‖θ_i − ω‖² = Σ_k (|C_k|/N)(‖ω_k − mean θ‖² + variance of θ in k), as the theorem's second part needs."""
    rng = np.random.default_rng(0)
    theta, omega, labels = rng.normal(size=(4, 3)), rng.normal(size=(2, 3)), np.zeros(4, int)
    seen = spread({"w": jnp.asarray(omega)}, jnp.asarray(labels), {"w": jnp.asarray(theta)})
    assert float(seen.k) == 1  # the context without members does not count
    np.testing.assert_allclose((seen.gap**2).mean(), (4 / 2) ** 2 * seen.gradient + seen.diversity, rtol=1e-5)
    np.testing.assert_allclose(seen.omega, (omega[0] ** 2).sum(), rtol=1e-5)


def test_distances_leave_out_who_is_absent():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5, 6)).astype(np.float32) + 100  # far from the origin: centring keeps the digits
    tree = {"a": jnp.asarray(x[:, :2]), "b": jnp.asarray(x[:, 2:].reshape(5, 2, 2))}
    np.testing.assert_allclose(mean_distance(tree, jnp.ones(5)), pdist(x).mean(), rtol=1e-4)
    here = jnp.asarray([1.0, 0, 1, 0, 1])
    np.testing.assert_allclose(mean_distance(tree, here), pdist(x[::2]).mean(), rtol=1e-4)
    assert float(mean_distance(tree, jnp.asarray([1.0, 0, 0, 0, 0]))) == 0


def test_contexts_settle_and_q_says_so(federation):
    seen = watch(SMALL, *federation, rounds=5)
    assert set(map(tuple, np.split(np.arange(7), [3, 6]))) == {
        tuple(np.flatnonzero(seen.context[-1] == k)) for k in range(3)
    }
    for t in range(1, 5):
        nobody = (seen.context[t] == seen.context[t - 1]).all()
        assert (seen.transition[t] == 0) == nobody
    # In the first round all come from context 0: Q has a row of ones, and ‖Q − I‖² = 1 + 1 for each other context.
    assert seen.transition[0] == pytest.approx(np.sqrt(2 * 2))


def test_a_run_that_diverges_ends_there(federation):
    seen = watch(CGPFL(**{**SMALL.__dict__, "personal_rate": 1e15}), *federation, rounds=6)
    assert seen.rounds == int(seen.state.diverged) < 6
    assert seen.context.shape == (seen.rounds, 7)


def test_other_methods_are_not_spoken_of(federation):
    with pytest.raises(CgpflError, match="fedavg: the theorems are about cgpfl and pfedme"):
        watch(FedAvg(), *federation, rounds=1)


def test_q_by_hand_and_the_papers_claims_about_it():
    """C0 = {0,1,2}, C1 = {3} become C0 = {0}, C1 = {1,2,3}: two of C1's three members come from C0."""
    found = inspect(np.array([0, 0, 0, 1]), np.array([0, 1, 1, 1]), 2)
    np.testing.assert_allclose(found.q, [[1, 2 / 3], [0, 1 / 3]])
    np.testing.assert_allclose(found.columns, [1, 1])
    np.testing.assert_allclose(found.rows, [5 / 3, 1 / 3])  # the paper says 1
    assert found.away == pytest.approx(np.sqrt(2 * (2 / 3) ** 2))
    # P Q = [[1/3, 2/9]·3, [0, 1/3]], P⁺ = [[1, 0], [0, 1/3]·3]
    assert found.residual == pytest.approx(np.sqrt((2 / 3) ** 2 + 2 * (1 / 3) ** 2 + (2 / 9) ** 2 + 2 * (1 / 9) ** 2))
    y = np.array([[1.0, 0.0]])
    assert np.sum((y @ found.q) ** 2) > np.sum(y**2)  # Lemma 1 says ≤


def test_p_q_is_the_next_p_only_where_contexts_are_renamed():
    """All pairs of ways to put four clients into two contexts, none empty."""
    ways = [w for w in np.ndindex(2, 2, 2, 2) if 0 < sum(w) < 4]
    for before in map(np.array, ways):
        for after in map(np.array, ways):
            renamed = (before == after).all() or (before != after).all()
            assert (inspect(before, after, 2).residual < 1e-12) == renamed
    swapped = inspect(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), 2)
    np.testing.assert_allclose(swapped.rows, 1)  # equal sizes: rows do sum to one,
    assert swapped.residual > 0.7  # and P⁺ = P Q fails all the same
