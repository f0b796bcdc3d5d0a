"""Who is asked in a round.

A sampler draws from a key of the round, by client id and not by place: the same clients are asked whatever the order in
which an engine holds them, and whatever the engine.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.registry import Registry


class Known(NamedTuple):
    """What a sampler may know of the clients, each ``[N]``."""

    ids: Array
    samples: Array
    """m_i; zeros for a sampler that does not ask for them (``by_size``)."""
    losses: Array
    """f_i of the model that client i was sent last; infinite before it answered. Zeros without ``by_loss``."""


@algorithm
class Sampler:
    """A rule for who is asked. A subclass writes ``choose``."""

    name = ""
    by_size = False
    """Whether it looks at how many samples clients have."""
    by_loss = False
    """Whether it looks at losses; clients then send theirs with each upload."""

    def choose(self, key: Array, t: Array | int, known: Known, size: int) -> Array:
        """Positions ``[size]`` of different clients, fewer than all; ``key`` and ``t`` (from 0) are the round's."""
        raise TypeError(f"{type(self).__name__} defines no choose")

    def draw(self, key: Array, t: Array | int, known: Known, size: int) -> Array:
        """Positions ``[size]`` of those who are asked, in the order of their ids; all, as they are held."""
        if size == known.ids.shape[0]:
            return jnp.arange(size)
        chosen = self.choose(key, t, known, size)
        return chosen[jnp.argsort(known.ids[chosen])]


def uniforms(key: Array, ids: Array) -> Array:
    """A number in [0, 1) for each client, of its id and the key alone."""
    return jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(key, i)))(ids)


@algorithm
class Uniform(Sampler):
    """Everybody with the same chance."""

    name = "uniform"

    def choose(self, key: Array, t: Array | int, known: Known, size: int) -> Array:
        """Those with the smallest of uniform draws."""
        return jax.lax.top_k(-uniforms(key, known.ids), size)[1]


@algorithm
class BySize(Sampler):
    """Drawn one after the other without replacement, with chances in proportion to (number of samples)^power."""

    name = "by-size"
    by_size = True

    power: float = hyper(1.0, "of the number of samples: 0 = uniform, 1 = in proportion", low=0, high=10)

    def choose(self, key: Array, t: Array | int, known: Known, size: int) -> Array:
        """The largest of logarithms of the weights with Gumbel noise: such a draw."""
        noise = jax.vmap(lambda i: jax.random.gumbel(jax.random.fold_in(key, i)))(known.ids)
        return jax.lax.top_k(self.power * jnp.log(jnp.maximum(known.samples, 1).astype(jnp.float32)) + noise, size)[1]


@algorithm
class RoundRobin(Sampler):
    """Everybody in turn, in the order of ids."""

    name = "round-robin"

    def choose(self, key: Array, t: Array | int, known: Known, size: int) -> Array:
        """The ``size`` clients that follow those of the round before."""
        clients = known.ids.shape[0]
        order = jnp.argsort(known.ids)
        # t·size mod N without overflow, whatever the round
        first = (jnp.asarray(t, jnp.int32) % clients) * size % clients
        return order[(first + jnp.arange(size)) % clients]


@algorithm
class ByLoss(Sampler):
    """Power of choice (Cho, Wang, Joshi, AISTATS 2022): candidates at random, of them those with the largest losses."""

    name = "by-loss"
    by_loss = True

    candidates: float = hyper(2.0, "candidates for each place", low=1)

    def choose(self, key: Array, t: Array | int, known: Known, size: int) -> Array:
        """Those of the candidates with the largest losses; who never answered comes first."""
        draws = uniforms(key, known.ids)
        rank = jnp.argsort(jnp.argsort(draws))
        candidate = rank < jnp.maximum(jnp.round(self.candidates * size), size)
        # Of equals, as before the first answers, those that were drawn first.
        return jnp.lexsort((draws, -known.losses, ~candidate))[:size]


SAMPLERS = Registry(
    "sampler",
    {"uniform": Uniform(), "by-size": BySize(), "round-robin": RoundRobin(), "by-loss": ByLoss()},
    Sampler,
)
