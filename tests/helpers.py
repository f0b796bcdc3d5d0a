"""Small problems whose answers can be worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from cgpfl.data import FederatedData
from cgpfl.models import Model


@dataclass(frozen=True)
class Quadratic(Model):
    """f_i(w) = (curvature/2) · mean over the client's points x of ‖w − x‖²; w starts at ``start``."""

    curvature: float = 1.0
    start: float = 0.0

    def init(self, key):
        return {"w": jnp.full(self.shape, self.start, jnp.float32)}

    def loss(self, params, batch):
        each = 0.5 * self.curvature * jnp.sum((params["w"] - batch.x) ** 2, axis=tuple(range(1, batch.x.ndim)))
        return jnp.sum(each * batch.weight) / jnp.sum(batch.weight)

    def score(self, params, batch):
        each = 0.5 * self.curvature * jnp.sum((params["w"] - batch.x) ** 2, axis=tuple(range(1, batch.x.ndim)))
        return jnp.float32(0), jnp.sum(each * batch.weight)


def points(centres, samples=2) -> FederatedData:
    """One client a row of ``centres [N, d]``, all its samples at that point: f_i is a known parabola."""
    centres = np.asarray(centres, np.float32)
    pairs = [(np.repeat(c[None], samples, 0), np.zeros(samples, int)) for c in centres]
    return FederatedData.from_clients(pairs, test=pairs)


def quadratic(data: FederatedData, **settings) -> Quadratic:
    return Quadratic(data.shape, data.classes, **settings)
