"""The number of contexts by cross-fitting: the K whose contexts predict best what clients do on samples not looked at.

Evidence (:mod:`cgpfl.contexts.evidence`) are updates X[f, i] of N clients on F folds of their own samples. Each fold is
left out once. From the others come contexts, their means c, everybody's mean m and each client's own a_i; the update on
the fold left out is predicted by

    ρ0·m + ρ1·(c_k(i) − m) + ρ2·(a_i − c_k(i))

with one ρ0, ρ1 and ρ2 for each K, by least squares (ρ1 within bounds). The score of K is the error of that, relative
to predicting nothing. Contexts that are real lower it, contexts made of noise raise it: they are distances between
means of few clients. K̂ is the smallest K that no larger one beats by more than a standard error, or two where clients
differ much inside contexts: slices of what differs gradually predict a little, too.
Where clients differ much with one context, it is asked whether there are contexts at all or a gradual difference (label
shares, say): the K − 1 directions along which k-means looks predict as well, by as much of its own way along each as
repeats. Contexts do about as well as their directions, slices of a gradual difference far less; K must reach
:data:`WORTH` of it.
K = N, everybody alone, is the answer where what the others of its context have in common predicts nothing about a
client (ρ0 of their mean without the client itself: of itself a client says something in any case). ρ2 says how much
clients differ inside contexts beside the noise of their samples.

Three things keep noise out. Coordinates are divided by their noise, known from the differences between folds.
Clients have equal lengths: of their own signal, not of its noise. And similarity is that of different folds alone,
S_ij = Σ_{f≠g} ⟨X_f,i, X_g,j⟩, whose K − 1 leading directions are where k-means looks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.contexts.evidence import FLOOR, hashed
from cgpfl.contexts.kmeans import best_of, lloyd, members_of, prepare, seedings

SAMPLE = 256
"""Clients up to which all of them are compared with each other; of more, that many drawn from them."""
ALONE = 0.25
"""ρ0 of the others' mean below which contexts say nothing about their members."""
DIFFER = 0.3
"""ρ2 from which clients of a context differ much: slices of what differs gradually predict a little, too."""
NEEDED = 2.0
"""Standard errors by which a larger K must then be better, instead of one."""
WORTH = 0.75
"""Of what their directions gain, gradually, the least that contexts must, where all clients differ much. Two slices of
a normal distribution have 2/π = 0.64 of its variance."""
LEAST = 0.5, 0.85
"""The least share of a context's distance from everybody's mean that is predicted: if clients inside hardly differ, and
if they do (where slices of what differs would gain)."""
SEARCHES = 8
"""k-means++ seedings for each K of the curve; the contexts that are used get more."""


