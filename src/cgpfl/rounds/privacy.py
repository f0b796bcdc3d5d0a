"""What is done to a client's uploads, or its gradients, so that they tell little: clipped, and noise added.

The noise is a multiple of the clip, so nothing else has to be known to count its ε (:mod:`cgpfl.rounds.account`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.rounds.account import Steps, of_steps, of_uploads
from cgpfl.rounds.outgoing import Clip, Noise
from cgpfl.tree import Tree, all_finite

ALIKE = 1 << 20
"""The weight of everybody, where counts are not told."""


@algorithm
class Privacy:
    """None: uploads leave as they are."""

    name = "none"

    def spent(self, method: Any, samples: Sequence[int]) -> dict[str, Any] | None:
        """What a run of ``method`` cost, on clients with ``samples [N]``; None: there is no bound."""
        return None


@algorithm
class ClientLevel(Privacy):
    """An upload hardly tells whether it is the client's, or of nothing: all of it is clipped together, and noised.

    ``times``: uploads of a client, at most. ``together``: how many clients' noises must add up; 1: each one's alone is
    enough, against the server, too. ``summed``: none of them adds any, the server does, to sums; and where clients are
    placed in contexts, ``placing`` is the noise of all sums that this takes.
    """

    name = "client"

    clip: float = hyper(1.0, "largest norm of an upload, all its parts together", above=0)
    noise: float = hyper(1.0, "standard deviation of the noise, as a multiple of the clip", low=0)
    delta: float = hyper(1e-5, "δ", above=0, high=1)
    times: int = hyper(1, "uploads of a client, at most", low=1)
    together: int = hyper(1, "clients whose noise adds up", low=1)
    summed: bool = hyper(False, "whether the server adds the noise, to sums")
    placing: float = hyper(0.0, "noise of placing clients in contexts, as a multiple of their part; 0 = none", low=0)

    def change(self, update: Tree, key: Array) -> Tree:
        """As it leaves: z·C in all, of which each client adds its part. One that is not finite leaves as nothing."""
        finite = all_finite(update)
        update = jax.tree.map(lambda v: jnp.where(finite, v, jnp.zeros_like(v)), update)
        clipped = Clip(norm=self.clip).change(update, key)
        if self.summed:
            return clipped
        scale = self.noise * self.clip / math.sqrt(self.together)
        return Noise(scale=scale).change(clipped, key)

    def spent(self, method: Any, samples: Sequence[int]) -> dict[str, Any]:
        """ε of all uploads, and of those of a warm-up, by which contexts are found, or of placing clients by sums."""
        times = self.times if sends(method) else 0
        warm = min(int(getattr(method, "warmup", 0)), times)
        noise, delta = float(self.noise), float(self.delta)
        parts = {"warm-up (evidence of contexts)": warm, "later rounds" if warm else "uploads": times - warm}
        counted = {name: of_uploads(noise, delta, part) for name, part in parts.items() if part}
        whole, placing = uploads_of(times, noise, float(self.placing)), {}
        if self.summed:  # what rounds' sums tell, and what placing does
            counted = {"sums of updates": of_uploads(noise, delta, times)}
        if self.placing:
            placing = {"placing": float(self.placing)}
            counted |= {"placing in contexts": of_uploads(float(self.placing), delta, 1)}
        return {
            "level": self.name,
            "against": "who sees models" if self.summed or self.together > 1 else "the server",
            "epsilon": of_uploads(1.0, delta, whole) if placing else of_uploads(noise, delta, times),
            "epsilon_replaced": of_uploads(0.5, delta, whole) if placing else of_uploads(noise / 2, delta, times),
            "delta": delta,
            "clip": float(self.clip),
            "noise": noise,
            "uploads": times,
            "together": self.together,
            "parts": counted,
            **placing,
        }


@algorithm
class SampleLevel(Privacy):
    """An upload hardly tells whether a sample was there: each sample's gradient is clipped, their sum noised.

    A client with at least ``counts[j]`` samples, and fewer than the next, has ``noises[j]``. ``steps`` are those that
    uploads are made of; none: nothing leaves.
    """

    name = "sample"

    clip: float = hyper(1.0, "largest norm of a sample's gradient", above=0)
    delta: float = hyper(1e-5, "δ", above=0, high=1)
    counts: tuple[int, ...] = dataclasses.field(default=(1,))
    noises: tuple[float, ...] = dataclasses.field(default=(1.0,), metadata={"child": True})
    steps: tuple[Steps, ...] = dataclasses.field(default=())

    @property
    def times(self) -> int:
        """Uploads of a client, at most."""
        return sum(part.rounds for part in self.steps)

    def noise(self, samples: Array) -> Array:
        """That of a client with so many samples, as a multiple of the clip."""
        at = jnp.searchsorted(jnp.asarray(self.counts), samples, side="right") - 1
        return jnp.asarray(self.noises, jnp.float32)[jnp.maximum(at, 0)]

    def spent(self, method: Any, samples: Sequence[int]) -> dict[str, Any]:
        """ε of every client, the largest, and that of each part of the run alone for the client that it is for."""
        delta = float(self.delta)
        noises = [0.0] * len(samples)
        if self.steps:
            noises = np.asarray(self.noise(jnp.asarray(samples)), float).tolist()
        each = [
            of_steps(z, delta, self.steps, int(n)) if self.steps else 0.0 for z, n in zip(noises, samples, strict=True)
        ]
        worst = max(range(len(each)), key=lambda i: each[i])
        warm = any(part.folds > 1 for part in self.steps)
        names = ["warm-up (evidence of contexts)", "later rounds"] if warm else ["gradients"]
        parts = {
            name: of_steps(noises[worst], delta, (part,), int(samples[worst]))
            for name, part in zip(names, self.steps, strict=False)
            if part.rounds
        }
        return {
            "level": self.name,
            "against": "the server",
            "epsilon": each[worst],
            "delta": delta,
            "clip": float(self.clip),
            "noise": max(noises, default=0.0),
            "parts": parts,
            "clients": [round(e, 4) for e in each],
        }


def uploads_of(times: int, noise: float, placing: float = 0.0) -> float:
    """As how many uploads with noise 1 these count, and the placing beside them."""
    return times / noise**2 + (1.0 / placing**2 if placing else 0.0)


def sends(method: Any) -> bool:
    """Whether anything leaves its clients: of a method with noisy steps that are none nothing does."""
    return getattr(method, "noisy_steps", lambda rounds: None)(1) != ()


def clipped_sum(gradients: Tree, weight: Array, clip: Array | float) -> Tree:
    """Σ weight · g over samples, leaves ``[B, ...]``, each g shortened to ``clip`` over all its leaves.

    Of a sample whose gradient is not finite nothing counts.
    """
    good = [jnp.isfinite(g).all(axis=tuple(range(1, g.ndim))) for g in jax.tree.leaves(gradients)]
    weight = weight * jnp.stack(good).all(axis=0)
    gradients = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), gradients)
    leaves = jax.tree.leaves(gradients)
    squares = [jnp.sum(jnp.square(g.astype(jnp.float32)), axis=tuple(range(1, g.ndim))) for g in leaves]
    length = jnp.sqrt(sum(squares[1:], start=squares[0]))
    factor = weight * jnp.where(length > clip, clip / jnp.maximum(length, 1e-30), 1.0)
    return jax.tree.map(lambda g: jnp.tensordot(factor, g, axes=1).astype(g.dtype), gradients)


def described(spent: dict[str, Any]) -> str:
    """What was spent, in a line."""
    parts = ", ".join(f"{name} {value:.3g}" for name, value in spent["parts"].items())
    line = f"privacy of {spent['level']}s against {spent['against']}: "
    line += f"ε = {spent['epsilon']:.3g} at δ = {spent['delta']:.2g}"
    if not spent["parts"]:
        return f"{line}: nothing leaves"
    worst = " of the most exposed client" if spent["level"] == "sample" else ""
    return f"{line}{worst} (alone: {parts}); clip {spent['clip']:g}, noise {spent['noise']:.3g} × clip"


def of_all(spent: Sequence[dict[str, Any]]) -> str:
    """What several methods cost the same clients, in a line."""
    delta, level = max(s["delta"] for s in spent), spent[0]["level"]
    if level == ClientLevel.name:  # all are Gaussian mechanisms, and so are they together
        whole = sum(uploads_of(s["uploads"], s["noise"], s.get("placing", 0.0)) for s in spent)
        epsilon = of_uploads(1.0, delta, whole)
    else:
        epsilon, delta = sum(s["epsilon"] for s in spent), sum(s["delta"] for s in spent)
    line = f"privacy of {level}s: the same clients answered {len(spent)} methods, which cost them"
    return f"{line} ε = {epsilon:.3g} at δ = {delta:.2g} together"
