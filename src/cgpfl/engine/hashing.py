"""Random bits on a CPU, compiled quickly: JAX's Threefry without its loop.

For CPUs JAX writes Threefry's twenty steps as a loop around four, with rotations that are data. XLA compiles that loop
six times as long as twenty plain steps, again in every program and for every shape, and runs it no faster. Most of
what a program of ours is compiled for is random bits, so here they are plain steps: the same integers, to the bit.

What JAX hashes are places, counted in 64 bits, a kernel for each word of each count, though the upper word is zero. XLA
compiles a kernel as long whatever is in it, so here they are 32 bits and a zero, which need none.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

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


def counted(*, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Places of an array, counted: upper and lower word. No array is so large that the upper one is not zero."""
    return jnp.zeros(shape, jnp.uint32), jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)


def hash_without_loop() -> None:
    """Lower JAX's Threefry to :func:`threefry` on CPUs from now on, and what it hashes to :func:`counted`.

    A JAX that is built otherwise keeps its own.
    """
    with suppress(ImportError, AttributeError, TypeError):
        from jax.extend.core.primitives import threefry2x32_p
        from jax.extend.random import threefry_prng_impl
        from jax.interpreters import mlir

        rule: Any = mlir.lower_fun(threefry, multiple_results=True)
        mlir.register_lowering(threefry2x32_p, rule, platform="cpu")
        drawn = jax.make_jaxpr(lambda key: threefry_prng_impl.random_bits(key, 32, (1,)))(np.zeros(2, np.uint32))
        count: Any = mlir.lower_fun(counted, multiple_results=True)
        for step in drawn.eqns:
            if step.primitive.name == "iota_2x32_shape":
                mlir.register_lowering(step.primitive, count, platform="cpu")
