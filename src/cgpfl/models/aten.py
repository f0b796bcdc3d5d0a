"""PyTorch's operations (ATen) in JAX: their table, and those that go value by value or sum.

Each takes what PyTorch's takes, in its order. Real numbers have 32 bits, whole numbers too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

Operation = Callable[..., Any]
OPERATIONS: dict[str, Operation] = {}
"""By name and overload, such as ``add.Tensor``."""
Axes = int | Sequence[int] | None


class UnsupportedError(Exception):
    """Why an operation cannot be done here as it is asked for; its name comes before."""


def operation(*names: str) -> Callable[[Operation], Operation]:
    """Register a function under names of ATen's."""

    def register(function: Operation) -> Operation:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register


def kind(dtype: Any, otherwise: Any = jnp.float32) -> Any:
    """A dtype of PyTorch's as it is here."""
    if dtype is None:
        return otherwise
    name = str(dtype).removeprefix("torch.")
    return {"float": jnp.float32, "int": jnp.int32, "uint": jnp.int32, "bool": jnp.bool_, "bfloat": jnp.float32}[
        name.rstrip("0123456789")
    ]


def axes_of(axes: Axes) -> int | tuple[int, ...] | None:
    """Axes as JAX takes them; none given are all."""
    if axes is None or isinstance(axes, int):
        return axes
    return tuple(axes) or None


# --- value by value ---------------------------------------------------------------------------------------------------

UNARY: dict[str, Operation] = {
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "silu": jax.nn.silu,
    "mish": jax.nn.mish,
    "selu": jax.nn.selu,
    "hardswish": jax.nn.hard_swish,
    "hardsigmoid": jax.nn.hard_sigmoid,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "log_sigmoid": jax.nn.log_sigmoid,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "reciprocal": lambda x: 1.0 / x,
    "square": jnp.square,
    "abs": jnp.abs,
    "neg": jnp.negative,
    "sign": jnp.sign,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "erf": jax.lax.erf,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": jnp.round,
    "isnan": jnp.isnan,
    "isinf": jnp.isinf,
    "logical_not": jnp.logical_not,
    "bitwise_not": jnp.invert,
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "leaky_relu": jax.nn.leaky_relu,
    "softplus": lambda x, beta=1, most=20: jnp.where(x * beta > most, x, jax.nn.softplus(x * beta) / beta),
    "detach": jax.lax.stop_gradient,
    "type_as": lambda x, other: x.astype(other.dtype),
    "zeros_like": lambda x, dtype=None: jnp.zeros(x.shape, kind(dtype, x.dtype)),
    "ones_like": lambda x, dtype=None: jnp.ones(x.shape, kind(dtype, x.dtype)),
    **dict.fromkeys(("contiguous", "clone", "alias", "lift_fresh_copy", "lift_fresh"), lambda x: x),
}
BINARY: dict[str, Operation] = {
    "mul": jnp.multiply,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "pow": jnp.power,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "remainder": jnp.mod,
}
for _name, _function in UNARY.items():
    operation(f"{_name}.default")(_function)
for _name, _function in BINARY.items():
    operation(*(f"{_name}.{o}" for o in ("default", "Tensor", "Scalar", "Tensor_Scalar", "Tensor_Tensor")))(_function)
operation("add.Tensor", "add.Scalar")(lambda a, b, alpha=1: jnp.add(a, b if alpha == 1 else alpha * b))
operation("sub.Tensor", "sub.Scalar")(lambda a, b, alpha=1: jnp.subtract(a, b if alpha == 1 else alpha * b))
operation("rsub.Tensor", "rsub.Scalar")(lambda a, b, alpha=1: jnp.subtract(b, a if alpha == 1 else alpha * a))
operation("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")(jnp.where)
operation("masked_fill.Scalar", "masked_fill.Tensor")(lambda x, mask, value: jnp.where(mask, value, x))


@operation("clamp.default", "clamp.Tensor", "hardtanh.default", "clamp_min.default")
def clamp(x: Array, low: Any = None, high: Any = None, **named: Any) -> Array:
    """Values from ``low`` to ``high``."""
    return jnp.clip(x, named.get("min", low), named.get("max", high))


@operation("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "floor_divide.default")
def div(a: Any, b: Any, rounding_mode: str | None = None) -> Array:
    """A / b, rounded towards zero ("trunc") or down ("floor") where that is asked for."""
    if rounding_mode is None:
        return jnp.divide(a, b)
    return jnp.floor_divide(a, b) if rounding_mode == "floor" else jnp.trunc(jnp.divide(a, b))


@operation("elu.default")
def elu(x: Array, alpha: float = 1.0, scale: float = 1, input_scale: float = 1) -> Array:
    """x, or alpha·(eˣ − 1) below 0."""
    return scale * jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0) * input_scale))


@operation("to.dtype", "_to_copy.default", "to.dtype_layout", "to.device")
def to(x: Array, *more: Any, dtype: Any = None, **_: Any) -> Array:
    """Another kind of number."""
    named = [m for m in (dtype, *more) if str(m).startswith("torch.") and not isinstance(m, bool)]
    return x.astype(kind(named[0], x.dtype)) if named else x


# --- sums -------------------------------------------------------------------------------------------------------------


def _reduction(name: str, function: Operation) -> None:
    def reduced(x: Array, axes: Axes = None, keepdim: bool = False, dtype: Any = None, **named: Any) -> Array:
        return function(x, axis=axes_of(named.get("dim", axes)), keepdims=keepdim)

    operation(*(f"{name}.{o}" for o in ("default", "dim", "dims", "dim_IntList")))(reduced)


REDUCTIONS: dict[str, Operation] = {
    "mean": jnp.mean,
    "sum": jnp.sum,
    "amax": jnp.max,
    "amin": jnp.min,
    "any": jnp.any,
    "all": jnp.all,
    "logsumexp": jax.nn.logsumexp,
    "argmax": jnp.argmax,
}
for _name, _function in REDUCTIONS.items():
    _reduction(_name, _function)


@operation("max.default", "max.dim")
def max_(x: Array, axis: int | None = None, keepdim: bool = False) -> Any:
    """The largest value; along an axis with its place."""
    if axis is None:
        return x.max()
    return x.max(axis, keepdims=keepdim), x.argmax(axis, keepdims=keepdim)


@operation("var.correction", "var.dim")
def var(x: Array, axes: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None) -> Array:
    """The variance; divided by n − 1 unless said otherwise."""
    less = correction if correction is not None else 1 if unbiased in (None, True) else 0
    return jnp.var(x, axis=axes_of(axes), ddof=less, keepdims=keepdim)
