"""A study made by hand: nothing is trained, so words and pages are quick to test."""

import numpy as np
import pandas as pd

from cgpfl.advice.advice import concluded, prepare
from cgpfl.advice.folds import SHARES
from cgpfl.advice.study import NAMES, Study
from cgpfl.data import FederatedData

CLIENTS, EACH = 8, 40


def frame(seed=0):
    """Eight clients of 40: those with an even number are older, the others mostly in Rome."""
    draw = np.random.default_rng(seed)
    parts = []
    for i in range(CLIENTS):
        old = i % 2 == 0
        age = draw.normal(60.0 if old else 40.0, 10.0, EACH)
        city = draw.choice(["Oslo", "Rome"], EACH, p=(0.9, 0.1) if old else (0.2, 0.8))
        ill = np.where(draw.random(EACH) < 0.5, "ill", "well")
        parts.append(pd.DataFrame({"ward": f"ward {i}", "age": age, "noise": draw.normal(size=EACH), "city": city}))
        parts[-1]["outcome"] = ill
    return pd.concat(parts, ignore_index=True)


def federation(table=None, **more):
    return FederatedData.from_frame(frame() if table is None else table, client="ward", label="outcome", **more)


def advice(score=None, k=2, folds=5, data=None):
    """Advice from a study in which each way scores what it is said to, nearly alike in every fold and client."""
    score = {"alone": 0.6, "one model": 0.65, "one model, tuned": 0.7, "contexts": 0.9} | (score or {})
    score.setdefault("contexts + personal", score["contexts"])
    plan = prepare(federation() if data is None else data, folds=folds, rounds=20)
    counts = plan.folds.counts
    runs = len(counts)
    draw = np.random.default_rng(1)
    n = counts.shape[1]
    correct = {name: counts * (score[name] + draw.normal(0, 0.01, counts.shape)) for name in NAMES}
    correct["contexts + personal"] = (
        correct["contexts"] if score["contexts"] == score["contexts + personal"] else (correct["contexts + personal"])
    )
    labels = np.arange(n) if k >= n else np.arange(n) % k
    found = Study(
        counts=counts,
        correct=correct,
        rates=dict.fromkeys(NAMES, (0.1,) * runs),
        smaller=np.stack([counts * (score["alone"] - 0.1 * (2 - s)) for s in range(len(SHARES))]),
        trained=np.stack([np.full(n, m) for m in (8.0, 16.0, 32.0)]),
        k=(k,) * runs,
        assignments=np.stack([labels] * runs),
        costs={name: {"bytes": 1e6 * i, "gradients": 1e4, "seconds": 0.5} for i, name in enumerate(NAMES)},
    )
    return concluded(plan, found, 12.0)
