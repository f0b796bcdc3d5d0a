"""How many samples alone would take to do as well: a learning curve of local training, and where it may lead.

What is lost, 1 − score, falls with the number m of training samples about as b·m^(−c) (Hestness et al.: Deep Learning
Scaling is Predictable, Empirically. 2017) until it meets a floor that nobody sees from here. So the answer is "at
least": with a floor it takes more. Its range comes from drawing the clients again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FARTHEST = 8.0
"""Times the samples there are, beyond which nothing is said but that it is more."""
DRAWS = 400


@dataclass(frozen=True)
class Curve:
    """Alone with fewer samples, and how many times the samples would do as well as a target."""

    samples: np.ndarray
    """Training samples a client, means over clients: ``[points]``, the last is all there are."""
    score: np.ndarray
    """``[points]``."""
    target: float
    times: float | None
    """Times the samples, at least; infinite: more than :data:`FARTHEST`; None: it cannot be told."""
    low: float = float("nan")
    high: float = float("nan")
    """Of nine in ten draws of the clients; infinite as above."""

    def words(self) -> str:
        most = f"{FARTHEST:g} times as many"
        now = f"A client has {self.samples[-1]:.0f} training samples on average."
        if self.times is None:
            return (
                f"{now} How many would do as well alone cannot be told: with more samples alone did not get "
                "better in the range seen."
            )
        if self.times <= 1.0:
            return f"{now} Alone does as well with what there is."
        if np.isinf(self.times):
            return f"{now} Alone would need more than {most} to do as well."
        upper = f"more than {FARTHEST:g}" if np.isinf(self.high) else f"{self.high:.1f}"
        return (
            f"{now} Alone would need at least {self.times:.1f} times as many to do as well "
            f"(from {max(self.low, 1.0):.1f} to {upper}, by clients drawn anew)."
        )


def learning_curve(correct: np.ndarray, trained: np.ndarray, counts: np.ndarray, target: np.ndarray) -> Curve:
    """``correct [points, N]``: sums of scores alone; ``trained [points, N]``; ``counts [N]``; ``target [N]``: sums."""
    clients = len(counts)
    whole = np.arange(clients)
    samples = trained.mean(axis=1)
    score = correct.sum(axis=1) / counts.sum()
    aim = float(target.sum() / counts.sum())
    times = _times(correct, trained, counts, target, whole)
    draw = np.random.default_rng(0)
    found = [_times(correct, trained, counts, target, draw.integers(0, clients, clients)) for _ in range(DRAWS)]
    known = np.array([np.inf if t is None else t for t in found])
    low, high = (float(v) for v in np.quantile(known, (0.05, 0.95), method="nearest"))
    return Curve(samples, score, aim, times, low, high)


def _times(
    correct: np.ndarray, trained: np.ndarray, counts: np.ndarray, target: np.ndarray, who: np.ndarray
) -> float | None:
    """Times the samples at which alone reaches the target, for these clients; None: the curve does not fall."""
    lost = 1.0 - correct[:, who].sum(axis=1) / counts[who].sum()
    aim = 1.0 - target[who].sum() / counts[who].sum()
    if aim >= lost[-1] - 1e-9:
        return 1.0
    if not (np.isfinite(lost).all() and (lost > 0).all()):
        return None
    size = np.log(trained[:, who].mean(axis=1))
    slope, _ = np.polyfit(size, np.log(lost), 1)
    if slope > -0.02:
        return None
    if aim <= 0:
        return float("inf")
    times = float(np.exp(np.log(aim / lost[-1]) / slope))
    return times if times <= FARTHEST else float("inf")
