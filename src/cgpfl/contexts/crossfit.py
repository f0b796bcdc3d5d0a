"""The number of contexts by cross-fitting: the K whose contexts predict best what clients do on samples not looked at.

Evidence (:mod:`cgpfl.contexts.evidence`) are updates X[f, i] of N clients on F folds of their own samples, and updates
A[f, i] on all their samples but fold f: a model of two thirds of the samples says more than the mean of two models of a
third each. Each fold is left out once. From A[f] come contexts, their means c, everybody's mean m and each client's own
a_i = A[f, i]; the update on the fold left out, X[f, i], is predicted by

    ρ0·m + ρ1·(c_k(i) − m) + ρ2·(a_i − c_k(i))

with one ρ0, ρ1 and ρ2 for each K, by least squares (ρ1 within bounds). The score of K is the error of that, relative
to predicting nothing. Contexts that are real lower it, contexts made of noise raise it: they are distances between
means of few clients. K̂ is the smallest K that no larger one beats: one by more than a standard error, others
where clients differ much inside contexts by more than two: slices of what differs gradually predict a little, too.
Where clients differ much with one context, it is asked whether there are contexts at all or a gradual difference (label
shares, say): the K − 1 directions along which k-means looks predict as well, by as much of its own way along each as
repeats. Contexts do about as well as their directions, slices of a gradual difference far less; K must reach
three quarters of it, and be found again without each fold.
K = N, everybody alone, is the answer where what the others of its context have in common predicts nothing about a
client (ρ0 of their mean without the client itself: of itself a client says something in any case), or where there are
no contexts and what all have in common is gone in the last round of the warm-up: networks of clients with nothing in
common move alike at first (of linear models ρ0 is enough). ρ2 says how much clients differ inside contexts beside the
noise of their samples.

What keeps noise out of all this is in :mod:`cgpfl.contexts.frames`, the score in :mod:`cgpfl.contexts.prediction`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.contexts.evidence import hashed
from cgpfl.contexts.frames import (
    Frame,
    dot,
    framed,
    lengths,
    mean_over,
    median_of,
    scaled,
    signal_and_noise,
    whitened,
)
from cgpfl.contexts.kmeans import best_of, lloyd, members_of, prepare, seedings
from cgpfl.contexts.prediction import (
    chosen,
    differ,
    forgotten,
    gradients,
    predicted,
    products,
    standard_error,
    worthwhile,
)

SAMPLE = 256
"""Clients up to which all of them are compared with each other; of more, that many drawn from them."""
SEARCHES = 8
"""k-means++ seedings for each K of the curve; the contexts that are used get more."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CrossFit:
    """What cross-fitting found. Kmax places for K = 1..Kmax, and one more for K = N."""

    k: Array
    alone: Array  # whether everybody stands alone
    labels: Array  # [N] contexts of all the evidence at K̂ (zeros if alone)
    score: Array  # [Kmax + 1]
    error: Array  # [Kmax + 1] standard error of the difference to the best score
    shared: Array  # [Kmax + 1] ρ0
    personal: Array  # [Kmax + 1] ρ2
    agreement: Array  # of the contexts found without each fold with ``labels``: adjusted Rand index, mean
    between: Array  # variance between contexts, as a share of all three
    within: Array  # between clients of a context
    noise: Array  # of a client's samples
    trust: Array  # [N] share of each client's own distance from its context that is no noise


def cross_fit(
    updates: Array,
    heard: Array,
    key: Array,
    *,
    largest: int,
    given: tuple[int, ...] | int | None = None,
    restarts: int = 50,
    ids: Array | None = None,
    noised: Array | bool = False,
    layered: bool = False,
) -> CrossFit:
    """Contexts of N clients from ``updates [2F, N, p]``, on F folds of their samples and on all but each of these.

    ``heard [N]``: who was heard on each part, of other samples.

    ``given``: K, or everybody's labels, where these are known. ``ids``: by which clients draw. ``noised``: whether
    updates carry noise beside that of samples; where nothing repeats then, everybody stands alone. ``layered``: whether
    they are a network's, whose layers may move alike where nothing is in common.
    """
    heard = heard.astype(jnp.float32)
    known = jnp.asarray(given, jnp.int32) if isinstance(given, tuple) else None
    number = given if isinstance(given, int) else max(given) + 1 if given else None
    of = partial(_cross_fit, largest=largest, number=number, restarts=restarts, noised=noised, layered=layered)
    n = updates.shape[1]
    if n <= SAMPLE:
        found = of(updates, heard, key, known, ids)
        joined = known if known is not None else nearest(updates, heard, found.labels, largest)
        return replace(found, labels=jnp.where(heard > 0, found.labels, joined))
    # Of very many clients a sample says how many contexts there are, and where; everybody joins the nearest.
    drawn = jnp.where(heard > 0, (hashed(jnp.arange(n), jax.random.bits(key, (), jnp.uint32)) >> 9).astype(float), -1.0)
    at = jnp.sort(jax.lax.top_k(drawn, SAMPLE)[1])
    some = of(updates[:, at], heard[at], key, None if known is None else known[at], at)
    labels = nearest(updates, heard, jnp.full(n, -1).at[at].set(some.labels), largest) if known is None else known
    between, within, noise, trust = parts(whitened(updates, heard)[0], labels, heard, largest)
    k = jnp.where(some.alone, n, some.k)
    return replace(some, k=k, labels=labels, between=between, within=within, noise=noise, trust=trust)


