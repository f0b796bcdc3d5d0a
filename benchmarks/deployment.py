"""What a round over Flower costs: ours beside a trivial app, for some numbers of nodes and parameters.

    python benchmarks/deployment.py [--nodes 4 16] [--parameters 100000 10000000] [--rounds 3]

Side by side on this machine: seconds a round, and processor seconds that a message costs its node (all its processes,
from the kernel's own count), which is a new process each time. Beside them, the same round in simulation. The trivial
app ("echo") multiplies the model by a number and returns it; equal parts of what is sent would travel once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

import cgpfl
from cgpfl.deploy.agreement import Deployment
from cgpfl.deploy.follow import events
from cgpfl.deploy.layout import write_app, write_trial_data
from cgpfl.deploy.processes import descendants
from cgpfl.deploy.trial import trial
from cgpfl.experiment.config import from_dict
from cgpfl.experiment.events import EVENTS

CLASSES, SAMPLES = 10, 8
ECHO_SERVER = """
import fcntl, json, time
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    out = Path(context.run_config["out"])
    out.mkdir(parents=True, exist_ok=True)
    lock = (out / "server.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # who follows sees by it that the server is there
    def tell(kind, **values):
        with (out / "events.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time(), "kind": kind, "values": values}) + "\\n")
    while len(list(grid.get_node_ids())) < NODES:
        time.sleep(0.1)
    for t in range(ROUNDS + 1):
        arrays = ArrayRecord({"w": Array(np.random.default_rng(t).random(PARAMETERS, np.float32))})
        sent = [Message(RecordDict({"m": arrays}), dst_node_id=n, message_type=MessageType.TRAIN, ttl=600)
                for n in grid.get_node_ids()]
        waiting, pause = set(grid.push_messages(sent)), 0.05
        while waiting:
            time.sleep(pause)
            pause = min(2 * pause, 0.5)
            waiting -= {r.metadata.reply_to_message_id for r in grid.pull_messages(list(waiting))}
        tell("progress", label="echo", round=t + 1, rounds=ROUNDS, answered=[], accuracy=None, seconds=0.0)
    tell("finished")
"""
ECHO_CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message, context):
    w = message.content["m"]["w"].numpy() * np.float32(context.node_config["client"] + 2)  # Flower sends nothing twice
    return Message(RecordDict({"m": ArrayRecord({"w": Array(w)})}), reply_to=message)
"""


def make_app(folder: Path, nodes: int, parameters: int, rounds: int):
    """An app of FedAvg on noise, with about ``parameters`` parameters; nodes' data beside it."""
    features = parameters // CLASSES - 1
    random = np.random.default_rng(0)
    pairs = [
        (random.normal(size=(SAMPLES, features)).astype(np.float32), random.integers(0, CLASSES, SAMPLES))
        for _ in range(nodes)
    ]
    data = cgpfl.FederatedData.from_clients(pairs, pairs, classes=CLASSES)
    values = {"rounds": rounds + 1, "eval_every": rounds + 1, "data": {"clients": nodes}}
    values["method"] = [{"name": "fedavg", "local_rounds": 1, "batch_size": SAMPLES}]
    facts = {"clients": nodes, "shape": data.shape, "classes": CLASSES, "deadline": 600.0, "join": 600.0}
    write_app(folder, from_dict(values, "benchmark"), Deployment(minimum=nodes, **facts))
    write_trial_data(folder, data)
    return data


def as_echo(folder: Path, nodes: int, parameters: int, rounds: int) -> None:
    """Replace the app's two modules by ones that only echo."""
    head = f"NODES, PARAMETERS, ROUNDS = {nodes}, {parameters}, {rounds}\n"
    (folder / "federation" / "server.py").write_text(head + ECHO_SERVER)
    (folder / "federation" / "client.py").write_text(ECHO_CLIENT)


def workers() -> list[int]:
    """Nodes' workers: they stay, and are nobody's children."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"cgpfl.engine.flower.worker" in file.read_bytes():
                found.append(int(file.parent.name))
    return found


def processor(pids: list[int]) -> float:
    """Processor seconds of processes, of those they run and of those that ended."""
    ticks = 0
    for p in {p for pid in pids for p in (pid, *descendants(pid))}:
        try:
            fields = Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(v) for v in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(folder: Path, rounds: int) -> dict[str, float]:
    """Seconds a round and processor seconds a message, the first round left out."""
    out, seen = folder.parent / "run", []
    marks: dict[int, float] = {}
    with trial(folder) as federation:
        pids = [n.running.pid for n in federation.nodes.values() if n.running]

        def note(p):
            seen.append(time.monotonic())
            marks.setdefault(p.round, processor([*pids, *workers()]))  # the evaluation comes as the same round again

        federation.run(out, on_progress=note)
    times = [e["time"] for _, e in events(out / EVENTS) if e["kind"] == "progress"][: rounds + 1]
    per_round = (times[-1] - times[0]) / (len(times) - 1)
    used = (marks[rounds + 1] - marks[1]) / rounds / len(pids)
    return {"round_s": per_round, "cpu_s": used}


def simulated(data, rounds: int = 20) -> float:
    """Seconds a round of the same in simulation."""
    method = cgpfl.get_method("fedavg", {"local_rounds": 1, "batch_size": SAMPLES})
    cgpfl.run(method, data, rounds=rounds, eval_every=rounds)
    began = time.perf_counter()
    cgpfl.run(method, data, rounds=rounds, eval_every=rounds)
    return (time.perf_counter() - began) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--parameters", type=int, nargs="+", default=[10**5, 10**7])
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print("nodes  parameters   ours s/round  echo s/round   ours cpu-s  echo cpu-s  ratio   simulated s/round")
    for nodes in asked.nodes:
        for parameters in asked.parameters:
            scratch = Path(tempfile.mkdtemp(prefix="cgpfl-bench-"))
            try:
                data = make_app(scratch / "app", nodes, parameters, asked.rounds)
                ours = measure(scratch / "app", asked.rounds)
                shutil.rmtree(scratch / "run")
                shutil.rmtree(scratch / "app" / ".flwr" / "trial")
                as_echo(scratch / "app", nodes, parameters, asked.rounds)
                echo = measure(scratch / "app", asked.rounds)
                here = simulated(data)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            ratio = ours["cpu_s"] / echo["cpu_s"]
            print(
                f"{nodes:5d}  {parameters:10d}   {ours['round_s']:12.1f}  {echo['round_s']:12.1f}   "
                f"{ours['cpu_s']:10.2f}  {echo['cpu_s']:10.2f}  {ratio:5.2f}   {here:17.4f}",
                flush=True,
            )
            print(json.dumps({"nodes": nodes, "parameters": parameters, "ours": ours, "echo": echo, "here": here}))


if __name__ == "__main__":
    main()
