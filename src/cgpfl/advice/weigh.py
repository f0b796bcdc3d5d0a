"""Which candidate to take: paired tests over clients and over folds, and the rule.

A candidate is *not told apart* from the best unless the difference holds over clients and over folds alike: the larger
of two p-values counts. Over clients: the difference of right answers over all samples, as a ratio estimate whose error
is between clients. Over folds: the t-test for cross-validation, whose variance is corrected for training sets that
overlap (Nadeau, Bengio: Inference for the Generalization Error. Machine Learning, 2003).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cgpfl.metrics import reduced

LEVEL = 0.05
"""Of the paired test."""
FEW = 8
"""Clients below which only folds are compared: so few clients tell nothing about clients."""
RULE = (
    "The simplest way whose cross-validated score cannot be told from the best one's; simple are, in this order: "
    "alone, one model, one model tuned, contexts, contexts and personal. Alone and one model are both "
    "simple: where neither can be told from the best, the one that is better for the clients' worst tenth is taken."
)


@dataclass(frozen=True)
class Verdict:
    """What is recommended, and why."""

    name: str
    best: str
    """The highest score."""
    p: dict[str, float]
    """Of each candidate against the best; of the best itself 1."""
    score: dict[str, float]
    worst: dict[str, float]
    """Mean score of the worst tenth of the clients."""

    @property
    def tied(self) -> tuple[str, ...]:
        """Those that cannot be told from the best, the best included, from the simplest on."""
        return tuple(n for n, p in self.p.items() if p >= LEVEL)

    @property
    def both_simple(self) -> bool:
        """Whether alone and one model both are among them."""
        return {"alone", "one model"} <= set(self.tied)


def weigh(correct: dict[str, np.ndarray], counts: np.ndarray, cuts: int = 1) -> Verdict:
    """Apply the rule. ``correct``: sums of scores ``[F, N]`` by candidate, from the simplest on; ``counts [F, N]``.

    ``cuts``: times that the samples were cut into folds, which are F in all.
    """
    n = counts.sum(axis=0)
    each = {name: c.sum(axis=0) / n for name, c in correct.items()}
    score = {name: float(c.sum() / n.sum()) for name, c in correct.items()}
    fine = {name: s for name, s in score.items() if np.isfinite(s)}
    best = max(fine, key=lambda name: fine[name])  # of equals the simplest
    p = {
        name: 1.0 if name == best else paired(c - correct[best], counts, cuts) if name in fine else 0.0
        for name, c in correct.items()
    }
    worst = {name: float(reduced(each[name], score[name])["worst_tenth"]) for name in correct}
    found = Verdict(best, best, p, score, worst)
    name = found.tied[0]
    if found.both_simple and worst["one model"] > worst["alone"]:
        name = "one model"
    return Verdict(name, best, p, score, worst)


def paired(apart: np.ndarray, counts: np.ndarray, cuts: int = 1) -> float:
    """Two-sided p that two candidates score alike: differences of their sums of scores ``[F, N]``; see above."""
    folds = over_folds(apart, counts, cuts)
    return folds if counts.shape[1] < FEW else max(folds, over_clients(apart, counts))


def over_clients(apart: np.ndarray, counts: np.ndarray) -> float:
    """Of the test over clients, each with all its folds: they are drawn from more clients like them."""
    own, n = apart.sum(axis=0), counts.sum(axis=0)
    clients, mean = len(n), own.sum() / n.sum()
    error = np.sqrt(clients / (clients - 1) * np.square(own - mean * n).sum()) / n.sum()
    return _p(mean, error, clients - 1)


def over_folds(apart: np.ndarray, counts: np.ndarray, cuts: int = 1) -> float:
    """Of the test over folds, each with all clients; other samples of the same clients would give other differences."""
    each = apart.sum(axis=1) / counts.sum(axis=1)
    runs = len(each)
    error = np.sqrt((1 / runs + 1 / (runs // cuts - 1)) * each.var(ddof=1))  # a test fold is 1/(folds − 1) of training
    return _p(apart.sum() / counts.sum(), error, runs - 1)


def _p(mean: float, error: float, freedom: int) -> float:
    from scipy.stats import t

    if error < 1e-12:
        return 1.0 if abs(mean) < 1e-12 else 0.0
    return float(2 * t.sf(abs(mean) / error, freedom))


def of_clients(apart: np.ndarray, counts: np.ndarray, cuts: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """What each client gains: the mean difference ``[N]`` and whether its folds can tell it from none ``[N]``."""
    gain = apart.sum(axis=0) / counts.sum(axis=0)
    alone = [over_folds(apart[:, [i]], counts[:, [i]], cuts) for i in range(apart.shape[1])]
    return gain, np.array(alone) < LEVEL
