"""Steps that several methods take on a client, each written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Method, Task
from cgpfl.algorithms.private import PoissonData
from cgpfl.batch import Batch, chunk_size, model_key
from cgpfl.hyperparameters import algorithm, component, hyper
from cgpfl.rounds.account import Steps
from cgpfl.rounds.descent import DESCENTS, SGD, Descent
from cgpfl.rounds.samplers import uniforms
from cgpfl.tree import Tree, axpy, where


@algorithm
class SGDMethod(Method):
    """Base of the methods whose clients take R minibatch steps of SGD in a round."""

    rate: float = hyper(0.1, "η: rate of the clients' SGD steps", above=0, tune=(0.01, 1.0))
    local_rounds: int = hyper(10, "R: minibatch steps a client takes in a round", low=1)
    batch_size: int = hyper(20, "samples in a minibatch; 0 = all of the client's", low=0)

    def gradients(self) -> float:
        """R."""
        return self.local_rounds


@algorithm
class Descending(SGDMethod):
    """Base of those whose steps may be any rule's of descent."""

    descent: Descent = component(SGD(), "how a client takes its steps", DESCENTS)

    def descend(
        self,
        task: Task,
        params: Tree,
        data: ClientData,
        key: Array,
        *,
        gradient: Callable[[Tree, Batch], Tree] | None = None,
        rate: Array | float | None = None,
        steps: int | None = None,
    ) -> Tree:
        """R steps at rate η (or others) from ``params``, of ∇f_i unless another gradient is given.

        Another rule than SGD takes R minibatches, the same as SGD's, or epochs in random order.
        """
        rate = self.rate if rate is None else rate
        steps, size = self.local_rounds if steps is None else steps, self.batch_size
        if self.descent.is_plain():
            return sgd(task, params, data, key, rate=rate, steps=steps, batch_size=size, gradient=gradient)
        descent, g = self.descent, gradient or task.grad
        start = (params, descent.begin(params), jnp.float32(0))

        def step(state: tuple[Tree, Any, Array], batch: Batch, total: Array | float) -> tuple[Tree, Any, Array]:
            w, rule, done = state
            w, rule = descent.step(w, rule, g(w, batch), rate, done / total)
            return w, rule, done + 1.0

        if isinstance(descent.epochs, str):
            return over_batches(lambda s, b: step(s, b, steps), start, data, key, steps, size)[0]
        size = size or data.rows.shape[0]
        each = (data.count + size - 1) // size  # minibatches of an epoch
        total = jnp.maximum(jnp.round(descent.epochs * each), 1).astype(jnp.int32)

        def epoch_step(j: Array, state: tuple[Tree, Any, Array]) -> tuple[Tree, Any, Array]:
            places = jnp.arange(data.rows.shape[0])
            draws = uniforms(jax.random.fold_in(key, j // each), places)  # of its place alone, however far it is padded
            order = jnp.argsort(jnp.where(places < data.count, draws, 2.0))
            at = (j % each) * size + jnp.arange(size)
            rows = data.rows[order[jnp.minimum(at, places[-1])]]
            batch = data.take(rows, (at < data.count).astype(jnp.float32))
            drawn = model_key(jax.random.fold_in(key, j))
            return step(state, batch._replace(key=drawn), total.astype(jnp.float32))

        return jax.lax.fori_loop(0, total, epoch_step, start)[0]

    def stepwise(self, rounds: int) -> tuple[Steps, ...] | None:
        """R minibatches a round, a gradient on each; None where epochs are taken: those draw no minibatches."""
        if not isinstance(self.descent.epochs, str):
            return None
        return (Steps(rounds, self.local_rounds, 1, self.batch_size),)

    def gradients_of(self, samples: float) -> float:
        """R, or what the epochs come to; where a method takes other steps, too, those added."""
        more = self.gradients() - self.local_rounds
        return more + self.descent.steps(self.local_rounds, samples, self.batch_size)


class Averaging:
    """The server's side of FedAvg: one model, the mean of the uploads by sample count."""

    only_means = True

    def init_server(self, task: Task, key: Array) -> Tree:
        """The server's state is the model."""
        return task.initial

    def aggregate(self, server: Tree, uploads: Tree, cohort: Cohort, key: Array) -> Tree:
        """The mean by sample count."""
        return cohort.mean(uploads, fallback=server)


class OwnModel:
    """What a client keeps is its model, and that is the one it uses; it starts where all do."""

    def init_client(self, task: Task, key: Array) -> Tree:
        return task.initial

    def personal(self, task: Task, message: Any, client: Tree, data: ClientData, key: Array) -> Tree:
        return client


class Own(NamedTuple):
    """A model of the client's own, and its share in what the client uses."""

    model: Tree
    mixture: Array


class Mixing(Averaging):
    """A client uses its own model mixed with the global one; that is FedAvg's."""

    def personal(self, task: Task, message: Tree, client: Own, data: ClientData, key: Array) -> Tree:
        return interpolate(client.mixture, client.model, message)


def pull(gradient: Tree, params: Tree, anchor: Tree, prox: Array | float) -> Tree:
    """∇f_i(θ) + λ(θ − anchor): the gradient of f_i and a proximal term."""
    return jax.tree.map(lambda g, t, w: g + prox * (t - w), gradient, params, anchor)


def sgd(
    task: Task,
    params: Tree,
    data: ClientData,
    key: Array,
    *,
    rate: Array | float,
    steps: int,
    batch_size: int,
    gradient: Callable[[Tree, Batch], Tree] | None = None,
) -> Tree:
    """``steps`` times: draw one minibatch, then w ← w − rate·g(w), where g is ∇f_i unless given."""
    g = gradient or task.grad

    return over_batches(lambda w, batch: axpy(-rate, g(w, batch), w), params, data, key, steps, batch_size)


def over_batches(
    step: Callable[[Tree, Batch], Tree], state: Tree, data: ClientData, key: Array, steps: int, batch_size: int
) -> Tree:
    """``steps`` times: draw one minibatch, then state ← step(state, minibatch).

    All are drawn before the first step: random bits are many small steps, and an accelerator waits between them.
    """
    keys = jax.random.split(key, steps)
    if batch_size == 0:
        return jax.lax.fori_loop(0, steps, lambda j, s: step(s, data.batch(keys[j], 0)), state)
    if isinstance(data, PoissonData):
        return jax.lax.fori_loop(0, steps, lambda j, s: step(s, data.batch(keys[j], batch_size)), state)
    weight = jnp.ones(batch_size, jnp.float32)
    drawn = jax.vmap(lambda k: data.draw(k, batch_size))(keys)

    def one(s: Tree, at: tuple[Array, Array]) -> tuple[Tree, None]:
        return step(s, data.take(at[0], weight)._replace(key=model_key(at[1]))), None

    return jax.lax.scan(one, state, (drawn, keys))[0]


def sgd_some(
    task: Task,
    params: Tree,
    data: ClientData,
    key: Array,
    *,
    rate: Array | float,
    steps: Array,
    most: int,
    batch_size: int,
) -> Tree:
    """As :func:`sgd`, on the same minibatches, with a number of steps (at most ``most``) known only at run time."""
    keys = jax.random.split(key, most)

    def step(j: Array, w: Tree) -> Tree:
        return axpy(-rate, task.grad(w, data.batch(keys[j], batch_size)), w)

    return jax.lax.fori_loop(0, steps, step, params)


def over_samples(f: Callable[[Batch], Tree], data: ClientData) -> Tree:
    """The mean over all of a client's samples of a function that is a weighted mean over a batch."""
    longest, size = data.rows.shape[0], chunk_size()
    if longest <= size:
        return f(data.all())
    rows = jnp.pad(data.rows, (0, -longest % size))

    def chunk(i: Array, total: Tree) -> Tree:
        at = jax.lax.dynamic_slice(rows, (i * size,), (size,))
        weight = (i * size + jnp.arange(size) < data.count).astype(jnp.float32)
        return axpy(weight.sum() / data.count, f(data.take(at, weight)), total)

    shapes = jax.eval_shape(lambda: f(data.take(rows[:size], jnp.ones(size))))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.fori_loop(0, (data.count + size - 1) // size, chunk, zero)


def full_loss(task: Task, params: Tree, data: ClientData) -> Array:
    """f_i over all of a client's samples."""
    return over_samples(lambda batch: task.loss(params, batch), data)


def full_gradient(task: Task, params: Tree, data: ClientData) -> Tree:
    """∇f_i over all of a client's samples."""
    return over_samples(lambda batch: task.grad(params, batch), data)


def losses(task: Task, models: Tree, data: ClientData) -> Array:
    """f_i of each of the stacked models ``[K, ...]`` over all of a client's samples, ``[K]``."""
    return over_samples(lambda batch: jax.vmap(lambda params: task.loss(params, batch))(models), data)


def best_model(task: Task, models: Tree, data: ClientData, among: Array | None = None) -> tuple[Array, Array]:
    """Which of the stacked models ``[K, ...]`` has the smallest loss on a client's samples → (k, its loss).

    ``among [K]`` says which may be chosen (None = all). A model whose loss is not a number is never the best.
    """
    values = losses(task, models, data)
    allowed = ~jnp.isnan(values) if among is None else ~jnp.isnan(values) & among
    k = jnp.argmin(jnp.where(allowed, values, jnp.inf)).astype(jnp.int32)
    return k, values[k]


def own_start(task: Task, key: Array) -> Tree:
    """A model started apart from everybody's, from a key of its own.

    The model's own init; where that ignores its key (a module that is given with its parameters), everybody's start
    with noise as large as its own values.
    """
    fresh = task.fresh(key)
    leaves, structure = jax.tree.flatten(task.initial)
    same = jnp.stack([(a == b).all() for a, b in zip(leaves, jax.tree.leaves(fresh), strict=True)]).all()
    keys = jax.random.split(jax.random.fold_in(key, 1), len(leaves))
    sizes = [jnp.sqrt(jnp.mean(v * v)) for v in leaves]
    noisy = [
        v + jnp.where(s > 0, s, 0.1) * jax.random.normal(k, v.shape, v.dtype)
        for v, s, k in zip(leaves, sizes, keys, strict=True)
    ]
    return where(same, jax.tree.unflatten(structure, noisy), fresh)


def interpolate(a: Array | float, v: Tree, w: Tree) -> Tree:
    """a·v + (1 − a)·w."""
    return jax.tree.map(lambda x, y: a * x + (1 - a) * y, v, w)


def held_back(data: ClientData, share: Array | float) -> tuple[ClientData, ClientData]:
    """A client's samples as (those to fit, the last ``share`` of them to choose by, at least one each).

    With ``share=0``, or a single sample, all of them are both.
    """
    wanted = jnp.clip(jnp.round(share * data.count).astype(jnp.int32), 1, data.count - 1)
    kept = jnp.where(share > 0, wanted, 0)
    first = jnp.where(kept > 0, data.count - kept, 0)
    none = jnp.int32(0)
    return data.part(none, data.count - kept), data.part(first, jnp.where(kept > 0, kept, data.count))
