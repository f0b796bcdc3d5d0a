"""Placing clients by noised sums: what a client's part in each may be, and that contexts are found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from cgpfl.contexts import placing
from cgpfl.contexts.placing import directions, noises, place, sketch

KEY = jax.random.key(1)
program = jax.jit(place, static_argnums=(3, 4))


def made(sizes, seed=0, common=2.0, spread=0.05):
    """Evidence ``[N, 20]`` of contexts of so many clients, all of them far from nothing, and the contexts."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    centres = np.linalg.qr(rng.standard_normal((20, len(sizes))))[0].T * 1.5
    x = centres[truth] + common * rng.standard_normal(20) / np.sqrt(20)
    return jnp.asarray(x + spread * rng.standard_normal(x.shape), jnp.float32), truth


def test_the_budget_is_divided():
    mean, moments, density, step = noises(1.7)
    whole = (
        1 / mean**2 + 1 / moments**2 + 1 / density**2 + placing.STEPS * 2 / step**2
    )  # of a step a part has length √2
    assert whole == pytest.approx(1 / 1.7**2)


def test_with_or_without_a_client_every_sum_differs_by_its_part_at_most():
    """Zero-out: in the other world the client has sent nothing. What is public so far is the same in both."""
    x, _ = made((6, 6), spread=0.5)
    without = x.at[3].set(0.0)
    wave = jnp.asarray(placing._public(3)[0])
    m, axes = jnp.full(20, 0.1), jnp.linalg.qr(jax.random.normal(KEY, (20, 3)))[0]
    centres, there = jnp.eye(3)[:2], jnp.ones(2, bool)

    def released(rows):
        s = directions(rows)
        here = (jnp.square(s).sum(axis=1) > 0.5).astype(jnp.float32)
        e = directions(s - m) * here[:, None]
        y = e @ axes
        labels = placing._nearest(y, centres, there)
        waves = placing.everybody(placing._waves(y, wave) * here[:, None])
        return placing.everybody(s), placing._moments(e), waves, placing._sums(y, here, labels, 2)

    apart = [float(jnp.linalg.norm(a - b)) for a, b in zip(released(x), released(without), strict=True)]
    assert apart[:3] == pytest.approx([1, 1, 1], abs=1e-4)
    assert 1 <= apart[3] <= np.sqrt(2)


def test_each_of_the_sums_has_noise(monkeypatch):
    """What is drawn for mean, moments, density and steps, each by itself and a thousandfold, changes what is found."""
    x, _ = made((30, 20, 10))
    drawn = placing._normals(KEY, [(20,), (20, 20), (2 * placing.WAVES,), (placing.STEPS, 3, 3)])

    @jax.jit
    def found(times):
        monkeypatch.setattr(placing, "_normals", lambda key, shapes: [t * d for t, d in zip(times, drawn, strict=True)])
        return place(x, KEY, 1.0, 3, True)

    silent = found(jnp.zeros(4))
    assert [d.shape for d in drawn] == [(20,), (20, 20), (1024,), (2, 3, 3)]
    for j in range(4):
        noisy = found(1000.0 * jnp.eye(4)[j])
        assert any((a != b).any() for a, b in zip(silent, noisy, strict=True)), j


def test_noise_of_a_symmetric_matrix_has_the_same_size_everywhere():
    drawn = jax.vmap(placing._symmetric)(jax.random.normal(KEY, (20_000, 3, 3)))
    np.testing.assert_allclose(drawn, drawn.transpose(0, 2, 1))
    np.testing.assert_allclose(drawn.std(axis=0), np.where(np.eye(3), 1, np.sqrt(0.5)), rtol=0.03)


@pytest.mark.parametrize("known", [True, False])
def test_contexts_are_found_under_noise(known):
    x, truth = made((130, 110, 90))
    found = program(x, KEY, 1.4, 3 if known else 6, known)
    assert int(found.k) == 3
    assert adjusted_rand_score(truth, found.labels) == 1.0
    sizes = np.bincount(np.asarray(found.labels), minlength=len(found.sizes))
    np.testing.assert_allclose(found.sizes, sizes, atol=25)  # counts with noise
    assert float(found.sizes.sum()) == pytest.approx(330)


def test_where_there_is_nothing_there_is_one_context():
    rng = np.random.default_rng(3)
    x = jnp.asarray(rng.standard_normal((200, 20)), jnp.float32)
    for rows in (x, jnp.zeros_like(x)):
        found = program(rows, KEY, 1.4, 6, False)
        assert (int(found.k), set(np.asarray(found.labels).tolist())) == (1, {0})
        assert float(found.sizes[0]) == pytest.approx(200)


def test_who_sent_nothing_or_no_number_counts_nowhere():
    x, _ = made((40, 40))
    nothing, strange = (program(x.at[5].set(v), KEY, 1.0, 2, True) for v in (0.0, jnp.nan))
    np.testing.assert_array_equal(nothing.labels, strange.labels)
    np.testing.assert_array_equal(nothing.sizes, strange.sizes)
    assert np.isfinite(strange.sizes).all()


def test_a_sketch_keeps_inner_products_on_average():
    rng = np.random.default_rng(0)
    a = {"a": jnp.asarray(rng.standard_normal((2, 30, 40)), jnp.float32), "b": jnp.ones((2, 5))}
    flat = np.concatenate([np.asarray(v).reshape(2, -1) for v in a.values()], axis=1)
    many = jax.vmap(lambda s: sketch(a, s))(jnp.arange(300, dtype=jnp.uint32))
    assert many.shape == (300, 2, placing.WIDTH)
    np.testing.assert_allclose((many[:, 0] * many[:, 1]).sum(axis=1).mean(), flat[0] @ flat[1], atol=15)
    assert sketch({"w": jnp.ones((2, 3))}, jnp.uint32(0)).shape == (2, 3)
