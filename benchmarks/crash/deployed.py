"""Deployments whose server, nodes, workers and SuperLink are killed, each started again as systemd would.

A node that was killed is refused until its old heartbeat lapses, and is started again until it is let in. A round goes
on without a client that was killed in it, so the oracle is a loop over clients in which the same clients answer in the
same rounds: nothing lost, nothing counted twice, every bit.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.crash.moments import Moment
from benchmarks.crash.simulated import Count
from cgpfl.deploy.agreement import Deployment, read_agreement
from cgpfl.deploy.check import together
from cgpfl.deploy.follow import START, events
from cgpfl.deploy.layout import write_app, write_trial_data
from cgpfl.deploy.lock import has_server
from cgpfl.deploy.orphans import descendants
from cgpfl.deploy.trial import Trial, trial
from cgpfl.engine.flower.call import socket_of
from cgpfl.engine.reference import simulate_loop
from cgpfl.errors import CgpflError, LostError
from cgpfl.experiment.config import from_dict
from cgpfl.experiment.events import EVENTS
from cgpfl.files import load_arrays
from cgpfl.tree import named

CLIENTS, ROUNDS, KILLS = 2, 12, 6
METHOD = {"name": "cgpfl", "contexts": 2}
VICTIMS = ("server", "node", "worker", "SuperLink")
PATIENCE = 240.0
AGAIN = 5.0
"""Seconds after which a node that ended is started again, as in the service that is written for it."""


def make_app(folder: Path) -> Path:
    """An app of two clients on digits, with its nodes' data."""
    values = {"rounds": ROUNDS, "data": {"clients": CLIENTS, "contexts": 2, "share": 0.2}, "method": [METHOD]}
    experiment = from_dict(values, "campaign")
    data = experiment.data.build(0)
    facts = {"clients": CLIENTS, "shape": data.shape, "classes": data.classes, "scale": data.scale, "shift": data.shift}
    rules = {"deadline": 30.0, "join": 60.0, "minimum": 1, "repeats": 5}
    write_app(folder, experiment, Deployment(**facts, **rules))
    write_trial_data(folder, data)
    return folder


@dataclass
class Federations:
    """Federations one after the other, each with some kills on the way."""

    scratch: Path
    draw: random.Random

    def killed(self, count: Count, kills: int = KILLS) -> None:
        """One federation, compared at its end."""
        place = self.scratch / f"federation-{self.draw.randrange(10**9)}"
        app, out, seen = make_app(place / "app"), place / "run", list[Moment]()
        try:
            with trial(app) as federation, restarting(federation):
                self._through(federation, out, kills, seen)
            found = differences(app, out)
        except (CgpflError, TimeoutError) as error:
            found = [f"{type(error).__name__}: {error}"]
        count.kills += len(seen)
        count.by.update(moment.kind for moment in seen)
        if found:
            count.wrong.append(f"{seen}: {found} ({place})")
        else:
            count.equal += len(seen)
            shutil.rmtree(place)

    def _through(self, federation: Trial, out: Path, kills: int, seen: list[Moment]) -> None:
        """Run to the end, with kills at random moments."""
        running = Running(federation, out)
        while running.ended is None or running.ended[0] is not None:
            if running.ended is not None:
                self._again(federation, running, out)
                running = Running(federation, out)
            if len(seen) >= kills:
                if not running.wait(PATIENCE * 4):
                    raise TimeoutError("the run does not end")
                continue
            wait = self._until(running, out)
            if running.ended is None:
                victim = self.draw.choice(VICTIMS)
                if victim == "server" and not has_server(out) and self.draw.random() < 0.8:
                    continue  # one that had not begun is missed after two minutes: now and then is enough
                if self._kill(federation, victim):
                    seen.append(Moment(victim, round(wait, 2)))
                if victim in ("server", "SuperLink") and not running.wait(START + 60):
                    raise TimeoutError(f"nobody noticed that the {victim} is gone")

    def _until(self, running: Running, out: Path) -> float:
        """Wait for a moment: some seconds, or a round or two and then some → how long that was."""
        began, rounds = time.monotonic(), self.draw.choice([0, 1, 1, 2])
        goal = told(out) + rounds
        while rounds and told(out) < goal and not running.wait(0.2) and time.monotonic() - began < PATIENCE:
            pass
        running.wait(self.draw.uniform(0, 4 if rounds else 15))
        return time.monotonic() - began

    def _again(self, federation: Trial, running: Running, out: Path) -> None:
        """What an operator does: start the SuperLink where it is gone, and give the command once more."""
        assert running.ended is not None
        if not federation.link.alive:
            federation.relink()
        error = running.ended[0]
        if not isinstance(error, CgpflError):
            raise TimeoutError(f"not one line but {error!r}")
        end = time.monotonic() + PATIENCE
        while has_server(out) and time.monotonic() < end:  # one that is being ended, with its SuperLink
            time.sleep(0.2)

    def _kill(self, federation: Trial, victim: str) -> bool:
        """SIGKILL, and what systemd does next; whether there was one to kill."""
        if victim == "SuperLink":
            federation.link.kill(signal.SIGKILL)
            return True
        client = self.draw.randrange(CLIENTS)
        if victim == "node":
            alive = federation.nodes[client].alive
            federation.nodes[client].kill(signal.SIGKILL)
            return alive
        if victim == "server":
            found = [p for p in descendants(federation.link.running.pid) if "serverapp" in _command(p)]
        else:
            address = str(socket_of(federation.home / f"node-{client}" / "state"))
            pids = [int(p.name) for p in Path("/proc").glob("[0-9]*")]
            found = [p for p in pids if address in _command(p)]
        for pid in found[:1]:
            os.kill(pid, signal.SIGKILL)
        return bool(found)


