"""One CGPFL round against a bare PyTorch loop over clients, side by side.

    python benchmarks/round.py [--models mlr dnn cnn] [--clients 40] [--repeats 7]

The loop is the least a per-client library can cost: the clients' training steps and nothing else,
written with `torch.autograd.grad` on plain modules and in-place updates without temporaries, at the
better of one and all threads. Ours is the whole compiled round, k-means and aggregation included.
Both train on the same synthetic, MNIST-sized data (60,000 samples of 28x28, CIFAR-sized for the CNN)
with R = 10, S = 5, batches of 20. Before timing, one client's round is compared: the same minibatches
must give the same parameters. Timings are interleaved, a few rounds of each in turn, and reported
as the median time of a round; ratios first.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import jax
import numpy as np
import torch

from cgpfl.algorithms import CGPFL
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from cgpfl.engine.problem import client_keys, round_keys
from cgpfl.models import as_model

METHOD = CGPFL(contexts=4, personal_rate=0.05, warmup=0)
ROUNDS = 3  # a timing is this many rounds in a row, as in a run
R, S, BATCH = METHOD.local_rounds, METHOD.inner_steps, METHOD.batch_size


def federation(model: str, clients: int) -> FederatedData:
    rng = np.random.default_rng(0)
    shape = (32, 32, 3) if model == "cnn" else (28, 28)
    x = rng.integers(0, 256, (60_000, *shape), dtype=np.uint8)
    y = rng.integers(0, 10, 60_000)
    return FederatedData.from_arrays(x, y, np.arange(60_000) % clients, scale=1 / 255)


def torch_model(model: str) -> torch.nn.Module:
    nn = torch.nn
    if model == "mlr":
        return nn.Linear(784, 10)
    if model == "dnn":
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    convolutions = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10))


def torch_client(
    net: torch.nn.Module, omega: list[torch.Tensor], batches: list[tuple[torch.Tensor, torch.Tensor]], l2: float
) -> None:
    """Algorithm 1 on one client, in place: ``net`` holds θ, ``omega`` ω̃."""
    params = list(net.parameters())
    lam, eta, rate = METHOD.prox, METHOD.personal_rate, METHOD.context_rate
    for x, y in batches:
        for _ in range(S):
            gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(net(x), y), params)
            with torch.no_grad():
                for p, g, w in zip(params, gradients, omega, strict=True):
                    p.mul_(1 - eta * (lam + l2)).add_(w, alpha=eta * lam).add_(g, alpha=-eta)
        with torch.no_grad():
            for p, w in zip(params, omega, strict=True):
                w.lerp_(p, rate)


def torch_round(model: str, data: FederatedData) -> Callable[[], None]:
    images = torch.from_numpy(data.x).float() / 255
    images = images.permute(0, 3, 1, 2).contiguous() if model == "cnn" else images.reshape(len(images), -1)
    labels = torch.from_numpy(data.y).long()
    nets = [torch_model(model) for _ in range(data.clients)]
    omegas = [[p.detach().clone() for p in net.parameters()] for net in nets]
    rows = [torch.from_numpy(p.astype(np.int64)) for p in data.train.parts()]
    l2 = 1e-3 if model == "mlr" else 0.0

    def round_() -> None:
        for net, omega, own in zip(nets, omegas, rows, strict=True):
            picks = [own[torch.randint(len(own), (BATCH,))] for _ in range(R)]
            torch_client(net, omega, [(images[i], labels[i]) for i in picks], l2)

    return round_


def check_equal(data: FederatedData, simulation: Simulation) -> float:
    """Largest difference between the two after client 0's first round of the MLR, same minibatches."""
    own = client_keys(round_keys(simulation.keys, 0), simulation.arrays.ids[0])
    view = simulation.arrays.view(simulation.arrays.train.rows[0], simulation.arrays.train.counts[0])
    initial = simulation.task.initial
    _, theta = METHOD.train(simulation.task, initial, initial, view, own.train)
    batches = []
    for key in jax.random.split(own.train, R):
        b = view.batch(key, BATCH)
        x = np.asarray(b.x).reshape(BATCH, -1)
        batches.append((torch.from_numpy(x.copy()), torch.from_numpy(np.asarray(b.y).copy()).long()))
    net = torch_model("mlr")
    with torch.no_grad():
        net.weight.copy_(torch.from_numpy(np.asarray(initial["weight"]).copy()))  # type: ignore[union-attr,operator]
        net.bias.copy_(torch.from_numpy(np.asarray(initial["bias"]).copy()))  # type: ignore[union-attr,operator]
    torch_client(net, [p.detach().clone() for p in net.parameters()], batches, l2=1e-3)
    weight = np.asarray(next(iter(net.parameters())).detach())
    return float(np.abs(weight - np.asarray(theta["weight"])).max())


def timed(f: Callable[[], object]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def compare(model: str, clients: int, repeats: int) -> dict[str, float | str]:
    data = federation(model, clients)
    simulation = Simulation(METHOD, data, as_model(model, data.shape, 10), rounds=10**6, eval_every=10**6)
    if model == "mlr":
        difference = check_equal(data, simulation)
        assert difference < 1e-5, f"the two do not compute the same round: {difference}"
    state, t = simulation.start(), 0

    def ours() -> None:
        nonlocal state, t
        state, _, _ = simulation.advance(state, t, t + ROUNDS)
        jax.block_until_ready(state)
        t += ROUNDS

    one_round = torch_round(model, data)

    def loop() -> None:
        for _ in range(ROUNDS):
            one_round()

    compile_seconds = timed(ours)
    threads = sorted({1, os.cpu_count() or 1})
    times: dict[str, list[float]] = {"ours": [], **{f"torch, {n} threads": [] for n in threads}}
    for _ in range(repeats):
        times["ours"].append(timed(ours))
        for n in threads:
            torch.set_num_threads(n)
            times[f"torch, {n} threads"].append(timed(loop))
    median = {name: float(np.median(values)) / ROUNDS for name, values in times.items()}
    best = min(value for name, value in median.items() if name != "ours")
    return {"model": model, "ratio": best / median["ours"], **median, "first call": compile_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description="One CGPFL round against a bare PyTorch loop over clients.")
    parser.add_argument("--models", nargs="+", default=["mlr", "dnn", "cnn"], choices=["mlr", "dnn", "cnn"])
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args()
    rows = [compare(model, args.clients, args.repeats) for model in args.models]
    print(f"{args.clients} clients, R = {R}, S = {S}, batch {BATCH}, {jax.default_backend()}, {os.cpu_count()} cores")
    print(f"{'model':<6}{'faster by':>10}" + "".join(f"{k:>18}" for k in rows[0] if k not in ("model", "ratio")))
    for row in rows:
        values = "".join(f"{1000 * float(v):>15.0f} ms" for k, v in row.items() if k not in ("model", "ratio"))
        print(f"{row['model']:<6}{row['ratio']:>9.1f}x{values}")
    if args.json:
        with open(args.json, "w") as file:  # noqa: PTH123
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
