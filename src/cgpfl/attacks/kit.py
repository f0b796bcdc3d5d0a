"""Attacks on what is sent: updates and counts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtri

from cgpfl.attacks.base import ATTACKS, Lying, Seen, average
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, normals, norms, scale, size

DIRECTION = 0x11A2
"""Seed of the direction in which a forged context lies: the same in every round."""

MOST = 1e9
"""Samples that a liar says it has: the next power of two is no int32."""


@algorithm
class SignFlip(Lying):
    """The update, turned round and lengthened."""

    name = "sign-flip"

    factor: float = hyper(10.0, "how many times its length", above=0)

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        return jax.tree.map(lambda v: -self.factor * v, updates)


@algorithm
class Scaling(Lying):
    """The update, lengthened."""

    name = "scaling"

    factor: float = hyper(100.0, "how many times its length", above=0)

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        return jax.tree.map(lambda v: self.factor * v, updates)


@algorithm
class Noisy(Lying):
    """Normal noise instead of the update."""

    name = "noise"

    factor: float = hyper(100.0, "how many times the update's length it is long", above=0)

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        """As long as that, in a direction of chance."""
        each = size(updates) / norms(updates).shape[0]
        return scale(normals(updates, key), self.factor * norms(updates) / jnp.sqrt(each))


@algorithm
class ALIE(Lying):
    """A little is enough (Baruch, Baruch, Goldberg, NeurIPS 2019): inside the honest spread, all on one side of it.

    Every liar sends μ − z·σ of the honest updates, number by number.
    """

    name = "alie"

    z: float | str = hyper(
        "auto", 'how many deviations; "auto" = the most that half of all do not exceed', kind=float, words=("auto",)
    )

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        """The same for all."""
        n, m = seen.honest.sum() + seen.lies.sum(), seen.lies.sum()
        needed = jnp.floor(n / 2 + 1) - m
        share = jnp.clip((n - m - needed) / jnp.maximum(n - m, 1.0), 0.5, 0.999)
        z = ndtri(share) if isinstance(self.z, str) else self.z

        def leaf(v: Array) -> Array:
            mean = average(v, seen.honest)
            spread = jnp.sqrt(average(jnp.square(v - mean), seen.honest))
            return jnp.broadcast_to(mean - z * spread, v.shape)

        return jax.tree.map(leaf, updates)


@algorithm
class InnerProduct(Lying):
    """Inner-product manipulation (Xie, Koyejo, Gupta, UAI 2019): against the honest mean."""

    name = "inner-product"

    factor: float = hyper(4.0, "ε: how many times the honest mean's length", above=0)

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        """−ε μ, from all."""
        return jax.tree.map(lambda v: jnp.broadcast_to(-self.factor * average(v, seen.honest), v.shape), updates)


@algorithm
class ForgedContext(Lying):
    """All liars send one model, in one direction from what they were sent: a context that there is not."""

    name = "forged-context"

    factor: float = hyper(3.0, "how far away, in mean lengths of honest updates: below 1 near, above far", above=0)

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        """The same direction for all, in all rounds."""
        direction = normals(jax.tree.map(lambda v: v[0], updates), jax.random.key(DIRECTION))
        own = norms(jax.tree.map(lambda v: v[None], direction))[0]
        far = self.factor * average(norms(updates), seen.honest) / jnp.maximum(own, 1e-30)
        return jax.tree.map(lambda d, v: jnp.broadcast_to(far * d, v.shape), direction, updates)


@algorithm
class Counts(Lying):
    """Liars say that they have far more samples than they have, and send their update turned round."""

    name = "counts"

    factor: float = hyper(100.0, "how many times as many samples", above=0)
    update: float = hyper(-1.0, "what is sent, in own updates; 1 = an honest one")

    def claims(self, samples: Array) -> Array:
        said = jnp.clip(jnp.round(self.factor * samples), 1, MOST)  # 0: it did not answer
        return jnp.where(samples > 0, said.astype(samples.dtype), samples)

    def lie(self, updates: Tree, seen: Seen, key: Array) -> Tree:
        return jax.tree.map(lambda v: self.update * v, updates)


_KIT = (SignFlip, Scaling, Noisy, ALIE, InnerProduct, ForgedContext, Counts)
ATTACKS.ours.update({attack.name: attack() for attack in _KIT})
