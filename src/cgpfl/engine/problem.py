"""What an engine runs: a task and its data on the device, and the keys everything random comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from cgpfl.algorithms import ClientData, Task
from cgpfl.algorithms.base import trained
from cgpfl.algorithms.wrapper import known_of, sampler_of
from cgpfl.data import FederatedData
from cgpfl.engine.hashing import hash_without_loop
from cgpfl.engine.mesh import a_device_a_core, everywhere, filled, put, split
from cgpfl.models import Model

a_device_a_core()  # before anything asks JAX for devices
hash_without_loop()  # before anything random is compiled


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

    def samples(self) -> Arrays:
        """What is not any client's own: all but the tables."""
        nobodys: Any = None
        return dataclasses.replace(self, ids=nobodys, train=nobodys, test=nobodys, validation=None)


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
    t: Array | int
    """The round, from 0."""


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
    cohort, server, clients = jax.random.split(jax.random.fold_in(keys.rounds, t), 3)
    return RoundKeys(cohort, server, clients, t)


def client_keys(keys: RoundKeys, client_id: Array) -> ClientKeys:
    """Keys of one client in a round: a function of (seed, round, client) and nothing else."""
    return ClientKeys(*jax.random.split(jax.random.fold_in(keys.clients, client_id), 3))


def on_device(data: FederatedData, samples: bool = True, mesh: Mesh | None = None) -> Arrays:
    """Copy a federation to JAX's default device, each sample once (``samples=False``: with an empty x).

    With a ``mesh`` the tables are divided over its devices, the last client repeated to fill them; samples are on each.
    """
    places = filled(data.clients, mesh)

    def own(values: Any) -> Array:
        if mesh is None:
            return jax.device_put(values)  # jnp.asarray would compile a program for each shape
        more = [(0, places - len(values))] + [(0, 0)] * (values.ndim - 1)
        return put(np.pad(values, more, mode="edge"), split(mesh))

    def same(values: Any) -> Array:
        return jax.device_put(values) if mesh is None else put(values, everywhere(mesh))

    return _arrays(data, own, same, data.x if samples else data.x[:0])


def shapes_of(data: FederatedData) -> Arrays:
    """The form of a federation on a device, without moving anything there."""

    def shape(values: Any) -> Any:
        return jax.ShapeDtypeStruct(np.shape(values), jax.dtypes.canonicalize_dtype(np.asarray(values).dtype))

    return _arrays(data, shape, shape, data.x)


def _arrays(data: FederatedData, own: Callable[[Any], Any], same: Callable[[Any], Any], x: np.ndarray) -> Arrays:
    """A federation with samples ``x``; ``own`` is done to what has a row a client, ``same`` to the rest."""

    def part(table: Any) -> Any:
        return None if table is None else Part(own(table.rows), own(table.counts))

    return Arrays(
        x=same(x),
        y=same(data.y),
        scale=same(np.float32(data.scale)),
        shift=same(np.float32(data.shift)),
        ids=own(data.ids),
        train=part(data.train),
        test=part(data.test),
        validation=part(data.validation),
        public=None if data.public is None else same(data.public),
    )


@partial(jax.jit, static_argnames=("model",))
def _initial(model: Model, key: Array) -> Any:
    return model.init(key)


def make_task(model: Model, keys: Keys, clients: int) -> Task:
    """The task: every method and client start from the same parameters, and share those that are frozen."""
    initial, frozen = trained(model, _initial(model, keys.model))
    return Task(initial=initial, model=model, clients=clients, frozen=frozen)


def with_public(task: Task, arrays: Arrays) -> Task:
    """The task with the samples that everybody has (a view into ``arrays``, so nothing is held twice)."""
    if arrays.public is None:
        return task
    count = jnp.int32(arrays.public.shape[0])
    return dataclasses.replace(task, public=arrays.view(arrays.public, count))


def cohort_size(participation: float, clients: int) -> int:
    """Clients asked in a round."""
    return max(1, round(participation * clients))


def draw_cohort(method: Any, server: Any, keys: RoundKeys, ids: Array, samples: Array, size: int) -> Array:
    """Positions ``[size]`` of the clients asked this round, in the order of their ids; ``samples [N]`` are theirs."""
    return sampler_of(method).draw(keys.cohort, keys.t, known_of(method, server, ids, samples), size)


def answers(key: Array, dropout: Array | float) -> Array:
    """Whether a client that was asked answers."""
    return jax.random.uniform(key) >= dropout


def host(tree: Any) -> Any:
    """The tree as NumPy arrays; all copies are under way at once."""
    return jax.tree.map(np.asarray, jax.device_get(tree))
