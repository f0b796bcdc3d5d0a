"""What a full comparison ranks first on a federation with clients of its own: what advice is held against.

The five ways of :data:`cgpfl.advice.study.CANDIDATES`, each as a method of its own with the settings of the command
that advice would give, the default 200 rounds, and other rates than advice tries. Splits are random, a quarter of each
client's samples for testing, and are none of advice's; the rate is chosen on a quarter of the training samples.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

import cgpfl
from cgpfl.advice.folds import everything
from cgpfl.advice.study import CANDIDATES, MANY, MOST, NAMES, Candidate
from cgpfl.advice.weigh import LEVEL, over_clients
from cgpfl.algorithms import get_method
from cgpfl.data import FederatedData, IndexTable
from cgpfl.engine.settings import Settings
from cgpfl.engine.together import Run
from cgpfl.experiment import Experiment
from cgpfl.experiment.batch import Batch, run_batch
from cgpfl.experiment.run import checked

RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
ROUNDS, SHORT = 200, 50
"""Of the comparison, and of advice's study: scores after as many are noted, too."""
SHARE = 0.25
"""Of a client's samples, for testing; of the others, for choosing the rate."""


def cut(parts: list[np.ndarray], split: int, stage: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Each client's samples in two: most of them, and a share of them, at least one."""
    kept, held = [], []
    for i, part in enumerate(parts):
        mixed = np.random.default_rng([1000 + split, stage, i]).permutation(part)
        count = max(round(SHARE * len(part)), 1)
        held.append(mixed[:count])
        kept.append(mixed[count:])
    return kept, held


def sets_of(data: FederatedData, split: int) -> list[FederatedData]:
    """To test with, and to choose the rate with."""
    train, test = cut(everything(data), split, 0)
    both = [(train, test), cut(train, split, 1)]
    return [replace(data, train=IndexTable.of(a), test=IndexTable.of(b), validation=None) for a, b in both]


def method_of(way: Candidate, rate: float, clients: int) -> Any:
    """The method of the command that advice would give."""
    method = re.findall(r"--method (\S+)", way.command)[0]
    settings = dict(re.findall(rf"--set {method}\.(\w+)=(\S+)", way.command))
    values: dict[str, Any] = {k: rate if v == "{rate}" else float(v) for k, v in settings.items()}
    if "inner_steps" in values:
        values["inner_steps"] = int(values["inner_steps"])
    if method == "cgpfl-auto" and clients > MANY:
        values["most"] = MOST
    return get_method(method, values)


def compare_once(source: str, way: str, split: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """One way on one split: test samples, and sums of right answers of each client ``[N]``."""
    data = cgpfl.make_data(source)
    sets = sets_of(data, split)
    model = Experiment.of(["local"], data, "mlr", {}, "ranking").make_model(data)
    candidate = CANDIDATES[NAMES.index(way)]
    methods = [checked(method_of(candidate, rate, data.clients), data, Settings(rounds=rounds)) for rate in RATES]
    engine = {"rounds": rounds, "eval_every": min(SHORT, rounds)}
    done = run_batch(Batch(way, [Run(m, d, 1000 + split) for d in sets for m in methods], model, engine))
    found: dict[str, Any] = {"counts": sets[0].test.counts.tolist()}
    for name, at in (("short", min(SHORT, rounds)), ("full", rounds)):
        ends = [d.records.values["correct"][d.records.rounds.index(at)] if d.diverged is None else None for d in done]
        chosen = [-1.0 if e is None else float(e.sum()) for e in ends[len(RATES) :]]
        best = int(np.argmax(chosen))
        right = ends[best]
        found[name] = {"rate": RATES[best], "correct": None if right is None else right.tolist()}
    return found


def ranking(lines: list[dict[str, Any]], after: str = "full") -> dict[str, Any]:
    """Scores of the ways, the p of each against the best, and those that cannot be told from it.

    ``lines``: one of every way and split, as :func:`compare_once` gives them, with "way" and "split".
    """
    splits = sorted({line["split"] for line in lines})
    by = {(line["way"], line["split"]): line for line in lines}
    counts = np.array([by[NAMES[0], s]["counts"] for s in splits], float)  # [S, N]
    sums = {way: [by[way, s][after]["correct"] for s in splits] for way in NAMES}
    correct = {way: np.array(v, float) for way, v in sums.items() if all(one is not None for one in v)}
    score = {way: float(c.sum() / counts.sum()) for way, c in correct.items()}
    best = max(score, key=lambda way: score[way])
    p = {way: 1.0 if way == best else paired(c - correct[best], counts) for way, c in correct.items()}
    return {
        "best": best,
        "score": {way: round(v, 4) for way, v in score.items()},
        "p": {way: round(v, 4) for way, v in p.items()},
        "tied": [way for way in p if p[way] >= LEVEL],
    }


def paired(apart: np.ndarray, counts: np.ndarray) -> float:
    """Two-sided p that two ways score alike, over clients and over splits: the larger, as advice takes it.

    ``apart [S, N]``: differences of sums of right answers. Splits overlap: Nadeau and Bengio's correction for them.
    """
    from scipy.stats import t

    each = apart.sum(axis=1) / counts.sum(axis=1)
    error = np.sqrt((1 / len(each) + SHARE / (1 - SHARE)) * each.var(ddof=1))
    if error < 1e-12:
        over_splits = float(abs(each.mean()) < 1e-12)
    else:
        over_splits = float(2 * t.sf(abs(each.mean()) / error, len(each) - 1))
    return max(over_splits, over_clients(apart, counts))
