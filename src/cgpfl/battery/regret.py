"""Regret: how many points of accuracy a method is behind the best one of a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cgpfl.battery.cells import Outcome

CLOSE = 0.5
"""Points within which a method counts as good as the best."""


@dataclass(frozen=True)
class Regrets:
    """Methods, least mean regret first, over problems."""

    problems: list[str]
    methods: list[str]
    accuracy: np.ndarray
    """``[M, P]``: mean over seeds, in percent; a seed that diverged counts as 0."""
    diverged: np.ndarray
    """``[M, P]``: seeds that did."""

    @property
    def regret(self) -> np.ndarray:
        """``[M, P]``: points behind the best of each problem."""
        return self.accuracy.max(axis=0) - self.accuracy

    @property
    def mean(self) -> np.ndarray:
        """``[M]``: over problems."""
        return self.regret.mean(axis=1)

    @property
    def worst(self) -> np.ndarray:
        """``[M]``: the largest regret."""
        return self.regret.max(axis=1)

    @property
    def where(self) -> list[str]:
        """The problem of each method's worst regret."""
        return [self.problems[j] for j in self.regret.argmax(axis=1)]

    @property
    def best(self) -> list[str]:
        """The best method of each problem."""
        return [self.methods[i] for i in self.accuracy.argmax(axis=0)]

    def within(self, points: float) -> np.ndarray:
        """``[M]``: on how many problems a method is at most ``points`` behind."""
        return (self.regret <= points + 1e-9).sum(axis=1)


def regrets(outcomes: Sequence[Outcome]) -> Regrets:
    """From the outcomes of every method on every problem."""
    problems = list(dict.fromkeys(o.problem for o in outcomes))
    methods = list(dict.fromkeys(o.method for o in outcomes))
    accuracy = np.full((len(methods), len(problems)), np.nan)
    diverged = np.zeros(accuracy.shape, int)
    for o in outcomes:
        at = methods.index(o.method), problems.index(o.problem)
        lost = [bad is not None for bad in o.diverged]
        accuracy[at] = 100 * np.mean(np.where(lost, 0.0, o.accuracy))
        diverged[at] = sum(lost)
    assert np.isfinite(accuracy).all(), "a method is missing on a problem"
    order = np.argsort((accuracy.max(axis=0) - accuracy).mean(axis=1), kind="stable")
    return Regrets(problems, [methods[i] for i in order], accuracy[order], diverged[order])


@dataclass(frozen=True)
class Found:
    """The contexts that a method found on a problem, a seed each."""

    method: str
    problem: str
    true: int | None
    seeds: list[int]
    k: list[int | None]
    """None where the run diverged."""
    ari: list[float | None]

    @property
    def exact(self) -> int | None:
        """Seeds with the true number of contexts and every client in its own; None where there is no truth."""
        if self.true is None:
            return None
        return sum(k == self.true and a is not None and a >= 1 - 1e-9 for k, a in zip(self.k, self.ari, strict=True))


def found_contexts(outcomes: Sequence[Outcome], true: dict[str, int | None]) -> list[Found]:
    """Of the methods that have contexts; outcomes of one method and problem (other seeds) are joined."""
    having = {o.method for o in outcomes if any(k is not None for k in o.k)}
    joined: dict[tuple[str, str], list[Outcome]] = {}
    for o in outcomes:
        if o.method in having:
            joined.setdefault((o.method, o.problem), []).append(o)
    return [
        Found(
            method,
            problem,
            true[problem],
            [s for o in them for s in o.seeds],
            [k for o in them for k in o.k],
            [a for o in them for a in o.ari],
        )
        for (method, problem), them in joined.items()
    ]
