"""What safety costs: checkpoints, checksums and locks of a run; the gate in front of the server in a round.

    python -m benchmarks.costs run [--repeats 3]       the default run, with a folder
    python -m benchmarks.costs gate [--nodes 2]        a deployment of FedAvg with 10⁵ parameters
    python -m benchmarks.costs rounds [--nodes 2]      its rounds with and without the gate, by turns

The first two count the time spent in the parts themselves, so that what else a machine does meets parts and whole
alike: the gates of the SuperLink and of every node note each request, and a round's are summed. ``gate`` also times
requests to Flower's own application with and without the gate.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import runpy
import shutil
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NOTES = "CGPFL_GATE_NOTES"
"""The file in which gates note what they took, in the environment of their processes."""


def timed(place: Any, name: str, spent: dict[str, float], depth: list[int]) -> None:
    """Count the seconds in a function; what it calls of the others is its own."""
    true: Callable[..., Any] = getattr(place, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        depth[0] += 1
        began = time.perf_counter()
        try:
            return true(*args, **kwargs)
        finally:
            depth[0] -= 1
            if not depth[0]:
                spent[name] += time.perf_counter() - began

    setattr(place, name, call)


def run(repeats: int) -> None:
    from cgpfl.experiment import checkpoint, events, folder, lock
    from cgpfl.experiment.config import DEFAULT_METHODS, from_dict
    from cgpfl.experiment.experiment import run_experiment
    from cgpfl.files import summed

    spent: dict[str, float] = defaultdict(float)
    depth = [0]
    timed(checkpoint.MethodFolder, "save", spent, depth)
    timed(checkpoint.MethodFolder, "load", spent, depth)
    timed(lock, "take", spent, depth)
    timed(events, "append", spent, depth)

    def sums(place: Path, *names: str) -> Any:
        class Both:
            def __enter__(self) -> None:
                self.inner = summed(place, *names)
                self.inner.__enter__()

            def __exit__(self, *error: Any) -> None:
                began = time.perf_counter()
                self.inner.__exit__(*error)
                spent["sums"] += time.perf_counter() - began

        return Both()

    folder.summed = sums
    experiment = from_dict({"method": [{"name": name} for name in DEFAULT_METHODS]}, "defaults")
    for number in range(repeats):
        spent.clear()
        with tempfile.TemporaryDirectory() as scratch:
            began = time.perf_counter()
            run_experiment(experiment, Path(scratch) / "run")
            whole = time.perf_counter() - began
        parts = {name: round(1e3 * value, 1) for name, value in spent.items()}
        share = 100 * sum(spent.values()) / whole
        print(f"run {number + 1}: {whole:.1f} s, of it {parts} ms: {share:.2f} %", flush=True)


def requests(with_gate: bool, count: int = 400, size: int = 50_000) -> float:
    """Seconds of a node's request at Flower's own application, the median."""
    import base64

    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.proto.message_pb2 import PushObjectRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore import constant
    from flwr.supercore.date import now
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
    from flwr.superlink import main
    from starlette.testclient import TestClient

    from cgpfl.deploy import gate

    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # objects of no run are errors, after all that is timed here
    warnings.simplefilter("ignore")
    before = main._get_middleware
    if with_gate:
        gate.install()
    with tempfile.TemporaryDirectory() as scratch:
        main.get_ee_linkstate_db = lambda: f"{scratch}/superlink.db"
        app = main.create_app()
        main._get_middleware = before
        app.state.enable_supernode_auth = True
        state, key = app.state.linkstate_factory.state(), ec.generate_private_key(ec.SECP384R1())
        public = public_key_to_bytes(key.public_key())
        node = state.create_node("me", "me", public, 30)
        state.activate_node(node, 30)
        content = PushObjectRequest(node=Node(node_id=node), run_id=1, object_id="0" * 64, object_content=bytes(size))
        client, took = TestClient(app, client=("127.0.0.1", 9)), []
        for _ in range(count):
            stamp = now().isoformat()
            headers = {
                constant.FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(public).decode(),
                constant.FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(sign_message(key, stamp.encode())).decode(),
                "flwr-timestamp": stamp,
                "content-type": PROTOBUF_MEDIA_TYPE,
            }
            began = time.perf_counter()
            client.post("/v1/fleet/push-object", content=content.SerializeToString(), headers=headers)
            took.append(time.perf_counter() - began)
    return float(np.median(took))


def inside(program: str) -> object:
    """Be ``program``, whose gate notes of each request its own seconds, by the clock and on the processor."""
    from cgpfl.deploy import gate

    if not os.environ[NOTES]:  # the other side: no gate
        gate.install = lambda: None
        gate.Gate = Open  # type: ignore[assignment,misc]
        return runpy.run_module(program, run_name="__main__")
    file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    true, refused, ours = gate.Gate, gate._refused, gate.is_ours

    def note(clock: float, processor: float, requests: int = 0) -> None:
        about = [time.time(), program.rpartition(".")[2], requests, clock, processor]
        os.write(file, (json.dumps(about) + "\n").encode())

    def worked(check: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            began = time.thread_time()
            try:
                return check(*args)
            finally:
                note(0.0, time.thread_time() - began)

        return call

    def own_part(make: Callable[..., Any]) -> Callable[..., Any]:
        """A check around one of Flower's functions, without what Flower's takes."""

        def made(flower: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **named: Any) -> Any:
                flowers = np.zeros(2)

                def counted(**named: Any) -> Any:
                    began = clocks()
                    try:
                        return flower(**named)
                    finally:
                        flowers[:] += clocks() - began

                began = clocks()
                try:
                    return make(counted)(*args, **named)
                finally:
                    note(*(clocks() - began - flowers).tolist())

            return call

        return made

    class Noting(gate.Gate):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            began, passed = time.perf_counter(), list[float]()

            async def app(*about: Any) -> None:
                passed.append(time.perf_counter() - began)
                note(passed[0], 0.0, 1)
                await self.app(*about)

            await true(app, self.largest)(scope, receive, send)
            if not passed:
                note(time.perf_counter() - began, 0.0, 1)

    gate.Gate, gate._refused, gate.is_ours = Noting, worked(refused), worked(ours)  # type: ignore[misc]
    gate.only_answers, gate.own_task = own_part(gate.only_answers), own_part(gate.own_task)
    return runpy.run_module(program, run_name="__main__")


class Open:
    """A gate that lets everybody through."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self.app = app

    async def __call__(self, *about: Any) -> None:
        await self.app(*about)


