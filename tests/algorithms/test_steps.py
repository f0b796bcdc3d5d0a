"""Means over all of a client's samples, however many there are and however far its table is padded."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl.algorithms import ClientData, Task
from cgpfl.algorithms.steps import full_gradient, full_loss, losses, over_samples
from helpers import Quadratic

RNG = np.random.default_rng(0)
X = RNG.standard_normal((800, 2)).astype(np.float32) + 3
ORDER = RNG.permutation(800).astype(np.int32)


AXES = ClientData(x=None, y=None, rows=0, count=0, scale=None, shift=None)


def clients(counts, width):
    """Clients with the first ``counts`` of the shuffled samples each; the rest of their tables says sample 0."""
    rows = np.where(np.arange(width) < np.array(counts)[:, None], np.resize(ORDER, width), 0)
    y = jnp.zeros(len(X), jnp.int32)
    return ClientData(jnp.asarray(X), y, jnp.asarray(rows), jnp.asarray(counts), jnp.float32(2), jnp.float32(-1))


def client(count, width):
    some = clients((count,), width)
    return dataclasses.replace(some, rows=some.rows[0], count=some.count[0])


def inputs(count):
    """What the model sees of a client's samples, ``[count, 2]``."""
    return X[ORDER[:count]].astype(float) * 2 - 1


@pytest.fixture(params=[32, 256])
def chunk(request, monkeypatch):
    """Samples read at once on a CPU, and on an accelerator."""
    monkeypatch.setattr("cgpfl.algorithms.steps.chunk_size", lambda: request.param)
    return request.param


def test_the_mean_over_all_samples_is_numpys(chunk):
    """Clients of all sizes are mapped at once, one with a single sample beside one with three chunks.

    Their tables are as wide as the longest (a multiple of the chunk, or not), a power of two, or one chunk.
    """

    def mean(batch):
        share = batch.weight / batch.weight.sum()
        return {"square": share @ batch.x**2, "product": share @ jnp.prod(batch.x, axis=1)}

    mapped = jax.jit(jax.vmap(lambda data: over_samples(mean, data), in_axes=(AXES,)))
    counts = (1, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 9, 3 * chunk)
    for n, width in ((7, 3 * chunk), (6, 2 * chunk + 9), (7, 4 * chunk), (3, chunk)):
        out = mapped(clients(counts[:n], width))
        for i, count in enumerate(counts[:n]):
            x = inputs(count)
            np.testing.assert_allclose(out["square"][i], (x**2).mean(axis=0), rtol=1e-5)
            np.testing.assert_allclose(out["product"][i], x.prod(axis=1).mean(), rtol=1e-5)


def test_only_chunks_with_samples_are_read(chunk):
    """A table padded to 16 chunks costs no more than the samples in it."""
    read = []

    def mean(batch):
        jax.debug.callback(lambda w: read.append(float(w)), batch.weight.sum())
        return batch.weight @ batch.x / batch.weight.sum()

    count = 2 * chunk + 9
    out = jax.jit(lambda data: over_samples(mean, data))(client(count, 16 * chunk))
    np.testing.assert_allclose(out, inputs(count).mean(axis=0), rtol=1e-5)
    jax.effects_barrier()
    assert sorted(read) == [9, chunk, chunk]


def test_losses_and_gradients_of_long_clients():
    """f_i(w) = ½·mean ‖w − x‖², ∇f_i = w − mean x, on 600 samples in a table for 1024."""
    task = Task(initial={"w": jnp.zeros(2)}, model=Quadratic((2,), 2), clients=1)
    data, x = client(600, 1024), inputs(600)
    models = {"w": jnp.asarray([[0.0, 0.0], [4.0, 7.0]])}
    f = [0.5 * ((np.asarray(w) - x) ** 2).sum(axis=1).mean() for w in models["w"]]
    np.testing.assert_allclose(losses(task, models, data), f, rtol=1e-5)
    second = {"w": models["w"][1]}
    assert float(full_loss(task, second, data)) == pytest.approx(f[1], rel=1e-5)
    np.testing.assert_allclose(full_gradient(task, second, data)["w"], [4, 7] - x.mean(axis=0), rtol=1e-5)
