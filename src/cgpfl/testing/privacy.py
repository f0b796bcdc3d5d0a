"""What a client may learn from, and what may leave it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cgpfl.data import FederatedData
from cgpfl.testing.suite import CLIENTS, Suite, equal, plain

FEWEST = 4
"""Numbers that a piece must have: with fewer, any two are the same up to a factor and an offset."""
SAME = 3e-3
"""How far two pieces of length 1 may be apart, in any number, to be the same: half precision's rounding. (Two models
that a client trains side by side are close, too: those of the methods here are 0.03 apart and more.)"""


def private(suite: Suite) -> None:
    """Nothing that a client keeps is in its upload, and none of its samples, in any form we can recognise."""
    work = suite.one_round
    upload = flat(work.uploads)
    if not upload.shape[1]:
        return
    rows = [suite.data.x[part].reshape(len(part), -1).astype(float) for part in suite.data.train.parts()]
    for at in windows(upload, rows[0].shape[1]):
        if all(alike(of, own[at]).any() for of, own in zip(rows, upload, strict=True)):
            suite.fail("private", f"{_where(work.uploads, at)} holds a sample of the client; nobody may have those")
    relabelled = suite.work(suite.whole[0].server, suite.whole[0].clients, suite.shown()[0], _next_labels(suite.data))
    renamed = leaves(relabelled.uploads)
    for path, leaf in leaves(work.uploads).items():
        if are_labels(leaf, renamed[path], suite.data.classes):
            suite.fail("private", f"{path or 'the upload'} holds labels of the client; nobody may have those")
    if not getattr(suite.method, "reveals", False):
        _keeps(suite, upload)


def _keeps(suite: Suite, upload: np.ndarray) -> None:
    """The state before the round and after it, against the upload; the server knows what it sent, so less that, too."""
    work = suite.one_round
    sent, before, after = (pieces(tree) for tree in (work.messages, suite.whole[0].clients, work.clients))
    kept = [*after, *before]
    hidden = [(k, upload) for k in [*kept, *(k - m for k in kept for m in sent if k.shape == m.shape)]]
    hidden += [(k, u) for k in kept for u in _less_sent(work.uploads, sent)]
    for piece, seen in hidden:
        for at in windows(seen, piece.shape[1]):
            if recognised(piece, seen[:, at]):
                same = np.allclose(piece, seen[:, at], rtol=1e-6, atol=0)
                form = "" if same else ", in another form"
                why = f"{_where(work.uploads, at)} is what the client keeps{form}"
                suite.fail("private", f"{why}; if the method needs that, set reveals = True")


def own_data(suite: Suite) -> None:
    """A client learns from its own training samples and public ones, from these alone, and from these indeed."""
    data, state = suite.data, suite.whole[0]
    public = np.zeros(len(data.y), bool)
    public[data.public] = True
    if not equal(suite.simulation().start(), suite.simulation(changed(data, ~public)).start()):
        suite.fail("own_data", "other samples of the clients give another first state; only public ones are known then")
    test = np.zeros(len(data.y), bool)
    test[np.concatenate(data.test.parts())] = True
    if not equal(state, suite.run(changed(data, test))[0]):
        suite.fail("own_data", "other test samples give another state")

    seen = [changed(data, ~(public | np.isin(np.arange(len(data.y)), own))) for own in data.train.parts()]
    other = suite.work(state.server, state.clients, np.stack([d.x for d in seen]), np.stack([d.y for d in seen]))
    for what in ("uploads", "clients", "models"):
        if not equal(getattr(suite.one_round, what), getattr(other, what)):
            result = {"uploads": "upload", "clients": "state", "models": "personal model"}[what]
            suite.fail("own_data", f"samples that are not the client's own give another {result}")

    # One client's own samples are others. Whoever was never asked in these few rounds is not changed by that; the
    # first client that is will do.
    models = suite.one_round.models
    for i, own in enumerate(data.train.parts()):
        turned = changed(data, np.isin(np.arange(len(data.y)), own))
        end, _ = suite.run(turned)
        new = suite.work(end.server, end.clients, *suite.shown(turned)).models
        if not equal(*(jax.tree.map(lambda v, i=i: v[i], tree) for tree in (models, new))):
            return
    suite.fail("own_data", "a client's model is the same whatever its own training samples are")


def changed(data: FederatedData, which: np.ndarray) -> FederatedData:
    """The federation with other samples where ``which [n]`` says so."""
    x, y = data.x.copy(), data.y.copy()
    x[which], y[which] = 1 - 2 * x[which], (y[which] + 1) % data.classes
    return dataclasses.replace(data, x=x, y=y)


def leaves(tree: Any) -> dict[str, np.ndarray]:
    """The stacked leaves ``[N, ...]`` as ``[N, n]``, by their place in the tree."""
    found = jax.tree_util.tree_leaves_with_path(plain(tree))
    return {jax.tree_util.keystr(path): np.asarray(v, float).reshape(CLIENTS, -1) for path, v in found}


def flat(tree: Any) -> np.ndarray:
    """All numbers of a stacked tree, side by side ``[N, n]``."""
    return np.concatenate([np.zeros((CLIENTS, 0)), *leaves(tree).values()], axis=1)


def pieces(tree: Any) -> list[np.ndarray]:
    """The leaves, and all of them side by side."""
    each = list(leaves(tree).values())
    return each if len(each) < 2 else [*each, flat(tree)]


def windows(of: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Where in ``of [N, n]`` a piece of ``size`` numbers may be: next to each other, or every second, third, ..."""
    n = of.shape[1]
    for stride in range(1, n // size + 1) if size > 1 else ():
        spread = (size - 1) * stride + 1
        yield from sliding_window_view(np.arange(n), spread)[:, ::stride]


def recognised(piece: np.ndarray, seen: np.ndarray) -> bool:
    """Whether, for every client, ``seen [N, n]`` is ``piece [N, n]`` up to order, factor and offset.

    Clients for whom either is constant cannot tell; of a piece too small for that, the numbers must be the same.
    """
    if piece.shape[1] < FEWEST:
        return bool(np.ptp(piece, axis=1).any()) and np.allclose(piece, seen, rtol=1e-6, atol=0)
    tells = varied(piece) & varied(seen)
    return bool(tells.sum() > 1 and alike(piece[tells], seen[tells]).all())


def varied(v: np.ndarray) -> np.ndarray:
    """Which rows of ``v [..., n]`` are more than one number and rounding."""
    return np.ptp(v, axis=-1) > 1e-5 * np.abs(v).max(axis=-1, initial=0.0)


def alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which rows of ``a`` and ``b [..., n]`` are the same numbers up to order, factor and offset."""
    one, other = (_normal(v) for v in (a, b))
    turned = -other[..., ::-1]
    return np.minimum(np.abs(one - other).max(axis=-1), np.abs(one - turned).max(axis=-1)) < SAME


def _normal(v: np.ndarray) -> np.ndarray:
    apart = np.sort(v - v.mean(axis=-1, keepdims=True), axis=-1)
    return apart / np.maximum(np.linalg.norm(apart, axis=-1, keepdims=True), 1e-30)


def are_labels(leaf: np.ndarray, other: np.ndarray, classes: int) -> bool:
    """Whether the numbers ``leaf [N, n]`` are labels, scaled or not: ``other`` is the same with every label renamed.

    Then they take few values, and each of them has become one other.
    """
    pairs = set(zip(leaf.ravel().tolist(), other.ravel().tolist(), strict=True))
    values = {a for a, _ in pairs}
    few = leaf.shape[1] >= FEWEST and 1 < len(values) == len(pairs) <= classes
    return few and all(a != b and b in values for a, b in pairs)


def _next_labels(data: FederatedData) -> np.ndarray:
    everyone = np.zeros(len(data.y), bool)
    everyone[np.concatenate(data.train.parts())] = True
    return np.tile(changed(data, everyone).y, (CLIENTS, 1))


def _less_sent(uploads: Any, sent: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The upload ``[N, n]`` with one leaf, or all of it, less what was sent of the same size."""
    whole, ends = flat(uploads), np.cumsum([0, *(v.shape[1] for v in leaves(uploads).values())])
    for span in [*(slice(*ends[i : i + 2]) for i in range(len(ends) - 1)), slice(None)]:
        for m in sent:
            if m.shape == whole[:, span].shape:
                less = whole.copy()
                less[:, span] -= m
                yield less


def _where(uploads: Any, at: np.ndarray) -> str:
    """The leaf of the upload that the first of the numbers ``at`` is in."""
    ends = np.cumsum([v.shape[1] for v in leaves(uploads).values()])
    return list(leaves(uploads))[int(np.searchsorted(ends, at[0], side="right"))] or "the upload"
