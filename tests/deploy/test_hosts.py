"""What `cgpfl deploy init` writes for hosts, what hosts refuse before they begin, and what is left of them."""

import errno
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from test_faults import make_app, until
from wire import nginx

from cgpfl.deploy import preflight
from cgpfl.deploy.agreement import Deployment, read_agreement
from cgpfl.deploy.certificates import write_keys
from cgpfl.deploy.layout import KEYS, sign_orders
from cgpfl.deploy.orphans import PARENT, descendants
from cgpfl.deploy.processes import superlink, supernode
from cgpfl.deploy.secrets import MEMBERS, ORDERS, Ledger, bind, members, membership, orders_of
from cgpfl.deploy.supernode import refusal
from cgpfl.deploy.trial import start_run
from cgpfl.engine.flower.worker import answer
from cgpfl.errors import CgpflError
from helpers import cgpfl


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    made = make_app(tmp_path_factory.mktemp("hosts") / "with space" / "app", [{"name": "fedavg"}], rounds=1)
    write_keys(made / KEYS, "localhost", 3)
    return made


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_for_one_user(app, tmp_path, monkeypatch):
    assert mode(app / KEYS) == mode(app / ".flwr") == 0o700
    assert mode(app / KEYS / ORDERS) == 0o600
    seen, rename = [], Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: (seen.append(mode(self)), rename(self, to))[1])
    Ledger(tmp_path).note("fedavg", "secret")
    assert mode(tmp_path / "server.json") == 0o600
    assert seen == [0o600]  # before it had its name, too
    assert [file.name for file in tmp_path.iterdir()] == ["server.json"]
    again = Ledger(tmp_path)
    assert (again.token("fedavg"), again.token("other")) == ("secret", None)
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    made = superlink(app / KEYS, home, 1)
    assert mode(home) == 0o700
    made.command = [sys.executable, "-c", "open('superlink.db', 'w'); import os; print(os.environ['CGPFL_PARENT'])"]
    monkeypatch.chdir(tmp_path)
    made.start().running.wait()
    assert mode(tmp_path / "superlink.db") == 0o600
    assert made.log.read_text().strip() == str(os.getpid())


def test_a_run_folder_is_its_users_alone(app, tmp_path, monkeypatch):
    """It was everybody's to enter, and holds counts and scores of each client."""
    monkeypatch.setattr("cgpfl.deploy.trial.flower", lambda *words: {})
    start_run(app, tmp_path / "home", tmp_path / "runs" / "first")
    assert mode(tmp_path / "runs" / "first") == 0o700


def test_a_key_belongs_to_one_client(app, tmp_path):
    keys = shutil.copytree(app / KEYS, tmp_path / KEYS)
    bind(keys, 0, keys / "node-0.pub")
    bind(keys, 1, keys / "node-1.pub")
    assert sorted(members(keys).values()) == [0, 1]
    assert mode(keys / MEMBERS) == 0o600
    with pytest.raises(CgpflError, match="is registered for client 0; a key is of one client"):
        bind(keys, 2, keys / "node-0.pub")
    bind(keys, 0, keys / "node-2.pub")  # a new key takes the old one's place

    class Grid:
        _runtime_client = None

        def get_nodes(self):
            from cryptography.hazmat.primitives.serialization import load_ssh_public_key
            from flwr.proto.node_pb2 import NodeInfo
            from flwr.supercore.primitives.asymmetric import public_key_to_bytes

            for i in range(3):
                key = load_ssh_public_key((keys / f"node-{i}.pub").read_bytes())
                yield NodeInfo(node_id=10 + i, public_key=public_key_to_bytes(key))

    member = membership(Grid(), keys)
    assert [member(node) for node in (10, 11, 12, 13)] == [None, 1, 0, None]


def test_the_key_for_orders_is_the_experiments(app, tmp_path):
    other = shutil.copytree(app, tmp_path / "app")
    agreed = read_agreement(other / "experiment.toml")
    orders_of(other / KEYS, agreed.deploy.orders, "x")
    assert "orders.key" not in (other / "pyproject.toml").read_text()
    (other / KEYS / ORDERS).unlink()
    with pytest.raises(CgpflError, match=r"orders\.key: cannot be read .*; nodes take orders signed with it alone"):
        sign_orders(other)
    text = (other / "experiment.toml").read_text()
    (other / "experiment.toml").write_text(text.replace(f'orders = "{agreed.deploy.orders}"\n', ""))
    with pytest.raises(CgpflError, match="orders: is missing; make it by: cgpfl deploy keys"):
        orders_of(other / KEYS, read_agreement(other / "experiment.toml").deploy.orders, "x")
    sign_orders(other)
    new = read_agreement(other / "experiment.toml").deploy.orders
    assert new not in ("", agreed.deploy.orders)
    with pytest.raises(CgpflError, match="is another key than x says"):
        orders_of(app / KEYS, new, "x")