def _cross_fit(
    updates: Array,
    heard: Array,
    key: Array,
    known: Array | None,
    ids: Array | None,
    *,
    largest: int,
    number: int | None,
    restarts: int,
    noised: Array | bool,
    layered: bool,
) -> CrossFit:
    """:func:`cross_fit` of all clients there are, with ``known`` contexts ``[N]`` or ``number`` of them."""
    folds, n = updates.shape[0] // 2, updates.shape[1]
    x, most, whole = whitened(updates, heard)
    most = jnp.concatenate([most, whole[None]])
    slots, ks = largest, jnp.arange(1, largest + 1)

    def left_out(g: Array) -> tuple[Array, Array, Array, Array]:
        """Without fold ``g`` (from F on: without none) → products ``[Kmax + 1, N, 13]``, labels and costs of each K.

        And :func:`gradients`.
        """
        used = (jnp.arange(folds) != g).astype(jnp.float32)
        length = lengths(x, used, heard)[:, None]
        frame = framed(x / length, most[jnp.minimum(g, folds)] / length, used, heard, slots)
        target = x[jnp.minimum(g, folds - 1)] / length

        def at(k: Array) -> tuple[Array, Array, Array]:
            if known is not None:
                labels, cost = known, jnp.float32(0)
            else:
                labels, cost = grouped(frame, jax.random.fold_in(key, g), k, slots, ids)
            return products(frame, target, labels, slots), labels, cost

        found, labels, costs = jax.lax.map(at, ks)
        lonely = products(frame, target, jnp.arange(n), n, alone=True)
        return jnp.concatenate([found, lonely[None]]), labels, costs, gradients(frame, target)

    tries = -(-restarts // SEARCHES)  # of all the evidence, each with as many seedings as a fold left out has
    terms, labels, costs, along = jax.lax.map(left_out, jnp.arange(folds + tries))
    terms, without = terms[:folds], labels[:folds]
    errors, shared, personal, others = predicted(terms)
    score = errors.mean(axis=(0, 2))
    whole = labels[folds + jnp.argmin(costs[folds:], axis=0), ks - 1]  # [Kmax, N]
    same = partial(rand_index, slots=slots, weights=heard)
    agreement = jax.vmap(jax.vmap(same), in_axes=(0, None))(without, whole).mean(axis=0)  # [Kmax]
    if number is None:
        real = worthwhile(terms, score, personal, along[:folds].sum(axis=0), agreement)
        best, silent = chosen(errors, others, personal, heard, real)
    else:
        best, silent = jnp.int32(number), jnp.bool_(False)
    final = jnp.where(silent, 0, whole[best - 1])
    between, within, noise, trust = parts(x, final, heard, slots)
    # Else they do not differ, what they had in common is learnt: one. Unless it is hidden.
    usual = median_of(trust, heard)
    certain = (usual > 0) & differ(terms, heard)
    alone = silent & (certain | noised)
    if number is None and layered:
        length = lengths(x, jnp.ones(folds), heard)[:, None]
        alone = alone | ((best == 1) & certain & forgotten(x / length, most[:folds] / length, heard, usual))
    apart = errors - errors[:, jnp.argmin(score[:-1])][:, None]
    return CrossFit(
        k=jnp.where(alone, n, jnp.where(silent, 1, best)).astype(jnp.int32),
        alone=alone,
        labels=final.astype(jnp.int32),
        score=score,
        error=standard_error(apart, heard),
        shared=shared,
        personal=personal,
        agreement=jnp.where(silent, 1.0, agreement[best - 1]),
        between=between,
        within=within,
        noise=noise,
        trust=trust,
    )


def placed(updates: Array, heard: Array, labels: Array, k: Array, slots: int) -> Array:
    """Contexts ``[N]`` as k-means leaves them that starts from ``labels [N]``."""
    heard = heard.astype(jnp.float32)
    found = labels
    if updates.shape[1] <= SAMPLE:
        x, _, whole = whitened(updates, heard)
        every = jnp.ones(x.shape[0])
        length = lengths(x, every, heard)[:, None]
        frame = framed(x / length, whole / length, every, heard, slots)
        found, _ = grouped(frame, jax.random.key(0), k, slots, start=labels)
    joined = nearest(updates, heard, found, slots)
    left = joined if updates.shape[1] > SAMPLE else jnp.where(heard > 0, found, joined)
    return left.astype(labels.dtype)


def nearest(updates: Array, heard: Array, labels: Array, slots: int) -> Array:
    """The context ``[N]`` whose mean is nearest to each client; ``labels [N]`` are the members so far, -1 = of none.

    Means are of those ``heard``; who was not joins the nearest, too, by what little is known of it.
    """
    x, _, whole = scaled(updates, heard)
    own = whole / lengths(x, jnp.ones(x.shape[0]), heard)[:, None]
    members = jax.nn.one_hot(labels, slots) * heard[:, None]
    sizes = members.sum(axis=0)
    centres = dot((members / jnp.maximum(sizes, 1.0)).T, own)
    apart = jnp.square(centres).sum(axis=1) - 2 * dot(own, centres.T)
    return jnp.argmin(jnp.where(sizes > 0, apart, jnp.inf), axis=1).astype(jnp.int32)


def grouped(
    frame: Frame, key: Array, k: Array, slots: int, ids: Array | None = None, start: Array | None = None
) -> tuple[Array, Array]:
    """Contexts ``[N]`` by k-means on the first k − 1 coordinates, from several seedings or from ``start``; its cost."""
    seen = frame.places * (jnp.arange(frame.places.shape[1]) < k - 1)
    points = prepare(seen, weights=frame.weights)
    if start is None:
        found = best_of(points, seedings(points, slots, key, SEARCHES, ids), k)
    else:
        found = lloyd(points, members_of(start, slots, points.weights), k)
    return found.labels, found.inertia


def parts(x: Array, labels: Array, heard: Array, slots: int) -> tuple[Array, Array, Array, Array]:
    """Shares of (between contexts, within, noise), and each client's trust ``[N]``.

    Trust is signal/(signal + noise) of a client's own distance from its context. The signal is that of all clients
    together, less two standard errors: an own model on the strength of noise costs more than it brings. A client
    whose own signal is four standard errors beyond noise, one among strangers, has that of its own instead.
    """
    folds = x.shape[0]
    every = jnp.ones(folds)
    x = x / lengths(x, every, heard)[:, None]
    members = jax.nn.one_hot(labels, slots) * heard[:, None]
    sizes = members.sum(axis=0)
    centres = jnp.einsum("nk,fnp->fkp", members / jnp.maximum(sizes, 1.0), x)
    inside = x - centres[:, labels]
    # A mean of n clients holds 1/n of each: what is left of a client's own is (n − 1)/n of it.
    kept = jnp.where(sizes[labels] > 1, 1.0 - 1.0 / jnp.maximum(sizes[labels], 1.0), 1.0)
    own, noise = (v / kept for v in signal_and_noise(inside, every))
    count = jnp.maximum(heard.sum(), 1.0)
    mean = (own * heard).sum() / count
    spread = jnp.sqrt((jnp.square(own - mean) * heard).sum() / jnp.maximum(count - 1, 1.0) / count)
    within = jnp.maximum(mean - 2 * spread, 0.0)
    error = noise * jnp.sqrt(2.0 / (folds * (folds - 1)) / _dimensions(inside, heard))
    signal = jnp.where(own > 4 * error, jnp.maximum(own - 2 * error, within), within)
    trust = signal / (signal + noise / folds)
    total, _ = signal_and_noise(centres - mean_over(x, heard), every)
    between = jnp.maximum((total * sizes).sum() / count, 0.0)
    inner, sampled = jnp.maximum(mean, 0.0), (noise * heard).sum() / count / folds
    whole = jnp.maximum(between + inner + sampled, 1e-30)
    return between / whole, inner / whole, sampled / whole, jnp.where(heard > 0, trust, 0.0)


def rand_index(a: Array, b: Array, slots: int, weights: Array) -> Array:
    """Adjusted Rand index of two labellings ``[N]``; clients of weight 0 are left out."""
    here = (weights > 0).astype(jnp.float32)
    table = dot((jax.nn.one_hot(a, slots) * here[:, None]).T, jax.nn.one_hot(b, slots))

    def pairs(counts: Array) -> Array:
        return jnp.sum(counts * (counts - 1) / 2)

    both, first, second, whole = pairs(table), pairs(table.sum(1)), pairs(table.sum(0)), pairs(here.sum())
    expected = first * second / jnp.maximum(whole, 1.0)
    most = (first + second) / 2
    return jnp.where(most - expected > 1e-6, (both - expected) / jnp.maximum(most - expected, 1e-6), 1.0)


def _dimensions(inside: Array, heard: Array) -> Array:
    """How many directions noise really has: (Σλ)²/Σλ² of its covariance, from the residuals' inner products."""
    apart = (inside - inside.mean(axis=0)) * heard[:, None]
    flat = apart.reshape(-1, apart.shape[-1])
    if flat.shape[0] <= flat.shape[1]:
        square = jnp.square(dot(flat, flat.T)).sum()
    else:
        square = jnp.square(dot(flat.T, flat)).sum()
    return jnp.square(jnp.square(flat).sum()) / jnp.maximum(square, 1e-30)
