"""A round of FedAvg with ResNet-18 (GroupNorm): ``python benchmarks/resnet.py [--clients 40] [--precision NAME ...]``.

Ten steps of 20 images of 32×32×3 a client, 11.2 million parameters each; evaluation is left out. Medians of five times
three rounds, compilation apart.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import jax
import numpy as np

from cgpfl.algorithms import FedAvg
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from cgpfl.models import ResNet
from cgpfl.tree import size

STAGES = (2, 2, 2, 2)


def measure(clients: int, block: int, precision: str, width: int) -> dict[str, Any]:
    """One row."""
    rng = np.random.default_rng(0)
    pairs = [(rng.random((40, 32, 32, 3), np.float32), rng.integers(0, 10, 40)) for _ in range(clients)]
    data = FederatedData.from_clients(pairs, test=[(x[:2], y[:2]) for x, y in pairs])
    model = ResNet(data.shape, data.classes, blocks=STAGES, width=width)
    never: dict[str, Any] = {"rounds": 10**6, "eval_every": 10**6, "clients_per_block": block, "precision": precision}
    engine = Simulation(FedAvg(rate=0.01, local_rounds=10), data, model, **never)
    began = time.perf_counter()
    memory = engine.compile().memory_analysis()
    compiled, state, times, at = time.perf_counter() - began, engine.start(), [], 0
    for rounds in (1, 1, 3, 3, 3, 3, 3):
        began = time.perf_counter()
        state = jax.block_until_ready(engine.advance(state, at, at + rounds)[0])
        times.append((time.perf_counter() - began) / rounds)
        at += rounds
    return {
        "device": jax.devices()[0].device_kind,
        "clients": clients,
        "parameters": size(engine.task.initial),
        "precision": precision,
        "round_s": round(float(np.median(times[2:])), 4),
        "compile_s": round(compiled, 1),
        "temporary_GB": round(memory.temp_size_in_bytes / 1e9, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A round of FedAvg with ResNet-18.")
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--block", type=int, default=0, help="clients computed at once; 0 = what fits")
    parser.add_argument("--precision", nargs="+", default=["default", "bfloat16"])
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    given = parser.parse_args()
    for precision in given.precision:
        print(json.dumps(measure(given.clients, given.block, precision, given.width)), flush=True)


if __name__ == "__main__":
    main()
