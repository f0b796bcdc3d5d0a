"""Means that some liars cannot move far, for any method that averages, and for the means of contexts.

All are taken over those who answered and, in a context, over its members: weight 0 is nobody, and so is an upload with
a number that is not finite. They work on what uploads moved away from the fallback, which is the last mean and so what
clients were sent. Groups are masks: no rule is computed once a group where once for all will do.

Weights are the method's (samples, or everybody alike), none above ``cap`` times the median one: how many samples a
client has is what it says.

    rule                what weights do in it
    median              the weighted median of each number: half of the weight on either side
    trimmed             of each number, ``share`` of the weight is cut off at either end
    geometric-median    argmin_z Σ w_i ‖x_i − z‖
    krum                nothing: one upload is taken as it is
    multi-krum          the mean of those chosen is weighted
    centred-clipping    each clipped step counts by its weight
    auto                the weighted mean, with those beyond the bound at less weight or none; who is beyond it, is
                        found without weights
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.rounds.means import MEANS, Mean
from cgpfl.rounds.order import (
    by_network,
    capped,
    median_of,
    searched_medians,
    searched_trimmed,
    sorted_medians,
    sorted_trimmed,
)
from cgpfl.tree import Tree, gram, mix, norms, size, take, where

FARTHEST = 1e18
"""Length of an update, from which on squared distances are not finite in float32."""
JOINED = 2**25
"""Numbers of all clients' updates, up to which coordinate-wise rules have them in one array."""
PIECE = 2**13
"""Numbers of the model in one pass of their kernel."""


@algorithm
class Robust(Mean):
    """Base of the rules here. A subclass writes ``moves``, or ``shares`` (see :class:`Combined`)."""

    robust = True

    cap: float = hyper(1.0, "largest weight of a client, in medians of those who answered", low=1)

    def mean(self, stacked: Tree, weights: Array, fallback: Tree) -> Tree:
        """Of one group: everybody."""
        one = jax.tree.map(lambda v: v[None], fallback)
        labels = jnp.zeros(weights.shape[0], jnp.int32)
        return jax.tree.map(lambda v: v[0], self.group_means(stacked, labels, weights, one))

    def moves(self, updates: Tree, labels: Array, members: Array) -> Tree:
        """How far each group moves ``[K, ...]``, from ``updates [C, ...]`` and its members' weights ``[K, C]``."""
        raise TypeError(f"{type(self).__name__} defines no moves")

    def group_means(self, stacked: Tree, labels: Array, weights: Array, fallback: Tree) -> Tree:
        """Of each group: its fallback, moved."""
        updates, weights = self.moved(stacked, labels, weights, fallback)
        members = members_of(labels, weights, fallback)
        steps = self.moves(updates, labels, members)
        moved = jax.tree.map(lambda f, step: f + step.astype(f.dtype), fallback, steps)
        return where(members.sum(axis=1) > 0, moved, fallback)

    def moved(self, stacked: Tree, labels: Array, weights: Array, fallback: Tree) -> tuple[Tree, Array]:
        """What uploads moved away from their group's fallback, and their weights ``[C]``, capped.

        Both are 0 for who did not answer, or sent a number that is not finite or has no square.
        """
        updates = jax.tree.map(lambda x, f: x - f, stacked, take(fallback, labels))
        here = (weights > 0) & (norms(updates) < FARTHEST)
        nothing = jax.tree.map(jnp.zeros_like, updates)
        return where(here, updates, nothing), capped(jnp.where(here, weights, 0.0), self.cap)


def members_of(labels: Array, weights: Array, fallback: Tree) -> Array:
    """Weights ``[K, C]`` of each group's members."""
    return (jax.nn.one_hot(labels, jax.tree.leaves(fallback)[0].shape[0]) * weights[:, None]).T


