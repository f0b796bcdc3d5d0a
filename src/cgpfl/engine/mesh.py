"""Clients spread over devices, and over processes.

Everything a client owns (its rows of the tables, its personal state) lies on one device of a row of devices;
samples, keys and the server's state are on each of them. A client's work needs no other device; the server's
step is where devices talk. Where the clients do not divide evenly, the last one is computed more than once
and its copies are dropped: nobody's result depends on how many devices there are.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from cgpfl.errors import CgpflError
from cgpfl.tree import is_key, plain, typed

AXIS = "clients"


def a_device_a_core() -> None:
    """Let JAX see each core of a CPU as a device, unless the user chose or it has looked already.

    What does not ask for several uses the first, and all cores.
    """
    chosen = jax.config.values["jax_num_cpu_devices"] > 0 or "device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen:
        with suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", cores())


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def row_of_devices(devices: int) -> Mesh | None:
    """The first ``devices`` of JAX's devices; 0: all of them, of all processes. None for one: this process's own."""
    there = jax.devices()
    if devices == 1 or (devices == 0 and len(there) == 1):
        return None
    if devices not in range(len(there) + 1):
        raise CgpflError(f"devices = {devices}: JAX finds {len(there)}; use 1..{len(there)}, or all")
    return Mesh(np.array(there[: devices or len(there)]), (AXIS,), axis_types=(AxisType.Auto,))


def split(mesh: Mesh) -> NamedSharding:
    """The leading axis divided over the devices."""
    return NamedSharding(mesh, PartitionSpec(AXIS))


def everywhere(mesh: Mesh) -> NamedSharding:
    """The same on each device."""
    return NamedSharding(mesh, PartitionSpec())


def filled(count: int, mesh: Mesh | None) -> int:
    """Places for ``count`` clients such that every device has as many."""
    return count if mesh is None else -(-count // mesh.size) * mesh.size


def put(tree: Any, sharding: NamedSharding) -> Any:
    """Host arrays, the same in every process, as global arrays."""

    def one(value: Any) -> Any:
        if isinstance(value, jax.Array) and is_key(value):
            return jax.random.wrap_key_data(one(np.asarray(jax.random.key_data(value))))
        whole = np.asarray(value)
        return jax.make_array_from_callback(whole.shape, sharding, lambda at: whole[at])

    return jax.tree.map(one, tree)


def gathered(tree: Any, mesh: Mesh | None) -> Any:
    """Leaves ``[n, ...]``, each divided over the devices, whole on every one of them: in one message.

    What a small message costs is waiting, so leaves of one width travel as one array of bits.
    """
    if mesh is None:
        return tree

    def here(tree: Any) -> Any:
        leaves, structure = jax.tree.flatten(plain(tree))
        whole: list[Any] = [None] * len(leaves)
        messages: dict[Any, list[int]] = {}
        for i, leaf in enumerate(leaves):
            messages.setdefault(_bits(leaf.dtype), []).append(i)
        for places in messages.values():
            rows = [_as_bits(leaves[i]).reshape(leaves[i].shape[0], -1) for i in places]
            joined = jax.lax.all_gather(jnp.concatenate(rows, axis=1), AXIS, tiled=True)
            ends = list(itertools.accumulate(row.shape[1] for row in rows))
            for i, part in zip(places, jnp.split(joined, ends[:-1], axis=1), strict=True):
                whole[i] = _from_bits(part.reshape(part.shape[0], *leaves[i].shape[1:]), leaves[i].dtype)
        return typed(jax.tree.unflatten(structure, whole), tree)

    own, same = PartitionSpec(AXIS), PartitionSpec()
    each: Any = jax.shard_map(here, mesh=mesh, in_specs=(own,), out_specs=same, check_vma=False)
    return each(tree)


def _bits(dtype: Any) -> Any:
    """The unsigned integers that hold the bits of a dtype."""
    return jnp.dtype(jnp.uint32 if dtype == jnp.bool_ else f"uint{8 * dtype.itemsize}")


def _as_bits(leaf: Any) -> Any:
    if leaf.dtype == jnp.bool_:
        return leaf.astype(jnp.uint32)
    return jax.lax.bitcast_convert_type(leaf, _bits(leaf.dtype))


def _from_bits(leaf: Any, dtype: Any) -> Any:
    return leaf.astype(dtype) if dtype == jnp.bool_ else jax.lax.bitcast_convert_type(leaf, dtype)


def on_each(f: Callable[..., Any], args: Any, mesh: Mesh | None) -> Any:
    """``f(*args)`` computed by every device for itself, without a message: all have the same ``args``."""
    if mesh is None:
        return f(*args)
    same = PartitionSpec()
    each: Any = jax.shard_map(f, mesh=mesh, in_specs=same, out_specs=same, check_vma=False)
    return each(*args)


def to_host(tree: Any, mesh: Mesh) -> Any:
    """The tree with every leaf whole in this process's memory, as NumPy arrays; random keys stay keys."""

    def one(value: Any) -> Any:
        if is_key(value):
            return jax.random.wrap_key_data(jnp.asarray(one(jax.random.key_data(value))))
        if value.is_fully_addressable:
            return np.asarray(value)
        # Of other processes' parts a copy comes here first, a leaf at a time.
        return np.asarray(jax.jit(lambda v: v, out_shardings=everywhere(mesh))(value).addressable_data(0))

    return jax.tree.map(one, tree)
