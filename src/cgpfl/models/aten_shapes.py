"""PyTorch's operations (ATen) in JAX: shapes, parts, and arrays that are made."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.models.aten import OPERATIONS, Axes, Operation, UnsupportedError, kind, operation

ENDLESS = 2**31 - 1
"""From here on the end of a slice is that of the axis."""


@operation("flatten.using_ints")
def flatten(x: Array, first: int = 0, last: int = -1) -> Array:
    """Axes ``first`` to ``last`` as one."""
    first, last = first % x.ndim, last % x.ndim
    return x.reshape(*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])


@operation("unflatten.int")
def unflatten(x: Array, axis: int, sizes: Sequence[int]) -> Array:
    """One axis as several."""
    axis = axis % x.ndim
    return x.reshape(*x.shape[:axis], *sizes, *x.shape[axis + 1 :])


@operation("squeeze.dim", "squeeze.dims", "squeeze.default")
def squeeze(x: Array, axes: Axes = None) -> Array:
    """Without axes of one."""
    wanted = range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    return jnp.squeeze(x, tuple({a % x.ndim for a in wanted if x.shape[a] == 1}))


@operation("expand.default")
def expand(x: Array, sizes: Sequence[int], implicit: bool = False) -> Array:
    """Repeated along axes of one; −1: as it is."""
    own = (1,) * (len(sizes) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(o if s == -1 else s for s, o in zip(sizes, own, strict=True)))


@operation("slice.Tensor")
def slice_(x: Array, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    """From ``start`` to before ``end``."""
    axis = axis % x.ndim
    if start in (None, 0) and step == 1 and (end is None or end >= ENDLESS):
        return x
    first, last, step = builtins.slice(start, end, step).indices(x.shape[axis])
    return jax.lax.slice_in_dim(x, first, max(first, last), step, axis)


@operation("index.Tensor")
def index(x: Array, at: Sequence[Array | None]) -> Array:
    """Places by arrays of numbers, None: all of that axis."""
    if any(a is not None and a.dtype == bool for a in at):
        raise UnsupportedError("by a mask gives arrays of no fixed size; use torch.where or a product with the mask")
    return x[tuple(builtins.slice(None) if a is None else a for a in at)]


@operation("constant_pad_nd.default", "pad.default")
def pad(x: Array, sides: Sequence[int], mode: Any = 0.0, value: Any = None) -> Array:
    """``sides``: before and after, from the last axis on."""
    if isinstance(mode, str) and mode != "constant":
        raise UnsupportedError(f"has mode {mode!r}; must be 'constant'")
    fill = (0.0 if value is None else value) if isinstance(mode, str) else mode
    pairs = [(sides[i], sides[i + 1]) for i in range(0, len(sides), 2)][::-1]
    if min(sides) < 0:
        raise UnsupportedError("cuts (negative sides); use a slice")
    return jnp.pad(x, [(0, 0)] * (x.ndim - len(pairs)) + pairs, constant_values=fill)


def split(x: Array, size: int, axis: int = 0) -> list[Array]:
    """Parts of ``size``, the last may be smaller."""
    return jnp.split(x, list(range(size, x.shape[axis], size)), axis)


PLAIN: dict[str, Operation] = {
    **dict.fromkeys(("view.default", "reshape.default", "_unsafe_view.default"), jnp.reshape),
    "permute.default": jnp.transpose,
    "unsqueeze.default": jnp.expand_dims,
    "expand_as.default": lambda x, other: jnp.broadcast_to(x, other.shape),
    "select.int": lambda x, axis, place: jax.lax.index_in_dim(x, place, axis, keepdims=False),
    "split.Tensor": split,
    **dict.fromkeys(
        ("split_with_sizes.default", "split.sizes"),
        lambda x, sizes, axis=0: jnp.split(x, np.cumsum(sizes)[:-1].tolist(), axis),
    ),
    "chunk.default": lambda x, parts, axis=0: split(x, -(-x.shape[axis] // parts), axis),
    "transpose.int": jnp.swapaxes,
    "t.default": lambda x: x.T,
    "movedim.int": jnp.moveaxis,
    "cat.default": lambda parts, axis=0: jnp.concatenate(parts, axis),
    "stack.default": lambda parts, axis=0: jnp.stack(parts, axis),
    "unbind.int": lambda x, axis=0: list(jnp.moveaxis(x, axis, 0)),
    "narrow.default": lambda x, axis, first, size: slice_(x, axis, first, first + size),
    "flip.default": lambda x, axes: jnp.flip(x, tuple(axes)),
    "repeat.default": lambda x, times: jnp.tile(x, tuple(times)),
    "sym_size.int": lambda x, axis: x.shape[axis],
    "tril.default": jnp.tril,
    "triu.default": jnp.triu,
    "cumsum.default": lambda x, axis, dtype=None: jnp.cumsum(x, axis),
    "zeros.default": lambda shape, dtype=None: jnp.zeros(shape, kind(dtype)),
    "ones.default": lambda shape, dtype=None: jnp.ones(shape, kind(dtype)),
    "full.default": lambda shape, value, dtype=None: jnp.full(shape, value, kind(dtype, None)),
    "full_like.default": lambda x, value, dtype=None: jnp.full(x.shape, value, kind(dtype, x.dtype)),
    "new_zeros.default": lambda x, shape, dtype=None: jnp.zeros(shape, kind(dtype, x.dtype)),
    "new_ones.default": lambda x, shape, dtype=None: jnp.ones(shape, kind(dtype, x.dtype)),
    "scalar_tensor.default": lambda value, dtype=None: jnp.asarray(value, kind(dtype, None)),
    "arange.default": lambda end, dtype=None: jnp.arange(end, dtype=kind(dtype, None)),
    "arange.start": lambda first, end, dtype=None: jnp.arange(first, end, dtype=kind(dtype, None)),
    "arange.start_step": lambda first, end, step=1, dtype=None: jnp.arange(first, end, step, kind(dtype, None)),
    **dict.fromkeys(("_assert_tensor_metadata.default", "_assert_scalar.default"), lambda *_, **__: None),
    "sym_constrain_range_for_size.default": lambda *_, **__: None,
}
OPERATIONS.update(PLAIN)
