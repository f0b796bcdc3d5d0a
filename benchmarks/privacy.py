"""Accuracy over ε, the cost of a round, and contexts from noisy sketches: the figures of docs/privacy.md.

    python -m benchmarks.privacy curves digits --level sample --out runs/privacy      needs dp-accounting
    python -m benchmarks.privacy placed --method cgpfl --epsilon 8     contexts under a trusted server, ten seeds
    python -m benchmarks.privacy cost | contexts | bytes
    python -m benchmarks.privacy draw --out runs/privacy               the table and docs/images/privacy.png

The clip of each level is chosen on validation samples of seed 100, at ε = 8, for FedAvg: nothing is
chosen on test samples.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import cgpfl

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
METHODS = ("local", "fedavg", "ditto", "cgpfl", "cgpfl-auto")
LEVELS: dict[str, dict[str, Any]] = {
    "client": {"privacy": "client"},
    "sample": {"privacy": "sample"},
    "client, server trusted": {"privacy": "client", "trusted": "server"},
}
CLIPS = (0.1, 0.3, 1.0, 3.0)
ROUNDS = 30
SEEDS = (0, 1)
MANY = "-400"
"""Ends the name of a federation of 400 clients: one seed of it, as a run takes long."""
FIGURES = Path(__file__).parent.parent / "docs" / "images"


def federation(name: str, seed: int, validation: float = 0.0) -> Any:
    if name.endswith(MANY):
        source = name.removesuffix(MANY)
        return cgpfl.make_data(source, "rotation", clients=400, seed=seed, validation=validation)
    if name == "digits":
        return cgpfl.make_data("digits", "rotation", seed=seed, validation=validation)
    return cgpfl.make_data(name, seed=seed, validation=validation)


def score(method: str, data: Any, seed: int, **settings: Any) -> tuple[Any, float]:
    """The run, and its accuracy; on validation samples where there are some."""
    result = cgpfl.run(method, data, rounds=ROUNDS, seed=seed, eval_every=ROUNDS, progress=False, **settings)
    if data.validation is None:
        return result, result.accuracy
    right = result.records.values["validation_correct"][-1].sum()
    return result, float(right / data.validation.counts.sum())


def best_clip(name: str, level: str) -> float:
    """The clip with which FedAvg is best on validation samples."""
    data = federation(name, 100, 0.25)
    tried = {clip: score("fedavg", data, 100, epsilon=8.0, clip=clip, **LEVELS[level])[1] for clip in CLIPS}
    print(name, level, {k: round(v, 3) for k, v in tried.items()}, flush=True)
    return max(tried, key=lambda clip: tried[clip])


def curves(name: str, level: str, out: Path) -> None:
    """Every method at every ε, on the test samples of each seed."""
    found, clip, settings = [], best_clip(name, level), LEVELS[level]
    out.mkdir(parents=True, exist_ok=True)
    for method in METHODS:
        for seed in SEEDS[:1] if name.endswith(MANY) else SEEDS:
            data = federation(name, seed)
            for epsilon in EPSILONS:
                private = {} if math.isinf(epsilon) else {"epsilon": epsilon, "clip": clip, **settings}
                result, accuracy = score(method, data, seed, **private)
                ari = None if result.contexts is None else result.contexts.ari
                row = {"data": name, "level": level, "method": method, "seed": seed, "epsilon": epsilon, "clip": clip}
                found.append(row | {"accuracy": accuracy, "ari": ari})
        own = [r for r in found if r["method"] == method]
        line = {e: round(statistics.mean(r["accuracy"] for r in own if r["epsilon"] == e), 3) for e in EPSILONS}
        print(name, level, method, line, {r["epsilon"]: r["ari"] for r in own if r["seed"] == SEEDS[0]}, flush=True)
        (out / f"{name}-{list(LEVELS).index(level)}.json").write_text(json.dumps(found, indent=1))


def placed(method: str, name: str, epsilon: float, out: Path, clip: float) -> None:
    """Contexts and accuracy under a server that is trusted, of ten seeds."""
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in range(10):
        private = {} if math.isinf(epsilon) else {"epsilon": epsilon, "trusted": "server", "clip": clip}
        result, accuracy = score(method, federation(name, seed), seed, **private)
        contexts = result.contexts
        row = {"data": name, "method": method, "epsilon": epsilon, "seed": seed, "accuracy": accuracy}
        found.append(row | ({} if contexts is None else {"ari": contexts.ari, "k": int(contexts.k)}))
        print(found[-1], flush=True)
        (out / f"placed-{name}-{method}-{epsilon:g}.json").write_text(json.dumps(found, indent=1))


def cost() -> None:
    """Seconds of a round with and without privacy: the shortest of nine blocks, in turn, as others use the machine."""
    from cgpfl.engine import Settings, Simulation
    from cgpfl.engine.privacy import protected
    from cgpfl.models import as_model

    data = cgpfl.make_data("digits", "rotation", seed=0)
    for kind in ("mlr", "dnn"):
        model = as_model(kind, data.shape, data.classes)
        for name in ("fedavg", "ditto"):
            took: dict[str, list[float]] = {}
            plans = {"plain": {}, "client": {"epsilon": 8.0}, "sample": {"epsilon": 8.0, "privacy": "sample"}}
            ready = {}
            for label, more in plans.items():
                settings = Settings(rounds=100, eval_every=100, **more)
                method = protected(cgpfl.algorithms.get_method(name), settings, {0: data})
                engine = Simulation(method, data, model, rounds=100, eval_every=100)
                state, _, _ = engine.advance(engine.start(), 0, 2)
                ready[label] = [engine, state]
            for block in range(9):
                for label, (engine, state) in ready.items():
                    began = time.perf_counter()
                    state, _, _ = engine.advance(state, 2 + 10 * block, 12 + 10 * block)
                    np.asarray(state.answers)
                    took.setdefault(label, []).append((time.perf_counter() - began) / 10)
                    ready[label][1] = state
            usual = {label: min(seconds) for label, seconds in took.items()}
            ratios = {label: round(value / usual["plain"], 3) for label, value in usual.items()}
            print(kind, name, {k: f"{1e3 * v:.2f} ms" for k, v in usual.items()}, ratios, flush=True)


@cache
def first_gradients(seed: int) -> tuple[Any, Any]:
    """Of 400 clients ``[400, 7840]``, of a linear model that knows nothing, and their contexts."""
    data = cgpfl.make_data("mnist", "rotation", clients=400, seed=seed)
    found = []
    for rows in data.train.parts():
        x = data.x[rows].reshape(len(rows), -1) * float(data.scale) + float(data.shift)
        found.append(((0.1 - np.eye(10)[data.y[rows]]).T @ x / len(rows)).reshape(-1))
    return np.stack(found), data.context


def sketches(epsilon: float, width: int, seed: int) -> dict[str, float]:
    """Contexts of 400 clients, 100 in each of four, from one private sketch of each: whose choice is right how often.

    A client's first gradient is projected to ``width`` numbers. A tenth of the budget tells everybody's mean; the rest
    a direction, the client's own without the mean, of length 1. Four centres are found by the server, from noisy
    directions alone, and sent; a client then knows by its own direction, which has no noise, where it belongs.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    from cgpfl.rounds.account import noise_of_uploads

    whole, truth = first_gradients(seed)
    draw = np.random.default_rng(seed)
    own = whole @ draw.standard_normal((whole.shape[1], width))
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    noise = 0.0 if math.isinf(epsilon) else noise_of_uploads(epsilon, 1e-5, 1)
    mean = (own + noise / math.sqrt(0.1) * draw.standard_normal(own.shape)).mean(axis=0)
    apart = own - mean
    apart /= np.linalg.norm(apart, axis=1, keepdims=True)
    seen = apart + noise / math.sqrt(0.9) * draw.standard_normal(own.shape)
    leading = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)[2][:3]
    placed = KMeans(4, n_init=50, random_state=0).fit_predict(seen @ leading.T)
    centres = np.stack([seen[placed == k].mean(axis=0) for k in range(4)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    chosen = np.argmax(apart @ centres.T, axis=1)
    return {"server": adjusted_rand_score(truth, placed), "own": adjusted_rand_score(truth, chosen)}


def contexts() -> None:
    for width in (8, 16, 32, 64, 128):
        for epsilon in (1.0, 2.0, 4.0, 8.0, 16.0, math.inf):
            each = [sketches(epsilon, width, seed) for seed in SEEDS]
            print(width, epsilon, {who: [round(e[who], 3) for e in each] for who in ("server", "own")}, flush=True)


def compressed() -> None:
    """Contexts, accuracy and bytes with fewer bytes sent: cgpfl-auto on the digits."""
    rules: dict[str, list[Any]] = {"plain": []}
    rules |= {f"quantise, {b} bits": [{"name": "quantise", "bits": b}] for b in (8, 4)}
    rules |= {f"{n}, {p} %": [{"name": n, "percent": p}] for p in (10, 1) for n in ("sparsify", "top-k")}
    for label, outgoing in rules.items():
        rows = []
        for seed in SEEDS:
            settings = {"rounds": 100, "seed": seed, "eval_every": 100, "progress": False, "outgoing": outgoing}
            run = cgpfl.run("cgpfl-auto", federation("digits", seed), **settings)
            rows.append((run.contexts.ari, run.contexts.k, run.accuracy, run.cost.upload))
        print(label, [(round(a, 3), k, round(v, 4), up) for a, k, v, up in rows], flush=True)


def draw(out: Path) -> None:
    """The tables as Markdown, and docs/images/privacy.png."""
    import matplotlib.pyplot as plt
    import pandas as pd

    files = sorted(file for file in out.glob("*.json") if not file.name.startswith("placed"))
    found = pd.concat([pd.DataFrame(json.loads(file.read_text())) for file in files])
    panels, names = list(found.groupby(["data", "level"], sort=False)), list(dict.fromkeys(found["data"]))
    figure, axes = plt.subplots(len(names), len(LEVELS), figsize=(11, 3.2 * len(names)), squeeze=False, sharey="row")
    for (data, level), rows in panels:
        clip = rows["clip"].iloc[0]
        print(f"\n{data}, {level}, clip {clip:g}\n")
        print("| method |" + "".join(f" {e:g} |" for e in EPSILONS) + "\n|---|" + "---:|" * len(EPSILONS))
        axis = axes[names.index(data), list(LEVELS).index(level)]
        for method, own in rows.groupby("method", sort=False):
            mean = own.groupby("epsilon")["accuracy"].mean()
            print(f"| {method} |" + "".join(f" {100 * mean[e]:.1f} |" for e in EPSILONS))
            axis.plot(range(len(EPSILONS)), [100 * mean[e] for e in EPSILONS], marker="o", label=method)
        axis.set_xticks(range(len(EPSILONS)), ["∞" if math.isinf(e) else f"{e:g}" for e in EPSILONS])
        axis.set(title=f"{data}: {level}", xlabel="ε", ylabel="accuracy (%)")
    for axis in axes.flat:
        axis.set_visible(bool(axis.lines))  # what was not measured
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(FIGURES / "privacy.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("curves", "placed", "cost", "contexts", "bytes", "draw"))
    parser.add_argument("data", nargs="?", default="digits")
    parser.add_argument("--level", choices=tuple(LEVELS), default="client")
    parser.add_argument("--method", default="cgpfl")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=Path("runs/privacy"))
    asked = parser.parse_args()
    if asked.what == "curves":
        curves(asked.data, asked.level, asked.out)
    elif asked.what == "placed":
        placed(asked.method, asked.data, asked.epsilon, asked.out, asked.clip)
    elif asked.what == "draw":
        draw(asked.out)
    else:
        {"cost": cost, "contexts": contexts, "bytes": compressed}[asked.what]()


if __name__ == "__main__":
    main()
