"""JAX's operations as nodes of ONNX. A method ``_name`` writes the operation ``name``: ``step`` is that of the program,
its other arguments are the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cgpfl.inference.nodes import Graph, NoGraphError

SAMPLES = 10007
"""The number of samples while a program is traced, a prime: what is a multiple of it depends on their number."""
Value = np.ndarray | str
"""Known here, or the name of a node's output."""
ONE = np.asarray(1, np.float32)
PLAIN = {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "pow": "Pow"},
    **{"neg": "Neg", "exp": "Exp", "log": "Log", "tanh": "Tanh", "logistic": "Sigmoid", "sqrt": "Sqrt", "erf": "Erf"},
    **{"abs": "Abs", "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sin": "Sin", "cos": "Cos"},
    **{"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"},
    **{"and": "And", "or": "Or", "not": "Not"},
    **dict.fromkeys(("copy", "copy_p", "stop_gradient", "reduce_precision", "optimization_barrier"), "Identity"),
}
"""Operations that are one node with the same inputs."""
COMPOSED: dict[str, Callable[..., str]] = {
    "ne": lambda add, a, b: add("Not", add("Equal", a, b)),
    "rsqrt": lambda add, x: add("Reciprocal", add("Sqrt", x)),
    "erfc": lambda add, x: add("Sub", ONE, add("Erf", x)),
    "log1p": lambda add, x: add("Log", add("Add", x, ONE)),
    "expm1": lambda add, x: add("Sub", add("Exp", x), ONE),
    "square": lambda add, x: add("Mul", x, x),
    "is_finite": lambda add, x: add("Not", add("Or", add("IsNaN", x), add("IsInf", x))),
    "clamp": lambda add, low, x, high: add("Min", add("Max", x, low), high),
}
"""Operations that are a few nodes, whatever their settings."""


