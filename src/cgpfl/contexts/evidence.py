"""What a server learns about its clients in the warm-up: their updates, fold by fold.

In the warm-up every client starts from the same model and trains, answer by answer, on each of F folds of its own
samples alone, then on all samples but each fold, then again from the first: 2F parts in turn. What repeats over folds
is the client's own; what does not is the noise of its samples. The server adds up, for each client and part, how far
the client's update is from the mean of its round, and for each part what the rounds have in common:

    sums[f, i]  = Σ (Δ_i − Δ̄),    common[f] = Σ Δ̄

Evidence about very many clients, or with very large models, is sketched: coordinates are divided by their spread in the
first round, multiplied by random signs and added up in p buckets. Inner products stay the same on average, and
memory is bounded by :data:`EXACT` numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.tree import Tree

EXACT = 1 << 26
"""Numbers of evidence up to which it is kept as it is."""
FLOOR = 0.03
"""Of the mean variance of a coordinate, added to each one's own before it is divided by."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Evidence:
    """Updates of N clients on P parts of their samples, as p numbers each."""

    sums: Array  # [P, N, p]
    counts: Array  # [P, N] answers behind each sum
    common: Array  # [P, p]
    rounds: Array  # [P] answers behind common
    spread: Array  # [d] standard deviation of each coordinate in the first round; [0] where nothing is sketched
    signs: Array  # [2] uint32: seed of the random signs

    @property
    def answers(self) -> Array:
        """How often each client has answered, ``[N]``."""
        return self.counts.sum(axis=0)

    def means(self) -> Array:
        """Updates ``[P, N, p]``, common part included."""
        own = self.sums / jnp.maximum(self.counts, 1.0)[..., None]
        shared = self.common / jnp.maximum(self.rounds, 1.0)[:, None]
        return own + shared[:, None, :]


def width(parts: int, clients: int, dimension: int) -> int:
    """p: all coordinates, or as many buckets as fit."""
    if parts * clients * dimension <= EXACT:
        return dimension
    fit = max(EXACT // (parts * clients), 64)
    return min(dimension, 1 << (min(fit, 1024).bit_length() - 1))


def no_evidence(parts: int, clients: int, dimension: int, key: Array) -> Evidence:
    """Before the first round."""
    p = width(parts, clients, dimension)
    return Evidence(
        sums=jnp.zeros((parts, clients, p)),
        counts=jnp.zeros((parts, clients)),
        common=jnp.zeros((parts, p)),
        rounds=jnp.zeros(parts),
        spread=jnp.zeros(dimension if p < dimension else 0),
        signs=jax.random.bits(key, (2,), jnp.uint32),
    )


def add(
    evidence: Evidence, updates: Tree, ids: Array, present: Array, labels: Array, centres: Array, warm: Array
) -> Evidence:
    """The evidence with the updates of a round, leaves ``[C, ...]``, of the clients ``ids [C]`` that were ``present``.

    An update is taken against the mean of its context, ``labels [C]``; ``centres [K, p]`` is where the contexts
    themselves are (zero in the warm-up, when there is one), so that later rounds say again where a client belongs.
    What the rounds have in common is noted while ``warm``.
    """
    flat = jnp.concatenate([u.reshape(u.shape[0], -1) for u in jax.tree.leaves(updates)], axis=1).astype(jnp.float32)
    flat = jnp.where(present[:, None] > 0, flat, 0.0)
    members = jax.nn.one_hot(labels, centres.shape[0]) * present[:, None]
    means = (members / jnp.maximum(members.sum(axis=0), 1.0)).T @ flat
    apart = jnp.where(present[:, None] > 0, flat - means[labels], 0.0)
    mean = present @ flat / jnp.maximum(present.sum(), 1.0)
    if evidence.spread.size:
        seen = jnp.sqrt(present @ jnp.square(apart) / jnp.maximum(present.sum(), 1.0))
        evidence = replace(evidence, spread=jnp.where(evidence.spread.any(), evidence.spread, seen))
        apart, mean = sketched(evidence, apart), sketched(evidence, mean[None])[0]
    part = evidence.answers[ids].astype(jnp.int32) % evidence.sums.shape[0]
    shared = present * warm
    return replace(
        evidence,
        sums=evidence.sums.at[part, ids].add(apart + present[:, None] * centres[labels]),
        counts=evidence.counts.at[part, ids].add(present),
        common=evidence.common.at[part].add(shared[:, None] * mean),
        rounds=evidence.rounds.at[part].add(shared),
    )


def sketched(evidence: Evidence, rows: Array) -> Array:
    """Rows ``[n, d]`` as ``[n, p]``: scaled by the spread, with random signs, in p buckets."""
    n, d = rows.shape
    p = evidence.sums.shape[-1]
    variance = jnp.square(evidence.spread)
    known = variance.any()  # not yet while rounds had one answer each: there is nothing to compare then
    scale = jnp.where(known, 1.0 / jnp.sqrt(variance + FLOOR * variance.mean() + 1e-30), 0.0)
    bits = hashed(jnp.arange(d, dtype=jnp.uint32), evidence.signs[0])
    signs = jnp.where(bits & 1, 1.0, -1.0)
    return jnp.pad(rows * (scale * signs), ((0, 0), (0, -d % p))).reshape(n, -1, p).sum(axis=1)


def hashed(numbers: Array, seed: Array) -> Array:
    """Well-mixed 32 bits of each number (the finaliser of MurmurHash3), the same on every machine."""
    h = numbers.astype(jnp.uint32) * jnp.uint32(0x9E3779B9) ^ seed
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h ^ (h >> 16)