def test_nginx_takes_what_is_written_for_it(app):
    text = (app / "nginx.conf").read_text()
    assert "client_max_body_size 16m" in text
    assert "limit_req_zone $binary_remote_addr zone=requests:1m rate=100r/s;" in text  # 20 + 20 * 4
    assert "limit_conn connections 96;" in text
    if nginx() is None:
        pytest.skip("no nginx here")
    done = subprocess.run([nginx(), "-p", app, "-t", "-c", app / "nginx.conf"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # in a folder with a blank in its name


def test_services_are_shut_in(app):
    for name in ("cgpfl-superlink.service", "cgpfl-node@.service"):
        text = (app / "systemd" / name).read_text()
        for line in ("NoNewPrivileges=true", "ProtectSystem=strict", "UMask=0077", "MemoryMax=75%"):
            assert line in text.splitlines()
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", app / "systemd" / "cgpfl-superlink.service"], capture_output=True, text=True
        )
        assert "Unknown" not in done.stderr
        for name in ("cgpfl-superlink.service", "cgpfl-node@.service"):
            command = ["systemd-analyze", "security", "--offline=true", app / "systemd" / name]
            done = subprocess.run(command, capture_output=True, text=True)
            found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
            assert found is None or float(found[1]) <= 3.5, done.stdout  # none: a version that cannot look at files


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "70000"], "--port 70000: must be 1..65534"),
        (["--host", "x; rm -rf ~"], "--host 'x; rm -rf ~': must be a name or an address"),
        (["--host", "$(id)"], "must be a name or an address"),
        (["--set", "deploy.minimum=9"], "minimum = 9: there are only 2 clients"),
        (["--classes", "1"], "classes = 1: must be an integer >= 2"),
        (["--set", "deploy.largest=big"], "largest = 'big': must be a number >= 0 or \"auto\""),
    ],
)
def test_what_cannot_be_is_refused_by_init(tmp_path, flags, message):
    given = ["--shape", "4", "--nodes", "2", *([] if "--classes" in flags else ["--classes", "3"])]
    said = cgpfl("deploy", "init", tmp_path / "app", *given, *flags, code=2).stderr
    assert message in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "app").exists()


def test_an_extra_that_is_missing_is_named(monkeypatch):
    find = preflight.importlib.util.find_spec
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda n: None if n == "cryptography" else find(n))
    with pytest.raises(CgpflError, match=r"deploy: needs cryptography; install it by: pip install 'cgpfl\[deploy\]'"):
        preflight.check_extras()


def test_clocks(capsys):
    preflight.check_clock(3, "s")
    preflight.check_clock(-200, "s")
    with pytest.raises(CgpflError, match=r"clock is 12 s ahead of that of s, which would refuse it \(401\)"):
        preflight.check_clock(12, "s")
    with pytest.raises(CgpflError, match="clock is 400 s behind"):
        preflight.check_clock(-400, "s")


def test_a_node_says_why_it_is_refused():
    assert "does not know this node's key" in refusal(412, "", "not a node of this federation, or at another time")
    assert "still counts this node as connected" in refusal(412, "", '{"code": 2004, "detail": "Failed"}')
    assert "it is Mon, 01 Jan 2024 00:00:00 GMT there" in refusal(401, "Mon, 01 Jan 2024 00:00:00 GMT")
    assert refusal(500, "") == ""


def test_a_nodes_data_is_read_before_it_connects(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(CgpflError, match=r"bad\.npz: cannot be read as NumPy arrays"):
        preflight.check_data(tmp_path / "bad.npz")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said(number):
    """It was "the worker is gone", with a log that could not be written either."""

    class Full:
        def work(self, order, message):
            raise OSError(number, os.strerror(number), "/state/round-000001.safetensors.part")

    order = {"token": "t", "client": 0, "base": 0}
    said, _ = answer(lambda facts: Full(), {"node": {}, "order": order}, {})
    assert said["problem"] == "its disk is full"
    assert said["private"].startswith("/state/round-000001.safetensors.part: ")


def test_nothing_outlives_a_process_that_was_killed(tmp_path):
    """``kill -9`` of a trial left its SuperLink and its nodes."""
    child = (
        "from cgpfl.deploy.orphans import end_with_parent as e; import subprocess, sys, time; e();"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True);"
        "time.sleep(60)"
    )
    parent = (
        "import os, subprocess, sys, time; "
        f"subprocess.Popen([sys.executable, '-c', {child!r}], env={{**os.environ, '{PARENT}': str(os.getpid())}},"
        "start_new_session=True); time.sleep(60)"
    )
    running = subprocess.Popen([sys.executable, "-c", parent])
    family = until("grandchild", lambda: len(f := descendants(running.pid)) >= 2 and f, 30)
    running.send_signal(signal.SIGKILL)
    running.wait()
    until("end of all", lambda: not any(alive(pid) for pid in family), 15)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_node_is_started_with_the_gate(app, tmp_path):
    made = supernode(client=0, server="x:1", ca=app / KEYS / "ca.pem", key=app / KEYS / "node-0.key",
                     data=app / "trial-data" / "0", state=tmp_path / "s", home=tmp_path / "h", port=1)  # fmt: skip
    assert made.command[1:3] == ["-m", "cgpfl.deploy.supernode"]
    assert mode(tmp_path / "h") == 0o700
    assert Deployment().largest == "auto"
