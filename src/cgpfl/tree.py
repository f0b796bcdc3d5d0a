"""Small helpers on pytrees of arrays, the form every model's parameters take here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.errors import CgpflError

Tree = Any
"""A pytree of arrays: parameters, a message, an upload, a state."""


def axpy(a: Array | float, x: Tree, y: Tree) -> Tree:
    """``a * x + y``, leaf by leaf."""
    return jax.tree.map(lambda u, v: a * u + v, x, y)


def mix(stacked: Tree, columns: Array) -> Tree:
    """Combine stacked trees linearly: leaves ``[N, ...]`` times ``columns [N, K]`` → ``[K, ...]``.

    With the columns of P (each summing to one) these are the means of K groups, Ω̃P in the paper.
    """

    def leaf(x: Array) -> Array:
        flat = x.reshape(x.shape[0], -1)
        out = jnp.matmul(columns.T.astype(x.dtype), flat, precision=jax.lax.Precision.HIGHEST)
        return out.reshape(columns.shape[1], *x.shape[1:])

    return jax.tree.map(leaf, stacked)


def weighted_mean(stacked: Tree, weights: Array, fallback: Tree) -> Tree:
    """Mean of the stacked trees, leaves ``[N, ...]``, by ``weights [N]``.

    Where all weights are zero (nobody answered) the result is ``fallback``.
    """
    total = weights.sum()
    share = weights / jnp.where(total > 0, total, 1.0)
    means = jax.tree.map(lambda x: x[0], mix(stacked, share[:, None]))
    return where(total > 0, means, fallback)


def where(condition: Array, yes: Tree, no: Tree) -> Tree:
    """``yes`` where ``condition`` holds, else ``no``; the condition is a scalar or ``[N]``."""

    def leaf(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(leaf, yes, no)


def switch(index: Array, branches: Sequence[Callable[..., Tree]], *operands: Tree) -> Tree:
    """``branches[index](*operands)``, and where this is mapped, branches that nobody takes are not computed.

    (Under ``vmap`` JAX's own switch computes every branch for everybody.) Branches are functions of the
    operands alone: they must not use other traced values. The first is the cheap one: it always runs.
    """
    index = jnp.clip(index, 0, len(branches) - 1)  # as JAX's own does

    @jax.custom_batching.custom_vmap
    def call(index: Array, operands: tuple[Tree, ...]) -> Tree:
        return jax.lax.switch(index, branches, *operands)

    @call.def_vmap
    def mapped(axis_size: int, batched: Any, index: Array, operands: tuple[Tree, ...]) -> tuple[Tree, Tree]:
        if not batched[0]:
            index = jnp.broadcast_to(index, (axis_size,))
        axes = jax.tree.map(lambda own: 0 if own else None, batched[1])

        def everybody(branch: Callable[..., Tree]) -> Tree:
            return jax.vmap(branch, in_axes=axes, axis_size=axis_size)(*operands)

        out = everybody(branches[0])
        for i, branch in enumerate(branches[1:], start=1):
            mine = index == i
            out = jax.lax.cond(mine.any(), lambda o, b=branch, m=mine: where(m, everybody(b), o), lambda o: o, out)
        return out, jax.tree.map(lambda _: True, out)

    return call(index, operands)


def take(stacked: Tree, index: Array | np.ndarray | int) -> Tree:
    """Entries ``index`` of the leading axis of every leaf."""
    return jax.tree.map(lambda x: x[index], stacked)


def repeat(tree: Tree, n: int) -> Tree:
    """``n`` copies of ``tree`` along a new leading axis."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), tree)


def norms(stacked: Tree) -> Array:
    """Euclidean length of each of the stacked trees, ``[N]``."""
    squares = [jnp.sum(x.reshape(x.shape[0], -1) ** 2, axis=1) for x in jax.tree.leaves(stacked)]
    return jnp.sqrt(sum(squares[1:], start=squares[0]))


def normals(tree: Tree, key: Array) -> Tree:
    """Normal numbers in the form of the tree."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, max(len(leaves), 1))
    return jax.tree.unflatten(structure, [jax.random.normal(k, v.shape) for v, k in zip(leaves, keys, strict=False)])


def gram(stacked: Tree) -> Array:
    """Inner products ``[N, N]`` of the stacked trees, leaves ``[N, ...]``."""

    def leaf(x: Array) -> Array:
        flat = x.reshape(x.shape[0], -1)
        return jnp.matmul(flat, flat.T, precision=jax.lax.Precision.HIGHEST)

    products = [leaf(x) for x in jax.tree.leaves(stacked)]
    return sum(products[1:], start=products[0])


def scale(stacked: Tree, factors: Array) -> Tree:
    """Each of the stacked trees times its factor, ``factors [N]``."""
    return jax.tree.map(lambda x: x * factors.reshape(-1, *(1,) * (x.ndim - 1)), stacked)


def dot(a: Tree, b: Tree) -> Array:
    """⟨a, b⟩ over all leaves."""
    return sum(jax.tree.leaves(jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)), start=jnp.float32(0))


def squared_distance(a: Tree, b: Tree) -> Array:
    """‖a − b‖² over all leaves."""
    parts = jax.tree.map(lambda x, y: jnp.sum((x - y) ** 2), a, b)
    return sum(jax.tree.leaves(parts), start=jnp.float32(0))


def size(tree: Tree) -> int:
    """Number of scalars in the tree."""
    return sum(math.prod(jnp.shape(x)) for x in jax.tree.leaves(tree))


def nbytes(tree: Tree) -> int:
    """Bytes the tree's arrays take when sent (works on shapes too)."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def all_finite(tree: Tree) -> Array:
    """Whether every floating-point entry is finite, as one scalar."""
    sums = [jnp.sum(x) * 0 for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.isfinite(sum(sums, start=jnp.float32(0)))


def is_key(leaf: Any) -> bool:
    """Whether a leaf (or the shape of one) is a random key."""
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def plain(tree: Tree) -> Tree:
    """The tree with random keys as their data: nothing that NumPy or a file could not hold."""
    return jax.tree.map(lambda v: jax.random.key_data(v) if is_key(v) else v, tree)


def typed(tree: Tree, like: Tree) -> Tree:
    """The way back from :func:`plain`, to the form of ``like``."""
    return jax.tree.map(lambda v, of: jax.random.wrap_key_data(jnp.asarray(v)) if is_key(of) else v, tree, like)


def paths(tree: Tree) -> list[str]:
    """The names of the leaves, such as ``hidden.weight``, in their order."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in found]


def matching(patterns: str, names: Sequence[str], what: str) -> set[str]:
    """Those of ``names`` that one of the ``patterns``, separated by commas, matches; each must match something."""
    found: set[str] = set()
    for pattern in filter(None, (p.strip() for p in patterns.split(","))):
        here = {name for name in names if fnmatchcase(name, pattern)}
        if not here:
            raise CgpflError(f"{what} = {pattern!r}: matches no parameter; there are {', '.join(names)}")
        found |= here
    return found


def partition(tree: Tree, apart: set[str]) -> tuple[Tree, Tree]:
    """The tree without the leaves named in ``apart``, and those alone: None stands where the other has a leaf."""
    leaves, structure = jax.tree.flatten(tree)
    out = [name in apart for name in paths(tree)]
    pairs = [(None, v) if own else (v, None) for v, own in zip(leaves, out, strict=True)]
    return jax.tree.unflatten(structure, [a for a, _ in pairs]), jax.tree.unflatten(structure, [b for _, b in pairs])


def merged(tree: Tree, rest: Tree) -> Tree:
    """The way back from :func:`partition`."""
    if not jax.tree.leaves(rest):
        return tree
    return jax.tree.map(lambda a, b: b if a is None else a, tree, rest, is_leaf=lambda v: v is None)


def named(tree: Tree) -> dict[str, np.ndarray]:
    """A pytree as named arrays; random keys as their data."""
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree.leaves_with_path(plain(tree))}


def unnamed(arrays: Mapping[str, np.ndarray], like: Tree) -> Tree:
    """Named arrays as a pytree of the form of ``like`` (shapes suffice); ValueError says what does not fit."""

    def leaf(path: Any, shape: Any) -> Any:
        name = jax.tree_util.keystr(path)
        value: Any = arrays.get(name)
        if value is None:
            raise ValueError(f"has no {name}; it is of another method")
        value = jax.random.wrap_key_data(jax.device_put(value)) if is_key(shape) else value
        if value.shape != shape.shape:
            raise ValueError(f"{name} has shape {value.shape}, not {shape.shape}")
        return jnp.array(value)

    return jax.tree_util.tree_map_with_path(leaf, like)
