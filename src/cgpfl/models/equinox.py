"""Modules of equinox. equinox is an optional dependency: who has a module has it."""

from __future__ import annotations

import inspect
from typing import Any

import jax
from jax import Array

from cgpfl.errors import CgpflError
from cgpfl.models.adapt import Functions
from cgpfl.models.base import Params
from cgpfl.models.names import flat, nested


def from_equinox(module: Any, shape: tuple[int, ...], classes: int) -> Functions:
    """An equinox module, called with one sample as equinox's layers are, and with a ``key`` where it takes one.

    It carries its parameters, its arrays of real numbers: they are the initial ones, whatever the seed.
    """
    import equinox as eqx

    running = [part for part in _parts(module, eqx.nn.StateIndex) if isinstance(part, eqx.nn.StateIndex)]
    if running:
        raise CgpflError(
            "model: equinox state (StateIndex) cannot be averaged as parameters; use layers without running state "
            "(for example GroupNorm for BatchNorm)"
        )
    drawing = "key" in inspect.signature(type(module).__call__).parameters
    params, rest = eqx.partition(module, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten_with_path(params)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    initial = nested(dict(zip(names, (leaf for _, leaf in leaves), strict=True)))

    def forward(values: Params, x: Array, key: Array | None = None) -> Array:
        own = flat(values)
        whole = eqx.combine(jax.tree.unflatten(structure, [own[name] for name in names]), rest)
        if key is not None:
            return jax.vmap(lambda one, k: whole(one, key=k))(x, jax.random.split(key, x.shape[0]))
        return jax.vmap(eqx.nn.inference_mode(whole) if drawing else whole)(x)

    return Functions(shape, classes, start=lambda key: initial, forward=forward, stochastic=drawing)


def _parts(module: Any, kind: type) -> list[Any]:
    return jax.tree.leaves(module, is_leaf=lambda part: isinstance(part, kind))
