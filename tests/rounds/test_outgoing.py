import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.rounds import Clip, Noise, Quantise, Sparsify
from cgpfl.tree import nbytes

KEY = jax.random.key(0)


def test_a_long_update_is_shortened_to_the_bound_and_a_short_one_left():
    update = [jnp.array([3.0]), jnp.array([[0.0, 4.0]])]
    short = Clip(norm=1.0).change(update, KEY)
    np.testing.assert_allclose(short[0], [0.6], rtol=1e-6)
    np.testing.assert_allclose(short[1], [[0.0, 0.8]], rtol=1e-6)
    same = Clip(norm=5.0).change(update, KEY)
    assert all((a == b).all() for a, b in zip(same, update, strict=True))


def test_an_update_of_zeros_stays():
    assert (Clip(norm=1.0).change([jnp.zeros(3)], KEY)[0] == 0).all()


def test_noise_has_its_size_and_is_another_in_each_leaf():
    a, b = Noise(scale=2.0).change([jnp.zeros(20000), jnp.zeros(20000)], KEY)
    assert abs(float(a.std()) - 2) < 0.05
    assert abs(float(a.mean())) < 0.05
    assert abs(float(jnp.corrcoef(a, b)[0, 1])) < 0.03


@pytest.mark.parametrize(("bits", "bytes_"), [(8, 7), (4, 4), (2, 2)])
def test_quantised_numbers_take_their_bits(bits, bytes_):
    update = [jnp.array([1.0, -1.0, 0.5, 0.0, 0.25, -0.1, 0.9])]
    rule = Quantise(bits=bits)
    sent = rule.encode(update, KEY)
    assert nbytes(sent) == 4 + bytes_
    back = rule.decode(sent, update)[0]
    step = 1 / (2 ** (bits - 1) - 1)
    assert float(jnp.abs(back - update[0]).max()) <= step + 1e-6
    np.testing.assert_allclose(back[:2], [1, -1], rtol=1e-6)  # the largest is exact


def test_quantising_is_right_on_average():
    update = [jnp.array([1.0, 0.3, -0.7])]
    rule = Quantise(bits=2)
    backs = jax.vmap(lambda k: rule.decode(rule.encode(update, k), update)[0])(jax.random.split(KEY, 4000))
    np.testing.assert_allclose(backs.mean(axis=0), update[0], atol=0.03)


def test_an_update_of_zeros_is_quantised_to_zeros():
    rule = Quantise()
    assert (rule.decode(rule.encode([jnp.zeros((2, 3))], KEY), [jnp.zeros((2, 3))])[0] == 0).all()


def test_the_largest_numbers_are_sent_and_where_they_are():
    update = [jnp.array([[0.1, -5.0], [2.0, 0.0]])]
    rule = Sparsify(percent=50)
    sent = rule.encode(update, KEY)
    assert nbytes(sent) == 2 * (4 + 4)
    np.testing.assert_array_equal(rule.decode(sent, update)[0], [[0.0, -5.0], [2.0, 0.0]])
