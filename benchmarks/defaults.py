"""The problems on which CGPFL-Auto's defaults were chosen: none of them is in the battery.

    python benchmarks/defaults.py [--problems NAME ...] [--seeds 3]

Fashion-MNIST and MNIST at 14 × 14 pixels, 40 clients with some 34 training samples unless said, and Gaussian tables;
MLR, 150 rounds. For each problem the accuracy at the defaults and with one rate changed. The rule that chooses K was
developed on the same problems: what it chose, and how well that agrees with the truth, is printed, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from cgpfl import CGPFLAuto, FederatedData
from cgpfl.data.sources import load
from cgpfl.engine.together import Run, simulate_together
from cgpfl.models import as_model

CLASSES = 10
CHANGES: dict[str, dict[str, float]] = {
    "defaults": {},
    "rate 0.05": {"rate": 0.05},
    "rate 0.2": {"rate": 0.2},
    "h 0.25": {"stiffness": 0.25},
    "h 1": {"stiffness": 1.0},
    "h 2": {"stiffness": 2.0},
    "personal rate 0.05": {"personal_rate": 0.05},
    "personal rate 0.2": {"personal_rate": 0.2},
}


@cache
def images(source: str) -> tuple[np.ndarray, np.ndarray]:
    raw = load(source)
    small = np.asarray(raw.x).reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255
    return small.astype(np.float32), np.asarray(raw.y)


def of_images(
    seed: int,
    groups: Sequence[int] = (10, 10, 10, 10),
    kind: str = "rotation",
    *,
    source: str = "fashion-mnist",
    samples: int = 45,
    sizes: tuple[int, int] | None = None,
    alpha: float | None = None,
    own: float = 0.0,
    coarse: bool = False,
) -> FederatedData:
    """Contexts of ``groups`` clients; ``alpha``: Dirichlet class shares of each client; ``own``: a shift of each.

    ``coarse``: 7 × 7 pixels, of which a client has nearly as many as samples.
    """
    rng = np.random.default_rng([77, seed])
    x, y = images(source)
    context = rng.permutation(np.repeat(np.arange(len(groups)), groups))
    count = np.full(len(context), samples)
    if sizes:
        count = np.exp(rng.uniform(*np.log(sizes), len(context))).round().astype(int)
    names = [np.arange(CLASSES), *(rng.permutation(CLASSES) for _ in groups[1:])]
    shifts = [np.zeros((14, 14)), *(0.3 * rng.standard_normal((14, 14)) for _ in groups[1:])]
    order = rng.permutation(len(y))
    pools = [list(order[y[order] == c]) for c in range(CLASSES)]
    clients = []
    for k, n in zip(context, count, strict=True):
        shares = np.full(CLASSES, 1 / CLASSES) if alpha is None else rng.dirichlet(np.full(CLASSES, alpha))
        drawn = rng.multinomial(n, shares)
        rows = rng.permutation([pools[c].pop() for c, m in enumerate(drawn) for _ in range(m)])
        xs, ys = x[rows].copy(), y[rows].copy()
        if kind in ("rotation", "both"):
            xs = np.rot90(xs, k if kind == "rotation" else 2 * (k % 2), axes=(1, 2)).copy()
        if kind == "near":
            from scipy.ndimage import rotate

            xs = rotate(xs, 20.0 * k, axes=(2, 1), reshape=False, order=1)
        if kind == "labels" or (kind == "both" and k >= 2):
            ys = names[k if kind == "labels" else 1][ys]
        if kind == "swap" and k:
            ys = np.where(ys == 2 * k, 2 * k + 1, np.where(ys == 2 * k + 1, 2 * k, ys))
        xs = xs + (shifts[k] if kind == "shift" else 0.0)
        xs = xs + (own * rng.standard_normal((14, 14)) if own else 0.0)
        xs = xs.reshape(-1, 7, 2, 7, 2).mean(axis=(2, 4)) if coarse else xs
        clients.append((xs.astype(np.float32), ys))
    return FederatedData.from_clients(clients, test=0.25, seed=seed, classes=CLASSES, context=context)


def of_table(seed: int, groups: Sequence[int]) -> FederatedData:
    """500 training rows a client for 63 parameters."""
    rng = np.random.default_rng([78, seed])
    context = rng.permutation(np.repeat(np.arange(len(groups)), groups))
    means = [1.3 * rng.standard_normal((7, 8)) for _ in groups]
    clients = []
    for k in context:
        y = rng.integers(0, 7, 667)
        clients.append(((means[k][y] + rng.standard_normal((667, 8))).astype(np.float32), y))
    return FederatedData.from_clients(clients, test=0.25, seed=seed, classes=7, context=context)


PROBLEMS: dict[str, Callable[[int], FederatedData]] = {
    "four rotations": of_images,
    "four label permutations": lambda s: of_images(s, kind="labels"),
    "rotations x labels": lambda s: of_images(s, kind="both"),
    "five shifts": lambda s: of_images(s, [8] * 5, "shift"),
    "rotations 20/10/6/4": lambda s: of_images(s, (20, 10, 6, 4)),
    "rotations 25/8/5/2": lambda s: of_images(s, (25, 8, 5, 2)),
    "ten clients 4/3/3": lambda s: of_images(s, (4, 3, 3)),
    "rotations by 20 degrees": lambda s: of_images(s, (14, 13, 13), "near"),
    "two classes swapped": lambda s: of_images(s, kind="swap"),
    "two classes swapped for half, 30 samples": lambda s: of_images(s, (20, 20), "swap", samples=40),
    "two classes swapped for half, MNIST": lambda s: of_images(s, (20, 20), "swap", source="mnist"),
    "two classes swapped for half, MNIST, 7 x 7": lambda s: of_images(s, (20, 20), "swap", source="mnist", coarse=True),
    "six label permutations, MNIST": lambda s: of_images(s, (9, 7, 7, 6, 6, 5), "labels", source="mnist", samples=30),
    "iid": lambda s: of_images(s, (40,)),
    "everybody alone": lambda s: of_images(s, [1] * 40, "labels"),
    "sizes 5 to 500, rotations": lambda s: of_images(s, sizes=(7, 667)),
    "sizes 5 to 500, iid": lambda s: of_images(s, (40,), sizes=(7, 667)),
    "Dirichlet 0.5 inside rotations": lambda s: of_images(s, alpha=0.5),
    "Dirichlet 0.5 inside rotations, MNIST": lambda s: of_images(s, alpha=0.5, source="mnist"),
    "rotations by 20 degrees, four, MNIST": lambda s: of_images(s, kind="near", source="mnist"),
    "rotations 20/10/6/4, MNIST": lambda s: of_images(s, (20, 10, 6, 4), source="mnist"),
    "own shifts inside rotations": lambda s: of_images(s, own=0.3, samples=90),
    "Dirichlet 0.5": lambda s: of_images(s, (40,), alpha=0.5),
    "Dirichlet 0.5, MNIST": lambda s: of_images(s, (40,), alpha=0.5, source="mnist"),
    "Dirichlet 0.1": lambda s: of_images(s, (40,), alpha=0.1, samples=150),
    "table, two contexts": lambda s: of_table(s, (20, 20)),
    "table, iid": lambda s: of_table(s, (40,)),
}


def look(name: str, seeds: int) -> None:
    accuracy: dict[str, list[float]] = {change: [] for change in CHANGES}
    chosen: list[Any] = []
    for seed in range(seeds):
        data = PROBLEMS[name](seed)
        model = as_model("mlr", data.shape, data.classes)
        runs = [Run(CGPFLAuto(**change), data, seed) for change in CHANGES.values()]
        ends = simulate_together(runs, model, rounds=150, eval_every=150)
        for change, (_, records, _) in zip(CHANGES, ends, strict=True):
            accuracy[change].append(100 * records["correct"][-1].sum() / data.test.counts.sum())
        records = ends[0][1]
        chosen.append((int(records["k"][-1]), round(adjusted_rand_score(data.context, records["context"][-1]), 2)))
    shown = ", ".join(f"{change} {np.mean(each):.1f}" for change, each in accuracy.items())
    print(f"{name}: {shown}; K and ARI {chosen}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    for name in args.problems:
        look(name, args.seeds)


if __name__ == "__main__":
    main()
