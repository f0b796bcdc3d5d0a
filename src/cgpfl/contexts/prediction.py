"""How well K contexts predict the fold that was left out, and which K that speaks for (see :mod:`.crossfit`)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.contexts.frames import Frame, dot

ALONE = 0.25
"""ρ0 of the others' mean below which contexts say nothing about their members."""
DIFFER = 0.15
"""ρ2 from which clients of a context differ much: slices of what differs gradually predict a little, too."""
NEEDED = 2.0
"""Standard errors by which a larger K must be better then. Else any gain is one, since contexts made of noise predict
worse. One context, and everybody alone, must be beaten by one standard error: beside it K must be real."""
AGREE = 0.7
"""Adjusted Rand index with the contexts found without a fold: the least there must be where clients differ much."""
WORTH = 0.75
"""Of what their directions gain, gradually, the least that contexts must, where all clients differ much. Two slices of
a normal distribution have 2/π = 0.64 of its variance."""
CERTAIN = 2.0
"""Standard errors by which clients must say more of themselves than all others say of them, before they are left alone.
Of few clients with noisy updates the others say little, too, where all are alike."""
LASTING = 0.12
"""Of what a client's folds have in common about its distance from all, the share that all others must still say of it
in the last round of the warm-up where it would be pulled to them by half or more (trust s, r = (1 − s)/s ≥ 1); else r²
of that."""
ENOUGH = 10
"""Clients from which on that is asked: what others say of one of few is uncertain."""
LEAST = 0.5
"""The least share of a context's distance from everybody's mean that is predicted."""


def products(frame: Frame, target: Array, labels: Array, slots: int, alone: bool = False) -> Array:
    """Inner products ``[N, 13]``, by clients' weights, of d = b − c, m, e = c − m and o = a − c.

    b is the target, a the client's own, c its context's mean, m everybody's. b is near c where noise is small: float32
    would leave nothing of a difference of products with b. The last three are of b and of c without the client itself:
    what the others of its context say, 0 where there are none. If ``alone``, of b and of what the client itself says.
    """
    own, weights = frame.own, frame.weights
    mean = weights @ own / jnp.maximum(weights.sum(), 1e-30)
    if alone:
        centre, others = own, weights
    else:
        members = jax.nn.one_hot(labels, slots) * weights[:, None]
        sizes = members.sum(axis=0)
        centre, others = dot((members / jnp.maximum(sizes, 1e-30)).T, own)[labels], sizes[labels] - weights
    d, m, e, o = target - centre, jnp.broadcast_to(mean, own.shape), centre - mean, own - centre
    has = others > 1e-3 * weights
    share = jnp.where(has, weights / jnp.where(has, others, 1.0), 0.0)
    without = jnp.where(has[:, None], centre - share[:, None] * o, 0.0)
    pairs = [(d, d), (m, m), (e, e), (o, o), (d, m), (d, e), (d, o), (m, e), (m, o), (e, o)]
    pairs += [(target, without), (without, without), (target, target)]
    return jnp.stack([jnp.sum(u * v, axis=1) for u, v in pairs], axis=1) * weights[:, None]


