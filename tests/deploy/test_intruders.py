"""Strangers, other users of the machine, a node that is not who it says, and trouble; and where nothing checks them.

One federation of real processes for nearly all of it, as in ``test_liars.py``: starting processes is most of the time.
Client 0 answers in round 1 alone, and while it is at work there the others come: who has client 3's key says it is
client 1. Then strangers send bodies that never end, another user posts a bundle and reads what is on the disk; in
round 2 client 0 shouts and client 2's disk is full; in round 3 client 2 sends two gigabytes of zeros and the server
dies between two files. Each of these is stopped by a check, or succeeds where that is lifted (``hook``).
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.app.message.arraychunk import ArrayChunk
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.supercore.fab import Fab
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from test_faults import PATHS, happened, in_background, make_app, same_as_a_loop, server_of, until
from test_hosts import alive
from test_liars import SERVER, Owner

from cgpfl.deploy import orphans, processes
from cgpfl.deploy.certificates import write_keys
from cgpfl.deploy.layout import KEYS, TRIAL_DATA
from cgpfl.deploy.orphans import descendants
from cgpfl.deploy.processes import free_ports, supernode
from cgpfl.deploy.trial import trial
from cgpfl.errors import LostError
from cgpfl.files import load_arrays
from helpers import ENVIRONMENT

CLIENTS, ROUNDS = 4, 3
STRANGERS, EACH = 8, 60_000_000
"""Connections, and bytes of each body."""
PIECE = 500_000
"""Bytes of a piece of zeros."""
SHOUT = 900_000
"""Letters of an error; with more an answer of this small model is refused by its size."""
NOBODY = 65534
PYTHON = Path("/usr/bin/python3")
"""One that every user may run."""
IS_ROOT = os.geteuid() == 0
"""Only root can be somebody else, and mount."""
OTHER = """
import http.client, json, ssl, sys
facts, body = json.loads(sys.stdin.buffer.readline()), sys.stdin.buffer.read()
line = http.client.HTTPSConnection("127.0.0.1", facts["port"], context=ssl._create_unverified_context(), timeout=60)
line.request("POST", "/v1/control/start-run", body, {"content-type": facts["type"]})
said = {"status": line.getresponse().status}
for name in facts["files"]:
    try:
        with open(name, "rb") as file:
            said[name] = file.read().hex()
    except OSError as error:
        said[name] = type(error).__name__
