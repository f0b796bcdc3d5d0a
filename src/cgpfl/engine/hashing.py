"""Random bits on a CPU, compiled quickly: JAX's Threefry without its loop.

For CPUs JAX writes Threefry's twenty steps as a loop around four, with rotations that are data. XLA compiles that loop
six times as long as twenty plain steps, again in every program and for every shape, and runs it no faster. Most of
what a program of ours is compiled for is random bits, so here they are plain steps: the same integers, to the bit.
The steps are written as they stand into the program: traced by JAX first, they were a third of what it took to lower a
round, and rotations that are one constant each are a quarter fewer operations for XLA.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from jax import Array

with suppress(ImportError):
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)


def threefry(key1: Array, key2: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds: two words ``x, y`` hashed under a key of two.

    Salmon and others: Parallel Random Numbers: As Easy as 1, 2, 3. SC 2011.
    """
    keys = (key1, key2, key1 ^ key2 ^ PARITY)
    x, y = x + key1, y + key2
    for i in range(20):
        turn = ROTATIONS[i % 8]
        x = x + y
        y = x ^ ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn)))
        if i % 4 == 3:
            n = i // 4 + 1
            x, y = x + keys[n % 3], y + keys[(n + 1) % 3] + np.uint32(n)
    return x, y


class Written:
    """Words in a program that is being written: what is done with them is written there."""

    def __init__(self, value: Any, constant: Callable[[int], Any]) -> None:
        self.value, self.constant = value, constant

    def _with(self, write: Callable[[Any, Any], Any], other: Written | np.uint32) -> Written:
        value = other.value if isinstance(other, Written) else self.constant(int(other))
        return Written(write(self.value, value), self.constant)

    def __add__(self, other: Written | np.uint32) -> Written:
        return self._with(stablehlo.add, other)

    def __xor__(self, other: Written | np.uint32) -> Written:
        return self._with(stablehlo.xor, other)

    def __or__(self, other: Written | np.uint32) -> Written:
        return self._with(stablehlo.or_, other)

    def __lshift__(self, other: Written | np.uint32) -> Written:
        return self._with(stablehlo.shift_left, other)

    def __rshift__(self, other: Written | np.uint32) -> Written:
        return self._with(stablehlo.shift_right_logical, other)


def write_threefry(context: Any, *words: Any) -> tuple[Any, Any]:
    """Write :func:`threefry` of ``words`` into the program being lowered."""
    shape = context.avals_out[0].shape
    whole = ir.IntegerType.get_unsigned(32)
    form = ir.RankedTensorType.get(shape, whole)

    def fitted(word: Any, own: tuple[int, ...]) -> Any:
        axes = ir.DenseI64ArrayAttr.get(range(len(own)))
        return word if own == shape else stablehlo.broadcast_in_dim(form, word, axes)

    @cache
    def constant(n: int) -> Any:
        return stablehlo.constant(ir.DenseElementsAttr.get_splat(form, ir.IntegerAttr.get(whole, n)))

    x, y = threefry(*(Written(fitted(w, a.shape), constant) for w, a in zip(words, context.avals_in, strict=True)))  # type: ignore[arg-type]
    return x.value, y.value  # type: ignore[attr-defined]


def hash_without_loop() -> None:
    """Lower JAX's Threefry to :func:`threefry` on CPUs from now on; a JAX that is built otherwise keeps its own."""
    with suppress(ImportError, AttributeError, TypeError):
        from jax.extend.core.primitives import threefry2x32_p
        from jax.extend.mlir.dialects import stablehlo as written_in  # noqa: F401 - by which it is written
        from jax.interpreters import mlir

        mlir.register_lowering(threefry2x32_p, write_threefry, platform="cpu")
