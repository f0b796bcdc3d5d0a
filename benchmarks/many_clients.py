"""Time and memory of a round over the number of clients, with a cohort of one size.

    python benchmarks/many_clients.py [--clients 1000 10000 100000] [--cohort 1000] [--store host] [--json FILE]

Synthetic, MNIST-sized images, 20 a client (15 to train on), MLR, CGPFL with K = 4 without a warm-up. Every number of
clients is measured in a process of its own: the first round is left out, then the median of ``--rounds`` rounds; peak
memory is that of the whole process, samples included. With ``--store device`` everybody's state is on the device.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np


def measure(clients: int, cohort: int, rounds: int, store: str) -> dict[str, float | int | str]:
    """One number of clients, in this process."""
    from cgpfl.algorithms import CGPFL
    from cgpfl.data import FederatedData
    from cgpfl.data.federated import IndexTable
    from cgpfl.engine import Drive, engine_for
    from cgpfl.models import as_model

    rng, each = np.random.default_rng(0), 20
    x = rng.integers(0, 256, (clients * each, 28, 28), np.uint8)
    y = rng.integers(0, 10, clients * each).astype(np.int32)
    rows = np.arange(clients * each, dtype=np.int32).reshape(clients, each)
    counts = np.full(clients, 15, np.int32)
    train, test = IndexTable(rows[:, :15], counts), IndexTable(rows[:, 15:], counts // 3)
    data = FederatedData(x=x, y=y, train=train, test=test, classes=10, scale=1 / 255)
    method = CGPFL(contexts=4, warmup=0, personal_rate=0.05)
    engine = engine_for(
        method,
        data,
        as_model("mlr", data.shape, 10),
        rounds=10**6,
        eval_every=10**6,
        participation=cohort / clients,
        store=store,
    )
    drive = Drive(engine)
    drive.block(2)
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        drive.block(1)
        int(drive.state.answers)
        times.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "clients": clients,
        "cohort": cohort,
        "store": store,
        "seconds": float(np.median(times)),
        "peak_GiB": peak,
        "samples_GiB": x.nbytes / 2**30,
        "states_GiB": clients * 7850 * 4 / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A round of one cohort out of ever more clients.")
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--cohort", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--store", default="host", choices=["device", "host"])
    parser.add_argument("--json", help="also write the figures here")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.clients[0], args.cohort, args.rounds, args.store)))
        return
    rows = []
    print(f"{'clients':>9} {'cohort':>7} {'s a round':>10} {'over the first':>15} {'peak GiB':>9} {'of it states':>13}")
    for clients in args.clients:
        given = ["--clients", str(clients), "--cohort", str(min(args.cohort, clients)), "--rounds", str(args.rounds)]
        out = subprocess.run(
            [sys.executable, __file__, "--one", "--store", args.store, *given], capture_output=True, text=True
        )
        if out.returncode:
            print(f"{clients:>9,} failed: {out.stderr.strip().splitlines()[-1] if out.stderr else out.returncode}")
            continue
        row = json.loads(out.stdout.splitlines()[-1])
        rows.append(row)
        ratio = row["seconds"] / rows[0]["seconds"]
        print(
            f"{clients:>9,} {row['cohort']:>7,} {row['seconds']:>10.3f} {ratio:>14.2f}x {row['peak_GiB']:>9.2f} "
            f"{row['states_GiB']:>13.2f}"
        )
    if args.json:
        with open(args.json, "w") as file:  # noqa: PTH123
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
