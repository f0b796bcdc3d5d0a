"""The study: every candidate on every fold with every rate, in three programs.

Five candidates come from three methods, because two of them are on the way to others: the model that FedAvg with
fine-tuning tunes is FedAvg's, and CGPFL-Auto's context models are the models of contexts. All draw equally many
minibatches in a round and take one step on each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from cgpfl.advice.folds import SHARES, Folds
from cgpfl.algorithms import CGPFLAuto, get_method
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from cgpfl.engine.settings import Settings
from cgpfl.engine.together import Run
from cgpfl.errors import CgpflError
from cgpfl.experiment.batch import Batch, Done, run_batch
from cgpfl.experiment.records import Cost
from cgpfl.experiment.run import Progress, checked
from cgpfl.metrics import agreement


@dataclass(frozen=True)
class Candidate:
    """One way to train."""

    name: str
    program: str
    """The method whose runs it is measured on,"""
    record: str
    """and what of their records."""
    does: str
    """Who shares what, in words."""
    command: str
    """How it is run for good, beside the data; ``{rate}``: the one that was chosen."""


CANDIDATES = (
    Candidate(
        *("alone", "local", "correct", "every client trains alone; nothing is sent"),
        "--method local --set local.rate={rate}",
    ),
    Candidate(
        *("one model", "fedavg-ft", "shared_correct", "one model for everybody"),
        "--method fedavg --set fedavg.rate={rate}",
    ),
    Candidate(
        *("one model, tuned", "fedavg-ft", "correct", "one model, which each client tunes on its own samples"),
        "--method fedavg-ft --set fedavg-ft.rate={rate} --set fedavg-ft.tune_rate={rate}",
    ),
    Candidate(
        *("contexts", "cgpfl-auto", "shared_correct", "clients that are alike share a model"),
        "--method cgpfl-auto --set cgpfl-auto.inner_steps=1 --set cgpfl-auto.rate={rate} --set cgpfl-auto.prox=1e6",
    ),
    Candidate(
        *("contexts + personal", "cgpfl-auto", "correct", "a model for each client, held near that of its context"),
        "--method cgpfl-auto --set cgpfl-auto.inner_steps=1 --set cgpfl-auto.rate={rate} "
        "--set cgpfl-auto.personal_rate={rate}",
    ),
)
"""From the simplest on."""
NAMES = tuple(c.name for c in CANDIDATES)
RATES = (0.02, 0.1, 0.5)
"""Tried for every candidate."""
RATED = {"local": ("rate",), "fedavg-ft": ("rate", "tune_rate"), "cgpfl-auto": ("rate", "personal_rate")}
"""The programs, and what in them the rate is."""
FIXED: dict[str, dict[str, Any]] = {"cgpfl-auto": {"inner_steps": 1}}
"""What is not as usual: one step a minibatch, as the others take."""
MANY, MOST = 64, 16
"""Of more clients than the first, at most so many contexts are looked for: the search is most of the time then."""
SHOWN = {"local": "alone", "fedavg-ft": "one model", "cgpfl-auto": "contexts"}
"""What progress calls the programs."""


@dataclass(frozen=True)
class Study:
    """What was measured. F folds, N clients."""

    counts: np.ndarray
    """Test samples ``[F, N]``."""
    correct: dict[str, np.ndarray]
    """Of each candidate: sums of scores (right answers) ``[F, N]``; NaN where training diverged with every rate."""
    rates: dict[str, tuple[float, ...]]
    """Of each candidate: the rate chosen in each fold ``[F]``."""
    smaller: np.ndarray
    """Alone with shares of the training samples: sums of scores ``[shares, F, N]``."""
    trained: np.ndarray
    """Training samples alone had: at each share and with all ``[shares + 1, N]``, means over folds."""
    k: tuple[int, ...]
    """Contexts found in each fold ``[F]``."""
    assignments: np.ndarray
    """``[F, N]``."""
    costs: dict[str, dict[str, float]]
    """Of one training run of each candidate: bytes, gradients, seconds."""

    def rate(self, name: str) -> float:
        """The rate that most folds chose."""
        return max(sorted(set(self.rates[name])), key=self.rates[name].count)

    def contexts(self) -> tuple[int, np.ndarray, int, float]:
        """K that most folds found, the assignment ``[N]`` most like the others', folds with that K, their agreement."""
        k = max(sorted(set(self.k)), key=self.k.count)
        folds = [f for f, own in enumerate(self.k) if own == k]
        alike = np.array([[agreement(self.assignments[a], self.assignments[b]) or 0.0 for b in folds] for a in folds])
        best = folds[int(alike.sum(axis=1).argmax())]
        mean = 1.0 if len(folds) == 1 else float(alike[~np.eye(len(folds), dtype=bool)].mean())
        used = np.unique(self.assignments[best], return_inverse=True)[1]  # a context may have lost its last member
        return int(used.max()) + 1, used, len(folds), mean


