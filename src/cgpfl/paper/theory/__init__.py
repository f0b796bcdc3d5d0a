"""The paper's two theorems, measured on runs: docs/theory.md says what each number is."""

from cgpfl.contexts import transition
from cgpfl.paper.theory.convergence import (
    Constants,
    ConvergenceBound,
    Reading,
    StepCondition,
    bound,
    step_condition,
)
from cgpfl.paper.theory.generalization import GeneralizationBound, generalization
from cgpfl.paper.theory.prox import Approximation, Exact, Prox, approximation, exact, prox
from cgpfl.paper.theory.rate import RateCheck, rate_check, running_mean
from cgpfl.paper.theory.smoothness import Smoothness, mlr_bound, smoothness
from cgpfl.paper.theory.symbols import Spread, Symbols, contexts_of, spread, symbols
from cgpfl.paper.theory.trace import Transition, Watched, inspect, mean_distance, watch

__all__ = [
    "Approximation",
    "Constants",
    "ConvergenceBound",
    "Exact",
    "GeneralizationBound",
    "Prox",
    "RateCheck",
    "Reading",
    "Smoothness",
    "Spread",
    "StepCondition",
    "Symbols",
    "Transition",
    "Watched",
    "approximation",
    "bound",
    "contexts_of",
    "exact",
    "generalization",
    "inspect",
    "mean_distance",
    "mlr_bound",
    "prox",
    "rate_check",
    "running_mean",
    "smoothness",
    "spread",
    "step_condition",
    "symbols",
    "transition",
    "watch",
]
