"""A round by one process and by several on this machine, in turn.

    python -m benchmarks.processes [--models mlr dnn] [--processes 2] [--pairs 5] [--rounds 20]

CGPFL with K = 4, 40 clients, MNIST-sized synthetic samples, no evaluation. One process uses the machine as it likes;
several share the clients and talk over loopback. Each pair of timings is one after the other, so that what else the
machine does meets both.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys

FOREVER = 10**6


def worker(model: str, rounds: int, coordinator: str, processes: int, process: int) -> None:
    """A process: its median seconds a round, of five blocks."""
    import time

    from cgpfl.engine.processes import join

    if processes > 1:
        join(coordinator, processes, process)
    import jax

    from benchmarks.bench.work import Case, federation, method_of, model_of
    from cgpfl.engine import Drive, engine_for

    case = Case("cgpfl", model, 40)
    run = engine_for(method_of("cgpfl"), federation(case), model_of(model), rounds=FOREVER, eval_every=FOREVER)
    drive, times = Drive(run), []
    for _ in range(6):
        began = time.perf_counter()
        drive.block(rounds)
        jax.block_until_ready(drive.state.server)
        times.append((time.perf_counter() - began) / rounds)
    if process == 0:
        print(json.dumps(statistics.median(times[1:])), flush=True)


def timed(model: str, rounds: int, processes: int) -> float:
    """Seconds a round of all ``processes`` together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "benchmarks.processes", "--worker", model, str(rounds), coordinator]
    started = [
        subprocess.Popen([*command, str(processes), str(i)], stdout=subprocess.PIPE, text=True)
        for i in range(processes)
    ]
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{model}: a process failed")
    return float(json.loads(outputs[0].strip().splitlines()[-1]))


def main() -> None:
    """The command."""
    if sys.argv[1:2] == ["--worker"]:
        model, rounds, coordinator, processes, process = sys.argv[2:]
        return worker(model, int(rounds), coordinator, int(processes), int(process))
    parser = argparse.ArgumentParser(description="A round by one process and by several.")
    parser.add_argument("--models", nargs="+", default=["mlr", "dnn"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    for model in args.models:
        ratios = []
        for _ in range(args.pairs):
            one, many = timed(model, args.rounds, 1), timed(model, args.rounds, args.processes)
            ratios.append(one / many)
            print(
                f"{model}: one process {1e3 * one:.1f} ms a round, {args.processes} together {1e3 * many:.1f} ms: "
                f"{one / many:.2f} of its throughput",
                flush=True,
            )
        print(f"{model}: median {statistics.median(ratios):.2f}", flush=True)
    return None


if __name__ == "__main__":
    main()
