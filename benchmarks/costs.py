"""What safety costs: checkpoints, checksums and locks of a run; the gate in front of the server in a round.

    python -m benchmarks.costs run [--repeats 3]       the default run, with a folder
    python -m benchmarks.costs gate [--nodes 2]        a deployment of FedAvg with 10⁵ parameters

Both count the time spent in the parts themselves, so that what else a machine does meets parts and whole alike.
``gate`` times requests to Flower's own application with and without the gate, times a round's requests, which the
SuperLink's log tells.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import shutil
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


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


def gate_of(nodes: int, rounds: int = 4) -> None:
    from benchmarks.deployment import make_app, measure

    scratch = Path(tempfile.mkdtemp(prefix="cgpfl-costs-"))
    try:
        make_app(scratch / "app", nodes, 10**5, rounds)
        found = measure(scratch / "app", rounds)
        log = (scratch / "app" / ".flwr" / "trial" / "superlink.log").read_text(errors="replace")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    asked = len(re.findall(r"POST /v1/(?:fleet|runtime)/", log)) / (rounds + 1)
    without, with_ = requests(False), requests(True)
    extra = max(0.0, with_ - without)
    share = 100 * asked * extra / found["round_s"]
    print(
        json.dumps(
            {"nodes": nodes, **found, "requests_a_round": asked, "without_ms": 1e3 * without, "with_ms": 1e3 * with_}
        )
    )
    print(f"a round {found['round_s']:.1f} s, {asked:.0f} requests, {1e3 * extra:.2f} ms more for each: {share:.2f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description="What safety costs.")
    parser.add_argument("what", choices=["run", "gate"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=2)
    asked = parser.parse_args()
    run(asked.repeats) if asked.what == "run" else gate_of(asked.nodes)


if __name__ == "__main__":
    main()