class Frame(NamedTuple):
    """Evidence ready to be compared: scaled, centred, weighted."""

    own: Array  # [N, p] mean over the folds used
    weights: Array  # [N] of the clients, 0 = not heard enough
    places: Array  # [N, r] coordinates for k-means, most telling first


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
) -> CrossFit:
    """Contexts of N clients from ``updates [F, N, p]``; ``heard [N]``: who was heard in every fold, of other samples.

    ``given``: K, or everybody's labels, where these are known. ``ids``: by which clients draw.
    """
    heard = heard.astype(jnp.float32)
    known = jnp.asarray(given, jnp.int32) if isinstance(given, tuple) else None
    number = given if isinstance(given, int) else max(given) + 1 if given else None
    of = partial(_cross_fit, largest=largest, number=number, restarts=restarts)
    n = updates.shape[1]
    everybody = updates / scales(updates, heard)
    if n <= SAMPLE:
        found = of(updates, heard, key, known, ids)
        joined = known if known is not None else nearest(everybody, heard, found.labels, largest)
        return replace(found, labels=jnp.where(heard > 0, found.labels, joined))
    # Of very many clients a sample says how many contexts there are, and where; everybody joins the nearest.
    drawn = jnp.where(heard > 0, (hashed(jnp.arange(n), jax.random.bits(key, (), jnp.uint32)) >> 9).astype(float), -1.0)
    at = jnp.sort(jax.lax.top_k(drawn, SAMPLE)[1])
    some = of(updates[:, at], heard[at], key, None if known is None else known[at], at)
    labels = nearest(everybody, heard, jnp.full(n, -1).at[at].set(some.labels), largest) if known is None else known
    between, within, noise, trust = parts(whitened(updates, heard), labels, heard, largest)
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
) -> CrossFit:
    """:func:`cross_fit` of all clients there are, with ``known`` contexts ``[N]`` or ``number`` of them."""
    folds, n, _ = updates.shape
    x = whitened(updates, heard)
    slots, ks = largest, jnp.arange(1, largest + 1)

    def left_out(g: Array) -> tuple[Array, Array, Array, Array]:
        """Without fold ``g`` (from F on: without none) → products ``[Kmax + 1, N, 13]``, labels and costs of each K.

        And :func:`gradients`.
        """
        used = (jnp.arange(folds) != g).astype(jnp.float32)
        scaled = x / lengths(x, used, heard)[:, None]
        frame = framed(scaled, used, heard, slots)
        target = scaled[jnp.minimum(g, folds - 1)]

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
    if number is None:
        gains = gradual(terms, along[:folds].sum(axis=0), slots)
        real = (personal[0] < DIFFER) | (score[0] - score[:-1] >= WORTH * gains)
        best, silent = chosen(errors, others, personal, heard, real)
    else:
        best, silent = jnp.int32(number), jnp.bool_(False)
    final = jnp.where(silent, 0, whole[best - 1])
    agreement = jax.vmap(lambda each: rand_index(each, final, slots, heard))(without[:, best - 1]).mean()
    between, within, noise, trust = parts(x, final, heard, slots)
    alone = silent & (_median(trust, heard) > 0)  # else they do not differ, and what they had in common is learnt: one
    apart = errors - errors[:, jnp.argmin(score[:-1])][:, None]
    return CrossFit(
        k=jnp.where(alone, n, jnp.where(silent, 1, best)).astype(jnp.int32),
        alone=alone,
        labels=final.astype(jnp.int32),
        score=score,
        error=_standard_error(apart, heard),
        shared=shared,
        personal=personal,
        agreement=jnp.where(silent, 1.0, agreement),
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
        x, every = whitened(updates, heard), jnp.ones(updates.shape[0])
        frame = framed(x / lengths(x, every, heard)[:, None], every, heard, slots)
        found, _ = grouped(frame, jax.random.key(0), k, slots, start=labels)
    joined = nearest(updates / scales(updates, heard), heard, found, slots)
    left = joined if updates.shape[1] > SAMPLE else jnp.where(heard > 0, found, joined)
    return left.astype(labels.dtype)


def nearest(x: Array, heard: Array, labels: Array, slots: int) -> Array:
    """The context ``[N]`` whose mean is nearest to each client; ``labels [N]`` are the members so far, -1 = of none.

    Means are of those ``heard``; who was not joins the nearest, too, by what little is known of it.
    """
    every = jnp.ones(x.shape[0])
    own = (x / lengths(x, every, heard)[:, None]).mean(axis=0)
    members = jax.nn.one_hot(labels, slots) * heard[:, None]
    sizes = members.sum(axis=0)
    centres = _dot((members / jnp.maximum(sizes, 1.0)).T, own)
    apart = jnp.square(centres).sum(axis=1) - 2 * _dot(own, centres.T)
    return jnp.argmin(jnp.where(sizes > 0, apart, jnp.inf), axis=1).astype(jnp.int32)


def whitened(updates: Array, heard: Array) -> Array:
    """Evidence of those heard, each coordinate divided by the noise in it."""
    return updates * heard[:, None] / scales(updates, heard)


def scales(updates: Array, heard: Array) -> Array:
    """Noise of each coordinate ``[p]``: how much a client's folds differ from one another."""
    folds = updates.shape[0]
    apart = (updates - updates.mean(axis=0)) * heard[:, None]
    variance = jnp.square(apart).sum(axis=(0, 1)) / jnp.maximum(heard.sum() * (folds - 1), 1.0)
    rounding = 1e-12 * jnp.square(updates * heard[:, None]).mean()  # what float32 cannot tell is noise at least
    return jnp.sqrt(variance + FLOOR * variance.mean() + rounding + 1e-30)


def signal_and_noise(x: Array, used: Array) -> tuple[Array, Array]:
    """Squared length of what repeats over the folds ``used [F]``, and of what does not in one fold. ``[N]`` each."""
    count = used.sum()
    mean = jnp.einsum("f,fnp->np", used, x) / count
    noise = jnp.einsum("f,fnp->n", used, jnp.square(x - mean)) / (count - 1)
    return jnp.square(mean).sum(axis=1) - noise / count, jnp.maximum(noise, 1e-12)


def lengths(x: Array, used: Array, heard: Array) -> Array:
    """Length of each client's signal, ``[N]``; half of the median one's is the least, or a little of the noise's."""
    signal, noise = signal_and_noise(x, used)
    usual = jnp.maximum(_median(signal, heard), 0.02 * _median(noise, heard))
    return jnp.sqrt(jnp.maximum(signal, 0.25 * jnp.maximum(usual, 1e-12)))


def framed(x: Array, used: Array, heard: Array, slots: int) -> Frame:
    """Scaled evidence ``x [F, N, p]``, of the folds ``used [F]``, as k-means and the prediction want it."""
    apart = x - _mean(x, heard)
    signal, noise = signal_and_noise(apart, used)
    usual = jnp.maximum(_median(signal, heard), 1e-3 * _median(noise, heard))
    weights = heard / (noise / used.sum() + usual)
    weights = weights / jnp.maximum(weights.sum(), 1e-30) * heard.sum()
    centred = (x - _mean(x, weights)) * heard[:, None]
    own = jnp.einsum("f,fnp->np", used, x) / used.sum()
    return Frame(own, weights, leading(centred, used, weights, max(slots - 1, 1)))


def leading(x: Array, used: Array, weights: Array, r: int) -> Array:
    """Coordinates ``[N, r]`` of clients along the leading directions of what repeats over folds."""
    _, n, p = x.shape
    root = jnp.sqrt(weights)[:, None]
    total = jnp.einsum("f,fnp->np", used, x)
    pairs = used.sum() * (used.sum() - 1)
    r = min(r, n, p)
    similar = _dot(total, total.T) - jnp.einsum("f,fip,fjp->ij", used, x, x, precision="highest")
    values, vectors = jnp.linalg.eigh(root * similar / pairs * root.T)
    places = vectors * jnp.sqrt(jnp.maximum(values, 0.0)) / jnp.where(root > 0, root, 1.0)
    return places[:, ::-1][:, :r]


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


def products(frame: Frame, target: Array, labels: Array, slots: int, alone: bool = False) -> Array:
    """Inner products ``[N, 13]``, by clients' weights, of d = b − c, m, e = c − m and o = a − c.

    b is the target, a the client's own, c its context's mean, m everybody's. b is near c where noise is small: float32
    would leave nothing of a difference of products with b. The last three are of b and of c without the client itself:
    what the others of its context say, 0 where there are none.
    """
    own, weights = frame.own, frame.weights
    mean = weights @ own / jnp.maximum(weights.sum(), 1e-30)
    if alone:
        centre, mass = own, weights
    else:
        members = jax.nn.one_hot(labels, slots) * weights[:, None]
        sizes = members.sum(axis=0)
        centre, mass = _dot((members / jnp.maximum(sizes, 1e-30)).T, own)[labels], sizes[labels]
    d, m, e, o = target - centre, jnp.broadcast_to(mean, own.shape), centre - mean, own - centre
    others = mass - weights
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
    least = jnp.where(personal < DIFFER, *LEAST).at[-1].set(0.0)  # K = N has no contexts
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
    both = _dot(own, own.T)
    square = _dot(_dot(basis, both), basis.T)
    ridge = (1e-6 * jnp.trace(square) + 1e-30) * jnp.eye(len(square))
    solved = jnp.linalg.inv(jnp.linalg.cholesky(square + ridge))
    to = _dot(solved, basis).T  # [N, r]: v = toᵀ · own
    along, there = _dot(both, to), _dot(_dot(apart, own.T), to)
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


def chosen(errors: Array, others: Array, personal: Array, heard: Array, real: Array) -> tuple[Array, Array]:
    """(K̂, whether contexts say nothing at any K) from errors ``[F, Kmax + 1, N]``, the others' ρ0, and ρ2 of each K.

    ``real [Kmax]``: which K may be taken at all; one may.
    """
    each, real = errors[:, :-1], real.at[0].set(True)
    ks = jnp.arange(each.shape[1])
    needed = jnp.where(personal < DIFFER, 1.0, NEEDED)

    def beaten(k: Array) -> Array:
        gain = each[:, k][:, None] - each  # [F, J, N]: what J gains over K
        return ((gain.mean(axis=(0, 2)) > needed[k] * _standard_error(gain, heard)) & real & (ks > k)).any()

    k = jnp.argmin(jax.lax.map(beaten, ks) | ~real)
    # One context for clients that differ, and nothing in common: is that everybody alone, or are there contexts after
    # all, by less than a standard error? They are if they say something, and predict better than clients themselves.
    silent, best = others[k] < ALONE, jnp.argmin(jnp.where(real, each.mean(axis=(0, 2)), jnp.inf))
    gain = errors[:, -1:] - each[:, best][:, None]
    after_all = (gain.mean() > needed[best] * _standard_error(gain, heard)[0]) & (others[best] >= ALONE)
    return jnp.where(silent & after_all, best, k) + 1, silent & ~after_all


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
    total, _ = signal_and_noise(centres - _mean(x, heard), every)
    between = jnp.maximum((total * sizes).sum() / count, 0.0)
    inner, sampled = jnp.maximum(mean, 0.0), (noise * heard).sum() / count / folds
    whole = jnp.maximum(between + inner + sampled, 1e-30)
    return between / whole, inner / whole, sampled / whole, jnp.where(heard > 0, trust, 0.0)


def rand_index(a: Array, b: Array, slots: int, weights: Array) -> Array:
    """Adjusted Rand index of two labellings ``[N]``; clients of weight 0 are left out."""
    here = (weights > 0).astype(jnp.float32)
    table = _dot((jax.nn.one_hot(a, slots) * here[:, None]).T, jax.nn.one_hot(b, slots))

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
        square = jnp.square(_dot(flat, flat.T)).sum()
    else:
        square = jnp.square(_dot(flat.T, flat)).sum()
    return jnp.square(jnp.square(flat).sum()) / jnp.maximum(square, 1e-30)


def _standard_error(values: Array, heard: Array) -> Array:
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


def _mean(x: Array, weights: Array) -> Array:
    """Mean over clients ``[F, 1, p]``."""
    return jnp.einsum("n,fnp->fp", weights, x)[:, None] / jnp.maximum(weights.sum(), 1e-30)


def _median(values: Array, heard: Array) -> Array:
    return jnp.nan_to_num(jnp.nanmedian(jnp.where(heard > 0, values, jnp.nan)))


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
