"""docs/deployment.md, done as it says on this machine: real processes, TLS, a real nginx in front, a reader between.

Only what must be another on one machine is: the host's name, ports, and how many nodes there are.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_faults import happened, until
from wire import Reader, nginx

from cgpfl.deploy.certificates import write_keys
from cgpfl.deploy.layout import KEYS
from cgpfl.deploy.orphans import descendants
from cgpfl.deploy.processes import connect, flower, free_ports, supernode
from cgpfl.errors import CgpflError
from cgpfl.files import load_arrays
from helpers import ENVIRONMENT, start

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.strip().splitlines()]
NODES, CLASSES, SHAPE = 3, 10, (28, 28)
EXPERIMENT = """
rounds = 2
[[method]]
name = "fedavg"
[deploy]
deadline = 45.0
join = 120.0
minimum = 2
"""


def line(start):
    """The page's command that begins like this."""
    (found,) = [text for text in LINES if text.startswith(start)]
    return shlex.split(found, comments=True)


def samples(folder, seed, classes=CLASSES, count=40):
    """Data of one node: ``train`` and ``test``, as images."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    for part in ("train", "test"):
        np.savez(folder / f"{part}.npz", x=random.random((count, *SHAPE), np.float32), y=np.arange(count) % classes)


class Hosts:
    """Processes started by the page's lines; all of them are ended."""

    def __init__(self, root):
        self.root, self.running = root, []
        programs = root / "programs"
        programs.mkdir()
        (programs / "cgpfl").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cgpfl.cli "$@"\n')
        (programs / "nginx").write_text(f'#!/bin/sh\nexec "{nginx()}" -p "{root}" "$@"\n')
        for file in programs.iterdir():
            file.chmod(0o755)
        self.environment = ENVIRONMENT | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def start(self, name, command, cwd):
        log = self.root / f"{name}.log"
        with log.open("wb") as file:
            self.running.append(subprocess.Popen(command, cwd=cwd, stdout=file, stderr=file, env=self.environment))
        return log

    def call(self, command, cwd):
        try:
            done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=self.environment, timeout=300)
        except subprocess.TimeoutExpired as error:
            logs = "\n".join(f"{log.name}: {log.read_text()[-3000:]}" for log in self.root.glob("*.log"))
            raise AssertionError(f"{error.stdout} {error.stderr}\n{logs}") from error
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def close(self):
        for process in self.running:
            for pid in [*descendants(process.pid), process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait(10)
        for file in self.root.rglob("nginx.pid"):
            os.kill(int(file.read_text()), signal.SIGTERM)


def pair():
    """A free port whose successor is free, too."""
    for _ in range(50):
        (port,) = free_ports(1)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two ports in a row are free")


def answers(port, ca):
    """Whether there is somebody with a certificate of ours at a port."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 2) as plain,
            ssl.create_default_context(cafile=str(ca)).wrap_socket(plain, server_hostname="localhost"),
        ):
            return True
    except OSError:
        return False


@pytest.mark.slow
def test_the_guide_for_real_hosts(tmp_path):
    """Nodes come in through nginx; strangers do not; what a node sends holds nothing of its samples; and a node with
    labels that the federation does not have says so itself, while the others go on."""
    if nginx() is None:
        pytest.skip("no nginx here, and no apt-get to get one")
    front = pair()
    hosts, server = Hosts(tmp_path), tmp_path / "server"
    server.mkdir()
    (server / "experiment.toml").write_text(EXPERIMENT)
    ours = {"fl.example.org": "localhost", "8": str(NODES), "9444": str(front + 1)}
    app, reader = server / "federation", None
    try:
        init = [ours.get(word, word) for word in line("cgpfl deploy init")]
        hosts.call([*init, "--port", str(front)], server)
        assert line("cd ") == ["cd", "federation"]
        hosts.call(line("./certificates.sh"), app)
        hosts.call([word.replace("$PWD", str(app)) for word in line("nginx")], app)
        link = hosts.start("superlink", [ours.get(word, word) for word in line("cgpfl deploy superlink")], app)
        until("SuperLink", lambda: answers(front + 1, app / KEYS / "ca.pem"), 60)
        assert "`cgpfl deploy register .`" in PAGE
        assert hosts.call(["cgpfl", "deploy", "register", "."], app).count("registered") == NODES
        strangers(tmp_path, app, front)
        reader = Reader(app / KEYS, front)
        logs = []
        for client in range(NODES):
            host = tmp_path / f"host-{client}"
            samples(host / "data", client, CLASSES if client < 2 else CLASSES + 3)
            for name in ("ca.pem", f"node-{client}.key"):
                shutil.copy(app / KEYS / name, host)
            own = {
                "3": str(client),
                "node-3.key": f"node-{client}.key",
                "fl.example.org:9443": f"localhost:{reader.port}",
            }
            node = [own.get(word, word) for word in line("cgpfl deploy node")]
            logs.append(hosts.start(f"node-{client}", [*node, "--port", str(free_ports(1)[0])], host))
        printed = hosts.call(line("cgpfl deploy run"), app)
    finally:
        seen = b"" if reader is None else bytes(reader.seen)
        if reader is not None:
            reader.close()
        hosts.close()
    out = app / "runs" / "federation"
    assert "fedavg" in printed
    assert (out / "report.html").exists()
    assert [e["answered"] for e in happened(out)][:2] == [[0, 1], [0, 1]]
    said = [text for text in logs[2].read_text().splitlines() if "cgpfl: " in text]
    assert any("labels" in text and f"0..{CLASSES - 1}" in text for text in said), logs[2].read_text()
    told = " ".join(e["line"] for e in happened(out, "say"))
    assert "its node cannot take part; its log says why" in told
    nothing_private(app, tmp_path, seen, out, [link, *logs])


def strangers(tmp_path, app, front):
    """With the CA's certificate alone nobody starts a run; without a registered key nobody becomes a node."""
    home = tmp_path / "stranger"
    connect(home, f"127.0.0.1:{front}", app / KEYS / "ca.pem")
    other = shutil.copytree(app, tmp_path / "theirs", ignore=shutil.ignore_patterns(".flwr", "keys"))
    with pytest.raises(CgpflError, match=r"flwr run.*403"):
        flower(home, "run", str(other), "federation", "--run-config", f'out="{tmp_path / "stolen"}"')
    assert not (tmp_path / "stolen").exists()
    write_keys(tmp_path / "forged", "localhost", 1)
    samples(tmp_path / "forged" / "data", 9)
    process = supernode(
        client=0,
        server=f"127.0.0.1:{front}",
        ca=app / KEYS / "ca.pem",
        key=tmp_path / "forged" / "node-0.key",
        data=tmp_path / "forged" / "data",
        state=tmp_path / "state",
        home=tmp_path / "forger",
        port=free_ports(1)[0],
    ).start()
    try:
        until("refusal", lambda: not process.alive, 90)
    finally:
        process.stop()
    assert process.running.returncode != 0


def nothing_private(app, root, seen, out, logs):
    """The bytes that passed hold the models, but no sample and no key; neither do logs and configurations."""
    model = load_arrays(out / "methods" / "fedavg" / "state.safetensors")[0]
    largest = max((v for k, v in model.items() if k.startswith(".server")), key=lambda v: v.size)
    assert largest.tobytes() in seen  # so models do pass here in clear: the search below can find something
    for client in (0, 1):
        for part in ("train", "test"):
            with np.load(root / f"host-{client}" / "data" / f"{part}.npz") as file:
                x = file["x"]
            for kind in (np.float32, np.float64):
                for row in x.astype(kind)[:, 2]:  # the third row of each image
                    assert row.tobytes() not in seen
    secrets = [k.read_bytes().splitlines()[2] for k in (app / KEYS).glob("*.key")]
    texts = [*logs, *(app / ".flwr").rglob("*.log"), *out.rglob("*.toml"), *out.rglob("*.jsonl")]
    assert len(texts) >= 7
    for secret in secrets:
        assert len(secret) > 20
        assert secret not in seen
        assert all(secret not in p.read_bytes() for p in texts)


@pytest.mark.slow
def test_a_trial_by_one_command(tmp_path):
    """What ``make deploy-demo`` runs, with one method: it ends with the table, the report and the comparison."""
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert line("make") == ["make", "deploy-demo"]
    (demo,) = re.findall(r"^deploy-demo:.*\n\t\$\(BIN\)/cgpfl (.*)$", makefile, re.MULTILINE)
    assert demo == "deploy up --nodes 4 --check"
    less = ["--method", "cgpfl", "--set", "cgpfl.warmup=0", "--rounds", "2", "--out", tmp_path / "run"]
    running = start(*demo.split(), *less, cwd=tmp_path)
    try:
        printed, errors = running.communicate(timeout=240)
    finally:
        running.terminate()  # as Ctrl-C: its processes end, too
        running.wait(60)
    assert running.returncode == 0, errors
    assert "The same in simulation: cgpfl: every client's accuracy in every round equal" in printed
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "run" / "app").exists()
