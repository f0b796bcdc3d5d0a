"""How a method is run, whatever the method: declared once, for Python, TOML, the command line and deployments."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cgpfl.attacks import ATTACKS, Attack, Nobody
from cgpfl.engine.precision import PRECISIONS
from cgpfl.hyperparameters import component, hyper
from cgpfl.metrics import DEFAULT
from cgpfl.objectives import LOSSES
from cgpfl.rounds import MEANS, OUTGOING, SAMPLERS, Mean, Outgoing, Sampler, Uniform, WeightedMean

PLACE = ("devices", "store")
"""Settings that say where a run is computed."""
SEAMS = ("sampler", "outgoing", "mean", "attack")
"""Settings that are rules of a round: they go around every method (see :class:`~cgpfl.algorithms.wrapper.Seamed`)."""
NAMES = tuple(dict.fromkeys(name for names in LOSSES.values() for name in names))
PRIVACY: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-5, "privacy": "client", "clip": 1.0, "trusted": "nobody"}
"""Settings of privacy, as they are where nothing is said."""
UNSAID: dict[str, Any] = {
    "patience": 0,
    "precision": "default",
    "metrics": list(DEFAULT),
    "model.recompute": False,
} | PRIVACY
"""What a fingerprint means where it does not say: runs made before there was a choice stay the same.

:meth:`Settings.engine` leaves its settings out at these values.
"""


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What a fingerprint that was read says otherwise than one of now: name, value then, value now."""
    now = json.loads(json.dumps(now))  # as it is written
    for name in now | before:
        was, is_ = (of.get(name, UNSAID.get(name)) for of in (before, now))
        if was != is_:
            yield name, was, is_


@dataclass(frozen=True)
class Settings:
    """What every engine takes. The ranges are checked by :func:`cgpfl.hyperparameters.validate`."""

    seed: int = hyper(0, "seed of everything random", low=0, high=2**32 - 1)
    rounds: int = hyper(200, "communication rounds", low=1, high=10**9)
    eval_every: int = hyper(0, "rounds between evaluations; 0 = about 100 evaluations", low=0, high=10**9)
    patience: int = hyper(0, "evaluations without a better validation score until a run stops; 0 = never", low=0)
    participation: float = hyper(1.0, "share of the clients asked in a round", above=0, high=1)
    dropout: float = hyper(0.0, "chance that a client asked does not answer", low=0, high=0.99)
    clients_per_block: int = hyper(0, "clients computed at once; 0 = what fits", low=0)
    devices: int | str = hyper("auto", "devices that share the clients", kind=int, low=1, words=("auto", "all"))
    store: str = hyper("auto", "where personal states are between rounds", words=("auto", "device", "host", "disk"))
    precision: str = hyper("default", "of the clients' matrix products; default = JAX's own", words=PRECISIONS)
    loss: str = hyper("auto", "what training minimises; auto = the task's own", words=("auto", *NAMES))
    frozen: str = hyper(
        "", "patterns of parameters that nobody trains or sends, such as base.*; none = the model's own"
    )
    metrics: tuple[str, ...] = hyper(DEFAULT, "what is measured of clients' models", kind=tuple, labels=str)
    sampler: Sampler = component(Uniform(), "who is asked in a round", SAMPLERS)  # noqa: RUF009
    outgoing: tuple[Outgoing, ...] = component((), "what becomes of an update before it leaves", OUTGOING, many=True)
    mean: Mean = component(WeightedMean(), "how uploads become a mean", MEANS)  # noqa: RUF009
    epsilon: float = hyper(math.inf, "ε: how much a run's uploads may tell; inf = anything", above=0, high=math.inf)
    delta: float = hyper(1e-5, "δ: chance that ε does not hold", above=0, high=0.1)
    privacy: str = hyper("client", "whose: a client's, or each of its samples'", words=("client", "sample"))
    clip: float = hyper(1.0, "for privacy: largest norm of an upload, or of a sample's gradient", above=0)
    trusted: str = hyper("nobody", "who may see an upload with too little noise", words=("nobody", "server"))
    attack: Attack = component(Nobody(), "who lies, and how, in a simulation", ATTACKS)  # noqa: RUF009

    @property
    def every(self) -> int:
        """Rounds between two evaluations."""
        return self.eval_every or max(1, self.rounds // 100)

    def engine(self) -> dict[str, Any]:
        """What a run's numbers depend on, as arguments of :class:`~cgpfl.engine.Simulation`."""
        others = (*PLACE, *SEAMS, "loss", "frozen")  # these two are the model's
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(Settings) if f.name not in others}
        values |= {"eval_every": self.every, "metrics": list(self.metrics)}
        return {name: value for name, value in values.items() if UNSAID.get(name) != value}

    def seams(self) -> dict[str, Any]:
        """The rules of a round that are not the usual ones."""
        usual = {f.name: f.default for f in dataclasses.fields(Settings)}
        return {name: getattr(self, name) for name in SEAMS if getattr(self, name) != usual[name]}

    def place(self) -> dict[str, Any]:
        """Where it is computed; a run may go on elsewhere."""
        return {name: getattr(self, name) for name in PLACE}
