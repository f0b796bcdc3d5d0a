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
        """One dense layer."""
        return dense(key, math.prod(self.shape), self.classes)

    def split(self, params: Params) -> tuple[Params, Params]:
        """The layer, and nothing."""
        return params, ()

    def join(self, first: Params, rest: Params) -> Params:
        """The layer."""
        return first

    def tail(self, rest: Params, hidden: Array) -> Array:
        """The layer's outputs."""
        return hidden


@dataclass(frozen=True)
class DNN(Layered):
    """One hidden layer of ReLUs: the paper's non-convex case."""

    hidden: int = 128

    def init(self, key: Array) -> Params:
        """Two dense layers."""
        first, second = jax.random.split(key)
        return {
            "hidden": dense(first, math.prod(self.shape), self.hidden),
            "output": dense(second, self.hidden, self.classes),
        }

    def split(self, params: Params) -> tuple[Params, Params]:
        """The hidden layer and the output layer."""
        return params["hidden"], params["output"]

    def join(self, first: Params, rest: Params) -> Params:
        """Both."""
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
            # On an accelerator what is read from the images once costs least (an H200, a training step of 200
            # clients: 16.3 → 10.5 ms); on a CPU the plain form does.
            plain = jax.default_backend() == "cpu"
            convolve = patches_times if plain else gathered_times if name == "conv1" else rows_times
            images = jnp.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
            images = max_pool(jax.nn.relu(convolve(params[name], images, self.kernel)))
        return images


def patches_times(layer: Params, images: Array, kernel: int) -> Array:
    """A convolution as every ``kernel × kernel`` window times a matrix: ``[B, H, W, C]`` → ``[B, H', W', out]``."""
    height, width = (side - kernel + 1 for side in images.shape[1:3])
    windows = [images[:, i : i + height, j : j + width, :] for i in range(kernel) for j in range(kernel)]
    return affine(layer, jnp.concatenate(windows, axis=-1))


def gathered_times(layer: Params, images: Array, kernel: int) -> Array:
    """The same, the windows by one gather: for images that need no gradient."""
    _, height, width, colours = images.shape
    rows, columns = np.arange(height - kernel + 1), np.arange(width - kernel + 1)
    inside = np.arange(kernel)
    at = (rows[:, None, None, None] + inside[:, None]) * width + columns[:, None, None] + inside
    at = at[..., None] * colours + np.arange(colours)  # [H', W', kernel, kernel, C]
    flat = images.reshape(images.shape[0], -1)
    return affine(layer, flat[:, at.reshape(-1)].reshape(-1, len(rows), len(columns), kernel * kernel * colours))


def rows_times(layer: Params, images: Array, kernel: int) -> Array:
    """The same from windows of one row: one product for all rows of the kernel, then a sum of shifted parts."""
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
