"""What an engine runs: a task and its data on the device, and the keys everything random comes from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import ClientData, Task
from cgpfl.data import FederatedData
from cgpfl.models import Model


class Part(NamedTuple):
    """A table on the device: ``rows [N, max]``, ``counts [N]``."""

    rows: Array
    counts: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Arrays:
    """A federation on the device."""

    x: Array
    y: Array
    scale: Array
    shift: Array
    ids: Array
    train: Part
    test: Part
    validation: Part | None
    public: Array | None

    def view(self, rows: Array, count: Array) -> ClientData:
        """One client's samples."""
        return ClientData(self.x, self.y, rows, count, self.scale, self.shift)


class Keys(NamedTuple):
    """The three streams of a run's randomness."""

    model: Array
    setup: Array
    rounds: Array


class RoundKeys(NamedTuple):
    """One round's keys: who takes part, the server's, and the root of the clients'."""

    cohort: Array
    server: Array
    clients: Array


class ClientKeys(NamedTuple):
    """One client's keys in a round."""

    train: Array
    personal: Array
    answer: Array


def keys_of(seed: int) -> Keys:
    """The streams of a seed."""
    return Keys(*jax.random.split(jax.random.key(seed), 3))


def round_keys(keys: Keys, t: Array | int) -> RoundKeys:
    """Keys of round ``t``."""
    return RoundKeys(*jax.random.split(jax.random.fold_in(keys.rounds, t), 3))


def client_keys(keys: RoundKeys, client_id: Array) -> ClientKeys:
    """Keys of one client in a round: a function of (seed, round, client) and nothing else."""
    return ClientKeys(*jax.random.split(jax.random.fold_in(keys.clients, client_id), 3))


def on_device(data: FederatedData, samples: bool = True) -> Arrays:
    """Copy a federation to JAX's default device, each sample once (``samples=False``: with an empty x)."""

    def part(table: Any) -> Part | None:
        return None if table is None else Part(jnp.asarray(table.rows), jnp.asarray(table.counts))

    train, test = part(data.train), part(data.test)
    assert train is not None
    assert test is not None
    return Arrays(
        x=jnp.asarray(data.x if samples else data.x[:0]),
        y=jnp.asarray(data.y),
        scale=jnp.float32(data.scale),
        shift=jnp.float32(data.shift),
        ids=jnp.asarray(data.ids),
        train=train,
        test=test,
        validation=part(data.validation),
        public=None if data.public is None else jnp.asarray(data.public),
    )


@partial(jax.jit, static_argnames=("model",))
def _initial(model: Model, key: Array) -> Any:
    return model.init(key)


def make_task(model: Model, keys: Keys, clients: int) -> Task:
    """The task: every method and client start from the same parameters."""
    return Task(initial=_initial(model, keys.model), model=model, clients=clients)


def with_public(task: Task, arrays: Arrays) -> Task:
    """The task with the samples that everybody has (a view into ``arrays``, so nothing is held twice)."""
    if arrays.public is None:
        return task
    count = jnp.int32(arrays.public.shape[0])
    return dataclasses.replace(task, public=arrays.view(arrays.public, count))


def cohort_size(participation: float, clients: int) -> int:
    """Clients asked in a round."""
    return max(1, round(participation * clients))


def draw_cohort(keys: RoundKeys, ids: Array, size: int) -> Array:
    """Positions ``[size]`` of the clients asked this round, in the order of their ids."""
    if size == ids.shape[0]:
        return jnp.arange(size)
    draws = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(keys.cohort, i)))(ids)
    chosen = jax.lax.top_k(-draws, size)[1]
    return chosen[jnp.argsort(ids[chosen])]


def answers(key: Array, dropout: Array | float) -> Array:
    """Whether a client that was asked answers."""
    return jax.random.uniform(key) >= dropout


def host(tree: Any) -> Any:
    """The tree as NumPy arrays."""
    return jax.tree.map(np.asarray, tree)