@contextmanager
def restarting(federation: Trial) -> Iterator[None]:
    """Nodes are started again until the end of the block, and whoever follows the run looks at the SuperLink alone."""
    stop = threading.Event()

    def check() -> None:
        if not federation.link.alive:
            raise LostError(f"the SuperLink is gone: {federation.link.tail()}")

    def watch() -> None:
        while not stop.wait(AGAIN):
            for client, node in list(federation.nodes.items()):
                if not node.alive:
                    federation.node(client)

    federation.check = check  # type: ignore[method-assign]
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Running:
    """``federation.run`` in a thread."""

    def __init__(self, federation: Trial, out: Path) -> None:
        self.ended: list[BaseException | None] | None = None
        self._thread = threading.Thread(target=self._call, args=(federation, out), daemon=True)
        self._thread.start()

    def _call(self, federation: Trial, out: Path) -> None:
        try:
            federation.run(out)
            self.ended = [None]
        except BaseException as error:
            self.ended = [error]

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, or does within some seconds."""
        self._thread.join(seconds)
        return self.ended is not None


def told(out: Path) -> int:
    """Rounds that the server has told of."""
    return sum(e["kind"] == "progress" for _, e in events(out / EVENTS))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def differences(app: Path, out: Path) -> list[str]:
    """What of a deployment's state is other than in a loop over clients in which the same answered.

    A server that was killed after it saved a round and before it told of it leaves one of which nobody knows who
    answered: any answers that give these bits will do.
    """
    agreed, label = read_agreement(app / "experiment.toml"), METHOD["name"]
    rounds = [e["values"] for _, e in events(out / EVENTS) if e["kind"] == "progress"]
    answered = {e["round"] - 1: set(e["answered"]) for e in reversed(rounds)}  # the last round is told twice, evaluated
    unknown = [t for t in range(ROUNDS) if t not in answered]
    if len(unknown) > 3:
        return [f"{len(unknown)} of {ROUNDS} rounds were never told"]
    anyone = [set(who) for n in range(CLIENTS, 0, -1) for who in itertools.combinations(range(CLIENTS), n)]
    data, model, method = together(agreed), agreed.model(), agreed.method(label)
    arrays, facts = load_arrays(out / "methods" / label / "state.safetensors")
    found = [f"is at round {facts['round']} of {ROUNDS}"] if facts["round"] != ROUNDS else []
    for guess in itertools.product(anyone, repeat=len(unknown)):
        who = answered | dict(zip(unknown, guess, strict=True))
        server, _, _ = simulate_loop(
            method, data, model, rounds=ROUNDS, eval_every=ROUNDS, answered=lambda t, i, who=who: i in who[t]
        )
        other = [n for n, v in named(server).items() if not np.array_equal(arrays[f".server{n}"], v, equal_nan=True)]
        if not other:
            return found
    return [*found, f"other than in a loop: {other}; answered {answered}"]
