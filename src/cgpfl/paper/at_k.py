"""CGPFL with K as a number: a sweep over K is one program."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.cgpfl import CGPFL, Server
from cgpfl.contexts import Points
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper


@algorithm
class CGPFLAtK(CGPFL):
    """CGPFL whose K may differ between the runs of one program; the server has room for N/2 contexts."""

    k: float = hyper(4.0, "K: number of contexts", low=1)

    def slots(self, clients: int) -> int:
        """Room for N/2 context models, whatever K."""
        return max(clients // 2, 1)

    def check(self, clients: int, answers: float, rounds: int) -> None:
        """K against the room there is."""
        if self.k > self.slots(clients):
            raise CgpflError(f"{self.name}: k = {self.k:g}: must be at most half the clients, {self.slots(clients)}")

    def _contexts(self, server: Server, points: Points, samples: Array) -> Server:
        return self._given(server, points, jnp.int32(self.k))
