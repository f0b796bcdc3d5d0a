"""What an attack is: who lies, what they send, what they say of themselves, and what they train on."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.registry import Registry
from cgpfl.tree import Tree


class Seen(NamedTuple):
    """What liars may know of a round, beside everybody's updates: 1.0 for each ``[C]``, else 0.0."""

    lies: Array
    """Liars who answered."""
    honest: Array
    """Honest clients who answered."""


@algorithm
class Attack:
    """Base of all attacks. A subclass overrides what it does; everything else stays honest.

    Updates are made by honest training and forged where all of them are, on the server's side of a simulation: that is
    how ALIE and inner-product manipulation know the honest ones. What poisons training (``poisons``) is done by the
    liars themselves.
    """

    name = ""
    active: ClassVar[bool] = True
    poisons: ClassVar[bool] = False
    """Whether liars train on other samples."""
    triggers: ClassVar[bool] = False
    """Whether there is a trigger, whose success is measured."""

    def check(self, clients: int) -> None:
        """Raise a one-line CgpflError where the settings do not fit so many clients."""

    def fits(self, task: str, classes: int) -> None:
        """Raise a one-line CgpflError where the attack does not fit what is learned."""

    def liars(self, clients: int, key: Array) -> Array:
        """Who lies, ``[N]`` bool."""
        return jnp.zeros(clients, bool)

    def forge(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        """What liars send instead of their updates; leaves ``[C, ...]``, of which only the liars' count."""
        return updates

    def claims(self, samples: Array) -> Array:
        """How many training samples ``[C]`` liars say they have."""
        return samples

    def poison(self, batch: Batch, classes: int) -> Batch:
        """The samples that liars train on."""
        return batch

    def triggered(self, batch: Batch) -> Batch:
        """Samples with the trigger and the answer that the attacker wants; weight 0 where it is the right one."""
        return batch


@algorithm
class Nobody(Attack):
    """Everybody is honest."""

    name = "none"
    active = False


@algorithm
class Lying(Attack):
    """Base of attacks by some clients."""

    share: float = hyper(0.2, "share of the clients that lie", low=0, high=1)
    number: int = hyper(0, "how many lie, whatever the share; 0 = the share of them", low=0)
    collude: bool = hyper(False, "all liars send the mean of what they would send")

    def check(self, clients: int) -> None:
        """Somebody must be honest: nobody else is measured."""
        if (self.number or np.round(np.float32(self.share) * clients)) >= clients:
            said = f"number = {self.number}" if self.number else f"share = {self.share:g}"
            raise CgpflError(f"attack = {self.name!r}: {said}: all {clients} clients lie; somebody must be honest")

    def liars(self, clients: int, key: Array) -> Array:
        """So many, drawn from the run's seed."""
        count = self.number or jnp.round(self.share * clients)
        return jnp.argsort(jnp.argsort(jax.random.uniform(key, (clients,)))) < count

    def forge(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        """Each liar's own lie, or one for all of them."""
        forged = self.lie(updates, seen, key)
        if not self.collude:
            return forged
        return jax.tree.map(lambda x: jnp.broadcast_to(average(x, seen.lies), x.shape), forged)

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        """What each would send by itself."""
        return updates


def average(x: Array, who: Array) -> Array:
    """Mean of ``x [C, ...]`` over some, 1.0 in ``who [C]``."""
    return jnp.tensordot(who / jnp.maximum(who.sum(), 1.0), x, axes=1)


ATTACKS = Registry("attack", {"none": Nobody()}, Attack)
