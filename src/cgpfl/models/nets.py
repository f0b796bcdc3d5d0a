"""The paper's three models."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.models.base import Model, Params, affine, dense


@dataclass(frozen=True)
class MLR(Model):
    """l2-regularised multinomial logistic regression: the paper's strongly convex case."""

    l2: float = 1e-3

    def init(self, key: Array) -> Params:
        """One dense layer."""
        return dense(key, math.prod(self.shape), self.classes)

    def apply(self, params: Params, x: Array) -> Array:
        """Logits ``[B, classes]``."""
        return affine(params, x.reshape(x.shape[0], -1))


@dataclass(frozen=True)
class DNN(Model):
    """One hidden layer of ReLUs: the paper's non-convex case."""

    hidden: int = 128

    def init(self, key: Array) -> Params:
        """Two dense layers."""
        first, second = jax.random.split(key)
        return {
            "hidden": dense(first, math.prod(self.shape), self.hidden),
            "output": dense(second, self.hidden, self.classes),
        }

    def apply(self, params: Params, x: Array) -> Array:
        """Logits ``[B, classes]``."""
        hidden = jax.nn.relu(affine(params["hidden"], x.reshape(x.shape[0], -1)))
        return affine(params["output"], hidden)


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
            images = max_pool(jax.nn.relu(affine(params[name], patches(images, self.kernel, pad))))
        return images


def patches(images: Array, kernel: int, pad: int = 0) -> Array:
    """Every ``kernel × kernel`` window: ``[B, H, W, C]`` → ``[B, H', W', kernel·kernel·C]``."""
    images = jnp.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    height, width = (side - kernel + 1 for side in images.shape[1:3])
    windows = [images[:, i : i + height, j : j + width, :] for i in range(kernel) for j in range(kernel)]
    return jnp.concatenate(windows, axis=-1)


def max_pool(images: Array) -> Array:
    """2×2 max-pooling of ``[B, H, W, C]``; an odd last row or column is dropped."""
    batch, height, width, channels = images.shape
    even = images[:, : height // 2 * 2, : width // 2 * 2]
    return even.reshape(batch, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))
