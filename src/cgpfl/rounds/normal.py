"""Normal numbers for noise, many at once: by Box and Muller, of whom both numbers are used.

Half the hashes of :func:`jax.random.normal`, which takes one a number, and no inverse of the error function: a
logarithm, a root, and a sine and cosine of a turn, by a polynomial that is exact to 2e-7. The bits are those of the
same Threefry, of the same key, each pair of numbers of a count of its own.

Box, Muller: A Note on the Generation of Random Normal Deviates. Ann. Math. Statist., 1958.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import threefry_2x32

from cgpfl.tree import Tree

SINE = (3.14159265358979, -5.16771278004997, 2.55016403987735, -0.599264529320792, 0.0821458866111282, -0.00737043)
"""sin(πx) = x·(s_0 + s_1·x² + …) for |x| ≤ ½."""


def normal(key: Array, count: int) -> Array:
    """So many, ``[count]``; the largest are 6.7."""
    half = (count + 1) // 2
    x, y = _words(key, half)
    # in (0, 1], of 31 bits where it is small, and the number large: floats are dense there
    share = (x >> 1).astype(jnp.int32).astype(jnp.float32) * np.float32(2.0**-31) + np.float32(2.0**-32)
    turn = y.astype(jnp.int32).astype(jnp.float32) * np.float32(2.0**-31)  # in [−1, 1]: half a turn either way
    size, length = jnp.sqrt(-2.0 * jnp.log(share)), jnp.abs(turn)
    sine = jnp.where(turn < 0, -1.0, 1.0) * _sine(jnp.minimum(length, 1.0 - length))
    return jnp.concatenate([size * sine, size * _sine(0.5 - length)])[:count]


def normals(tree: Tree, key: Array) -> Tree:
    """Normal numbers in the form of the tree, by one draw."""
    leaves, structure = jax.tree.flatten(tree)
    sizes = [math.prod(jnp.shape(v)) for v in leaves]
    drawn, ends = normal(key, sum(sizes)), np.cumsum([0, *sizes]).tolist()
    parts = [drawn[a:b].reshape(jnp.shape(v)) for v, a, b in zip(leaves, ends, ends[1:], strict=False)]
    return jax.tree.unflatten(structure, parts)


def _words(key: Array, count: int) -> tuple[Array, Array]:
    """Two words of 32 bits ``[count]`` each."""
    data = jax.random.key_data(key)
    if data.shape != (2,):  # another generator than Threefry
        both = jax.random.bits(key, (2, count), jnp.uint32)
        return both[0], both[1]
    both = threefry_2x32((data[0], data[1]), jnp.arange(2 * count, dtype=jnp.uint32))
    return both[:count], both[count:]


def _sine(x: Array) -> Array:
    """sin(πx) for |x| ≤ ½."""
    square, value = x * x, jnp.full_like(x, SINE[-1])
    for factor in SINE[-2::-1]:
        value = value * square + np.float32(factor)
    return value * x
