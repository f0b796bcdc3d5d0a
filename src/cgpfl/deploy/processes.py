"""Flower's processes: SuperLink, SuperNodes and its command line, told to talk to nobody else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cgpfl.deploy.certificates import check_dates
from cgpfl.deploy.orphans import PARENT, descendants, signal_all
from cgpfl.deploy.secrets import FOLDER
from cgpfl.errors import CgpflError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""No process of a deployment connects to anything but the federation."""
CONNECTION = "federation"


def program(name: str) -> str:
    """Flower's program ``name``, of this Python's environment."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise CgpflError(f"{name}: Flower is not installed; install it by: pip install 'cgpfl[deploy]'")
    return found


def environment(home: Path, poll: float = 0.25) -> dict[str, str]:
    """The environment of Flower's processes, with ``home`` as their folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # Flower starts its own
    own = {"PATH": path, "FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(poll)}
    return {**os.environ, **QUIET, **own}


def own_folder(path: Path) -> Path:
    """A folder that nobody but this user can enter."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


@dataclass
class Process:
    """A process in a group of its own, its output in a file."""

    name: str
    command: list[str]
    log: Path
    env: dict[str, str]
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        own_folder(self.log.parent)
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.env | {PARENT: str(os.getpid())},
                start_new_session=True,
                umask=0o077,
            )
        return self

    @property
    def alive(self) -> bool:
        return self.running is not None and self.running.poll() is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it and all it started a signal, and wait for its end."""
        if self.running is None:
            return
        signal_all([self.running.pid, *descendants(self.running.pid)], number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.running.wait(10)

    def stop(self) -> None:
        """End it and all it started, by force if it does not go."""
        if self.running is None:
            return
        others = descendants(self.running.pid)  # Flower starts programs in groups of their own
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.running.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.running.wait(5)
        self.kill()
        signal_all(others, signal.SIGKILL)

    def tail(self, lines: int = 5) -> str:
        """The end of its output."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return " | ".join(text.strip().splitlines()[-lines:])


def superlink(keys: Path, home: Path, port: int) -> Process:
    """A SuperLink on loopback: TLS, nodes authenticated, state in a database that survives it."""
    for name in ("ca.pem", "server.pem", "server.key"):
        if not (keys / name).exists():
            raise CgpflError(f"{keys / name}: no such file; make keys by: cgpfl deploy keys")
    check_dates(keys)
    own_folder(home)
    program("flower-superlink")  # says it where Flower is not installed
    command = [sys.executable, "-m", "cgpfl.deploy.superlink", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--ssl-ca-certfile", str(keys / "ca.pem"), "--ssl-certfile", str(keys / "server.pem")]
    command += ["--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth"]
    command += ["--database", str(home / "superlink.db"), "--disable-runtime-dependency-installation"]
    own = environment(home) | {FOLDER: str(keys.resolve())}
    return Process("superlink", command, home / "superlink.log", own)


def supernode(
    *, client: int | str, server: str, ca: Path, key: Path, data: Path, state: Path, home: Path, port: int
) -> Process:
    """The SuperNode of one client."""
    for path in (ca, key, data):
        if not path.exists():
            raise CgpflError(f"{path}: no such file or folder")
    facts = {"client": client, "data": str(data.resolve()), "state": str(state.resolve())}
    for name, value in facts.items():
        if '"' in str(value) or "\\" in str(value):
            raise CgpflError(f"{name} {value}: may have no quotes or backslashes")
    config = " ".join(f"{k}={json.dumps(v)}" for k, v in facts.items())
    program("flower-supernode")  # says it where Flower is not installed
    command = [sys.executable, "-m", "cgpfl.deploy.supernode", "--superlink", server, "--root-certificates", str(ca)]
    command += ["--auth-supernode-private-key", str(key), "--port", str(port), "--node-config", config]
    own_folder(home)
    return Process(f"node {client}", command, home / "node.log", environment(home))


def connect(home: Path, address: str, ca: Path) -> None:
    """Tell Flower's command line where the SuperLink is."""
    own_folder(home)
    text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
    text += f"address = {json.dumps(address)}\nroot-certificates = {json.dumps(str(ca))}\n"
    (home / "config.toml").write_text(text)


def flower(home: Path, *arguments: str, seconds: float = 120) -> dict[str, Any]:
    """Flower's command line → its JSON; its own exit code does not tell failure."""
    command = [program("flwr"), *arguments, "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment(home), timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise CgpflError(f"flwr {arguments[0]}: no answer within {seconds:g} s") from error
    try:
        found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        found = {"success": False, "error-message": (done.stdout + done.stderr).strip()}
    if not found.get("success"):
        raise CgpflError(f"flwr {' '.join(arguments[:2])}: {_one_line(found)}")
    return found


def _one_line(found: dict[str, Any]) -> str:
    text = str(found.get("error-message") or found)
    return " ".join(text.split())[:300]


def register(home: Path, key: Path) -> None:
    """Make a node's public key known to the SuperLink; known already is fine."""
    try:
        flower(home, "supernode", "register", str(key), CONNECTION)
    except CgpflError as error:
        if "already" not in str(error).lower():
            raise


def free_ports(n: int) -> list[int]:
    """``n`` ports that are free now."""
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


def wait_for_tls(process: Process, port: int, ca: Path, seconds: float = 60) -> None:
    """Until the server answers a TLS handshake with a certificate of ``ca``."""
    context = ssl.create_default_context(cafile=str(ca))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not process.alive:
            raise CgpflError(f"{process.name}: ended at once: {process.tail()}")
        try:
            with (
                socket.create_connection(("127.0.0.1", port), 2) as plain,
                context.wrap_socket(plain, server_hostname="localhost"),
            ):
                return
        except ssl.SSLCertVerificationError as error:
            raise CgpflError(f"{process.name}: its certificate is not of {ca}: {error.verify_message}") from error
        except OSError:
            time.sleep(0.1)
    raise CgpflError(f"{process.name}: no answer within {seconds:g} s: {process.tail()}")
