"""Keys and environments of a deployment; who gets in, and what leaves a node, is in test_guide.py."""

import sqlite3
import ssl
import stat
import subprocess

import pytest

from cgpfl.deploy import processes, superlink
from cgpfl.deploy.certificates import write_keys
from cgpfl.deploy.processes import environment
from cgpfl.errors import CgpflError


def test_keys_are_secret_and_never_replaced(tmp_path):
    keys = tmp_path / "keys"
    new = write_keys(keys, "fl.example.org", 2)
    assert sorted(p.name for p in new) == [
        "ca.key", "ca.pem", "node-0.key", "node-0.pub", "node-1.key", "node-1.pub", "server.key", "server.pem",
    ]  # fmt: skip
    for key in keys.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    before = {p.name: p.read_bytes() for p in keys.iterdir()}
    assert [p.name for p in write_keys(keys, "fl.example.org", 3)] == ["node-2.pub", "node-2.key"]
    assert all((keys / name).read_bytes() == content for name, content in before.items())


def test_a_key_is_not_written_through_a_link(tmp_path):
    keys, elsewhere = tmp_path / "keys", tmp_path / "elsewhere"
    keys.mkdir()
    (keys / "ca.key.part").symlink_to(elsewhere)
    write_keys(keys, "localhost", 0)
    assert not elsewhere.exists()
    assert not (keys / "ca.key").is_symlink()


def test_a_certificate_of_another_host_is_said(tmp_path):
    write_keys(tmp_path, "localhost", 0)
    with pytest.raises(CgpflError, match=r"is of localhost, 127\.0\.0\.1, not of fl\.example\.org; remove"):
        write_keys(tmp_path, "fl.example.org", 0)


def test_the_server_is_who_its_certificate_says(tmp_path):
    write_keys(tmp_path, "fl.example.org", 0)
    names = ssl._ssl._test_decode_cert(str(tmp_path / "server.pem"))["subjectAltName"]
    assert ("DNS", "fl.example.org") in names
    assert ("IP Address", "127.0.0.1") in names
    done = subprocess.run(
        ["openssl", "verify", "-CAfile", tmp_path / "ca.pem", tmp_path / "server.pem"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_lost_authority_is_said(tmp_path):
    write_keys(tmp_path, "localhost", 0)
    (tmp_path / "server.key").unlink()
    (tmp_path / "ca.pem").write_text("garbage")
    with pytest.raises(CgpflError, match=r"ca\.pem and ca\.key cannot be read"):
        write_keys(tmp_path, "localhost", 0)


def test_nothing_talks_to_strangers(tmp_path):
    own = environment(tmp_path)
    assert own["FLWR_TELEMETRY_ENABLED"] == "0"
    assert own["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert own["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


def test_the_superlink_waits_for_its_database(tmp_path, monkeypatch):
    """Flower's own five seconds lost uploads of sixteen nodes with forty megabytes each."""
    from flwr.supercore import sql_mixin

    def waits():
        connection = sqlite3.connect(tmp_path / "state.db")
        sql_mixin._set_sqlite_pragmas(connection, None)
        return connection.execute("PRAGMA busy_timeout").fetchone()[0]

    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", sql_mixin.SQLITE_PRAGMAS)  # undone at the end
    assert waits() == 5000
    told = []
    monkeypatch.setattr("flwr.superlink.cli.flower_superlink", lambda: told.append(waits()))
    superlink.main()
    assert told == [25_000]
    write_keys(tmp_path / "keys", "localhost", 0)
    assert processes.superlink(tmp_path / "keys", tmp_path / "home", 1).command[1:3] == ["-m", "cgpfl.deploy.superlink"]