def clocks() -> np.ndarray:
    """Seconds by the clock, and of this thread on its processor."""
    return np.array([time.perf_counter(), time.thread_time()])


def through_here() -> None:
    """SuperLink and SuperNodes are started by :func:`inside`."""
    from cgpfl.deploy import trial

    def noting(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **named: Any) -> Any:
            process = make(*args, **named)
            process.command[2:3] = ["benchmarks.costs", "inside", process.command[2]]
            return process

        return made

    trial.superlink, trial.supernode = noting(trial.superlink), noting(trial.supernode)


def rounds_of(nodes: int, repeats: int, rounds: int = 6) -> None:
    from benchmarks.deployment import make_app, measure

    through_here()
    found: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(repeats):
        for kind, each in found.items():
            with tempfile.TemporaryDirectory(prefix="cgpfl-costs-") as scratch:
                os.environ[NOTES] = f"{scratch}/notes.jsonl" if kind == "with" else ""
                make_app(Path(scratch) / "app", nodes, 10**5, rounds)
                each.append(measure(Path(scratch) / "app", rounds)["round_s"])
            print(f"{kind} the gate: a round {each[-1]:.2f} s", flush=True)
    shares = [100 * (a / b - 1) for a, b in zip(found["with"], found["without"], strict=True)]
    middle = {kind: np.median(each) for kind, each in found.items()}
    print(
        f"{nodes} nodes, {repeats} turns: {middle['with']:.2f} s with, {middle['without']:.2f} s without, "
        f"{100 * (middle['with'] / middle['without'] - 1):+.1f} %; of pairs "
        + ", ".join(f"{share:+.1f}" for share in shares)
    )


def gate_of(nodes: int, rounds: int = 6) -> None:
    from benchmarks.deployment import make_app, measure
    from cgpfl.deploy.follow import events
    from cgpfl.experiment.events import EVENTS

    through_here()
    scratch = Path(tempfile.mkdtemp(prefix="cgpfl-costs-"))
    os.environ[NOTES] = str(scratch / "notes.jsonl")
    try:
        make_app(scratch / "app", nodes, 10**5, rounds)
        used = nodes * measure(scratch / "app", rounds)["cpu_s"]
        notes = [json.loads(line) for line in (scratch / "notes.jsonl").read_text().splitlines()]
        told = [e["time"] for _, e in events(scratch / "run" / EVENTS) if e["kind"] == "progress"][: rounds + 1]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    seconds = (told[-1] - told[0]) / rounds
    print(
        f"{nodes} nodes: a round {seconds:.2f} s, the mean of {rounds} after the first; nodes' processes {used:.2f} s"
    )
    for program in ("superlink", "supernode"):
        own = np.array([n[2:] for n in notes if n[1] == program and told[0] < n[0] <= told[-1]]).sum(0) / rounds
        count, clock, processor = own
        print(
            f"{program}: {count:.0f} requests a round, its gate {1e3 * clock:.1f} ms by the clock, "
            f"{100 * clock / seconds:.2f} %; {1e3 * processor:.1f} ms of processor, {100 * processor / seconds:.2f} % "
            f"of the round, {100 * processor / used:.2f} % of what nodes' processes take",
            flush=True,
        )
    without, with_ = requests(False), requests(True)
    print(f"a node's request by itself: {1e3 * without:.2f} ms, with the gate {1e3 * with_:.2f} ms")


def main() -> None:
    if sys.argv[1:2] == ["inside"]:
        del sys.argv[1]
        inside(sys.argv.pop(1))
        return
    parser = argparse.ArgumentParser(description="What safety costs.")
    parser.add_argument("what", choices=["run", "gate", "rounds"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=2)
    asked = parser.parse_args()
    if asked.what == "run":
        run(asked.repeats)
    elif asked.what == "gate":
        gate_of(asked.nodes)
    else:
        rounds_of(asked.nodes, asked.repeats)


if __name__ == "__main__":
    main()
