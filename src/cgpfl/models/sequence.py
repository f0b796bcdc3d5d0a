"""Models of sequences: tokens ``[B, T]``, or real values ``[B, T]`` and ``[B, T, d]``."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.errors import CgpflError
from cgpfl.models.base import Model, Params, affine, dense
from cgpfl.models.layers import attention, dropout, embed, gru, in_turn, layer_norm, norm


@dataclass(frozen=True)
class Sequence(Model):
    """What these models share: how a sequence comes in, and what is answered of it."""

    vocabulary: int = 0
    """Tokens are 0..vocabulary−1; 0: the values are real ones."""
    per_step: bool = False
    """Whether each place is answered, ``[B, T, classes]``, or the sequence, ``[B, classes]``."""

    def __post_init__(self) -> None:
        """Sequences only; tokens have no features."""
        if len(self.shape) not in (1, 2):
            raise CgpflError(f"model {self._name}: inputs of shape {self.shape} are not sequences [T] or [T, features]")
        if self.vocabulary and len(self.shape) != 1:
            raise CgpflError(
                f"model {self._name}: vocabulary = {self.vocabulary}: inputs of shape {self.shape} are not tokens [T]; "
                "must be 0"
            )

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()

    def _into(self, key: Array, width: int) -> Params:
        """The layer from tokens or values to ``width`` features."""
        if self.vocabulary:
            return {"weight": jax.random.normal(key, (self.vocabulary, width)) * width**-0.5}
        return dense(key, self.shape[1] if len(self.shape) == 2 else 1, width)

    def _features(self, layer: Params, x: Array) -> Array:
        """``[B, T, width]``."""
        if self.vocabulary:
            return embed(layer["weight"], jnp.round(x))
        return affine(layer, x[..., None] if x.ndim == 2 else x)


@dataclass(frozen=True)
class GRU(Sequence):
    """A gated recurrent unit (Cho et al., EMNLP 2014) over embedded tokens or values; answers by its last state."""

    hidden: int = 64
    """Size of the state."""
    embedding: int = 16
    """Features of a token, or of a place of real values."""

    def init(self, key: Array) -> Params:
        keys = jax.random.split(key, 4)
        return {
            "embedding": self._into(keys[0], self.embedding),
            "gru": {
                "input": dense(keys[1], self.embedding, 3 * self.hidden),
                "hidden": dense(keys[2], self.hidden, 3 * self.hidden),
            },
            "output": dense(keys[3], self.hidden, self.classes),
        }

    def apply(self, params: Params, x: Array) -> Array:
        """Logits ``[B, classes]``, or ``[B, T, classes]`` with ``per_step``."""
        features = jnp.swapaxes(self._features(params["embedding"], x), 0, 1)
        states = gru(params["gru"], features, jnp.zeros((x.shape[0], self.hidden)))
        answered = jnp.swapaxes(states, 0, 1) if self.per_step else jax.lax.index_in_dim(states, -1, 0, keepdims=False)
        return affine(params["output"], answered)


@dataclass(frozen=True)
class Transformer(Sequence):
    """A causal transformer (Vaswani et al., NeurIPS 2017), normalised before each part; answers by the places' mean."""

    width: int = 64
    """Features of a place."""
    heads: int = 4
    """Of attention."""
    layers: int = 2
    """Of attention and two dense layers each."""
    dropout: float = 0.0
    """Share of the features that a training step leaves out after the embedding and each part."""
    recompute: bool = False
    """Whether the way back computes a layer's inside again instead of keeping it: less memory where there are several
    layers, a forward pass more.
    """

    def __post_init__(self) -> None:
        """Heads divide the features."""
        super().__post_init__()
        if self.width % self.heads:
            raise CgpflError(f"model transformer: width = {self.width}: must be a multiple of heads = {self.heads}")
        if not 0 <= self.dropout < 1:
            raise CgpflError(f"model transformer: dropout = {self.dropout}: must be at least 0 and below 1")

    @property
    def stochastic(self) -> bool:
        """With dropout."""
        return self.dropout > 0

    def init(self, key: Array) -> Params:
        first, second, last, key = jax.random.split(key, 4)
        width = self.width
        places = 0.02 * jax.random.normal(second, (self.shape[0], width))
        params: Params = {"embedding": self._into(first, width) | {"places": places}}
        for number in range(1, self.layers + 1):
            keys = jax.random.split(jax.random.fold_in(key, number), 4)
            params[f"layer{number}"] = {
                "attend": dense(keys[0], width, 3 * width),
                "attended": dense(keys[1], width, width),
                "hidden": dense(keys[2], width, 4 * width),
                "back": dense(keys[3], 4 * width, width),
                "norm1": norm(width),
                "norm2": norm(width),
            }
        return params | {"norm": norm(width), "output": dense(last, width, self.classes)}

    def apply(self, params: Params, x: Array, key: Array | None = None) -> Array:
        """Logits ``[B, classes]``, or ``[B, T, classes]`` with ``per_step``; with a key some features are left out."""

        def dropped(h: Array, place: int | Array) -> Array:
            return dropout(h, self.dropout, None if key is None else jax.random.fold_in(key, place))

        def one(numbered: tuple[int | Array, Params], h: Array) -> Array:
            number, layer = numbered
            h = h + dropped(self._attended(layer, layer_norm(layer["norm1"], h)), 2 * number - 1)
            wide = jax.nn.gelu(affine(layer["hidden"], layer_norm(layer["norm2"], h)), approximate=False)
            return h + dropped(affine(layer["back"], wide), 2 * number)

        h = dropped(self._features(params["embedding"], x) + params["embedding"]["places"], 0)
        layers = [(number, params[f"layer{number}"]) for number in range(1, self.layers + 1)]
        h = in_turn(one, layers, h, recompute=self.recompute)
        h = layer_norm(params["norm"], h)
        return affine(params["output"], h if self.per_step else h.mean(axis=1))

    def _attended(self, layer: Params, h: Array) -> Array:
        batch, places, width = h.shape
        parts = affine(layer["attend"], h).reshape(batch, places, 3, self.heads, width // self.heads)
        query, key, value = (jax.lax.index_in_dim(parts, i, 2, keepdims=False).swapaxes(1, 2) for i in range(3))
        past = jnp.tril(jnp.ones((places, places), bool))
        mixed = attention(query, key, value, past).swapaxes(1, 2).reshape(batch, places, width)
        return affine(layer["attended"], mixed)