def predicted(terms: Array) -> tuple[Array, Array, Array, Array]:
    """Errors ``[F, K, N]`` (their mean is the score), ρ0, ρ2 and ρ of the others ``[K]``, from :func:`products`.

    m, e and o are orthogonal in the sum over clients, so each ρ is a quotient of two sums.
    """
    total = terms.sum(axis=(0, 2))
    dd, mm, ee, oo, dm, de, do, me, mo, eo = (terms[..., i] for i in range(10))
    common = jnp.clip(-total[:, 4] / jnp.maximum(total[:, 1], 1e-30), 0.0, 1.0)  # 1 − ρ0
    personal = jnp.clip(total[:, 6] / jnp.maximum(total[:, 3], 1e-30), 0.0, 1.0)
    personal = jnp.where(total[:, 3] > 1e-12 * (total[:, 1] + total[:, 2]), personal, 0.0)  # of rounding alone: nothing
    # 1 − ρ1 is bounded: contexts made of noise must cost something.
    least = jnp.full(len(personal), LEAST).at[-1].set(0.0)  # K = N has no contexts
    context = 1.0 - jnp.clip(1.0 + total[:, 5] / jnp.maximum(total[:, 2], 1e-30), least, 1.0)
    context = jnp.where(total[:, 2] > 1e-9 * total[:, 1], context, 0.0)
    a, b, s = common[:, None], context[:, None], personal[:, None]
    errors = dd + a**2 * mm + b**2 * ee + s**2 * oo
    errors = errors + 2 * (a * dm + b * de - s * do + a * b * me - a * s * mo - b * s * eo)
    nothing = terms[:, 0, :, 12]  # ⟨b, b⟩: the error of predicting nothing
    others = total[:, 10] / jnp.maximum(total[:, 11], 1e-30)
    return errors / jnp.maximum(nothing.sum(), 1e-30) * nothing.size, 1.0 - common, personal, others


def gradients(frame: Frame, target: Array) -> Array:
    """How clients go along each leading direction, and the target with them: Σ c², Σ c·b ``[2, r]``, c = ⟨a − m, v⟩.

    The directions v are those where k-means looks, made orthonormal. In inner products of clients alone.
    """
    weights = frame.weights
    mean = weights @ frame.own / jnp.maximum(weights.sum(), 1e-30)
    here = (weights > 0)[:, None]
    own, apart = jnp.where(here, frame.own - mean, 0.0), jnp.where(here, target - mean, 0.0)
    basis = frame.places.T * weights  # [r, N]
    both = dot(own, own.T)
    square = dot(dot(basis, both), basis.T)
    ridge = (1e-6 * jnp.trace(square) + 1e-30) * jnp.eye(len(square))
    solved = jnp.linalg.inv(jnp.linalg.cholesky(square + ridge))
    to = dot(solved, basis).T  # [N, r]: v = toᵀ · own
    along, there = dot(both, to), dot(dot(apart, own.T), to)
    return jnp.stack([weights @ (along * along), weights @ (along * there)])


def gradual(terms: Array, along: Array, slots: int) -> Array:
    """What K − 1 directions, taken as gradual, gain over one context, in units of the score: ``[slots]``.

    Predicted is m + Σ s_j c_j v_j + ρ·(the rest of a − m), one s for each direction (``along [2, r]``, of all folds)
    and one ρ. In the sum over clients these are orthogonal, and so is m: each gains by itself.
    """

    def gain(own: Array, both: Array) -> Array:
        share = jnp.clip(both / jnp.maximum(own, 1e-30), 0.0, 1.0)
        return 2 * share * both - share**2 * own

    whole = terms.sum(axis=(0, 2))[0]  # of one context: a − c is a − m
    left = jnp.maximum(whole[3] - jnp.cumsum(along[0]), 0.0), whole[6] - jnp.cumsum(along[1])
    gains = jnp.cumsum(gain(*along)) + gain(*left) - gain(whole[3], whole[6])
    gains = jnp.pad(jnp.pad(gains, (1, 0)), (0, slots), mode="edge")[:slots]  # no more directions than numbers
    return gains / jnp.maximum(terms[:, 0, :, 12].sum(), 1e-30)


def worthwhile(terms: Array, score: Array, personal: Array, along: Array, agreement: Array) -> Array:
    """Which K are contexts and no slices of a gradual difference, as far as that can be told: ``[Kmax]``.

    ``agreement [Kmax]`` of the contexts with those found without each fold.
    """
    gains = gradual(terms, along, len(score) - 1)
    return (personal[0] < DIFFER) | ((score[0] - score[:-1] >= WORTH * gains) & (agreement >= AGREE))