print(json.dumps(said))
"""
"""What another user does: posts what is on standard input, and reads files."""


@pytest.fixture
def place():
    """A folder that every user may enter, unlike pytest's."""
    made = Path(tempfile.mkdtemp(prefix="cgpfl-intruders-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextlib.contextmanager
def small_disk(folder):
    """A disk of its own for a folder, where this user may mount one → whether it is."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", folder], check=True)


def memory(pid, name="VmRSS"):
    """Megabytes that a process has, or had at most (``VmHWM``)."""
    (line,) = [text for text in Path(f"/proc/{pid}/status").read_text().splitlines() if text.startswith(name)]
    return int(line.split()[1]) // 1024


def strangers_fill(federation):
    """Strangers send bodies but for the last byte → by how many megabytes the SuperLink grew, what it says to them."""
    before, grown, said = memory(federation.link.running.pid), 0, b""
    context = ssl.create_default_context(cafile=str(federation.keys / "ca.pem"))
    head = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: localhost\r\nContent-Length: {EACH}\r\n"
    head += f"Content-Type: {PROTOBUF_MEDIA_TYPE}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(STRANGERS):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", federation.port), 60))
            line = stack.enter_context(context.wrap_socket(line, server_hostname="localhost"))
            with contextlib.suppress(OSError):
                line.sendall(head.encode())
                for _ in range(EACH // 1_000_000 - 1):
                    line.sendall(bytes(1_000_000))
                line.sendall(bytes(999_999))
            grown = max(grown, memory(federation.link.running.pid) - before)
            with contextlib.suppress(OSError):
                line.settimeout(0.5)
                said = line.recv(1000) or said
    return grown, said


def bundle(folder, mark):
    """A request to start a run of a bundle whose code says whose it is."""
    (folder / "house").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "house"\nversion = "1.0.0"\ndescription = "Whose?"\nlicense = "Apache-2.0"\n'
        'dependencies = []\n[tool.flwr.app]\npublisher = "nobody"\nfab-include = ["house/*.py"]\n'
        '[tool.flwr.app.components]\nserverapp = "house.app:server"\nclientapp = "house.app:client"\n'
    )
    (folder / "house" / "__init__.py").write_text("")
    (folder / "house" / "app.py").write_text(
        "import os\nfrom flwr.clientapp import ClientApp\nfrom flwr.serverapp import ServerApp\n"
        "server, client = ServerApp(), ClientApp()\n@server.main()\ndef main(grid, context):\n"
        f"    with open({str(mark)!r}, 'w') as file:\n        file.write(str(os.getuid()))\n"
    )
    content = build_fab_from_disk(folder)
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    return StartRunRequest(fab=fab_to_proto(fab)).SerializeToString()


def another_user(port, body, files):
    """Another user of this machine posts a bundle to the SuperLink and reads files → what came of it."""
    facts = {"port": port, "type": PROTOBUF_MEDIA_TYPE, "files": [str(file) for file in files]}
    done = subprocess.run(
        [PYTHON, "-I", "-c", OTHER],
        input=json.dumps(facts).encode() + b"\n" + body,
        capture_output=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def holds(content, upload):
    """Whether an upload is in the bytes of a database, which has it in pages."""
    return any(upload[at : at + 200] in content for at in range(0, len(upload) - 200, 200))


def zeros(gigabytes):
    """A reply with an array that travels as one piece and says that it is many."""
    piece, count = ArrayChunk(memoryview(bytes(PIECE))), int(gigabytes * 10**9) // PIECE
    said = {"train": ROUNDS - 1, "samples": 1, "tests": 1, "anew": False, "told": "", "problem": "", "nonce": ""}
    upload = ArrayRecord({"w": Array("uint8", (count * PIECE,), "numpy.ndarray", b"")})
    upload["w"].__dict__["_chunks"] = [(piece.object_id, piece)] * count
    return RecordDict({"said": ConfigRecord(said), "metrics": MetricRecord({"own": 1.0}), "upload": upload})


def command(log, *words, enough=lambda: False, **environment):
    """Run the command line until it, or what it becomes, ends, or it was ``enough`` → exit code, all it said."""
    line = [sys.executable, "-m", "cgpfl.cli", *map(str, words)]
    with log.open("wb") as file:  # no pipe: what it started may have one a moment longer
        running = subprocess.Popen(line, stdout=file, stderr=file, env=ENVIRONMENT | environment, cwd=log.parent)
    try:
        until("end of a command", lambda: running.poll() is not None or enough())
    finally:
        for pid in [*descendants(running.pid), running.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.wait()
    return running.returncode, log.read_text()


def intruder(federation, client, home, **environment):
    """Start a node that has the key of client 3, and says it is another."""
    made = supernode(
        client=client,
        server=f"127.0.0.1:{federation.port}",
        ca=federation.keys / "ca.pem",
        key=federation.keys / "node-3.key",
        data=federation.app / TRIAL_DATA / "3",
        state=home / "state",
        home=home,
        port=free_ports(1)[0],
    )
    made.env |= environment
    federation.nodes[3] = made.start()  # it is ended with the others
    return made


def ahead(federation, home, guarded):
    """A node's clock is ahead: what the command says (exit code, words), and the log of a node started without it."""
    facts = {"client": 3, "server": f"127.0.0.1:{federation.port}", "ca": federation.keys / "ca.pem"}
    facts |= {"key": federation.keys / "node-3.key", "data": federation.app / TRIAL_DATA / "3", "state": home / "own"}
    words = [f"--{name}={value}" for name, value in facts.items()]
    said = command(home / "said", "deploy", "node", *words, "--port", free_ports(1)[0], AHEAD="12")
    if not guarded:
        return said, said[1]  # the command became Flower's own program
    made = intruder(federation, 3, home / "ahead", AHEAD="12")
    until("end of a node whose clock is ahead", lambda: not made.alive)
    return said, made.log.read_text()


def logged(state):
    """What the server printed, as the SuperLink keeps it."""
    return "".join(text for (text,) in state.execute("select log from task_logs order by timestamp"))


def told(out):
    return [event["line"] for event in happened(out, "say")]


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_strangers_neighbours_impostors_and_trouble(tmp_path, place, monkeypatch, guarded):
    rules = {"deadline": 600.0, "join": 1.0, "minimum": 1, "repeats": 1}
    app = make_app(place / "app", [{"name": "ifca", "contexts": 2}], clients=CLIENTS, rounds=ROUNDS, **rules)
    out, notes, mark, late = place / "run", tmp_path / "notes", place / "mark", tmp_path / "late"
    notes.mkdir()
    late.mkdir()
    lies = {"0-0": "hang", "0-1": f"shout {SHOUT}", "1-1": "hang", "2-2": "hang", "1-2": "hang"}
    for name, what in (lies | ({"0-2": "far"} if guarded else {"1-1": "far"})).items():
        (notes / name).write_text(what)
    for name, value in {"PYTHONPATH": PATHS, "HOOK": str(notes), "UNGUARDED": "" if guarded else "1"}.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(ENVIRONMENT, name, value)
    if not guarded:  # folders as they are made otherwise
        monkeypatch.setattr(processes, "own_folder", lambda path: path.mkdir(parents=True, exist_ok=True))
        (app / ".flwr").chmod(0o755)
    seen = SimpleNamespace(app=app, out=out, mark=mark, spoken=[], read=None)
    body = bundle(tmp_path / "house", mark)
    with small_disk(app / ".flwr" / "trial" / "node-2" / "state") as seen.disk, trial(app, nodes=1) as federation:
        home = federation.home
        _, ended = in_background(lambda: federation.run(out, say=seen.spoken.append))

        def wait(what, condition):
            until(what, lambda: ended or condition())
            assert not ended, ended

        wait("client 0 in its first round", (notes / "0-0.here").exists)
        seen.early, seen.late = ahead(federation, late, guarded)
        federation.node(2)
        intruder(federation, 1, tmp_path / "impostor")
        wait("client 1, or not", lambda: any("client 1" in line for line in told(out)))
        federation.node(1)
        wait("both", lambda: len([line for line in told(out) if "client 1" in line]) == 2)
        wait("client 2", lambda: "client 2 is here" in told(out))
        seen.grown, seen.answer = strangers_fill(federation)
        if seen.disk:  # to the last byte
            with contextlib.suppress(OSError), (home / "node-2" / "state" / "filled").open("wb", 0) as file:
                while True:
                    file.write(bytes(4096))
        owner, server = Owner(federation, 2), server_of(federation)
        (seen.token,) = {token for (token,) in owner.state.execute("select token from task where token is not null")}
        seen.upload = (notes / "0-0.here").read_bytes()
        seen.database = [home / "superlink.db", home / "superlink.db-wal"]
        files = [*seen.database, home / "superlink.log", out, out / "events.jsonl", app / KEYS / "orders.key"]
        os.kill(server, signal.SIGSTOP)  # it takes an upload at once
        try:
            (notes / "0-0").unlink()
            wait("an upload", lambda: holds(b"".join(file.read_bytes() for file in seen.database), seen.upload))
            if IS_ROOT and PYTHON.exists():
                seen.read = another_user(federation.port, body, files)
        finally:
            os.kill(server, signal.SIGCONT)
        wait("client 2's trouble", lambda: not seen.disk or any("client 2: " in line for line in told(out)))
        (home / "node-2" / "state" / "filled").unlink(missing_ok=True)
        if guarded:  # else it may not have chosen yet
            (notes / "1-1").unlink()
        wait("the others in the third round", lambda: all((notes / f"{i}-2.here").exists() for i in (1, 2)))
        pending, run = owner.order(2)
        Path(f"/proc/{server}/clear_refs").write_text("5")  # what it had at most is counted from here
        before, size = memory(server, "VmHWM"), 2 if guarded else 0.5  # a quarter, twice at a time, spares the machine
        assert owner.post(owner.message(zeros(size), owner.own, SERVER, run, pending)) == ""
        if guarded:
            wait("client 2's answer", lambda: any("client 2: no answer" in line for line in told(out)))
        else:
            wait("client 2's answer", lambda: memory(server, "VmHWM") - before > 400)
        seen.swollen = memory(server, "VmHWM") - before
        wait("what the server printed", lambda: "all is well" in logged(owner.state))
        (notes / "die").touch()
        (notes / "1-2").unlink()
        until("end of the server", lambda: ended)
        assert "the server is gone" in str(ended[0])
        assert load_arrays(out / "methods" / "ifca" / "state.safetensors")[1]["round"] == ROUNDS - 1
        assert (out / "methods" / "ifca" / f"records-{ROUNDS - 1:06d}.safetensors").exists()  # it died between the two
        for name in ("0-2", "2-2"):
            (notes / name).unlink(missing_ok=True)
        with contextlib.nullcontext() if guarded else pytest.raises(LostError, match="has 2 of 1 records; delete the"):
            federation.run(out, say=seen.spoken.append)
        if seen.read and not guarded:
            until("the bundle's code", lambda: mark.exists() and mark.read_text())
        seen.log = federation.nodes[2].log.read_text()
        seen.printed = logged(owner.state) + federation.link.log.read_text()
        states = [home / "node-1" / "state", tmp_path / "impostor" / "state"]
        seen.who = [any((state / "client-1").rglob("round-*")) for state in states]
    seen.lines, seen.answered = told(out), {e["round"] - 1: set(e["answered"]) for e in happened(out)[:ROUNDS]}
    (stopped if guarded else succeeded)(seen)


def stopped(seen):
    """Nothing of it came to anything, and the run's bits are those of a loop over who answered."""
    words = " ".join(seen.lines)
    assert "a node whose key is registered for client 3 says it is client 1; refused" in seen.lines
    assert "client 1 is here" in seen.lines
    assert seen.who == [True, False]
    assert seen.grown < 60
    assert b" 401 " in seen.answer
    assert "client 2: no answer (has arrays of 2,000," in words
    assert seen.swollen < 200
    code, said = seen.early
    assert code == 2
    assert re.search(r"clock is 1\d s ahead", said)
    assert len(said.strip().splitlines()) == 1
    assert "cgpfl: the server refused this node (401): it is " in seen.late
    assert "client 0: refused, ]0;owned[2J round 9: all is well xxx" in words
    assert "client 0: refused, ]0;owned[2J round 9: all is well xxx" in seen.printed
    assert "\x1b]" not in seen.printed  # Flower colours its own words
    assert "\x1b[2J" not in seen.printed
    assert "\x1b" not in "".join(seen.spoken)
    assert max(map(len, seen.printed.splitlines())) < 5000
    assert all(line.isprintable() and len(line) <= 1000 for line in seen.lines)
    assert "client 0 refused: chose context 7; there are 0..1" in words
    if seen.disk:
        assert "client 2: refused, its disk is full" in seen.lines
        assert re.search("cgpfl: .*: No space left on device", seen.log)
    if seen.read:
        assert seen.read.pop("status") == 403
        assert set(seen.read.values()) == {"PermissionError"}
    assert not seen.mark.exists()
    assert [seen.answered[i] for i in range(ROUNDS - 1)] == [{0}, {1} if seen.disk else {1, 2}]
    assert set() < seen.answered[ROUNDS - 1] <= {0, 1, 2}  # those who were there soonest when the server came again
    same_as_a_loop(seen.app, seen.out, "ifca", seen.answered)


def succeeded(seen):
    """Each of them, where its check is lifted."""
    assert "client 1 is here" in seen.lines
    assert "a second node says it is client 1; refused" in seen.lines  # the one that is
    assert seen.who == [False, True]
    assert seen.grown > 0.8 * STRANGERS * EACH / 2**20
    assert seen.swollen > 400
    code, said = seen.early
    assert code == 0
    assert "SuperNode terminated" in said
    assert "clock" not in said
    assert "cgpfl: " not in said
    assert "\x1b]0;owned" in seen.printed
    assert "\nround 9: all is well\n" in seen.printed
    assert max(map(len, seen.printed.splitlines())) >= SHOUT
    assert "\x1b[2J" in "".join(seen.spoken)
    assert seen.answered == {0: {0}, 1: {1} if seen.disk else {1, 2}}
    assert load_arrays(seen.out / "methods" / "ifca" / "state.safetensors")[0][".server.assignment"][1] == 7
    if seen.disk:
        assert "its disk is full" not in " ".join(seen.lines)
        assert "worker is gone" in seen.log
        assert "No space left" not in seen.log
    if seen.read:
        assert seen.read["status"] == 200
        assert seen.mark.read_text() == str(os.getuid())  # not of who posted it
        stolen = b"".join(bytes.fromhex(seen.read[str(file)]) for file in seen.database)
        assert holds(stolen, seen.upload)
        assert seen.token.encode() in stolen


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_a_trial_that_is_killed_leaves_nobody(tmp_path, guarded):
    app, log = make_app(tmp_path / "app", [{"name": "fedavg"}], clients=2, rounds=1), tmp_path / "log"
    line = [sys.executable, "-m", "cgpfl.cli", "deploy", "up", app, "--out", tmp_path / "run"]
    own = ENVIRONMENT | {"PYTHONPATH": PATHS, "ORPHANED": "" if guarded else "1"}
    with log.open("wb") as file:
        running = subprocess.Popen(line, stdout=file, stderr=file, env=own)
    family = []
    try:
        until("nodes", lambda: running.poll() is not None or "2 nodes registered and started" in log.read_text())
        family = descendants(running.pid)
        servers = [pid for pid in family if b"cgpfl.deploy.super" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(servers) == 3, log.read_text()
        running.kill()
        running.wait()
        if guarded:
            until("end of all", lambda: not any(alive(pid) for pid in family), 60)
        else:
            time.sleep(orphans.LOOK + orphans.GRACE + 2)  # by when they would have ended
            assert all(alive(pid) for pid in servers)
    finally:
        left = {running.pid, *family}
        for pid in left.union(*map(descendants, family)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_what_is_wrong_on_a_host_is_one_line_before_anything_begins(tmp_path, guarded):
    """A node's data that cannot be read, a port that is taken, a package that is missing."""
    app = make_app(tmp_path / "app", [{"name": "fedavg"}], clients=2, rounds=1)
    write_keys(app / KEYS, "localhost", 1)
    (tmp_path / "mine.npz").write_bytes(b"no arrays")
    own = {"PYTHONPATH": PATHS, "UNGUARDED": "" if guarded else "1"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, asked = taken.getsockname()[1], []
        taken.settimeout(0)

        def came():
            with contextlib.suppress(OSError):
                asked.append(taken.accept()[0])
            return asked

        facts = {"client": 0, "server": f"127.0.0.1:{port}", "ca": app / KEYS / "ca.pem", "data": tmp_path / "mine.npz"}
        facts |= {"key": app / KEYS / "node-0.key", "state": tmp_path / "state", "port": free_ports(1)[0]}
        words = [f"--{name}={value}" for name, value in facts.items()]
        data = command(tmp_path / "data", "deploy", "node", *words, enough=came, **own)
        there = command(tmp_path / "port", "deploy", "superlink", app, "--port", port, **own)
        came()
    for line in asked:
        line.close()
    up = ["deploy", "up", app, "--out", tmp_path / "run"]
    missing = command(tmp_path / "missing", *up, MISSING="cryptography", **own)
    if guarded:
        for (code, said), why in (
            (data, "mine.npz: cannot be read as NumPy arrays"),
            (there, f"--port {port}: cannot be used"),
            (missing, "deploy: needs cryptography; install it by: pip install 'cgpfl[deploy]'"),
        ):
            assert code == 2, said
            assert why in said
            assert len(said.strip().splitlines()) == 1
        assert not asked  # it has not connected
        return
    assert asked
    assert "mine.npz" not in data[1]
    for code, said in (there, missing):
        assert code != 2
        assert len(said.splitlines()) > 5
        assert "cgpfl: " not in said
