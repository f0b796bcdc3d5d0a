"""Memory and time of a round with one frozen base for all clients, beside a model of each client's own.

    python benchmarks/lora.py [--clients 40] [--hidden 12600] [--rank 4] [--json FILE]

FedAvg (5 steps of 20 samples) on synthetic, MNIST-sized images, 20 a client, with a DNN of 10⁷ parameters at
``--hidden 12600``. Each row is a process of its own: *arguments* and *temporaries* are what XLA says of the compiled
block of rounds, *peak* is the resident set of the whole process, imports and samples included. ``imports`` is that of a
process that makes the federation and nothing else; ``formed`` has frozen bases, too, but forms every client's matrices.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

MODES = ("imports", "lora", "formed", "full")


def measure(mode: str, clients: int, hidden: int, rank: int, block: int) -> dict[str, Any]:
    """One row, in this process."""
    import jax

    from cgpfl.algorithms import FedAvg
    from cgpfl.data import FederatedData
    from cgpfl.engine import Drive, Simulation
    from cgpfl.models import DNN, Functions, LoRA
    from cgpfl.tree import nbytes, size

    rng, each = np.random.default_rng(0), 20
    pairs = [(rng.random((each, 28, 28), np.float32), rng.integers(0, 10, each)) for _ in range(clients)]
    data = FederatedData.from_clients(pairs, test=pairs)
    row: dict[str, Any] = {"mode": mode, "clients": clients}
    if mode != "imports":
        of = DNN(data.shape, data.classes, hidden=hidden)
        model: Any = of if mode == "full" else LoRA(of, rank=rank)
        if mode == "formed":
            lora = model
            model = Functions(
                data.shape,
                data.classes,
                start=lora.init,
                forward=lambda params, x: of.apply(lora.effective(params), x),
                frozen="base.*",
            )
        settings = {"rounds": 10**6, "eval_every": 10**6, "clients_per_block": block}
        engine = Simulation(FedAvg(rate=0.01, local_rounds=5), data, model, **settings)
        said = engine.compile().memory_analysis()
        traffic = engine.traffic()
        row |= {
            "trained": size(engine.task.initial),
            "frozen": size(engine.task.frozen),
            "frozen_bytes": nbytes(engine.task.frozen),
            "block": engine.static.block,
            "arguments": said.argument_size_in_bytes,
            "temporaries": said.temp_size_in_bytes,
            "upload": traffic.upload,
        }
        drive = Drive(engine)
        drive.block(1)
        jax.block_until_ready(drive.state)
        began = time.perf_counter()
        drive.block(1)
        jax.block_until_ready(drive.state)
        row["seconds"] = time.perf_counter() - began
    return row | {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main() -> None:
    """Every row in a process of its own, or one (``--mode``) in this one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=12600)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--block", type=int, default=0, help="clients at once; 0 = what fits")
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.mode:
        print(json.dumps(measure(args.mode, args.clients, args.hidden, args.rank, args.block)))
        return
    rows = []
    shape = ("--clients", args.clients, "--hidden", args.hidden, "--rank", args.rank)
    for mode, block in (
        ("imports", 0),
        ("lora", args.block),
        ("lora", args.clients),
        ("formed", args.clients),
        ("full", 0),
    ):
        command = [sys.executable, __file__, "--mode", mode, "--block", block, *shape]
        done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        row = rows[-1]
        sizes = ", ".join(f"{k} {row[k] / 2**20:,.0f} MiB" for k in ("arguments", "temporaries", "peak") if k in row)
        more = (
            f", {row['block']} at once, {row['seconds']:.2f} s a round, upload {row['upload']:,} B"
            if "block" in row
            else ""
        )
        print(f"{mode}: {sizes}{more}", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
