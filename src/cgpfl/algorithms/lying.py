"""What liars and bounds change about the uploads of a round, and what liars train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.attacks import Attack, Seen
from cgpfl.batch import Batch
from cgpfl.objectives import Classification
from cgpfl.rounds.order import median_of
from cgpfl.tree import Tree, norms, scale, where

REACH = 3.0
"""With a robust mean, the longest update, in median lengths of those who answered."""
LIES, FORGED = 0x11E5, 0xF04D
"""Folded into keys: for who lies, and for what liars draw."""


class Told(NamedTuple):
    """A message, and whether its client is a liar: where it must know."""

    message: Any
    lies: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Poisoned(ClientData):
    """A client's samples as it trains on them."""

    lies: Array
    attack: Attack
    task: Task

    def take(self, rows: Array, weight: Array) -> Batch:
        """The samples at ``rows``; a liar's poisoned."""
        batch = super().take(rows, weight)
        bad = self.attack.poison(batch, getattr(self.task.model, "classes", 2))
        return batch._replace(**{name: jnp.where(self.lies, getattr(bad, name), getattr(batch, name)) for name in "xy"})


def poisoned(data: ClientData, lies: Array, attack: Attack, task: Task) -> Poisoned:
    """A client's samples, if it is a liar, poisoned; an error where that cannot be done."""
    model: Any = task.model
    attack.fits(getattr(model, "objective", Classification()).task, getattr(model, "classes", 2))
    own = {name: getattr(data, name) for name in ("x", "y", "rows", "count", "scale", "shift")}
    return Poisoned(**own, lies=lies, attack=attack, task=task)


Pair = Callable[[Array, Any], tuple[list[Any], list[Any]]]
"""(client, its upload) → the leaves that are updates, and what they moved away from."""


def bounded(updates: list[Tree], cohort: Cohort) -> tuple[list[Tree], Cohort]:
    """Updates, leaves ``[C, ...]``, none longer than :data:`REACH` times the median.

    Who sent a number that is not finite did not answer, as on nodes, where it is refused.
    """
    length = norms(updates)
    here = jnp.isfinite(length)
    cohort = replace(cohort, weights=jnp.where(here, cohort.weights, 0))
    most = REACH * median_of(length, cohort.present)
    factors = jnp.where(here & (length > most), most / jnp.where(length > 0, length, 1.0), 1.0)
    return scale(where(here, updates, [jnp.zeros_like(u) for u in updates]), factors), cohort


def forged(attack: Attack, updates: list[Tree], cohort: Cohort, liars: Array, key: Array) -> tuple[list[Tree], Cohort]:
    """Updates and counts as liars send them; ``liars [N]``."""
    lies = liars[cohort.ids]
    seen = Seen(cohort.present * lies, cohort.present * ~lies)
    sent = attack.forge(updates, seen, jax.random.fold_in(key, FORGED))
    weights = jnp.where(lies, attack.claims(cohort.weights), cohort.weights)
    return where(lies, sent, updates), replace(cohort, weights=weights)
