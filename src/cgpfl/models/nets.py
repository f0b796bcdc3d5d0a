"""The paper's three models."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.models.base import Layered, Model, Params, affine, dense


@dataclass(frozen=True)
class MLR(Layered):
    """l2-regularised multinomial logistic regression: the paper's strongly convex case."""

    l2: float = 1e-3

    def init(self, key: Array) -> Params:
        return dense(key, math.prod(self.shape), self.classes)

    def split(self, params: Params) -> tuple[Params, Params]:
        return params, ()

    def join(self, first: Params, rest: Params) -> Params:
        return first

    def tail(self, rest: Params, hidden: Array) -> Array:
        return hidden


@dataclass(frozen=True)
class DNN(Layered):
    """One hidden layer of ReLUs: the paper's non-convex case."""

    hidden: int = 128

    def init(self, key: Array) -> Params:
        first, second = jax.random.split(key)
        return {
            "hidden": dense(first, math.prod(self.shape), self.hidden),
            "output": dense(second, self.hidden, self.classes),
        }

    def split(self, params: Params) -> tuple[Params, Params]:
        """The hidden layer and the output layer."""
        return params["hidden"], params["output"]

    def join(self, first: Params, rest: Params) -> Params:
        return {"hidden": first, "output": rest}

    def tail(self, rest: Params, hidden: Array) -> Array:
        """ReLUs and the output layer."""
        return affine(rest, jax.nn.relu(hidden))


@dataclass(frozen=True)
class CNN(Model):
    """Two convolutions with 2×2 max-pooling, two dense layers: the paper's model for CIFAR-10.

    A convolution is written as patches times a matrix: with a kernel for each client XLA would run
    it as a grouped convolution, several times slower. Images under 16 pixels are padded so that the
    second convolution still has something to look at.
    """

    channels: tuple[int, int] = (6, 16)
    kernel: int = 5
    hidden: int = 120

    def init(self, key: Array) -> Params:
        """Kernels as matrices ``[out, kernel·kernel·in]``."""
        keys = jax.random.split(key, 4)
        flat = jax.eval_shape(lambda: self._features(self._convolutions(keys), jnp.zeros((1, *self.shape))))
        return {
            **self._convolutions(keys),
            "hidden": dense(keys[2], math.prod(flat.shape[1:]), self.hidden),
            "output": dense(keys[3], self.hidden, self.classes),
        }

    def apply(self, params: Params, x: Array) -> Array:
        """Logits ``[B, classes]`` of images ``[B, H, W]`` or ``[B, H, W, C]``."""
        features = self._features(params, x)
        hidden = jax.nn.relu(affine(params["hidden"], features.reshape(features.shape[0], -1)))
        return affine(params["output"], hidden)

    def _convolutions(self, keys: Array) -> Params:
        colours = self.shape[2] if len(self.shape) == 3 else 1
        area = self.kernel**2
        first, second = self.channels
        return {"conv1": dense(keys[0], area * colours, first), "conv2": dense(keys[1], area * first, second)}

    def _features(self, params: Params, x: Array) -> Array:
        images = x[..., None] if x.ndim == 3 else x
        pad = self.kernel // 2 if min(self.shape[:2]) < 16 else 0
        for name in ("conv1", "conv2"):
            images = jnp.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
            if jax.default_backend() == "cpu":
                images = jax.nn.relu(pooled_times(params[name], images, self.kernel))
                continue
            # On an accelerator what is read from the images once costs least (an H200, a training step of 200
            # clients: 16.3 → 10.5 ms).
            convolve = gathered_times if name == "conv1" else rows_times
            images = max_pool(jax.nn.relu(convolve(params[name], images, self.kernel)))
        return images


def pooled_times(layer: Params, images: Array, kernel: int) -> Array:
    """A convolution and 2×2 max-pooling: ``[B, H, W, C]`` → ``[B, H'/2, W'/2, out]``, H' = H − kernel + 1.

    The four outputs that are pooled are computed as one product: each window of ``kernel + 1`` pixels, in blocks of
    2×2 pixels, times the kernel in its four places (on a CPU: a third of the memory, longer rows, and the maximum is
    over neighbours; a training step 1.9 → 1.4 ms, 2.2 → 1.4 on one core).
    """
    out, colours = layer["weight"].shape[0], images.shape[3]
    weight = layer["weight"].reshape(out, kernel, kernel, colours)
    odd = 1 - kernel % 2  # an even kernel is an odd one with zeros
    height, width = ((side - kernel + 1) // 2 for side in images.shape[1:3])
    blocks = (kernel + odd + 1) // 2  # of 2×2 pixels in a window, along each side
    rows, columns = 2 * (height + blocks - 1), 2 * (width + blocks - 1)
    missing = [
        (0, 0),
        *((0, max(0, n - side)) for n, side in zip((rows, columns), images.shape[1:3], strict=True)),
        (0, 0),
    ]
    images = _blocks(jnp.pad(images, missing)[:, :rows, :columns])
    windows = [images[:, i : i + height, j : j + width] for i in range(blocks) for j in range(blocks)]
    places = [jnp.pad(weight, ((0, 0), (i, 1 - i + odd), (j, 1 - j + odd), (0, 0))) for i in range(2) for j in range(2)]
    four = _blocks(jnp.concatenate(places)).reshape(4 * out, -1)
    products = jax.lax.dot_general(jnp.concatenate(windows, axis=-1), four, (((3,), (1,)), ((), ())))
    return products.reshape(*products.shape[:3], 4, out).max(axis=3) + layer["bias"]


def _blocks(images: Array) -> Array:
    """Blocks of 2×2 pixels side by side: ``[B, 2h, 2w, C]`` → ``[B, h, w, 4C]``."""
    batch, height, width, colours = images.shape
    parts = images.reshape(batch, height // 2, 2, width // 2, 2, colours).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(batch, height // 2, width // 2, 4 * colours)


def gathered_times(layer: Params, images: Array, kernel: int) -> Array:
    """A convolution, ``[B, H, W, C]`` → ``[B, H', W', out]``, its windows by one gather (no gradient of images)."""
    _, height, width, colours = images.shape
    rows, columns = np.arange(height - kernel + 1), np.arange(width - kernel + 1)
    inside = np.arange(kernel)
    at = (rows[:, None, None, None] + inside[:, None]) * width + columns[:, None, None] + inside
    at = at[..., None] * colours + np.arange(colours)  # [H', W', kernel, kernel, C]
    flat = images.reshape(images.shape[0], -1)
    return affine(layer, flat[:, at.reshape(-1)].reshape(-1, len(rows), len(columns), kernel * kernel * colours))


def rows_times(layer: Params, images: Array, kernel: int) -> Array:
    """A convolution from windows of one row: one product for all rows of the kernel, then a sum of shifted parts."""
    height, width = (side - kernel + 1 for side in images.shape[1:3])
    windows = jnp.concatenate([images[:, :, j : j + width, :] for j in range(kernel)], axis=-1)
    out = layer["weight"].shape[0]
    weight = layer["weight"].reshape(out, kernel, -1).swapaxes(0, 1).reshape(kernel * out, -1)
    parts = jax.lax.dot_general(windows, weight, (((3,), (1,)), ((), ())))  # [B, H, W', kernel·out]
    shifted = [parts[:, i : i + height, :, i * out : (i + 1) * out] for i in range(kernel)]
    return sum(shifted[1:], start=shifted[0]) + layer["bias"]


def max_pool(images: Array) -> Array:
    """2×2 max-pooling of ``[B, H, W, C]``; an odd last row or column is dropped."""
    batch, height, width, channels = images.shape
    even = images[:, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(batch, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))
