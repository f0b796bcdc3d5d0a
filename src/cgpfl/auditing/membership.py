"""Membership: can who sees a model tell a client's training samples from its others?

Members are a client's training samples, the others its test samples. Two attacks:

    loss     a low loss says member (Yeom, Giacomelli, Fredrikson, Jha: CSF 2018)
    ratio    the sample's confidence φ = ln(p/(1 - p)) against the same under reference models that were trained with
             and without it (Carlini et al.: Membership Inference Attacks From First Principles, S&P 2022). With few
             references normal distributions are pooled: φ = (the sample's own level) + g·[member] + noise, g and the
             noise of one client the same for its samples; the likelihood ratio then grows with (φ - level)/noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cgpfl.auditing.bounds import auc, found_at
from cgpfl.data import FederatedData, IndexTable

LOW = 0.01
"""Share of false alarms at which found members are counted."""
RESAMPLED = 200
"""Federations drawn, client by client, for an interval of the AUC."""


@dataclass(frozen=True)
class Pool:
    """Each client's samples, members first: ``rows [N, P]``, ``members [N]``, ``size [N]``."""

    rows: np.ndarray
    members: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, data: FederatedData) -> Pool:
        """The training and test samples of all clients."""
        parts = [np.concatenate(p) for p in zip(data.train.parts(), data.test.parts(), strict=True)]
        return cls(IndexTable.of(parts).rows, data.train.counts.copy(), np.array([len(p) for p in parts]))

    @property
    def known(self) -> np.ndarray:
        """Which places hold a sample ``[N, P]``."""
        return np.arange(self.rows.shape[1]) < self.size[:, None]

    @property
    def member(self) -> np.ndarray:
        """Which places hold a member ``[N, P]``."""
        return np.arange(self.rows.shape[1]) < self.members[:, None]

    def without(self, reference: int, seed: int) -> np.ndarray:
        """Samples ``[N, P]`` that a reference is trained without: as many of a client as it holds out.

        References go through a client's samples in a random order, so that all are left out equally often.
        """
        gone = np.zeros(self.rows.shape, bool)
        for i, (size, members) in enumerate(zip(self.size, self.members, strict=True)):
            out = int(size - members)
            lap, at = divmod(reference * out, int(size))
            order = [np.random.default_rng([seed, 11, i, lap + k]).permutation(size) for k in (0, 1)]
            gone[i, np.concatenate(order)[at : at + out]] = True
        return gone & self.known


def confidence(losses: np.ndarray, task: str) -> np.ndarray:
    """φ of losses: of classification ln(p/(1 - p)) with p = exp(-loss), else -loss."""
    if task != "classification":
        return -losses
    p = np.clip(np.exp(-losses), 1e-7, 1 - 1e-7)
    return np.log(p) - np.log1p(-p)


def ratio(target: np.ndarray, references: np.ndarray, gone: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Scores ``[N, P]`` of ``target [N, P]`` against ``references [R, N, P]``; ``gone``: trained without it.

    All values are φ. A client's g is the mean difference between with and without; its noise is pooled.
    """
    weight = known[None] * np.ones_like(references)
    within = ~gone & known
    mean_in, mean_out = (
        (references * mask).sum(axis=(0, 2)) / np.maximum(mask.sum(axis=(0, 2)), 1) for mask in (within, gone)
    )
    gap = np.maximum(mean_in - mean_out, 0.0)[None, :, None]
    plain = references - gap * within  # as if trained without it
    level = plain.mean(axis=0)
    free = np.maximum(weight.sum(axis=(0, 2)) - known.sum(axis=1), 1)
    noise = np.sqrt((np.square(plain - level) * weight).sum(axis=(0, 2)) / free)
    return np.where(known, (target - level) / np.maximum(noise, 1e-6)[:, None], 0.0)


def measured(scores: np.ndarray, pool: Pool) -> dict[str, Any]:
    """AUC over all clients with its interval, found members at few false alarms, and each client's AUC."""
    known, member = pool.known, pool.member
    each = [(s[m & k], s[~m & k]) for s, m, k in zip(scores, member, known, strict=True)]

    def pooled(clients: np.ndarray) -> float:
        return auc(np.concatenate([each[i][0] for i in clients]), np.concatenate([each[i][1] for i in clients]))

    rng, n = np.random.default_rng(0), len(each)
    drawn = [pooled(rng.integers(0, n, n)) for _ in range(RESAMPLED)]
    members, others = (np.concatenate([one[k] for one in each]) for k in (0, 1))
    return {
        "auc": auc(members, others),
        "interval": [float(v) for v in np.quantile(drawn, [0.025, 0.975])],
        "found": found_at(members, others, LOW),
        "members": len(members),
        "others": len(others),
        "each": [auc(*one) for one in each],
    }


def by_size(scores: np.ndarray, pool: Pool) -> list[dict[str, Any]]:
    """The clients in quarters by their training samples (all in one, where these are equal): AUC over each one's."""
    order, found = np.argsort(pool.members, kind="stable"), []
    several = len(np.unique(pool.members)) > 1
    for part in (p for p in np.array_split(order, min(4, len(order)) if several else 1) if len(p)):
        s, m, k = scores[part], pool.member[part], pool.known[part]
        sizes = pool.members[part]
        found.append(
            {"clients": len(part), "from": int(sizes.min()), "to": int(sizes.max()), "auc": auc(s[m], s[~m & k])}
        )
    return found
