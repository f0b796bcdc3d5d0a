"""A trial of a deployment on this machine: SuperLink and SuperNodes as processes, over TLS, nodes authenticated."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cgpfl.deploy.agreement import EXPERIMENT, Agreement, read_agreement
from cgpfl.deploy.certificates import write_keys
from cgpfl.deploy.follow import finished, follow, size
from cgpfl.deploy.layout import KEYS, TRIAL_DATA
from cgpfl.deploy.processes import (
    CONNECTION,
    Process,
    connect,
    flower,
    free_ports,
    register,
    superlink,
    supernode,
    wait_for_tls,
)
from cgpfl.deploy.secrets import ORDERS, bind, orders_of, write_secret
from cgpfl.errors import CgpflError, LostError
from cgpfl.experiment.run import Progress


@dataclass
class Trial:
    """A federation on this machine."""

    app: Path
    agreed: Agreement
    link: Process
    port: int
    door: int = 0
    """The port that nodes go to, where it is another: a proxy's."""
    nodes: dict[int, Process] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """Flower's folder of the trial: nothing of it is the real federation's."""
        return self.app / ".flwr" / "trial"

    @property
    def keys(self) -> Path:
        return self.home / KEYS

    def node(self, client: int, **environment: str) -> Process:
        """Start (again) the node of one client, with more in its environment."""
        (own,) = free_ports(1)
        made = supernode(
            client=client,
            server=f"127.0.0.1:{self.door or self.port}",
            ca=self.keys / "ca.pem",
            key=self.keys / f"node-{client}.key",
            data=self.app / TRIAL_DATA / str(client),
            state=self.home / f"node-{client}" / "state",
            home=self.home / f"node-{client}",
            port=own,
        )
        made.env |= environment
        self.nodes[client] = made.start()
        return made

    def run(
        self,
        out: Path,
        *,
        on_progress: Callable[[Progress], None] = lambda p: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Start a run, or go on with the one in ``out``, and follow it to its end."""
        since = size(out)
        start_run(self.app, self.home, out)
        follow(out, since, on_progress=on_progress, say=say, check=self.check, silence=patience(self.agreed))

    def relink(self) -> None:
        """Start the SuperLink again, where it was; its nodes come back by themselves."""
        self.link.start()
        wait_for_tls(self.link, self.port, self.keys / "ca.pem")

    def check(self) -> None:
        """Raise where the SuperLink, or every node, is gone."""
        if not self.link.alive:
            raise LostError(f"the SuperLink is gone: {self.link.tail()}")
        if self.nodes and not any(n.alive for n in self.nodes.values()):
            raise LostError(f"every node is gone: {next(iter(self.nodes.values())).tail()}")

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.nodes) + 1) as pool:
            list(pool.map(Process.stop, [*self.nodes.values(), self.link]))


def patience(agreed: Agreement) -> float:
    """Seconds without a word of the server after which it must be lost."""
    return agreed.deploy.join + (agreed.deploy.repeats + 1) * agreed.deploy.deadline + 120


def start_run(app: Path, home: Path, out: Path) -> dict[str, Any]:
    """Start a run of the app on the SuperLink that ``home`` knows."""
    out = out.resolve()
    if finished(out):
        raise CgpflError(f"out {out}: is finished; choose another")
    if '"' in str(out) or "\\" in str(out):
        raise CgpflError(f"out {out}: may have no quotes or backslashes")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)  # it has counts and scores of each client
    return flower(home, "run", str(app), CONNECTION, "--run-config", f'out="{out}"')


@contextmanager
def trial(app: Path, *, nodes: int | None = None, say: Callable[[str], None] = lambda line: None) -> Iterator[Trial]:
    """The app's SuperLink, on a free port, and its first ``nodes`` nodes, until the end of the block."""
    app = app.resolve()
    agreed = read_agreement(app / EXPERIMENT)
    wanted = agreed.deploy.clients if nodes is None else nodes
    (port,) = free_ports(1)
    home = app / ".flwr" / "trial"
    write_keys(home / KEYS, "localhost", agreed.deploy.clients)
    orders_of(app / KEYS, agreed.deploy.orders, str(agreed.where))  # says what is wrong with it
    write_secret(home / KEYS / ORDERS, (app / KEYS / ORDERS).read_bytes())
    link = superlink(home / KEYS, home, port)
    found = Trial(app, agreed, link, port)
    before = _stoppable()
    try:
        found.relink()
        say(f"SuperLink on 127.0.0.1:{port}, TLS")
        connect(home, f"127.0.0.1:{port}", found.keys / "ca.pem")
        with ThreadPoolExecutor(2) as pool:
            keys = [found.keys / f"node-{i}.pub" for i in range(agreed.deploy.clients)]
            list(pool.map(lambda key: register(home, key), keys))
        for client, key in enumerate(keys):
            bind(found.keys, client, key)
        for client in range(wanted):
            found.node(client)
        say(f"{wanted} nodes registered and started")
        yield found
    finally:
        found.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _stoppable() -> dict[int, Any]:
    """SIGTERM and SIGHUP end a trial as Ctrl-C does, with its processes, in the background, too → handlers before."""
    if threading.current_thread() is not threading.main_thread():
        return {}

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    return {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