class Operations:
    """Writes operations into a graph whose input ``x`` has the samples along its first axis."""

    def __init__(self, graph: Graph, x: str) -> None:
        self.graph, self.input = graph, x
        self.samples: str | None = None

    def add(self, kind: str, *args: Value, **settings: Any) -> str:
        """A node; arrays among its inputs enter the graph."""
        return self.graph.add(kind, *(a if isinstance(a, str) else self.graph.array(a) for a in args), **settings)

    def sizes(self, shape: tuple[Any, ...]) -> Value:
        """A shape as an array of the graph."""
        if all(fixed(d) for d in shape):
            return np.array(shape, np.int64)
        parts: list[Value] = []
        for size in shape:
            if fixed(size):
                parts.append(np.array([size], np.int64))
                continue
            if self.samples is None:
                whole = self.add("Shape", self.input)
                self.samples = self.add("Slice", whole, *(np.array([i], np.int64) for i in (0, 1)))
            times = size // SAMPLES
            parts.append(self.samples if times == 1 else self.add("Mul", self.samples, np.array([times], np.int64)))
        return self.add("Concat", *parts, axis=0)

    def reshaped(self, x: Value, shape: tuple[Any, ...]) -> str:
        unknown = [d for d in shape if not fixed(d)]
        if len(unknown) == 1 and 0 not in shape:  # one size may be left open
            return self.add("Reshape", x, np.array([d if fixed(d) else -1 for d in shape], np.int64))
        return self.add("Reshape", x, self.sizes(shape))

    def _integer_pow(self, step: Any, x: Value) -> str:
        return self.add("Pow", x, np.asarray(step.params["y"], step.invars[0].aval.dtype))

    def _select_n(self, step: Any, which: Value, *cases: Value) -> str:
        if len(cases) != 2 or step.invars[0].aval.dtype != bool:
            raise NoGraphError("a choice among more than two has none in ONNX here")
        return self.add("Where", which, cases[1], cases[0])

    def _convert_element_type(self, step: Any, x: Value) -> str:
        return self.graph.cast(x if isinstance(x, str) else self.graph.array(x), step.params["new_dtype"])

    def _broadcast_in_dim(self, step: Any, x: Value, *_: Value) -> str:
        shape, places = step.params["shape"], step.params["broadcast_dimensions"]
        own = dict(zip(places, step.invars[0].aval.shape, strict=True))
        ones = tuple(own.get(axis, 1) for axis in range(len(shape)))
        placed = x if ones == tuple(step.invars[0].aval.shape) else self.reshaped(x, ones)
        return (
            placed
            if ones == tuple(shape) and isinstance(placed, str)
            else self.add("Expand", placed, self.sizes(shape))
        )

    def _reshape(self, step: Any, x: Value, *_: Value) -> str:
        return self.reshaped(x, step.outvars[0].aval.shape)

    _squeeze = _expand_dims = _reshape

    def _transpose(self, step: Any, x: Value) -> str:
        return self.add("Transpose", x, perm=list(step.params["permutation"]))

    def _concatenate(self, step: Any, *parts: Value) -> str:
        return self.add("Concat", *parts, axis=step.params["dimension"])

    def _stack(self, step: Any, *parts: Value) -> str:
        axis = step.params["axis"]
        return self.add("Concat", *(self.add("Unsqueeze", v, np.array([axis], np.int64)) for v in parts), axis=axis)

    def _tile(self, step: Any, x: Value) -> str:
        return self.add("Tile", x, np.array(step.params["reps"], np.int64))

    def _split(self, step: Any, x: Value) -> list[Value]:
        axis, first, found = step.params["axis"], 0, []
        for size in step.params["sizes"]:
            found.append(self._sliced(x, [axis], [first], [first + size], [1]))
            first += size
        return list(found)

    def _sliced(self, x: Value, axes: list[int], first: list[int], last: list[int], steps: list[int]) -> str:
        return self.add("Slice", x, *(np.array(v, np.int64) for v in (first, last, axes, steps)))

    def _slice(self, step: Any, x: Value) -> str:
        p, shape = step.params, step.invars[0].aval.shape
        strides = p["strides"] or (1,) * len(shape)
        cut = [
            a for a, d in enumerate(shape) if (p["start_indices"][a], p["limit_indices"][a], strides[a]) != (0, d, 1)
        ]
        chosen = [[v[a] for a in cut] for v in (p["start_indices"], p["limit_indices"], strides)]
        return self._sliced(x, cut, *chosen) if cut else self.add("Identity", x)

    def _rev(self, step: Any, x: Value) -> str:
        axes = list(step.params["dimensions"])
        return self._sliced(x, axes, [-1] * len(axes), [-(2**31)] * len(axes), [-1] * len(axes))

    def _pad(self, step: Any, x: Value, fill: Value) -> str:
        sides = step.params["padding_config"]
        if any(low < 0 or high < 0 or inside for low, high, inside in sides):
            raise NoGraphError("padding that cuts or spreads has none in ONNX here")
        amounts = [low for low, _, _ in sides] + [high for _, high, _ in sides]
        return self.add("Pad", x, np.array(amounts, np.int64), fill)

    def _iota(self, step: Any, *_: Value) -> str:
        shape, axis = step.params["shape"], step.params["dimension"]
        if not fixed(shape[axis]):
            raise NoGraphError("counting samples has no node in ONNX here")
        line = np.arange(shape[axis], dtype=step.params["dtype"])
        return self.add("Expand", line.reshape([-1 if a == axis else 1 for a in range(len(shape))]), self.sizes(shape))

    def _reduce_sum(self, step: Any, x: Value) -> str:
        return self.add("ReduceSum", x, np.array(step.params["axes"], np.int64), keepdims=0)

    def _reduce_max(self, step: Any, x: Value) -> str:
        return self.add("ReduceMax", x, axes=list(step.params["axes"]), keepdims=0)

    def _reduce_min(self, step: Any, x: Value) -> str:
        return self.add("ReduceMin", x, axes=list(step.params["axes"]), keepdims=0)

    def _argmax(self, step: Any, x: Value) -> str:
        (axis,) = step.params["axes"]
        return self.graph.cast(self.add("ArgMax", x, axis=axis, keepdims=0), step.params["index_dtype"])

    def _cumsum(self, step: Any, x: Value) -> str:
        return self.add("CumSum", x, np.array(step.params["axis"], np.int64), reverse=int(step.params["reverse"]))

    def _dot_general(self, step: Any, a: Value, b: Value) -> str:
        (over_a, over_b), (same_a, same_b) = step.params["dimension_numbers"]
        dims_a, dims_b = (len(v.aval.shape) for v in step.invars)
        if not same_a and dims_b == 2 and tuple(over_a) == (dims_a - 1,) and len(over_b) == 1:
            b = b if over_b[0] == 0 else b.T if isinstance(b, np.ndarray) else self.add("Transpose", b, perm=[1, 0])
            return self.add("MatMul", a, b)
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        of_a = [next(letters) for _ in range(dims_a)]
        of_b = [next(letters) for _ in range(dims_b)]
        for i, j in [*zip(same_a, same_b, strict=True), *zip(over_a, over_b, strict=True)]:
            of_b[j] = of_a[i]
        free = [v for i, v in enumerate(of_a) if i not in (*same_a, *over_a)]
        free += [v for j, v in enumerate(of_b) if j not in (*same_b, *over_b)]
        out = "".join([*(of_a[i] for i in same_a), *free])
        return self.add("Einsum", a, b, equation=f"{''.join(of_a)},{''.join(of_b)}->{out}")

    def _gather(self, step: Any, table: Value, at: Value) -> str:
        """Whole rows of one axis, by numbers that are within it."""
        p, shape = step.params, step.invars[0].aval.shape
        numbers = p["dimension_numbers"]
        axes = numbers.start_index_map
        dims = len(step.invars[1].aval.shape) - 1
        rest = tuple(range(axes[0], axes[0] + dims)) if len(axes) == 1 else ()
        whole = tuple(1 if a in axes else d for a, d in enumerate(shape)) == tuple(p["slice_sizes"])
        offsets = tuple(a for a in range(len(shape) - 1 + dims) if a not in rest)
        if len(axes) != 1 or tuple(numbers.collapsed_slice_dims) != axes or not whole or numbers.offset_dims != offsets:
            raise NoGraphError("this way of indexing has no node in ONNX here")
        return self.add("Gather", table, self.reshaped(at, step.invars[1].aval.shape[:-1]), axis=axes[0])

    def _conv_general_dilated(self, step: Any, x: Value, kernel: Value) -> str:
        p = step.params
        numbers = p["dimension_numbers"]
        if set(p["lhs_dilation"]) != {1} or p["batch_group_count"] != 1:
            raise NoGraphError("a transposed convolution has none in ONNX here")
        x = self.add("Transpose", x, perm=list(numbers.lhs_spec))
        kernel = self.add("Transpose", kernel, perm=list(numbers.rhs_spec))
        sides = [low for low, _ in p["padding"]] + [high for _, high in p["padding"]]
        strides, dilations = list(p["window_strides"]), list(p["rhs_dilation"])
        groups = p["feature_group_count"]
        out = self.add("Conv", x, kernel, strides=strides, pads=sides, dilations=dilations, group=groups)
        return self.add("Transpose", out, perm=[int(i) for i in np.argsort(numbers.out_spec)])

    def _reduce_window_max(self, step: Any, x: Value) -> str:
        return self._pooled(step, x, "MaxPool")

    def _reduce_window_sum(self, step: Any, x: Value) -> str:
        mean = self._pooled(step, x, "AveragePool", count_include_pad=1)
        return self.add("Mul", mean, np.asarray(np.prod(step.params["window_dimensions"]), np.float32))

    def _pooled(self, step: Any, x: Value, kind: str, **more: int) -> str:
        p = step.params
        window, sides = p["window_dimensions"], p["padding"]
        axes = [a for a in range(len(window)) if (window[a], p["window_strides"][a], sides[a]) != (1, 1, (0, 0))]
        if len(window) != 4 or {*p["base_dilation"], *p["window_dilation"]} != {1} or axes not in ([1, 2], [2, 3]):
            raise NoGraphError("this window has none in ONNX here")
        order = [0, 3, 1, 2] if axes == [1, 2] else [0, 1, 2, 3]
        x = self.add("Transpose", x, perm=order)
        pads = [sides[a][0] for a in axes] + [sides[a][1] for a in axes]
        strides = [p["window_strides"][a] for a in axes]
        out = self.add(kind, x, kernel_shape=[window[a] for a in axes], strides=strides, pads=pads, **more)
        return self.add("Transpose", out, perm=[int(i) for i in np.argsort(order)])


def fixed(size: int) -> bool:
    """Whether a size does not depend on the number of samples."""
    return size == 0 or size % SAMPLES != 0
