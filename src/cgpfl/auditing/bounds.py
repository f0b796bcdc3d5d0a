"""What scores of samples say: how well members are told from others, and which ε that contradicts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.stats import binom, rankdata

CONFIDENCE = 0.95
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Shares of the canaries that are guessed, the surest first; the best is taken, and paid for (Bonferroni)."""
LARGEST = 50.0
"""ε up to which a lower bound is searched."""


def auc(members: np.ndarray, others: np.ndarray) -> float:
    """Chance that a member scores higher than another sample, ties half; 0.5 = the scores tell nothing."""
    ranks = rankdata(np.concatenate([members, others]))
    n, m = len(members), len(others)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def found_at(members: np.ndarray, others: np.ndarray, share: float) -> float:
    """Share of the members that is found where at most ``share`` of the others is taken for members."""
    most = int(share * len(others))
    bar = np.sort(others)[::-1][most]
    return float((members > bar).mean())


class LowerBound(NamedTuple):
    """An ε that the guesses about canaries contradict: the mechanism has at least this one."""

    epsilon: float
    canaries: int
    guesses: int
    right: int
    confidence: float = CONFIDENCE


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Chance of so many right guesses, or more, if the mechanism were (ε, δ)-DP.

    Steinke, Nasr, Jagielski: Privacy Auditing with One (1) Training Run, NeurIPS 2023, Theorem 5.2: right guesses are
    at most Binomial(r, e^ε/(1 + e^ε)), and δ adds 2mδ·max_i P[right - i <= W < right]/i.
    """
    chance = 1 / (1 + math.exp(-epsilon))
    whole = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or right == 0:
        return min(whole, 1.0)
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    return min(whole + 2 * canaries * delta * float((below / np.arange(1, right + 1)).max()), 1.0)


def contradicted(canaries: int, guesses: int, right: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """The largest ε at which so many right guesses have a chance of at most 1 - confidence; 0 if there is none."""
    level = 1 - confidence
    if p_value(canaries, guesses, right, 0.0, delta) > level:
        return 0.0
    low, high = 0.0, LARGEST
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(canaries, guesses, right, middle, delta) <= level else (low, middle)
    return low


def lower_bound(scores: np.ndarray, inside: np.ndarray, delta: float, confidence: float = CONFIDENCE) -> LowerBound:
    """From scores of canaries ``[m]`` and which of them, by coins, were ``inside [m]``: high scores are guessed inside.

    Of every share the highest half is guessed inside and the lowest outside; in between nothing is said.
    """
    m, order = len(scores), np.argsort(scores, kind="stable")
    best = LowerBound(0.0, m, 0, 0, confidence)
    for share in SHARES:
        half = max(int(share * m) // 2, 1)
        right = int((~inside[order[:half]]).sum() + inside[order[m - half :]].sum())
        found = contradicted(m, 2 * half, right, delta, 1 - (1 - confidence) / len(SHARES))
        if best.guesses == 0 or found > best.epsilon:
            best = LowerBound(found, m, 2 * half, right, confidence)
    return best


def gaussian_epsilon(noise: float, rounds: int, delta: float) -> float:
    """ε of ``rounds`` releases of norm at most c, each with normal noise of deviation ``noise``·c on every number.

    By Rényi differential privacy: ρ = T/(2σ²), and ε = ρ + 2·sqrt(ρ·ln(1/δ)).
    """
    rho = rounds / (2 * noise**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def gaussian_noise(epsilon: float, rounds: int, delta: float) -> float:
    """The way back: the noise multiplier σ of an ε; sqrt(ρ) = sqrt(ln(1/δ) + ε) - sqrt(ln(1/δ))."""
    far = math.log(1 / delta)
    return math.sqrt(rounds / 2) / (math.sqrt(far + epsilon) - math.sqrt(far))
