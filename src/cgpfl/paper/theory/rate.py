"""Does a run converge as Theorem 4.1's bound says? What can be checked, and what cannot.

The theorem bounds M(T) = (1/T) Σ_{t<T} (1/K)‖∇G_K(Ω^t)‖² by O(a/T + b/sqrt(T) + c). Three things are checked:

- *below*: M(T) lies under the bound with its O(·) read as 1, at every T. Necessary, and weak: ``looseness`` says how
  many times too large the bound is at the end, and a bound 1000 times too large is hard to miss.
- *slope* of log M over log T after the first rounds. A running mean of non-negative numbers cannot fall faster than
  1/T, so the slope is between −1 (the gradient vanishes) and 0 (it stays); above −1/2 means slower than 1/sqrt(T).
- *fit* of M(T) by a/T + b/sqrt(T) + c with a, b, c ≥ 0: which of the three shapes the run shows.

They can contradict the theorem, not confirm it: constants inside O(·) are free, the run's gradient is at the
clients' own θ rather than at θ̂, and the theorem's step size depends on T while a run's does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from cgpfl.paper.theory.convergence import Constants


@dataclass(frozen=True)
class RateCheck:
    """A run's running mean of squared gradients beside the bound."""

    running: np.ndarray  # [T] M(1), ..., M(T)
    bound: np.ndarray  # [T]
    skip: int  # rounds left out of slope and fit
    slope: float
    fit: tuple[float, float, float]  # a, b, c of a/T + b/sqrt(T) + c
    misfit: float  # largest relative error of the fit

    @property
    def below(self) -> bool:
        """Whether the measured mean is under the bound at every T."""
        return bool((self.running <= self.bound).all())

    @property
    def looseness(self) -> float:
        """The bound over the measured mean, after the last round."""
        return float(self.bound[-1] / self.running[-1])

    def explain(self) -> str:
        T = len(self.running)
        parts = np.array(self.fit) * [1 / T, T**-0.5, 1.0]
        shares = 100 * parts / max(parts.sum(), 1e-300)
        speed = "at least as fast as 1/sqrt(T)" if self.slope <= -0.5 else "more slowly than 1/sqrt(T)"
        return (
            f"M({T}) = {self.running[-1]:.3g}, bound {self.bound[-1]:.3g} ({self.looseness:.3g} times as large), "
            f"{'below it' if self.below else 'ABOVE it somewhere'}\n"
            f"log-log slope {self.slope:.2f} after round {self.skip}: falls {speed}\n"
            f"fit: {shares[0]:.0f} % of M({T}) is of the 1/T shape, {shares[1]:.0f} % 1/sqrt(T), {shares[2]:.0f} % "
            f"constant (largest misfit {100 * self.misfit:.0f} %)"
        )


def running_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the first T values, for every T ``[T]``."""
    return np.cumsum(np.asarray(values, float)) / np.arange(1, len(values) + 1)


def rate_check(gradient: np.ndarray, constants: Constants, skip: int | None = None) -> RateCheck:
    """Compare ``gradient [T]``, the (1/K)‖∇G_K‖² of a watched run, with the bound's rate.

    ``skip`` rounds at the start are left out of slope and fit: a tenth of them, at least 5, unless given.
    """
    running = running_mean(gradient)
    T = np.arange(1, len(running) + 1)
    skip = max(5, len(T) // 10) if skip is None else skip
    late, m = T[skip:].astype(float), running[skip:]
    slope = float(np.polyfit(np.log(late), np.log(m), 1)[0])
    shapes = np.stack([1 / late, late**-0.5, np.ones_like(late)], axis=1)
    fit = nnls(shapes / m[:, None], np.ones_like(m))[0]
    misfit = float(np.abs(shapes @ fit / m - 1).max())
    return RateCheck(running, np.asarray(constants.bound(T)), skip, slope, (fit[0], fit[1], fit[2]), misfit)