def chosen(errors: Array, others: Array, personal: Array, heard: Array, real: Array) -> tuple[Array, Array]:
    """(K̂, whether contexts say nothing at any K) from errors ``[F, Kmax + 1, N]``, the others' ρ0, and ρ2 of each K.

    ``real [Kmax]``: which K may be taken at all; one may.
    """
    each, real = errors[:, :-1], real.at[0].set(True)
    ks = jnp.arange(each.shape[1])
    needed = jnp.where(personal < DIFFER, 0.0, NEEDED)
    needed = needed.at[0].set(1.0)

    def beaten(k: Array) -> Array:
        gain = each[:, k][:, None] - each  # [F, J, N]: what J gains over K
        return ((gain.mean(axis=(0, 2)) > needed[k] * standard_error(gain, heard)) & real & (ks > k)).any()

    k = jnp.argmin(jax.lax.map(beaten, ks) | ~real)
    # One context for clients that differ, and nothing in common: is that everybody alone, or are there contexts after
    # all, by less than a standard error? They are if they say something, and predict better than clients themselves.
    silent, best = others[k] < ALONE, jnp.argmin(each.mean(axis=(0, 2)))
    gain = errors[:, -1:] - each[:, best][:, None]
    after_all = (gain.mean() > jnp.maximum(needed[best], 1.0) * standard_error(gain, heard)[0]) & (
        others[best] >= ALONE
    )
    return jnp.where(silent & after_all, best, k) + 1, silent & ~after_all


def differ(terms: Array, heard: Array) -> Array:
    """Whether it is certain that a client says more of itself than all others do, from :func:`products`."""
    more = ((terms[:, -1, :, 10] - terms[:, 0, :, 10]) * heard).mean(axis=0)
    count = jnp.maximum(heard.sum(), 2.0)
    mean = more.sum() / count
    spread = jnp.sqrt((jnp.square(more - mean) * heard).sum() / (count - 1))
    return mean > CERTAIN * spread / jnp.sqrt(count)


def forgotten(x: Array, most: Array, heard: Array, trust: Array) -> Array:
    """Whether what all have in common has gone by the last round of the warm-up, while clients still say much.

    ``x [F, N, p]`` are updates on folds, ``most [F, N, p]`` on all but each. Clients of networks that have nothing in
    common move alike at first, and forget together what they taught each other; what is worth a pull lasts.
    """
    here, count = heard[:, None], jnp.maximum(heard.sum(), 2.0)
    last = most[-1] * here
    lasts = jnp.sum(last * (last.sum(axis=0) - last)) / (count - 1.0)
    apart, away = ((v - (heard @ v)[:, None] / count) * here for v in (x, most))
    own = jnp.sum(apart * away) / x.shape[0] * count / (count - 1.0)
    pull = jnp.minimum((1.0 - trust) / jnp.maximum(trust, 1e-6), 1.0)
    ended = lasts < -own / (count - 1.0)  # updates cancel: all is learnt, and nothing is forgotten
    return (heard.sum() >= ENOUGH) & ~ended & (lasts < LASTING * jnp.square(pull) * own)


def standard_error(values: Array, heard: Array) -> Array:
    """Of the mean of ``values [F, K, N]`` over folds and clients: the larger of those over clients and over folds."""
    folds = values.shape[0]
    count = jnp.maximum(heard.sum(), 2.0)
    mean = values.mean(axis=(0, 2))
    clients = values.mean(axis=0)
    n = values.shape[2]
    centred = (clients - (clients * heard).sum(axis=1, keepdims=True) / count) * heard
    over_clients = jnp.sqrt(jnp.square(centred).sum(axis=1) / (count - 1) / count) * count / n
    over_folds = jnp.sqrt(jnp.square(values.mean(axis=2) - mean).sum(axis=0) / (folds - 1) / folds)
    return jnp.maximum(over_clients, over_folds)
