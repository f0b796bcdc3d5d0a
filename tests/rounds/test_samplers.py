import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.rounds import SAMPLERS, ByLoss, BySize, Known, RoundRobin, Uniform

IDS = jnp.array([3, 0, 4, 1, 2])
HELD = jnp.array([10, 1, 1, 1, 1])


def known(losses=(0, 0, 0, 0, 0)):
    return Known(IDS, HELD, jnp.asarray(losses, jnp.float32))


def asked(sampler, t=0, size=2, key=0, **more):
    places = sampler.draw(jax.random.fold_in(jax.random.key(key), t), t, known(**more), size)
    return [int(IDS[p]) for p in places]


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_different_clients_in_the_order_of_their_ids(name):
    for t in range(6):
        ids = asked(SAMPLERS[name], t, size=3)
        assert ids == sorted(set(ids))
    assert asked(SAMPLERS[name], size=5) == [3, 0, 4, 1, 2]  # all, as they are held


@pytest.mark.parametrize("name", ["uniform", "by-size", "by-loss"])
def test_a_draw_goes_by_id_and_not_by_place(name):
    order = jnp.array([4, 2, 0, 1, 3])
    there = Known(IDS[order], HELD[order], jnp.zeros(5))
    for t in range(5):
        key = jax.random.key(t)
        a = SAMPLERS[name].draw(key, t, known(), 2)
        b = SAMPLERS[name].draw(key, t, there, 2)
        assert sorted(np.asarray(IDS[a])) == sorted(np.asarray(IDS[order][b]))


def test_round_robin_asks_everybody_in_turn():
    assert [asked(RoundRobin(), t) for t in range(5)] == [[0, 1], [2, 3], [0, 4], [1, 2], [3, 4]]


def test_round_robin_goes_on_after_billions_of_rounds():
    t = 5 * 400_000_000 + 1
    assert asked(RoundRobin(), t) == [2, 3]


def test_by_size_asks_in_proportion():
    keys = jax.random.split(jax.random.key(1), 4000)
    first = jax.vmap(lambda k: BySize().draw(k, 0, known(), 1)[0])(keys)
    share = np.bincount(np.asarray(first), minlength=5) / 4000
    np.testing.assert_allclose(share, np.array([10, 1, 1, 1, 1]) / 14, atol=0.025)


def test_by_size_with_power_zero_is_uniform():
    keys = jax.random.split(jax.random.key(2), 4000)
    first = jax.vmap(lambda k: BySize(power=0.0).draw(k, 0, known(), 1)[0])(keys)
    np.testing.assert_allclose(np.bincount(np.asarray(first), minlength=5) / 4000, 0.2, atol=0.025)


def test_by_loss_takes_the_largest_losses_of_its_candidates():
    losses = (5.0, 1.0, 4.0, 2.0, 3.0)  # of clients 3, 0, 4, 1, 2
    assert asked(ByLoss(candidates=2.5), losses=losses) == [3, 4]  # all five are candidates
    for key in range(8):
        two = asked(ByLoss(candidates=1.0), key=key, losses=losses)
        assert two == asked(Uniform(), key=key)  # as many candidates as places


def test_by_loss_asks_whom_it_never_heard_of_first():
    losses = (9.0, np.inf, 9.0, np.inf, 9.0)
    assert asked(ByLoss(candidates=2.5), losses=losses) == [0, 1]
