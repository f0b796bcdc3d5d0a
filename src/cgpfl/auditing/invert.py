"""Reconstruction: a client's samples and labels from its first upload.

The server knows the model it sent, the method, its settings and the seed, so it can do what a client does, with samples
of its own invention, and change these until they give the upload that came (Zhu, Liu, Han: Deep Leakage from Gradients,
NeurIPS 2019; here through all local steps, with the client's own draws). What it cannot know is noise that was added.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from scipy.optimize import linear_sum_assignment

from cgpfl.algorithms.base import ClientData
from cgpfl.algorithms.private import noisy
from cgpfl.algorithms.wrapper import Seamed, unseamed
from cgpfl.auditing.views import upload_of
from cgpfl.engine import Simulation
from cgpfl.engine.problem import client_keys, round_keys, with_public
from cgpfl.objectives import Classification
from cgpfl.rounds import ClientLevel, Clip, SampleLevel

MOST_SAMPLES = 64
"""Of a client that is tried: of more, little is found."""
STEPS, RATE = 2000, 0.1


@dataclass(frozen=True)
class SoftLabels(Classification):
    """Cross-entropy with labels that are shares of classes ``[B, C]``, so that they can be searched for."""

    def trained(self, outputs: Array, y: Array) -> Array:
        """Of each sample."""
        weight = y @ jnp.asarray(self.weights, outputs.dtype) if self.weights else 1.0
        return -weight * jnp.sum(y * jax.nn.log_softmax(outputs), axis=-1)


@dataclass(frozen=True)
class Inverted:
    """What was found of one client's samples, in the order that fits them best."""

    client: int
    true: np.ndarray
    """As models see them ``[m, ...]``."""
    found: np.ndarray
    labels: np.ndarray
    found_labels: np.ndarray
    correlation: np.ndarray
    """Of each sample with what was found of it ``[m]``."""
    unexplained: float
    """Share of the upload's squared length that the found samples do not explain."""

    @property
    def right(self) -> int:
        """Labels found."""
        return int((self.labels == self.found_labels).sum())


def correlations(true: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each of ``true [m, ...]`` with one of ``found [n, ...]``, matched so that their sum is largest → (values, which).

    Of more samples than were found, those without a partner have 0.
    """
    a, b = (v.reshape(len(v), -1) - v.reshape(len(v), -1).mean(axis=1, keepdims=True) for v in (true, found))
    lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)[None]
    table = a @ b.T / np.maximum(lengths, 1e-12)
    one, other = linear_sum_assignment(-table)
    values, which = np.zeros(len(true)), np.zeros(len(true), int)
    values[one], which[one] = table[one, other], other
    return values, which


def can_invert(simulation: Simulation) -> str:
    """Why a run's uploads are not tried; empty if they are."""
    model: Any = simulation.task.model
    if type(getattr(model, "objective", None)) is not Classification:
        return "it is for classification"
    if not jax.tree.leaves(simulation.method.send(simulation.start().server, simulation.arrays.ids[0])):
        return "nothing leaves the clients"
    return ""


def invert(simulation: Simulation, clients: list[int], steps: int = STEPS) -> list[Inverted]:
    """Try to find the samples of some clients from their uploads in the first round."""
    data, arrays = simulation.data, simulation.arrays
    places = int(data.train.counts[clients].max())
    attack = jax.jit(lambda *args: _attack(simulation, places, steps, *args))
    state, found = simulation.start(), []
    for i in clients:
        client = jax.tree.map(lambda v, i=i: v[i], state.clients)
        parts = (arrays.ids[i], client, arrays.train.rows[i], arrays.train.counts[i])
        x, logits, left = attack(state.server, *parts)
        m = int(data.train.counts[i])
        true, labels = data.inputs(i)
        values, which = correlations(true, np.asarray(x)[:m])
        guessed = np.asarray(logits)[:m].argmax(axis=1)
        found.append(Inverted(i, true, np.asarray(x)[:m][which], labels, guessed[which], values, float(left)))
    return found


def _attack(
    simulation: Simulation,
    places: int,
    steps: int,
    server: Any,
    client_id: Array,
    client: Any,
    rows: Array,
    count: Array,
) -> tuple[Array, Array, Array]:
    """The client's round, and the search → (samples ``[places, ...]``, logits of labels, what is not explained)."""
    method, arrays = simulation.method, simulation.arrays
    task = with_public(simulation.task, arrays)
    key = client_keys(round_keys(simulation.keys, 0), client_id).train
    message = method.send(server, client_id)
    sent, _ = method.train(task, message, client, arrays.view(rows, count), key)
    message = method._message(message) if isinstance(method, Seamed) else message  # without who is told to lie
    seen = _update(method, message, upload_of(method, server, client_id, sent))
    model: Any = task.model
    guess = dataclasses.replace(task, model=dataclasses.replace(model, objective=SoftLabels(model.objective.weights)))
    level = method.privacy if isinstance(method, Seamed) else None
    clips = [rule for rule in method.outgoing if isinstance(rule, Clip)] if isinstance(method, Seamed) else []
    clips += [Clip(norm=level.clip)] if isinstance(level, ClientLevel) else []
    sampled = level if isinstance(level, SampleLevel) and level.steps else None
    known = key if sampled is None else method.own_key(key)  # of minibatches
    own, size = unseamed(method), sum(jnp.sum(v * v) for v in seen)
    private = client.client if isinstance(method, Seamed) and method.keeps else client

    def apart(unknown: Any) -> Array:
        x, logits = unknown
        one = jnp.float32(1)
        data = ClientData(x, jax.nn.softmax(logits), jnp.arange(places), count, one, 0 * one)
        trying = (guess, data)
        if sampled is not None:  # its clip and its minibatches; the noise nobody knows
            trying = noisy(guess, data, sampled.clip, jnp.float32(0))
        update = _update(method, message, own.train(trying[0], message, private, trying[1], known)[0])
        for rule in clips:
            update = rule.change(update, key)
        return sum((jnp.sum((a - b) ** 2) for a, b in zip(update, seen, strict=True)), jnp.float32(0)) / size

    first, second = jax.random.split(jax.random.key(0))
    x = 0.3 * jax.random.normal(first, (places, *simulation.data.shape))
    start = (x, 0.1 * jax.random.normal(second, (places, simulation.data.classes)))
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, steps))

    def step(state: Any, _: None) -> tuple[Any, Array]:
        unknown, inner = state
        value, gradient = jax.value_and_grad(apart)(unknown)
        change, inner = optimiser.update(gradient, inner)
        return (optax.apply_updates(unknown, change), inner), value

    ((x, logits), _), values = jax.lax.scan(step, (start, optimiser.init(start)), None, length=steps)
    return x, logits, values[-1]


def _update(method: Any, message: Any, upload: Any) -> list[Array]:
    """What an upload moved, leaf by leaf; of a method that does not say, the upload itself."""
    rules = method if isinstance(method, Seamed) else Seamed(method)
    if not hasattr(rules.method, "anchor"):
        return [v for v in jax.tree.leaves(upload) if jnp.issubdtype(v.dtype, jnp.floating)]
    moved, anchors = rules._updates(message, upload)
    return [v - a for v, a in zip(moved, anchors, strict=True)]
