"""Products of the clients' work in another precision: worked out in powers of two."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import get_method
from cgpfl.engine import Simulation, Streamed
from cgpfl.engine.precision import computed
from cgpfl.errors import CgpflError
from cgpfl.experiment.run import Settings

cpu_alone = pytest.mark.skipif(jax.default_backend() != "cpu", reason="tf32 is the device's own there")
SMALL = {8: 2.0**-8, 9: 2.0**-9, 11: 2.0**-11, 20: 2.0**-20}
"""What is added to one: bfloat16 keeps 7 bits of a mantissa (half of the last is 2⁻⁸), tf32 keeps 10."""


def product(a, b):
    return (a * jnp.ones((1, 4))) @ (b * jnp.ones((4, 1)) / 4)


@cpu_alone
@pytest.mark.parametrize(
    ("precision", "kept"),
    [("default", {8, 9, 11, 20}), ("float32", {8, 9, 11, 20}), ("tf32", {8, 9}), ("bfloat16", set())],
)
def test_inputs_are_rounded_to_the_bits_there_are(precision, kept):
    f = jax.jit(computed(product, precision))
    for power, small in SMALL.items():
        expected = 1 + small if power in kept else 1.0
        assert float(f(1 + small, 1.0)[0, 0]) == expected
        assert float(f(1.0, 1 + small)[0, 0]) == expected


def everywhere(w, x):
    """The product w·x (w [1, 2], x [2, 1]) in a loop, a branch, a function of its own, a rule and a gradient."""

    def times(w):
        return (w @ x)[0, 0]

    looped = jax.lax.scan(lambda c, _: (times(w), None), jnp.float32(0), None, length=2)[0]
    counted = jax.lax.while_loop(lambda c: c[1] < 1, lambda c: (times(w), c[1] + 1), (jnp.float32(0), 0))[0]
    chosen = jax.lax.cond(w[0, 0] > 0, times, lambda w: jnp.float32(0), w)
    called = jax.jit(times)(w)
    ruled = jax.nn.relu(times(w))
    saved = jax.checkpoint(times)(w)
    return jnp.stack([looped, counted, chosen, called, ruled, saved]), jax.grad(times)(w)


def test_products_are_found_wherever_they_are():
    w, x = jnp.array([[1 + 2.0**-9, 2.0]]), jnp.array([[1.0], [1 + 2.0**-9]])
    exact, gradient = everywhere(w, x)
    np.testing.assert_array_equal(exact, np.full(6, 3 + 3 * 2.0**-9))
    for f in (computed(everywhere, "bfloat16"), jax.jit(computed(everywhere, "bfloat16"))):
        rounded, narrow = f(w, x)
        np.testing.assert_array_equal(rounded, np.full(6, 3.0))
        assert rounded.dtype == narrow.dtype == jnp.float32
        np.testing.assert_array_equal(narrow, [[1.0, 1.0]])  # 1·xᵀ is a product, too
    np.testing.assert_array_equal(gradient, x.T)
    each = jax.vmap(computed(everywhere, "bfloat16"), in_axes=(0, None))(jnp.stack([w, 2 * w]), x)[0]
    np.testing.assert_array_equal(each, [[3.0] * 6, [6.0] * 6])


def test_what_is_no_product_stays():
    def f(a, b):
        exact = jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
        return exact, (a[0] * b[:, 0]).sum(), jnp.arange(3) @ jnp.arange(3)

    a, b = jnp.full((1, 2), 1 + 2.0**-12), jnp.ones((2, 1))
    found = computed(f, "bfloat16")(a, b)
    assert [float(v.reshape(())) for v in found] == [2 + 2.0**-11, 2 + 2.0**-11, 5.0]


def moved(engine):
    state, records, _ = engine.advance(engine.start(), 0, 2)
    return np.asarray(jax.tree.leaves(engine.whole(state).server)[-1]), records


@pytest.mark.slow
def test_a_run_is_computed_so_on_every_engine(digits, mlr):
    """Rounded a little, everywhere the same; evaluated so, too."""
    method, run = get_method("fedavg", {"local_rounds": 3}), {"rounds": 2, "precision": "bfloat16"}
    exact, exactly = moved(Simulation(method, digits, mlr, rounds=2))
    rounded, records = moved(Simulation(method, digits, mlr, **run))
    size = np.abs(exact).max()
    assert 1e-5 * size < np.abs(rounded - exact).max() < 1e-2 * size
    assert not np.array_equal(records["loss"], exactly["loss"])
    np.testing.assert_allclose(records["loss"], exactly["loss"], rtol=2e-2)
    for engine in (Simulation(method, digits, mlr, devices=3, **run), Streamed(method, digits, mlr, **run)):
        again, others = moved(engine)
        np.testing.assert_allclose(again, rounded, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(others["loss"], records["loss"], rtol=1e-4)


def test_what_was_run_before_there_was_a_choice_is_the_same_run():
    names = ["seed", "rounds", "eval_every", "participation", "dropout", "clients_per_block"]
    assert list(Settings().engine()) == names
    assert Settings(precision="tf32").engine() == {**Settings().engine(), "precision": "tf32"}


def test_a_run_keeps_its_precision(digits, tmp_path):
    cgpfl.run("local", digits, rounds=1, precision="bfloat16", out=tmp_path / "run")
    with pytest.raises(CgpflError, match="was run with precision = 'bfloat16', now 'default'"):
        cgpfl.run("local", digits, rounds=1, out=tmp_path / "run", resume=True)
    with pytest.raises(CgpflError, match='must be "default" or "float32" or "tf32" or "bfloat16"'):
        cgpfl.run("local", digits, rounds=1, precision="half")
