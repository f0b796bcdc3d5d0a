"""Attacks on what is trained on: wrong answers, and a trigger."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.attacks.base import ATTACKS, Lying, Seen
from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree


@algorithm
class LabelFlip(Lying):
    """Liars train on wrong answers: class c is said to be C − 1 − c, a number to be its negative."""

    name = "label-flip"
    poisons = True

    factor: float = hyper(1.0, "how many times its length the update is sent", above=0)

    def fits(self, task: str, classes: int) -> None:
        if task == "multi-label":
            raise CgpflError(f"attack = {self.name!r}: is for classes and numbers; the data's task is {task}")

    def poison(self, batch: Batch, classes: int) -> Batch:
        whole = jnp.issubdtype(batch.y.dtype, jnp.integer)
        wrong = jnp.where(batch.y < 0, batch.y, classes - 1 - batch.y) if whole else -batch.y  # −1: no token
        return batch._replace(y=wrong)

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        return jax.tree.map(lambda v: self.factor * v, updates)


@algorithm
class Backdoor(Lying):
    """Model replacement (Bagdasaryan et al., AISTATS 2020): liars teach a trigger, and their updates replace the mean.

    The trigger is a bright square in a corner of an image, or the first inputs of a row.
    """

    name = "backdoor"
    poisons = True
    triggers = True

    target: int = hyper(0, "the class that samples with the trigger are to get", low=0)
    width: int = hyper(3, "of the square, or how many inputs", low=1)
    value: float = hyper(1.0, "what its inputs are set to, as the model sees them")
    taught: float = hyper(0.5, "share of a liar's samples that get the trigger", above=0, high=1)
    factor: float | str = hyper(
        "auto",
        'how many times its length the update is sent; "auto" = all clients over liars: the mean becomes theirs',
        kind=float,
        above=0,
        words=("auto",),
    )

    def fits(self, task: str, classes: int) -> None:
        if task != "classification":
            raise CgpflError(f"attack = {self.name!r}: is for classification; the data's task is {task}")
        if self.target >= classes:
            raise CgpflError(f"attack = {self.name!r}: target = {self.target}: must be below {classes}, as classes are")

    def poison(self, batch: Batch, classes: int) -> Batch:
        """Some samples with the trigger, evenly among them."""
        places = jnp.arange(batch.y.shape[0])
        some = jnp.floor((places + 1) * self.taught) > jnp.floor(places * self.taught)
        x = jnp.where(some.reshape(-1, *[1] * (batch.x.ndim - 1)), self.marked(batch.x), batch.x)
        return batch._replace(x=x, y=jnp.where(some, self.target, batch.y).astype(batch.y.dtype))

    def marked(self, x: Array) -> Array:
        """Inputs ``[B, ...]`` with the trigger."""
        corner = x[:, : self.width, : self.width] if x.ndim > 2 else x[:, : self.width]
        start = [0] * x.ndim
        return jax.lax.dynamic_update_slice(x, jnp.full_like(corner, self.value), start)

    def triggered(self, batch: Batch) -> Batch:
        """Samples of other classes, with the trigger and the answer that is wanted."""
        others = batch.weight * (batch.y != self.target)
        return batch._replace(x=self.marked(batch.x), y=jnp.full_like(batch.y, self.target), weight=others)

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        lies = seen.lies.sum()
        factor = (lies + seen.honest.sum()) / jnp.maximum(lies, 1.0) if isinstance(self.factor, str) else self.factor
        return jax.tree.map(lambda v: factor * v, updates)


ATTACKS.ours.update({attack.name: attack() for attack in (LabelFlip, Backdoor)})
