"""What the precision of the clients' products does to accuracy, and to the time of a round.

    python benchmarks/precision.py [--model mlr] [--seeds 2] [--rounds 100] [--precisions ...] [--json FILE]

MNIST split as for the paper's tables (40 clients of three classes each), every method at its defaults, seeds 0, 1, … of
split, initial model and minibatches. Accuracy is pooled over clients, last round; a round's time is the median of
``--repeats`` calls of ``--timed`` rounds without evaluation, precisions in turn. On a CPU narrower products are made by
rounding their inputs, so only the accuracy tells something there.
"""

from __future__ import annotations

import argparse
import json
import time

import jax
import numpy as np

from cgpfl.algorithms import get_method
from cgpfl.data import FederatedData, make_data
from cgpfl.engine import Drive, Simulation, simulate
from cgpfl.engine.precision import PRECISIONS
from cgpfl.models import Model, as_model

METHODS = ("local", "fedavg", "pfedme", "cgpfl")


def accuracy(method: str, data: FederatedData, model: Model, seed: int, rounds: int, precision: str) -> float:
    """Pooled accuracy after the last round."""
    _, records, _ = simulate(
        get_method(method), data, model, rounds=rounds, seed=seed, eval_every=rounds, precision=precision
    )
    return float(records["correct"][-1].sum() / data.test.counts.sum())


def milliseconds(
    method: str, data: FederatedData, model: Model, precisions: list[str], timed: int, repeats: int
) -> dict[str, float]:
    """Milliseconds a round in each precision: medians, taken in turn."""
    forever = 10**6
    runs = {
        p: Drive(Simulation(get_method(method), data, model, rounds=forever, eval_every=forever, precision=p))
        for p in precisions
    }
    times: dict[str, list[float]] = {p: [] for p in precisions}
    for run in runs.values():
        run.block(8)
    for _ in range(repeats):
        for p, run in runs.items():
            jax.block_until_ready(run.state)
            began = time.perf_counter()
            run.block(timed)
            jax.block_until_ready(run.state)
            times[p].append((time.perf_counter() - began) / timed)
    return {p: 1e3 * float(np.median(t)) for p, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy and time of a round by precision.")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="mlr")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--timed", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args()
    federations = [
        make_data(args.data, "cyclic", clients=40, spread=0.6, smallest=400, largest=5000, seed=seed)
        for seed in range(args.seeds)
    ]
    model = as_model(args.model, federations[0].shape, federations[0].classes)
    device = jax.devices()[0]
    print(
        f"{args.data}, {args.model}, {args.rounds} rounds, {args.seeds} seeds, {device.platform}: {device.device_kind}"
    )
    print(f"{'method':<8} {'precision':<10} {'accuracy of each seed, %':<26} {'mean':>6} {'- default':>9} {'ms':>8}")
    rows = []
    for method in args.methods:
        times = milliseconds(method, federations[0], model, args.precisions, args.timed, args.repeats)
        base = None
        for precision in args.precisions:
            found = [
                100 * accuracy(method, data, model, seed, args.rounds, precision)
                for seed, data in enumerate(federations)
            ]
            mean = float(np.mean(found))
            base = mean if base is None else base
            each = "  ".join(f"{a:.2f}" for a in found)
            print(
                f"{method:<8} {precision:<10} {each:<26} {mean:>6.2f} {mean - base:>+9.2f} {times[precision]:>8.2f}",
                flush=True,
            )
            rows.append({"method": method, "precision": precision, "accuracy": found, "ms": times[precision]})
    if args.json:
        with open(args.json, "w") as file:  # noqa: PTH123
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
