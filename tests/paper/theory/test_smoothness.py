"""Both ends of a Hessian's spectrum, against a parabola's curvature and NumPy's eigenvalues."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from cgpfl.algorithms import Task
from cgpfl.batch import Batch
from cgpfl.engine.problem import on_device
from cgpfl.models import as_model
from cgpfl.paper.theory import Smoothness, mlr_bound, smoothness
from cgpfl.paper.theory.smoothness import hessian_product, spectrum
from cgpfl.tree import repeat
from helpers import points, quadratic


def dense_ends(model, data, clients, params):
    """Smallest and largest eigenvalue of some clients' Hessians, formed whole."""
    unravel = ravel_pytree(jax.tree.map(lambda v: v[0], params))[1]
    longest = data.train.rows.shape[1]

    @jax.jit
    def hessian(flat, x, y, weight):
        return jax.hessian(lambda p: model.loss(unravel(p), Batch(x, y, weight)))(flat)

    for i in clients:
        x, y = data.inputs(i)
        pad = longest - len(y)
        batch = np.pad(x, ((0, pad), (0, 0))), np.pad(y, (0, pad)), np.pad(np.ones(len(y), np.float32), (0, pad))
        flat = ravel_pytree(jax.tree.map(lambda v, i=i: v[i], params))[0]
        values = np.linalg.eigvalsh(np.asarray(hessian(flat, *batch), np.float64))
        yield i, values[0], values[-1]


def test_a_parabola_has_its_curvature():
    """All eigenvalues equal: Lanczos ends after one product and must not invent a zero."""
    data = points(np.eye(3))
    found = smoothness(quadratic(data, curvature=2.5), data, {"w": jnp.zeros((3, 3))})
    np.testing.assert_allclose(found.largest, 2.5, rtol=1e-5)
    np.testing.assert_allclose(found.smallest, 2.5, rtol=1e-5)
    assert found.converged
    assert (found.iterations <= 2).all()


def test_the_ends_of_a_known_spectrum():
    """Eigenvalues −5, 0 (often) and 3 to 3.9: the end of largest magnitude is the negative one."""
    values = jnp.concatenate([jnp.array([-5.0]), jnp.zeros(50), jnp.linspace(3, 3.9, 40)])
    ends = spectrum(lambda v: values * v, jnp.zeros(91), jax.random.key(0), tolerance=1e-4)
    assert float(ends.smallest) == pytest.approx(-5, rel=1e-4)
    assert float(ends.largest) == pytest.approx(3.9, rel=1e-3)
    assert float(ends.error) <= 1e-4
    few = spectrum(lambda v: values * v, jnp.zeros(91), jax.random.key(0), most=8, tolerance=1e-7)
    assert float(few.error) > 1e-7
    assert float(few.largest) <= 3.9001  # never beyond the spectrum
    assert float(few.smallest) >= -5.001


@pytest.mark.parametrize("name", ["mlr", "dnn"])
def test_hessians_of_models(tiny, name):
    model = as_model(name, tiny.shape, tiny.classes, **({"hidden": 4} if name == "dnn" else {}))
    keys = jax.random.split(jax.random.key(1), tiny.clients)
    params = jax.tree.map(lambda x: 3 * x, jax.vmap(model.init)(keys))
    found = smoothness(model, tiny, params)
    assert found.converged
    for i, low, high in dense_ends(model, tiny, (0, 5), params):
        assert found.largest[i] == pytest.approx(high, rel=2e-3)
        assert found.smallest[i] == pytest.approx(low, abs=2e-3 * high)
    assert (found.smallest.min() < -0.01) == (name == "dnn")
    assert ("not convex" in found.explain()) == (name == "dnn")
    if name == "mlr":
        limit = mlr_bound(model, tiny)
        assert (found.each <= limit).all()
        assert (found.each > 0.01 * limit).all()


def test_the_bound_for_mlr_is_attained_where_two_classes_tie():
    """One input x, two classes: p = (½, ½) at w = 0, and diag(p) − ppᵀ has the eigenvalue ½."""
    x = np.array([[2.0, 1.0]] * 3, np.float32)
    data = points(x, samples=4)
    model = as_model("mlr", data.shape, 2, l2=0.1)
    zero = jax.tree.map(jnp.zeros_like, model.init(jax.random.key(0)))
    found = smoothness(model, data, repeat(zero, 3))
    np.testing.assert_allclose(mlr_bound(model, data), 0.5 * (4 + 1 + 1) + 0.1)
    np.testing.assert_allclose(found.each, 3.1, rtol=1e-4)


def test_unfinished_work_says_so():
    one = np.ones(2)
    done = Smoothness(3 * one, -one, np.array([1e-4, 9e-4]), 8 * one, 1e-3)
    assert done.converged
    assert "NOT converged" not in done.explain()
    unfinished = dataclasses.replace(done, error=np.array([1e-4, 2e-3]))
    assert not unfinished.converged
    assert "NOT converged" in unfinished.explain()


def test_any_cut_into_chunks_gives_the_same_product(tiny, tiny_mlr, monkeypatch):
    arrays = on_device(tiny)
    data = arrays.view(arrays.train.rows[0], arrays.train.counts[0])  # padded: the longest client is another
    params = tiny_mlr.init(jax.random.key(0))
    task = Task(initial=params, model=tiny_mlr, clients=6)
    whole = jax.jit(lambda v: hessian_product(task, params, data, v))(params)
    monkeypatch.setattr("cgpfl.algorithms.steps.chunk_size", lambda: 5)
    parts = jax.jit(lambda v: hessian_product(task, params, data, v))(params)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
