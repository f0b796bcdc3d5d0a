"""L2SGD and L2SGD+ against their equations, their coin and their fixed point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import L2SGD, L2SGDPlus
from cgpfl.algorithms.l2sgd import Server
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from cgpfl.errors import CgpflError
from helpers import quadratic

# client i's samples are c_i ± 1, so that f_i(x) = ½(x − c_i)² + ½
CENTRES = np.array([2.0, 5.0, -4.0])
# the minimiser of (1/n) Σ f_i(x_i) + (λ/2n) Σ (x_i − x̄)²: x̄ = c̄, and x_i − c_i + λ(x_i − c̄) = 0
PULL = 0.8
BEST = (CENTRES + PULL * CENTRES.mean()) / (1 + PULL)


def start(method, seed=0):
    pairs = [(np.float32([[c - 1], [c + 1]]), np.zeros(2, int)) for c in CENTRES]
    data = FederatedData.from_clients(pairs, test=pairs)
    simulation = Simulation(method, data, quadratic(data), rounds=10**6, eval_every=10**6, seed=seed)
    return simulation, simulation.start()


def go(simulation, state, rounds):
    """Round by round → how many local steps each has, x_i after it ``[rounds, N]``, and the last state."""
    steps, models = [], []
    for t in range(rounds):
        steps.append(int(state.server.steps))  # what this round will do, told to all clients
        state, _, _ = simulation.advance(state, t, t + 1)
        x = state.clients["w"] if isinstance(state.clients, dict) else state.clients.model["w"]
        models.append(np.array(x[:, 0], float))
        np.testing.assert_allclose(state.server.mean["w"], models[-1].mean(keepdims=True), atol=1e-5)
    return steps, np.array(models), state


def test_rounds_by_hand():
    """A step of αλ/(np) towards the mean, then H steps of α/(n(1 − p)) on f_i; ``rate`` is α/n."""
    rate, p = 0.1, 0.3
    simulation, state = start(L2SGD(rate=rate, prox=PULL, coin=p, batch_size=0))
    steps, models, _ = go(simulation, state, 8)
    x = np.zeros(3)
    for t in range(8):
        x = x - rate * PULL / p * (x - x.mean())
        for _ in range(steps[t]):
            x = x - rate / (1 - p) * (x - CENTRES)
        np.testing.assert_allclose(models[t], x, atol=1e-5)
    assert {0, 1} < set(steps)  # rounds without, with one and with several local steps


def test_the_coin():
    """H counts failures before the first success: P(H = h) = p(1 − p)^h, mean (1 − p)/p."""
    keys = jax.random.split(jax.random.key(1), 40_000)
    for p in (0.1, 0.5, 0.999):
        method = L2SGD(coin=p)
        draws = np.asarray(jax.vmap(method.draw)(keys))
        # four standard errors; a geometric number's variance is (1 − p)/p²
        assert abs(draws.mean() - (1 - p) / p) < 4 * ((1 - p) / p**2 / len(keys)) ** 0.5
        for h in range(4):
            chance = p * (1 - p) ** h
            assert abs((draws == h).mean() - chance) < 4 * (chance * (1 - chance) / len(keys)) ** 0.5 + 1e-6
        assert method.gradients() == pytest.approx((1 - p) / p)


def test_with_hardly_a_local_step_models_contract_to_their_mean():
    """p = 0.999: x_i − x̄ shrinks by 1 − rate·λ/p a round, x̄ stays."""
    rate, p = 0.25, 0.999
    simulation, state = start(L2SGD(rate=rate, prox=PULL, coin=p, batch_size=0))
    x = np.array([2.0, -1.0, 8.0])
    # the mean is 3; clients that are apart from it and from each other
    state = state._replace(
        clients={"w": jnp.float32(x[:, None])}, server=Server({"w": jnp.float32([3.0])}, jnp.int32(0))
    )
    steps, models, _ = go(simulation, state, 4)
    assert steps == [0] * 4
    for t in range(4):
        np.testing.assert_allclose(models[t], 3 + (x - 3) * (1 - rate * PULL / p) ** (t + 1), atol=1e-5)


def test_without_pull_every_client_trains_alone():
    """λ = 0: only the number of local steps so far counts."""
    rate, p = 0.1, 0.3
    simulation, state = start(L2SGD(rate=rate, prox=0.0, coin=p, batch_size=0), seed=3)
    steps, models, _ = go(simulation, state, 6)
    left = (1 - rate / (1 - p)) ** np.cumsum(steps)
    assert np.sum(steps) >= 6
    np.testing.assert_allclose(models, CENTRES * (1 - left[:, None]), atol=1e-5)


def test_on_average_it_is_at_the_minimiser():
    """A small rate; the local steps and the pull each move x_i a lot, and cancel."""
    simulation, state = start(L2SGD(rate=0.02, prox=PULL, coin=0.4, batch_size=0))
    _, models, _ = go(simulation, state, 500)
    np.testing.assert_allclose(models[100:].mean(axis=0), BEST, atol=0.1)
    assert np.abs(BEST - CENTRES).max() > 1  # which is neither local training's result
    assert np.abs(BEST - CENTRES.mean()).max() > 1  # nor one model for all


def test_plus_by_hand():
    """Ψ_i = J_i = 0 at first; y_i and J_i = ∇f_i(y_i) are renewed at a round's first local step."""
    rate, p = 0.2, 0.4
    simulation, state = start(L2SGDPlus(rate=rate, prox=PULL, coin=p, batch_size=0))
    steps, models, state = go(simulation, state, 8)
    x, psi, J = np.zeros(3), np.zeros(3), np.zeros(3)
    for t in range(8):
        apart = x - x.mean()
        x = x - rate * (PULL / p * apart - (1 / p - 1) * psi + J)
        psi = PULL * apart
        for h in range(steps[t]):
            gradient = x - CENTRES
            x = x - rate * ((gradient - J) / (1 - p) + J + psi)
            if h == 0:
                J = gradient
        np.testing.assert_allclose(models[t], x, atol=1e-5)
    np.testing.assert_allclose(state.clients.pull["w"][:, 0], psi, atol=1e-5)
    np.testing.assert_allclose(state.clients.gradient["w"][:, 0], J, atol=1e-5)
    assert {0, 1} < set(steps)


@pytest.mark.slow
def test_plus_arrives_where_plain_keeps_jumping():
    """The same constant rate, the same coin, and single samples, whose noise the control variates take out too."""
    settings = {"rate": 0.2, "prox": PULL, "coin": 0.4, "batch_size": 1}
    _, plain, _ = go(*start(L2SGD(**settings)), 100)
    _, plus, _ = go(*start(L2SGDPlus(**settings)), 100)
    np.testing.assert_allclose(plus[-20:], np.tile(BEST, (20, 1)), atol=1e-3)
    assert (np.ptp(plain[-20:], axis=0) > 0.5).all()


def test_a_pull_that_overshoots_is_refused():
    L2SGD(rate=0.1, prox=1.0, coin=0.2).check(3, 30, 10)  # rate·λ/p = 1/2 is allowed
    with pytest.raises(CgpflError, match=r"^l2sgd: [^\n]*0\.55[^\n]*$"):
        L2SGD(rate=0.11, prox=1.0, coin=0.2).check(3, 30, 10)
    with pytest.raises(CgpflError, match=r"^l2sgd-plus: [^\n]*$"):
        L2SGDPlus(rate=0.1, prox=1.0, coin=0.1).check(3, 30, 10)