def batches(folds: Folds, model: Any, rounds: int, seed: int) -> dict[str, Batch]:
    """The three programs: each rate on each fold, outer and inner; of local training smaller shares, too."""
    engine = {"rounds": rounds, "eval_every": rounds}
    found: dict[str, Batch] = {}
    fixed = FIXED | ({"cgpfl-auto": {**FIXED["cgpfl-auto"], "most": MOST}} if folds.data.clients > MANY else {})
    for program, named in RATED.items():
        methods = [
            checked(
                get_method(program, {**fixed.get(program, {}), **dict.fromkeys(named, rate)}),
                folds.data,
                Settings(rounds=rounds),
            )
            for rate in RATES
        ]
        sets = [*folds.outer, *folds.inner]
        sets += [d for part in folds.smaller for d in part] if program == "local" else []
        found[program] = Batch(SHOWN[program], [Run(m, d, seed) for m in methods for d in sets], model, engine)
    return found


def study(
    folds: Folds, model: Any, rounds: int, seed: int, on_progress: Callable[[Progress], None] | None = None
) -> Study:
    """Run everything, choose rates on the inner runs, and keep what the outer runs with these rates scored."""
    size, count = len(folds.outer), folds.counts
    todo = batches(folds, model, rounds, seed)

    def tell(p: Progress) -> None:
        if on_progress is not None:
            on_progress(dataclasses.replace(p, accuracy=None))  # a mean over rates and shares says nothing

    done = {program: run_batch(batch, on_progress=tell) for program, batch in todo.items()}
    correct, rates, costs = {}, {}, {}
    picked: dict[str, np.ndarray] = {}
    for c in CANDIDATES:
        sums = _sums(todo[c.program].todo, done[c.program], c.record)  # [rates][sets, N]
        validation = np.array([[_score(own[size + f], folds.inner[f]) for f in range(size)] for own in sums])
        picked[c.name] = validation.argmax(axis=0)  # [F]
        correct[c.name] = np.stack([sums[picked[c.name][f]][f] for f in range(size)])
        rates[c.name] = tuple(RATES[p] for p in picked[c.name])
        costs[c.name] = _cost(todo[c.program], done[c.program], rounds)
    alone = _sums(todo["local"].todo, done["local"], "correct")
    smaller = [[alone[picked["alone"][f]][(2 + s) * size + f] for f in range(size)] for s in range(len(SHARES))]
    sets = [*folds.smaller, folds.outer]
    own = done["cgpfl-auto"]
    ends = [own[picked["contexts + personal"][f] * 2 * size + f] for f in range(size)]
    if not all(d.records.rounds for d in ends):
        raise CgpflError("advise: contexts: training diverged with every rate; scale the data, or use another model")
    return Study(
        counts=count,
        correct=correct,
        rates=rates,
        smaller=np.array(smaller),
        trained=np.stack([np.mean([d.train.counts for d in part], axis=0) for part in sets]),
        k=tuple(int(d.records.values["k"][-1]) for d in ends),
        assignments=np.stack([d.records.values["context"][-1] for d in ends]),
        costs=costs,
    )


def _sums(todo: Sequence[Run], done: Sequence[Done], record: str) -> list[list[np.ndarray]]:
    """Sums of scores of each client at the end, ``[rates][sets][N]``; NaN where a run diverged."""
    ends = [
        d.records.values[record][-1].astype(float)
        if d.diverged is None and d.records.rounds
        else np.full(r.data.clients, np.nan)
        for r, d in zip(todo, done, strict=True)
    ]
    each = len(ends) // len(RATES)
    return [ends[i * each : (i + 1) * each] for i in range(len(RATES))]


def _score(sums: np.ndarray, data: FederatedData) -> float:
    score = float(sums.sum() / data.test.counts.sum())
    return score if np.isfinite(score) else -np.inf


def _cost(batch: Batch, done: Sequence[Done], rounds: int) -> dict[str, float]:
    """Of one run: bytes up and down, gradients, and its share of its program's seconds."""
    first = batch.todo[0]
    cost = Cost.of(Simulation(first.method, first.data, batch.model, **batch.engine))
    total = cost.after(rounds, rounds * first.data.clients)
    return {
        "bytes": float(total["bytes_up"] + total["bytes_down"]),
        "gradients": float(total["gradients"]),
        "seconds": float(np.mean([d.seconds for d in done])),
    }


COMPILING = 45.0
"""Seconds that compiling the three programs takes on two slow cores, when it has never been done."""
SPEED = 1.0e10
"""Floating-point operations a second that clients' steps reach on two cores."""
SEARCH = 8e-6
"""Seconds that looking for contexts takes for each pair of clients and each K (measured with 40 and 150 clients)."""


def estimate(folds: Folds, model: Any, rounds: int) -> float:
    """Seconds a study may take, roughly: on a CPU of two cores, programs not yet compiled."""
    size = sum(int(np.prod(v.shape)) for v in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))))
    sets = len(RATES) * len(folds.outer)
    steps = 10 * rounds * folds.data.clients
    runs = sets * (4 + 2 + 2 * 2)  # CGPFL-Auto trains two models
    clients = folds.data.clients
    most = min(clients, MOST if clients > MANY else CGPFLAuto().most)
    return COMPILING + runs * steps * 6.0 * 20 * size / SPEED + 2 * sets * SEARCH * clients**2 * most
