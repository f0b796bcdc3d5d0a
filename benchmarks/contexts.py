"""What CGPFL-Auto costs: a round beside CGPFL's, and the choice of K for 40, 400 and 4,000 clients.

    python benchmarks/contexts.py [--models mlr dnn] [--clients 40 400 4000]

A round: the two methods take turns, several times; medians, and their ratio. Rounds are those after the contexts are
settled, which is nearly all of a run; rounds of the warm-up are timed apart. The choice of K is timed by itself, on
made-up evidence about four groups: once with compilation, then without.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl import CGPFL, CGPFLAuto, FederatedData
from cgpfl.contexts import cross_fit
from cgpfl.contexts.evidence import width
from cgpfl.engine import Drive, Simulation
from cgpfl.models import as_model

TURNS, LENGTH = 5, 40
DIMENSION = 7850
"""Numbers of an upload: MLR on images of 28 × 28."""


def federation(clients: int, samples: int) -> FederatedData:
    """Images of 28 × 28 that are noise: what is learned does not matter here."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (clients, samples, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, (clients, samples))
    return FederatedData.from_clients(list(zip(x, y, strict=True)), test=0.25, scale=1 / 255)


def rounds(model: str, clients: int) -> None:
    data = federation(clients, 100)
    net = as_model(model, data.shape, data.classes)
    contexts = tuple(i % 4 for i in range(clients))  # given, so that both keep four
    methods = {"cgpfl": CGPFL(contexts=4, warmup=5), "cgpfl-auto": CGPFLAuto(contexts=contexts, prox=1.0)}
    total = 60 + TURNS * LENGTH
    runs = {name: Drive(Simulation(m, data, net, rounds=total, eval_every=total)) for name, m in methods.items()}
    times: dict[str, list[float]] = {name: [] for name in methods}
    warm: dict[str, float] = {}
    for name, run in runs.items():
        run.block(1)
        began = time.perf_counter()
        run.block(4)
        jax.block_until_ready(run.state.server)
        warm[name] = (time.perf_counter() - began) / 4
        run.block(55)
    for _ in range(TURNS):
        for name, run in runs.items():
            began = time.perf_counter()
            run.block(LENGTH - 1)
            jax.block_until_ready(run.state.server)
            times[name].append((time.perf_counter() - began) / (LENGTH - 1))
    ms = {name: 1000 * float(np.median(t)) for name, t in times.items()}
    print(
        f"{model} {clients} clients: cgpfl {ms['cgpfl']:.2f} ms a round, cgpfl-auto {ms['cgpfl-auto']:.2f} ms, "
        f"ratio {ms['cgpfl-auto'] / ms['cgpfl']:.2f}; in the warm-up "
        f"{1000 * warm['cgpfl']:.2f} and {1000 * warm['cgpfl-auto']:.2f} ms",
        flush=True,
    )


def times_of_choice(clients: int, folds: int = 3, most: int = 32, repeats: int = 2) -> tuple[list[float], int, int]:
    """Seconds of a choice of K on made-up evidence, the first with compilation → them, numbers of a client, K."""
    p = width(2 * folds, clients, DIMENSION)
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((4, p)).astype(np.float32)
    x = centres[np.arange(clients) % 4] + 2 * rng.standard_normal((folds, clients, p)).astype(np.float32)
    x = np.concatenate([x, (x.sum(axis=0) - x) / (folds - 1)])  # on each fold, and on all but each
    run = jax.jit(lambda x, key: cross_fit(x, jnp.ones(clients), key, largest=min(clients // 2, most)))
    took = []
    for key in range(1 + repeats):
        began = time.perf_counter()
        found = jax.block_until_ready(run(jnp.asarray(x), jax.random.key(key)))
        took.append(time.perf_counter() - began)
    return took, p, int(found.k)


def choice(clients: int) -> None:
    took, p, k = times_of_choice(clients)
    print(
        f"choice of K, {clients} clients, {p} numbers each: {min(took[1:]):.2f} s, the first time {took[0]:.1f} s with "
        f"compilation; K = {k}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["mlr", "dnn"])
    parser.add_argument("--clients", nargs="*", type=int, default=[40, 400, 4000])
    args = parser.parse_args()
    print(jax.devices()[0].device_kind)
    for model in args.models:
        rounds(model, 40)
    for clients in args.clients:
        choice(clients)


if __name__ == "__main__":
    main()
