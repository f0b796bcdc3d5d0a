"""PyTorch's operations in JAX: products, convolutions, pooling, norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.models.aten import OPERATIONS, UnsupportedError, operation
from cgpfl.models.base import affine
from cgpfl.models.layers import convolve, embed, normed, windows


@operation("linear.default")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x·weightᵀ + bias."""
    if bias is None:
        return jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
    return affine({"weight": weight, "bias": bias}, x)


operation("addmm.default", "baddbmm.default")(lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b))
OPERATIONS.update(dict.fromkeys(("matmul.default", "mm.default", "bmm.default", "mv.default"), jnp.matmul))
OPERATIONS["einsum.default"] = lambda formula, parts, path=None: jnp.einsum(formula, *parts)


@operation("embedding.default")
def embedding(table: Array, ids: Array, padding: int = -1, *_: Any, **__: Any) -> Array:
    """Rows of a table; that of ``padding`` does not learn."""
    if padding >= 0:
        fixed = jnp.arange(table.shape[0])[:, None] == padding
        table = jnp.where(fixed, jax.lax.stop_gradient(table), table)
    return embed(table, ids)


def _pair(value: Any) -> tuple[int, int]:
    both = [value] * 2 if isinstance(value, int) else list(value) * (2 if len(value) == 1 else 1)
    return both[0], both[1]


@operation("conv2d.default", "conv2d.padding")
def conv2d(
    x: Array, weight: Array, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Array:
    """``x [B, C, H, W]``, ``weight [out, C, h, w]``."""
    if groups != 1:
        raise UnsupportedError(f"has groups = {groups}; must be 1")
    if _pair(dilation) != (1, 1):
        raise UnsupportedError(f"has dilation = {list(_pair(dilation))}; must be 1")
    if x.ndim != 4:
        raise UnsupportedError(f"is given {list(x.shape)}; must be [B, C, H, W]")
    if padding == "same":
        sides = tuple(((n - 1) // 2, n // 2) for n in weight.shape[2:])
    else:
        sides = tuple((p, p) for p in _pair(0 if padding == "valid" else padding))
    images = convolve(x.transpose(0, 2, 3, 1), weight.transpose(2, 3, 1, 0), _pair(stride), (sides[0], sides[1]))
    return (images if bias is None else images + bias).transpose(0, 3, 1, 2)


@operation("conv1d.default", "conv1d.padding")
def conv1d(
    x: Array, weight: Array, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Array:
    """``x [B, C, T]``, ``weight [out, C, k]``: images of one row."""
    one = [v if isinstance(v, int) else v[0] for v in (stride, dilation)]
    sides = padding if isinstance(padding, str) else [0, padding if isinstance(padding, int) else padding[0]]
    flat = conv2d(x[:, :, None], weight[:, :, None], bias, [1, one[0]], sides, [1, one[1]], groups)
    return flat[:, :, 0]


@operation("convolution.default")
def convolution(
    x: Array, weight: Array, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, _: Any, groups: int
) -> Array:
    """Of one or two dimensions."""
    if transposed or x.ndim not in (3, 4):
        raise UnsupportedError("is transposed or of three dimensions; must be an ordinary one of one or two")
    return (conv2d if x.ndim == 4 else conv1d)(x, weight, bias, stride, padding, dilation, groups)


def _pooled(x: Array, size: Any, stride: Any, padding: Any, fill: float, ceil_mode: bool) -> list[Array]:
    """What each place of the pooled windows of ``[..., H, W]`` sees."""
    if ceil_mode:
        raise UnsupportedError("has ceil_mode; must be without")
    pad = _pair(padding)
    images = jnp.pad(x.reshape(-1, *x.shape[-2:], 1), ((0, 0), *((p, p) for p in pad), (0, 0)), constant_values=fill)
    seen = windows(images, _pair(size), _pair(stride or size))
    return [part.reshape(*x.shape[:-2], *part.shape[1:3]) for part in seen]


@operation("max_pool2d.default")
def max_pool2d(
    x: Array, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Array:
    """The largest of each window; of equal ones the first learns."""
    if _pair(dilation) != (1, 1):
        raise UnsupportedError("has dilation; must be 1")
    first, *others = _pooled(x, size, stride, padding, -jnp.inf, ceil_mode)
    for other in others:
        first = jnp.where(other > first, other, first)
    return first


OPERATIONS["max_pool2d_with_indices.default"] = lambda *args: (max_pool2d(*args), None)


@operation("avg_pool2d.default")
def avg_pool2d(
    x: Array,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> Array:
    """The mean of each window, padding counted unless said otherwise."""
    seen = _pooled(x, size, stride, padding, 0.0, ceil_mode)
    total = sum(seen[1:], start=seen[0])
    if divisor or count_padding or _pair(padding) == (0, 0):
        return total / (divisor or len(seen))
    ones = _pooled(jnp.ones(x.shape[-2:]), size, stride, padding, 0.0, ceil_mode)
    return total / sum(ones[1:], start=ones[0])


@operation("adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(x: Array, size: Any) -> Array:
    """Means of equal parts of an image, as many as ``size`` says."""
    wanted = [side if n is None else n for side, n in zip(x.shape[-2:], size, strict=True)]
    if any(side % n for side, n in zip(x.shape[-2:], wanted, strict=True)):
        raise UnsupportedError(f"from {list(x.shape[-2:])} to {wanted} has parts of unequal size; must divide, or be 1")
    (height, width), (rows, columns) = x.shape[-2:], wanted
    return x.reshape(*x.shape[:-2], rows, height // rows, columns, width // columns).mean(axis=(-3, -1))


def _scaled(x: Array, weight: Array | None, bias: Array | None) -> Array:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@operation("layer_norm.default")
def layer_norm(x: Array, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Any:
    """Normalised over the last axes."""
    return _scaled(normed(x, tuple(range(x.ndim - len(shape), x.ndim)), eps), weight, bias)


@operation("rms_norm.default")
def rms_norm(x: Array, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Array:
    """Divided by the root of the mean square of the last axes."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    floor = float(np.finfo(np.float32).eps) if eps is None else eps
    return _scaled(x * jax.lax.rsqrt((x * x).mean(axis=axes, keepdims=True) + floor), weight, None)


@operation("group_norm.default")
def group_norm(x: Array, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Array:
    """``[B, C, ...]`` normalised over each of the groups of channels."""
    apart = normed(x.reshape(x.shape[0], groups, -1), (2,), eps).reshape(x.shape)
    ones = (1,) * (x.ndim - 2)
    return _scaled(apart, *(None if v is None else v.reshape(-1, *ones) for v in (weight, bias)))


OPERATIONS["native_layer_norm.default"] = lambda *args: (layer_norm(*args), None, None)
OPERATIONS["native_group_norm.default"] = lambda x, w, b, n, c, area, groups, eps: (
    group_norm(x, groups, w, b, eps),
    None,
    None,
)
operation("softmax.int", "_softmax.default", "_safe_softmax.default")(lambda x, axis, *_, **__: jax.nn.softmax(x, axis))
operation("log_softmax.int", "_log_softmax.default")(lambda x, axis, *_, **__: jax.nn.log_softmax(x, axis))
