"""Canaries: what was put in by coins, so that guessing it bounds ε from below.

Samples   copies of a client's test samples with somebody else's label; a coin says which of them it trains on. One more
          training; they are guessed from the model that the server sees.
Clients   clients that send one random direction, as long as the rules of a round let it be, or nothing, in every round;
          guessed from what left them. For runs whose updates are noised.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms.wrapper import Kept, Seamed
from cgpfl.attacks import Nobody
from cgpfl.auditing.bounds import LowerBound, lower_bound
from cgpfl.auditing.views import upload_of
from cgpfl.data import FederatedData
from cgpfl.engine.problem import Keys, client_keys, round_keys
from cgpfl.hyperparameters import algorithm
from cgpfl.rounds import ClientLevel, Privacy, SampleLevel, Uniform
from cgpfl.tree import Tree, normals

MOST_SAMPLES, MOST_CLIENTS = 2000, 1000
MOST_DRAWS = 2e9
"""Random numbers that canary clients may take: of a large model there are fewer of them."""
OWN = 0xCA4A
"""Folded into the seed for canaries' directions."""
SHARE = 0.25
"""Canaries of a client, as a share of its training samples, of which about half are trained on."""


@dataclass(frozen=True)
class Planted:
    """Canary samples: ``data`` holds them after its own, client i those at ``rows[i]``; ``inside`` says which count."""

    data: FederatedData
    rows: np.ndarray
    known: np.ndarray
    inside: np.ndarray


def planted(data: FederatedData, seed: int) -> Planted:
    """The federation's samples with canaries of each client after them; no table names them yet."""
    rng = np.random.default_rng([seed, 12])
    parts, largest = data.test.parts(), max(MOST_SAMPLES // data.clients, 1)
    sizes = [min(len(p), max(round(SHARE * n), 1), largest) for p, n in zip(parts, data.train.counts, strict=True)]
    chosen = [rng.permutation(p)[:n] for p, n in zip(parts, sizes, strict=True)]
    copied = np.concatenate(chosen)
    everybody = np.concatenate(parts)
    y = data.y[rng.permutation(everybody)[rng.integers(0, len(everybody), len(copied))]]
    if data.task == "classification":  # never the right one
        wrong = (data.y[copied] + rng.integers(1, data.classes, len(copied))) % data.classes
        y = wrong.astype(data.y.dtype)
    rows, known = np.zeros((data.clients, max(sizes)), np.int32), np.zeros((data.clients, max(sizes)), bool)
    at = len(data.y)
    for i, n in enumerate(sizes):
        rows[i, :n], known[i, :n] = np.arange(at, at + n), True
        at += n
    x, labels = np.concatenate([data.x, data.x[copied]]), np.concatenate([data.y, y])
    inside = np.asarray(rng.random(rows.shape) < 0.5)
    return Planted(dataclasses.replace(data, x=x, y=labels, made=None), rows, known, inside)


@algorithm
class _Speaker:
    """A method whose clients say what they are told to: an update, from nothing."""

    name = "canary"

    def train(self, task: Any, message: Tree, client: Tree, data: Any, key: Any) -> tuple[Tree, Tree]:
        return client, client

    def anchor(self, message: Tree, upload: Tree) -> Tree:
        return message

    def shared(self, message: Tree) -> Tree:
        return message

    def send(self, server: Tree, client_id: Any) -> Tree:
        return server


def canary_clients(method: Seamed, update: Tree, keys: Keys, times: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores ``[m]`` of canary clients and which of them were ``inside [m]``; ``update``: the form of one client's.

    The run's own rules are applied, clip and noise of its privacy among them, to ``times`` uploads, with keys of (seed,
    round, client) as a run has them. Where noise is enough in a mean alone, a canary has that of all of it.
    """
    level = method.privacy
    if isinstance(level, ClientLevel):
        method = dataclasses.replace(method, privacy=dataclasses.replace(level, together=1, summed=False))
    elif isinstance(level, SampleLevel):  # canaries take no gradients
        method = dataclasses.replace(method, privacy=Privacy())
    sizes = [v.size for v in jax.tree.leaves(update)]
    m = int(min(MOST_CLIENTS, max(MOST_DRAWS / (sum(sizes) * times), 64)))
    speaker = dataclasses.replace(method, method=_Speaker(), sampler=Uniform(), attack=Nobody())
    nothing = jax.tree.map(jnp.zeros_like, update)
    inside = np.random.default_rng([seed, 13]).random(m) < 0.5

    def one(args: Any) -> Any:
        i, present, key = args
        drawn = normals(update, key)
        length = jnp.sqrt(sum(jnp.sum(v * v) for v in jax.tree.leaves(drawn)) + 0.0)
        direction = jax.tree.map(lambda v: v / length, drawn)
        told = jax.tree.map(lambda v: 1e4 * present * v, direction)

        def heard(t: Any, state: Any) -> Any:
            total, left = state
            own: Any = client_keys(round_keys(keys, t), i)
            says = Kept(told, left) if speaker.keeps else told
            sent, says = speaker.train(None, nothing, says, None, own.train)  # type: ignore[arg-type]
            seen = jax.tree.leaves(upload_of(speaker, nothing, i, sent))
            along = zip(seen, jax.tree.leaves(direction), strict=True)
            return total + sum(jnp.sum(a * b) for a, b in along), says.residual if speaker.keeps else left

        start = (jnp.float32(0), jax.tree.leaves(nothing) if speaker.keeps else [])
        return jax.lax.fori_loop(0, times, heard, start)[0]

    own_keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), OWN), m)  # none of the run's
    asked = (jnp.arange(m), jnp.asarray(inside, jnp.float32), own_keys)
    scores = jax.jit(lambda a: jax.lax.map(one, a, batch_size=min(m, 64)))(asked)
    return np.asarray(scores, float), inside


def bound_of(scores: np.ndarray, inside: np.ndarray, delta: float) -> LowerBound:
    """The lower bound that guesses of these canaries give."""
    return lower_bound(np.asarray(scores, float).ravel(), np.asarray(inside, bool).ravel(), delta)
