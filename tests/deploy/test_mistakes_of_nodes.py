"""What is wrong on a node is said there, in one line, before Flower is started."""

import datetime
import shutil
import socket

import pytest
from wire import Reader

from cgpfl.deploy import certificates
from cgpfl.deploy.certificates import write_keys
from cgpfl.deploy.layout import KEYS
from helpers import cgpfl


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    write_keys(folder / "ours", "localhost", 1)
    write_keys(folder / "theirs", "localhost", 1)
    (folder / "data").mkdir()
    (folder / "data" / "mine.csv").write_text("label,a\n0,1\n")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def server(keys):
    reader = Reader(keys / "ours", 9)
    yield f"localhost:{reader.port}"
    reader.close()


def node(keys, server, **changes):
    facts = {"server": server, "ca": keys / "ours" / "ca.pem", "key": keys / "ours" / "node-0.key"}
    facts |= {"data": keys / "data", "state": keys / "state", "port": 0} | changes
    done = cgpfl("deploy", "node", "--client", 0, *(f"--{k}={v}" for k, v in facts.items()), code=2)
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


def test_a_certificate_that_has_expired(keys, tmp_path, monkeypatch):
    old = tmp_path / KEYS
    old.mkdir()
    for name in ("ca.pem", "ca.key"):
        shutil.copy(keys / "ours" / name, old)
    monkeypatch.setattr(certificates, "EARLIER", datetime.timedelta(days=365 * certificates.YEARS + 2))
    write_keys(old, "localhost", 1)
    reader = Reader(old, 9)
    said = node(keys, f"localhost:{reader.port}")
    reader.close()
    assert "its certificate is not one of" in said
    assert "expired" in said
    said = cgpfl("deploy", "superlink", tmp_path, code=2).stderr
    assert "server.pem: expired on " in said
    assert len(said.strip().splitlines()) == 1


def test_mistakes_are_one_line(keys, server):
    assert "its certificate is not one of" in node(keys, server, ca=keys / "theirs" / "ca.pem")
    assert "holds no certificate" in node(keys, server, ca=keys / "data" / "mine.csv")
    assert "is no private key that can be read" in node(keys, server, key=keys / "ours" / "ca.key")
    assert "no such file or folder" in node(keys, server, data=keys / "nothing.csv")
    assert "has files none; must have train and test, or one file" in node(keys, server, data=keys / "empty")
    assert "must be HOST:PORT" in node(keys, "localhost")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port}: cannot be used" in node(keys, server, port=port)
        out = cgpfl("deploy", "superlink", keys, "--port", port, code=2).stderr
        assert "make keys by: cgpfl deploy keys" in out
