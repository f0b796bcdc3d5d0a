"""A sweep of CGPFL over λ and seeds in one program, against one run.

The problem is the README's: scikit-learn's digits, 40 clients, four hidden rotations, MLR.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks.bench.check import agree, difference
from benchmarks.bench.machine import fresh_programs
from benchmarks.bench.result import Sweep
from cgpfl.algorithms import CGPFL
from cgpfl.data import make_data
from cgpfl.engine import simulate
from cgpfl.engine.together import Run, simulate_together
from cgpfl.models import as_model

PROX = tuple(float(v) for v in np.geomspace(1, 15, 9))
SEEDS = 5
BARS = {"cpu": 10.0, "gpu": 3.0}
"""A sweep should cost less than this many single runs, compilation included."""


def run_sweep(rounds: int, prox: tuple[float, ...] = PROX, seeds: int = SEEDS) -> Sweep:
    """Time both twice: the first time everything is compiled, as in a new process."""
    data = make_data("digits", "rotation", clients=40, contexts=4, seed=0)
    model = as_model("mlr", data.shape, data.classes)
    settings: dict[str, Any] = {"rounds": rounds, "eval_every": max(1, rounds // 10)}
    methods = [CGPFL(contexts=4, prox=v, personal_rate=0.05, warmup=0) for v in prox]
    runs = [Run(method, data, seed) for method in methods for seed in range(seeds)]
    single = _twice(lambda: simulate(runs[0].method, data, model, seed=runs[0].seed, **settings))
    many = _twice(lambda: simulate_together(runs, model, **settings))
    alone, inside = single[2][0].clients, many[2][0][0].clients
    start = jax.tree.map(np.zeros_like, alone)
    return Sweep(
        runs=len(runs),
        rounds=rounds,
        single_first=single[0],
        single_again=single[1],
        sweep_first=many[0],
        sweep_again=many[1],
        bar=BARS.get(jax.default_backend(), BARS["gpu"]),
        difference=agree("sweep", "a run inside it", difference(alone, inside, start), 1e-2),
    )


def _twice(f: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of a first and of a second call, and what the second gave."""
    with fresh_programs():
        start = time.perf_counter()
        jax.block_until_ready(f())
        first = time.perf_counter() - start
        start = time.perf_counter()
        found = f()
        jax.block_until_ready(found)
        return first, time.perf_counter() - start, found
