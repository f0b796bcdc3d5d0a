"""Modules of flax, linen and nnx, with dropout. flax is an optional dependency: who has a module has it."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.errors import CgpflError
from cgpfl.models.adapt import Functions
from cgpfl.models.base import Params

TRAINING = {"train": True, "training": True, "is_training": True, "deterministic": False}
"""Arguments by which a module is told that it is trained, and what they are then."""


def from_linen(module: Any, shape: tuple[int, ...], classes: int) -> Functions:
    """A linen module; its ``__call__`` takes one of TRAINING where it has dropout."""
    told = [name for name in inspect.signature(type(module).__call__).parameters if name in TRAINING]
    resting = {name: not TRAINING[name] for name in told}
    learning = {name: TRAINING[name] for name in told}

    def start(key: Array) -> Params:
        variables = _drawn(module.init, key, jnp.zeros((1, *shape)), **resting)
        extra = [name for name in variables if name != "params"]
        if extra:
            raise CgpflError(
                f"model: flax collections {', '.join(extra)} cannot be averaged as parameters; "
                "use layers without running state (for example GroupNorm for BatchNorm)"
            )
        return variables.get("params", {})

    def forward(params: Params, x: Array, key: Array | None = None) -> Array:
        if key is None:
            return _drawn(module.apply, {"params": params}, x, **resting)
        return module.apply({"params": params}, x, **learning, rngs={"dropout": key})

    return Functions(shape, classes, start=start, forward=forward, stochastic=bool(told))


def _drawn(call: Any, *args: Any, **told: bool) -> Any:
    from flax.errors import InvalidRngError

    try:
        return call(*args, **told)
    except InvalidRngError as error:
        raise CgpflError(
            "model: the flax module draws (dropout) where nothing may be drawn; its __call__ must take train: bool "
            "and give Dropout deterministic=not train"
        ) from error


def from_nnx(module: Any, shape: tuple[int, ...], classes: int) -> Functions:
    """An nnx module carries its parameters: they are the initial ones, whatever the seed."""
    from flax import nnx

    parts: Any = nnx.split(module, nnx.Param, nnx.RngState, ...)
    graph, params, streams, rest = parts
    if jax.tree.leaves(rest):
        raise CgpflError("model: nnx state other than Param cannot be averaged; use layers without running state")
    initial, structure = nnx.to_pure_dict(params), jax.tree.structure(params)
    names = {part.key.tag for _, part in nnx.iter_graph(module) if isinstance(part, nnx.RngStream)}

    def forward(values: Params, x: Array, key: Array | None = None) -> Array:
        own = jax.tree.unflatten(structure, jax.tree.leaves(values))
        whole: Any = nnx.merge(graph, own, streams, rest)
        if key is not None:
            whole.set_attributes(deterministic=False, raise_if_not_found=False)
            keys: dict[str, Any] = dict.fromkeys(names, key)
            nnx.reseed(whole, **keys)
        elif names:
            whole.set_attributes(deterministic=True, raise_if_not_found=False)
        return whole(x)

    return Functions(shape, classes, start=lambda key: initial, forward=forward, stochastic=bool(names))
