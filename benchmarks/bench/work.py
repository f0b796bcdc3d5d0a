"""The work that is timed: a round of a method with a model on a federation of some size.

R = 10 minibatches of 20 samples, S = 5 inner steps on each (FedAvg: one). The samples are synthetic: 60,000
of 28×28 as MNIST's, 32×32×3 as CIFAR's for the CNN, uint8, dealt to the clients in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cgpfl.algorithms import CGPFL, FedAvg, PFedMe
from cgpfl.data import FederatedData
from cgpfl.models import Model, as_model

CLASSES = 10
SCALE = 1 / 255
SIZES = {"mlr": (28, 28), "dnn": (28, 28), "cnn": (32, 32, 3)}


@dataclass(frozen=True)
class Case:
    """One line of the benchmark."""

    method: str
    model: str
    clients: int
    samples: int = 60_000

    @property
    def name(self) -> str:
        """For progress and messages."""
        return f"{self.method} {self.model}, {self.clients} clients"


def method_of(name: str) -> Any:
    """The method, with rates at which every model stays finite. CGPFL is the paper's, without a warm-up."""
    if name == "cgpfl":
        return CGPFL(contexts=4, personal_rate=0.05, warmup=0)
    return PFedMe(personal_rate=0.05) if name == "pfedme" else FedAvg(rate=0.05)


def model_of(name: str) -> Model:
    """The model, for samples of its size."""
    return as_model(name, SIZES[name], CLASSES)


@lru_cache(maxsize=1)
def _samples(shape: tuple[int, ...], samples: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (samples, *shape), dtype=np.uint8), rng.integers(0, CLASSES, samples)


def federation(case: Case) -> FederatedData:
    """The clients' samples."""
    x, y = _samples(SIZES[case.model], case.samples)
    parts = [np.arange(i, case.samples, case.clients) for i in range(case.clients)]
    return FederatedData.from_parts(x, y, parts, classes=CLASSES, scale=SCALE)


@dataclass(frozen=True)
class Rule:
    """What a client does in a round, in numbers: R times a minibatch, then S times

        θ ← θ − η(∇f(θ) + λ(θ − ω̃)),   and then   ω̃ ← ω̃ − rate·(ω̃ − θ)

    FedAvg is S = 1, λ = 0 without ω̃ (``pull`` is None).
    """

    local_rounds: int  # R
    inner_steps: int  # S
    batch: int
    rate: float  # η
    prox: float  # λ
    pull: float | None  # the rate of ω̃
    l2: float  # of the model: ∇f has l2·θ in it


def rule_of(case: Case) -> Rule:
    """The client's work of a case."""
    method, l2 = method_of(case.method), model_of(case.model).l2
    common = {"local_rounds": method.local_rounds, "batch": method.batch_size, "l2": l2}
    if case.method == "fedavg":
        return Rule(inner_steps=1, rate=method.rate, prox=0.0, pull=None, **common)
    pull = method.context_rate if case.method == "cgpfl" else method.global_rate
    return Rule(inner_steps=method.inner_steps, rate=method.personal_rate, prox=method.prox, pull=pull, **common)
