"""A residual network for images, with GroupNorm: nothing of it runs along beside the parameters."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.errors import CgpflError
from cgpfl.models.base import Model, Params, affine, dense
from cgpfl.models.layers import convolve, group_norm, in_turn, norm

SAME = ((1, 1), (1, 1))


@dataclass(frozen=True)
class ResNet(Model):
    """A 3×3 convolution, stages of residual blocks (two 3×3 convolutions each), the mean over pixels, a dense layer.

    He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016, with Wu and He's GroupNorm for
    BatchNorm. A stage has twice the channels of the one before and half its pixels along each side. ResNet-18 for small
    images is ``blocks=(2, 2, 2, 2), width=64``.
    """

    blocks: tuple[int, ...] = (1, 1, 1)
    """Residual blocks of each stage."""
    width: int = 16
    """Channels of the first stage."""
    groups: int = 8
    """Of channels that are normalised together."""
    recompute: bool = False
    """Whether the way back computes a block's inside again instead of keeping it: a forward pass more, for less memory
    where a stage has several equal blocks.
    """

    def __post_init__(self) -> None:
        """Images only."""
        if not (len(self.shape) in (2, 3) and min(self.shape[:2]) >= 4):
            raise CgpflError(
                f"model resnet: inputs of shape {self.shape} are not images [H, W] or [H, W, C] of at least 4x4"
            )
        if self.width % self.groups:
            raise CgpflError(f"model resnet: width = {self.width}: must be a multiple of groups = {self.groups}")

    def init(self, key: Array) -> Params:
        """Kernels ``[3, 3, in, out]``, normal with variance 2/(9·out)."""
        colours = self.shape[2] if len(self.shape) == 3 else 1
        first, last, key = jax.random.split(key, 3)
        params: Params = {"input": {"conv": _kernel(first, 3, colours, self.width), "norm": norm(self.width)}}
        channels = self.width
        for number, (wide, stride) in enumerate(self._blocks(), 1):
            one, two, three = jax.random.split(jax.random.fold_in(key, number), 3)
            block = {"conv1": _kernel(one, 3, channels, wide), "norm1": norm(wide)}
            block |= {"conv2": _kernel(two, 3, wide, wide), "norm2": norm(wide)}
            if stride != 1:
                block |= {"skip": _kernel(three, 1, channels, wide), "skip_norm": norm(wide)}
            params[f"layer{number}"] = block
            channels = wide
        return params | {"output": dense(last, channels, self.classes)}

    def apply(self, params: Params, x: Array) -> Array:
        """Logits ``[B, classes]`` of images ``[B, H, W]`` or ``[B, H, W, C]``."""
        first = params["input"]
        h = convolve(x[..., None] if x.ndim == 3 else x, first["conv"]["weight"], padding=SAME)
        h = jax.nn.relu(group_norm(first["norm"], h, self.groups))
        layers = [params[f"layer{number}"] for number in range(1, sum(self.blocks) + 1)]
        h = in_turn(self._block, layers, h, recompute=self.recompute)
        return affine(params["output"], h.mean(axis=(1, 2)))

    def _blocks(self) -> list[tuple[int, int]]:
        """(channels, stride) of each block."""
        return [
            (self.width << stage, 2 if stage and not place else 1)
            for stage, count in enumerate(self.blocks)
            for place in range(count)
        ]

    def _block(self, layer: Params, x: Array) -> Array:
        steps = (2, 2) if "skip" in layer else (1, 1)  # a stage's first one has both, more channels and fewer pixels
        h = convolve(x, layer["conv1"]["weight"], steps, SAME)
        h = jax.nn.relu(group_norm(layer["norm1"], h, self.groups))
        h = group_norm(layer["norm2"], convolve(h, layer["conv2"]["weight"], padding=SAME), self.groups)
        if "skip" in layer:
            x = group_norm(layer["skip_norm"], convolve(x, layer["skip"]["weight"], steps), self.groups)
        return jax.nn.relu(h + x)


def _kernel(key: Array, side: int, inputs: int, outputs: int) -> Params:
    scale = jnp.sqrt(2.0 / (side * side * outputs))
    return {"weight": scale * jax.random.normal(key, (side, side, inputs, outputs))}
