"""What privacy costs: ε of so many noisy uploads or gradients, and the noise that an ε allows. By dp-accounting.

Two neighbours, two levels. *Client*: an upload against an upload of nothing (zero-out); each is a Gaussian mechanism of
sensitivity C, and the composition of Gaussian mechanisms is one again, so its ε is exact. That cohorts are drawn at
random saves nothing: who is asked follows from the seed, which everybody knows. *Sample*: a client's data with and
without one sample (add or remove); minibatches are Poisson samples, and Rényi divergences add up over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from cgpfl.errors import CgpflError

ORDERS = (*range(2, 65), 72, 80, 96, 128, 192, 256, 512, 1024)
"""Of the Rényi divergences that are looked at: whole ones, which have a finite sum."""
OVERFLOW = 1e-12
"""Chance that a Poisson sample is larger than there is room for; added to δ for each one that is drawn."""
MOST_NOISE = 1e6


class Steps(NamedTuple):
    """Noisy gradients of one client: in so many rounds, on so many minibatches a round, so many on each.

    ``folds``: each of these rounds looks at ``held`` of so many folds of the samples, in turn.
    """

    rounds: int
    minibatches: int
    gradients: int
    batch_size: int
    folds: int = 1
    held: int = 1

    def seen(self, samples: int) -> tuple[float, int]:
        """Share of the samples in a minibatch, and the minibatches that one sample may be in."""
        held = max(samples * self.held // self.folds, 1)
        share = 1.0 if self.batch_size == 0 else min(1.0, self.batch_size / held)
        if samples < self.folds:  # folds without a sample of their own have another's: one may be in all
            return share, self.rounds * self.minibatches
        full, rest = divmod(self.rounds, self.folds)
        return share, (full * self.held + min(rest, self.held)) * self.minibatches


def room(batch_size: int) -> int:
    """Places of a Poisson sample of ``batch_size`` on average: one that needs more is as rare as :data:`OVERFLOW`."""
    bound = -math.log(OVERFLOW)
    return math.ceil(batch_size + bound / 3 + math.sqrt(bound * bound / 9 + 2 * bound * batch_size))


def _accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError as error:
        raise CgpflError('privacy: needs dp-accounting; pip install "cgpfl[privacy]"') from error
    return dp_accounting


@cache
def of_uploads(noise: float, delta: float, times: float) -> float:
    """ε of ``times`` uploads, each with noise of ``noise`` · clip."""
    if times == 0:
        return 0.0
    return float(_accounting().get_epsilon_gaussian(noise / math.sqrt(times), delta))


@cache
def noise_of_uploads(epsilon: float, delta: float, times: int) -> float:
    """The noise, as a multiple of the clip, at which ``times`` uploads cost ``epsilon``."""
    return float(_accounting().get_sigma_gaussian(epsilon, delta)) * math.sqrt(times)


@cache
def of_steps(noise: float, delta: float, steps: tuple[Steps, ...], samples: int) -> float:
    """ε of a client's noisy gradients, for each of its ``samples``."""
    dp = _accounting()
    seen = [(*part.seen(samples), part.gradients) for part in steps]
    drawn = sum(times for share, times, _ in seen if share < 1.0)
    if not drawn:  # no sampling: Gaussian mechanisms, exactly
        return of_uploads(noise, delta, sum(times * each for _, times, each in seen))
    left = delta - drawn * OVERFLOW
    if left <= 0:
        return math.inf
    accountant = dp.rdp.RdpAccountant(list(ORDERS))
    for share, times, each in seen:
        event = dp.GaussianDpEvent(noise / math.sqrt(each))  # of several on one minibatch, the composition
        accountant.compose(dp.PoissonSampledDpEvent(share, event), times)
    return float(accountant.get_epsilon(left))


@cache
def noise_of_steps(epsilon: float, delta: float, steps: tuple[Steps, ...], samples: int) -> float:
    """The noise, as a multiple of the clip, at which a client's gradients cost ``epsilon``."""
    return least(lambda noise: of_steps(noise, delta, steps, samples) <= epsilon, epsilon)


def least(enough: Callable[[float], bool], epsilon: float) -> float:
    """The smallest noise, to a thousandth, that is ``enough``."""
    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_NOISE:
            raise CgpflError(f"epsilon = {epsilon:g}: no noise is enough for it; take fewer rounds, or a larger delta")
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def coarse(samples: int) -> int:
    """``samples``, rounded down to three binary digits: the noise is that of the fewer."""
    shift = max(int(samples).bit_length() - 3, 0)
    return max(int(samples) >> shift << shift, 1)