def each_number(
    network: Callable[..., Array],
    search: Callable[..., Array],
    updates: Tree,
    labels: Array,
    members: Array,
    *settings: Any,
) -> Tree:
    """A rule for single numbers, of the leaves ``[C, ...]`` of updates → ``[K, ...]``, by a network or by a search.

    A network is a long kernel, so there is one for all leaves and groups, in a loop over pieces of the model and over
    groups: XLA would make what is in no loop anew for every leaf that a part of it goes to. Of large models each leaf
    is searched by itself: joined they would take their memory once more.
    """
    leaves, form = jax.tree.flatten(updates)
    groups, count = members.shape
    flat = [v.reshape(count, -1) for v in leaves]
    if by_network(count, groups) and 0 < size(updates) <= JOINED:
        sizes = [v.shape[1] for v in flat]
        pieces = max(2, -(-sum(sizes) // PIECE))
        width = -(-sum(sizes) // pieces)
        rest = jnp.zeros((count, pieces * width - sum(sizes)))
        joined = jnp.concatenate([*(v.astype(jnp.float32) for v in flat), rest], axis=1)

        def piece(place: Array) -> Array:
            own = jax.lax.dynamic_slice_in_dim(joined, place // groups * width, width, 1)
            return network(own, members[place % groups], *settings)

        found = jax.lax.map(piece, jnp.arange(pieces * groups)).reshape(pieces, groups, width)
        found = jnp.moveaxis(found, 0, 1).reshape(groups, -1)
        parts = jnp.split(found, list(accumulate(sizes)), axis=1)[: len(sizes)]
    else:
        parts = [search(v, labels, members, *settings) for v in flat]
    shaped = [p.reshape(groups, *v.shape[1:]) for p, v in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(form, shaped)


@algorithm
class Median(Robust):
    """The median of each number (Yin et al., ICML 2018)."""

    name = "median"

    def moves(self, updates: Tree, labels: Array, members: Array) -> Tree:
        """The mean of the lower and the upper weighted median."""
        return each_number(sorted_medians, searched_medians, updates, labels, members)


@algorithm
class TrimmedMean(Robust):
    """The mean of each number without the smallest and the largest (Yin et al., ICML 2018)."""

    name = "trimmed"

    share: float = hyper(0.2, "of the weight, cut off at either end", low=0, high=0.49)

    def moves(self, updates: Tree, labels: Array, members: Array) -> Tree:
        """The mean of the rest."""
        return each_number(sorted_trimmed, searched_trimmed, updates, labels, members, self.share)


@algorithm
class Combined(Robust):
    """Base of rules whose result is Σ a_i x_i: they need inner products of the updates alone. Write ``shares``."""

    def shares(self, products: Array, weights: Array) -> Array:
        """Each one's share ``[C]``, from the updates' inner products ``[C, C]`` and a group's weights ``[C]``."""
        raise TypeError(f"{type(self).__name__} defines no shares")

    def moves(self, updates: Tree, labels: Array, members: Array) -> Tree:
        """From one matrix of inner products."""
        products = gram(updates)
        return mix(updates, jax.vmap(lambda own: self.shares(products, own))(members).T)


def distances(products: Array, shares: Array) -> Array:
    """‖x_i − Σ a_j x_j‖ ``[C]``."""
    seen = products @ shares
    return jnp.sqrt(jnp.maximum(jnp.diagonal(products) - 2 * seen + shares @ seen, 0.0))


def pairwise(products: Array) -> Array:
    """Squared distances ``[C, C]``."""
    squares = jnp.diagonal(products)
    return jnp.maximum(squares[:, None] + squares - 2 * products, 0.0)


def normalised(weights: Array) -> Array:
    """Shares that sum to one; all zero where nobody has a weight."""
    total = weights.sum()
    return weights / jnp.where(total > 0, total, 1.0)


def weiszfeld(products: Array, weights: Array, steps: int) -> Array:
    """Shares of the geometric median.

    The start is the mean by 1 / (a client's median distance to the others): already one that nobody can move far.
    """
    weights = normalised(weights)  # where uploads are the same they are divided by nearly nothing
    far = jax.vmap(lambda row: median_of(row, weights))(jnp.sqrt(pairwise(products)))
    least = 1e-4 * median_of(far, weights) + 1e-30

    def step(_: Any, shares: Array) -> Array:
        return normalised(weights / jnp.maximum(distances(products, shares), least))

    return jax.lax.fori_loop(0, steps, step, normalised(weights / jnp.maximum(far, least)))


@algorithm
class GeometricMedian(Combined):
    """The point with the smallest sum of distances (RFA: Pillutla et al., IEEE TSP 2022), by Weiszfeld's iteration."""

    name = "geometric-median"

    steps: int = hyper(32, "iterations", low=1)

    def shares(self, products: Array, weights: Array) -> Array:
        """By inverse distances, again and again."""
        return weiszfeld(products, weights, self.steps)


def krum_scores(products: Array, weights: Array, share: Array | float) -> tuple[Array, Array]:
    """Of each client the sum of squared distances to its n − f − 2 nearest, ∞ of who is not there; and n − f.

    f is ``share`` of the n clients there, rounded down.
    """
    here = weights > 0
    n = here.sum()
    f = jnp.floor(share * n + 1e-4).astype(jnp.int32)
    others = here[:, None] & here & ~jnp.eye(len(weights), dtype=bool)
    near = jnp.sort(jnp.where(others, pairwise(products), jnp.inf), axis=1)
    used = jnp.arange(len(weights)) < jnp.clip(n - f - 2, 1, jnp.maximum(n - 1, 1))
    scores = jnp.where(used & jnp.isfinite(near), near, 0.0).sum(axis=1)
    return jnp.where(here, scores, jnp.inf), jnp.maximum(n - f, 1)


@algorithm
class Krum(Combined):
    """The one upload that is nearest to its nearest others (Blanchard et al., NeurIPS 2017)."""

    name = "krum"

    share: float = hyper(0.2, "share of liars that it is to stand: f/n", low=0, high=0.49)

    def shares(self, products: Array, weights: Array) -> Array:
        """All to one."""
        scores, _ = krum_scores(products, weights, self.share)
        return jax.nn.one_hot(jnp.argmin(scores), len(weights)) * (weights.sum() > 0)


@algorithm
class MultiKrum(Krum):
    """The mean of the n − f uploads with the best of Krum's scores (Blanchard et al., NeurIPS 2017)."""

    name = "multi-krum"

    def shares(self, products: Array, weights: Array) -> Array:
        """The weights of those chosen."""
        scores, kept = krum_scores(products, weights, self.share)
        rank = jnp.argsort(jnp.argsort(scores))
        return normalised(jnp.where(rank < kept, weights, 0.0))


@algorithm
class CentredClipping(Combined):
    """Steps from the last mean, none longer than a radius (Karimireddy, He, Jaggi, ICML 2021)."""

    name = "centred-clipping"

    radius: float | str = hyper(
        "auto", 'τ: longest step; "auto" = the median one', kind=float, above=0, words=("auto",)
    )
    steps: int = hyper(3, "iterations", low=1)

    def shares(self, products: Array, weights: Array) -> Array:
        """V ← v + Σ w_i (x_i − v) min(1, τ/‖x_i − v‖), from the fallback."""
        own = normalised(weights)

        def step(_: Any, shares: Array) -> Array:
            far = distances(products, shares)
            radius = median_of(far, weights) if isinstance(self.radius, str) else self.radius
            pull = own * jnp.minimum(1.0, radius / jnp.maximum(far, 1e-30))
            return shares * (1.0 - pull.sum()) + pull

        return jax.lax.fori_loop(0, self.steps, step, jnp.zeros_like(own))


SAME = 0.1
"""Of the median distance between uploads: two that are nearer are one upload, sent twice."""


def copies(products: Array, weights: Array) -> Array:
    """How often each upload was sent, ``[C]``: by liars who collude, mostly."""
    apart = jnp.sqrt(pairwise(products))
    usual = median_of(jax.vmap(lambda row: median_of(row, weights))(apart), weights)
    return jnp.maximum(((apart < SAME * usual) * (weights > 0)).sum(axis=1), 1.0)


FURTHER = 0.3
"""Beyond ``against``, in agreements of the median client: where a client does not count at all."""
CLEAR = 3.0
"""Standard errors: how much the median agreement of a round must be for it to tell anything."""


@algorithm
class AutoMean(Combined):
    """The weighted mean of those who are not far from everybody else: the bound is the cohort's own.

    Two numbers of each upload are compared with the cohort's: its distance from the geometric median, and how far it
    goes in the direction of that. u is how many spreads (1.4826 MAD, and a tenth of the median distance for the one, a
    hundredth for the other) the worse of both is beyond the median. Up to ``bound`` an upload counts in full, from
    twice that not at all (Hampel's estimator). Then once more, around the mean that was found. Uploads that are the
    same count once: honest clients never send the same.

    Who sends minus its own update is no farther away than others, in any one round. So it remembers two agreements of
    each client over the rounds in which all were sent the same model, and for them: with those it resembles or opposes
    the most (the mean of cos³), and with the centre of the others who are trusted. Both in units of the median
    client's.
    """

    name = "auto"
    remembers = True

    bound: float = hyper(3.0, "spreads from the cohort's median up to which an upload counts in full", low=1)
    against: float = hyper(
        0.1, "how far against the others, in agreements of the median client, one may be over the rounds", low=0
    )

    def begin(self, clients: int) -> Array:
        """Sums ``[2, 2, N]``: of either agreement a client's own and the median one, over its rounds."""
        return jnp.zeros((2, 2, clients))

    def learned(self, known: Array, updates: Tree, same: Array, ids: Array, present: Array) -> tuple[Array, Mean]:
        """The sums with a round's evidence, and the rule that knows whom they speak against."""
        length = norms(updates)
        here = (present > 0) & (length < FARTHEST)
        updates = where(here, updates, jax.tree.map(jnp.zeros_like, updates))
        length = jnp.where(here & (length > 0), length, 1.0)
        products, present = gram(updates), here.astype(jnp.float32)
        own, voices = jnp.diagonal(products), present / copies(products, present)
        cosines = products / length[:, None] / length * (1.0 - jnp.eye(len(ids)))

        also = self.standing(known[1], ids)
        counted = voices * self.standing(known[0], ids) * also  # who is known to be against the others, has no vote
        fellows = noted(known[0], cosines**3 @ counted, counted, ids, here & same)
        ahead, trust = known[1], self.standing(fellows, ids)
        for _ in range(2):  # the centre of those who are trusted, and who is trusted by it
            centre = self.among(products, present, trust * also)
            along = (products @ centre - centre * own) / jnp.maximum(1.0 - centre, 1e-6) / length
            counted = voices * trust * also
            ahead = noted(known[1], along / jnp.maximum(median_of(length, present), 1e-30), counted, ids, here & same)
            also = self.standing(ahead, ids)
        rule = Knowing(cap=self.cap, bound=self.bound, against=self.against, trust=jnp.where(same, trust * also, 1.0))
        return jnp.stack([fellows, ahead]), rule

    def standing(self, known: Array, ids: Array) -> Array:
        """How far clients are trusted, 0 to 1 ``[C]``, by sums ``[2, N]`` of their own and the median agreement."""
        own, usual = known[:, ids]
        ratio = jnp.where(usual > 0, own / jnp.where(usual > 0, usual, 1.0), 1.0)
        return jnp.clip(1.0 + (ratio + self.against) / FURTHER, 0.0, 1.0)

    def shares(self, products: Array, weights: Array) -> Array:
        """The weighted mean's, where nobody is beyond the bound."""
        return self.among(products, weights, jnp.ones_like(weights))

    def among(self, products: Array, weights: Array, trust: Array) -> Array:
        """Each one's share ``[C]``, where some are trusted less: 0 to 1 ``[C]``."""
        voices = trust / copies(products, weights) * (weights > 0)
        centre = weiszfeld(products, voices, 8)
        for _ in range(2):
            centre = normalised(weights * voices * self.trusted(products, voices, centre))
        return centre

    def trusted(self, products: Array, voices: Array, centre: Array) -> Array:
        """How much each upload counts around a ``centre``, 0 to 1 ``[C]``; everybody has one voice in that."""
        far = distances(products, centre)
        seen = products @ centre
        along = seen / jnp.sqrt(jnp.maximum(centre @ seen, 1e-30))
        usual = median_of(far, voices)
        aside = jnp.abs(along - median_of(along, voices))

        def spread(apart: Array, least: float) -> Array:
            return 1.4826 * median_of(apart, voices) + least * usual + 1e-30

        beyond = jnp.maximum((far - usual) / spread(jnp.abs(far - usual), 0.1), aside / spread(aside, 0.01))
        return jnp.clip(2.0 - beyond / self.bound, 0.0, 1.0)


@algorithm
class Knowing(AutoMean):
    """``auto`` in a round, with what it remembers of those who answered."""

    trust: Any = dataclasses.field(default=1.0, metadata={"child": True})

    def shares(self, products: Array, weights: Array) -> Array:
        """Of those who are trusted."""
        return self.among(products, weights, self.trust)


def noted(known: Array, agrees: Array, voices: Array, ids: Array, here: Array) -> Array:
    """A round's agreement ``[C]`` added to the sums ``[2, N]`` of those who are ``here``.

    It counts by how clear it is that the median client agrees at all: where FedAvg has come to rest nobody does, and
    who is against the others then, says nothing.
    """
    usual = median_of(agrees, voices)
    error = 1.4826 * median_of(jnp.abs(agrees - usual), voices) / jnp.sqrt(jnp.maximum(voices.sum(), 1.0))
    clear = jnp.where(usual > 0, jnp.clip(1.0 - CLEAR * error / jnp.maximum(usual, 1e-30), 0.0, 1.0), 0.0)
    return known.at[:, ids].add(jnp.where(here, clear * jnp.stack([agrees, jnp.full_like(agrees, usual)]), 0.0))


_OURS = (Median, TrimmedMean, GeometricMedian, Krum, MultiKrum, CentredClipping, AutoMean)
MEANS.ours.update({rule.name: rule() for rule in _OURS})
