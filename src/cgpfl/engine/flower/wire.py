"""Trees on the wire: named arrays, checked against the form that is expected before anything uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.engine.flower.orders import RefusedError
from cgpfl.tree import Tree, named, plain, unnamed


def _carrier(dtype: np.dtype) -> np.dtype:
    """The type in which numbers travel: unsigned integers for what NumPy's file format does not know (bfloat16)."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype


def pack(tree: Tree) -> dict[str, np.ndarray]:
    """A tree as named arrays of plain types."""
    return {name: v.view(_carrier(v.dtype)) for name, v in named(tree).items()}


def form(like: Tree) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Names, shapes and travelling types of a tree like ``like`` (shapes suffice)."""
    shapes = jax.eval_shape(plain, like)
    return {
        jax.tree_util.keystr(path): (tuple(leaf.shape), _carrier(np.dtype(leaf.dtype)))
        for path, leaf in jax.tree.leaves_with_path(shapes)
    }


def check_form(found: Mapping[str, tuple[tuple[int, ...], Any]], like: Tree) -> None:
    """Refuse other names, shapes or types than those of ``like``."""
    wanted = form(like)
    if strangers := sorted(set(found) - set(wanted)):
        raise RefusedError(f"has {strangers[0]}, which nobody asked for")
    for name, (shape, dtype) in wanted.items():
        if name not in found:
            raise RefusedError(f"{name} is missing")
        its_shape, its_dtype = found[name]
        if tuple(its_shape) != shape:
            raise RefusedError(f"{name} has shape {tuple(its_shape)}, not {shape}")
        if str(its_dtype) != str(dtype):
            raise RefusedError(f"{name} is {its_dtype}, not {dtype}")


def unpack(arrays: Mapping[str, np.ndarray], like: Tree, largest: float = 0.0) -> Tree:
    """The tree again. Refused: another form, NaN or infinity, and a norm over ``largest`` (0: any)."""
    check_form({name: (v.shape, v.dtype) for name, v in arrays.items()}, like)
    types = {
        jax.tree_util.keystr(path): np.dtype(leaf.dtype)
        for path, leaf in jax.tree.leaves_with_path(jax.eval_shape(plain, like))
    }
    typed = {name: np.ascontiguousarray(v).view(types[name]).reshape(v.shape) for name, v in arrays.items()}
    total = 0.0
    for name, values in typed.items():
        if jnp.issubdtype(values.dtype, jnp.floating):
            squares = _sum_of_squares(values)
            if not np.isfinite(squares):
                raise RefusedError(f"{name} is not finite")
            total += squares
    if largest and total > largest**2:
        raise RefusedError(f"its norm is {total**0.5:.4g}, over the bound of {largest:g}")
    return unnamed(typed, like)


def _sum_of_squares(values: np.ndarray, at_once: int = 1 << 18) -> float:
    """In double precision, a part at a time: without a copy of everything that no cache holds."""
    flat = values.reshape(-1)
    parts = (flat[i : i + at_once].astype(np.float64) for i in range(0, flat.size, at_once))
    return sum(float(part @ part) for part in parts)
