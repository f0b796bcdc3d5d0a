import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import IFCA, ClientData, Cohort, FedAvg, Seamed, Task
from cgpfl.engine.simulation import check_start
from cgpfl.errors import CgpflError
from cgpfl.rounds import Clip, Noise, Quantise, Sparsify, TopK
from cgpfl.tree import nbytes
from helpers import points, quadratic

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


def test_what_was_not_sent_is_sent_later():
    """Of each two numbers one is sent, the larger with what waits: after two rounds both have arrived."""
    data = points([[0.0, 0.0]])
    task = Task(initial={"w": jnp.zeros(2)}, model=quadratic(data), clients=1)
    one, first = jnp.float32(1), jnp.zeros(1, jnp.int32)
    own = ClientData(jnp.array([[4.0, 3.0]]), first, first, jnp.int32(1), one, 0 * one)
    message = {"w": jnp.zeros(2)}
    method = Seamed(FedAvg(rate=0.5, local_rounds=1), outgoing=(TopK(percent=50),))
    client = method.init_client(task, KEY)
    sent, client = method.train(task, message, client, own, KEY)  # moves by (2, 1.5)
    assert nbytes(sent) == 4 + 4
    np.testing.assert_allclose(client.residual[0], [0.0, 1.5], rtol=1e-6)
    server = method.aggregate(message, jax.tree.map(lambda v: v[None], sent), Cohort(jnp.arange(1), jnp.ones(1)), KEY)
    np.testing.assert_allclose(server["w"], [2.0, 0.0], rtol=1e-6)
    _, client = method.train(task, message, client, own, KEY)  # (2, 1.5) again, and 1.5 that waits: 3 is the larger
    np.testing.assert_allclose(client.residual[0], [2.0, 0.0], rtol=1e-6)
    assert Seamed(FedAvg(), outgoing=(Sparsify(),)).init_client(task, KEY) == ()


def test_updates_without_a_form_of_their_own_are_refused():
    data = points([[0.0, 0.0]])
    with pytest.raises(CgpflError, match="ifca: outgoing = top-k: its updates have no form before it trains"):
        check_start([Seamed(IFCA(contexts=2), outgoing=(TopK(),))], data, quadratic(data))
