"""Who gets in, and what leaves a node: real processes, TLS, a real nginx in front."""

import shutil
import ssl
import stat
import subprocess

import numpy as np
import pytest
from test_faults import happened, make_app, until
from wire import Reader, nginx

from cgpfl.deploy.certificates import write_keys
from cgpfl.deploy.check import compare
from cgpfl.deploy.layout import KEYS
from cgpfl.deploy.processes import connect, environment, flower, free_ports, supernode
from cgpfl.deploy.trial import trial
from cgpfl.errors import CgpflError
from cgpfl.files import load_arrays


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


@pytest.mark.slow
def test_a_federation_behind_nginx(tmp_path):
    """Nodes come in through nginx; strangers do not; and what a node sends holds nothing of its samples."""
    program = nginx()
    if program is None:
        pytest.skip("no nginx here, and no apt-get to get one")
    app = make_app(tmp_path / "app", [{"name": "fedavg"}], clients=2, rounds=2, deadline=90.0, join=120.0)
    front, inner = free_ports(2)
    conf = (app / "nginx.conf").read_text().replace("9443", str(front)).replace("9444", str(inner))
    (app / "nginx.conf").write_text(conf)
    write_keys(app / KEYS, "localhost", 2)
    shutil.copytree(app / KEYS, app / ".flwr" / "trial" / KEYS)
    proxy = subprocess.Popen([program, "-c", app / "nginx.conf", "-p", app / ".flwr", "-g", "daemon off;"])
    reader = Reader(app / KEYS, front)
    out = tmp_path / "run"
    try:
        with trial(app, nodes=0, port=inner) as federation:
            federation.door = reader.port
            for client in (0, 1):
                federation.node(client)
            strangers(tmp_path, app, front)
            federation.run(out)
        assert "The same in simulation: fedavg" in compare(app, out)
        told = " ".join(e["line"] for e in happened(out, "say"))
        assert "2 of 2 nodes are here" in told
        nothing_private(app, bytes(reader.seen), out)
    finally:
        reader.close()
        proxy.terminate()
        proxy.wait(10)


def strangers(tmp_path, app, front):
    """With the CA's certificate alone nobody starts a run; without a registered key nobody becomes a node."""
    home = tmp_path / "stranger"
    connect(home, f"127.0.0.1:{front}", app / KEYS / "ca.pem")
    other = shutil.copytree(app, tmp_path / "theirs", ignore=shutil.ignore_patterns(".flwr", "keys", "trial-data"))
    with pytest.raises(CgpflError, match=r"flwr run.*403"):
        flower(home, "run", str(other), "federation", "--run-config", f'out="{tmp_path / "stolen"}"')
    assert not (tmp_path / "stolen").exists()
    write_keys(tmp_path / "forged", "localhost", 1)
    process = supernode(
        client=0,
        server=f"127.0.0.1:{front}",
        ca=app / KEYS / "ca.pem",
        key=tmp_path / "forged" / "node-0.key",
        data=app / "trial-data" / "0",
        state=tmp_path / "state",
        home=tmp_path / "forger",
        port=free_ports(1)[0],
    ).start()
    try:
        until("refusal", lambda: not process.alive, 90)
    finally:
        process.stop()
    assert process.running.returncode != 0


def nothing_private(app, seen, out):
    """The bytes that passed hold the models, but no sample and no key; neither do logs and configurations."""
    model = load_arrays(out / "methods" / "fedavg" / "state.safetensors")[0]
    largest = max((v for k, v in model.items() if k.startswith(".server")), key=lambda v: v.size)
    assert largest.tobytes() in seen  # so models do pass here in clear: the search below can find something
    for client in (0, 1):
        for part in ("train", "test"):
            with np.load(app / "trial-data" / str(client) / f"{part}.npz") as file:
                x = file["x"]
            for kind in (x.dtype, np.float32, np.float64):
                for row in x.astype(kind).reshape(len(x), -1, x.shape[-1])[:, 2]:  # the third row of each image
                    assert len(set(row.tolist())) < 3 or row.tobytes() not in seen
    secrets = [k.read_bytes().splitlines()[2] for k in (app / KEYS).glob("*.key")]
    texts = [p for p in [*(app / ".flwr").rglob("*.log"), *out.rglob("*.toml"), *out.rglob("*.jsonl")] if p.is_file()]
    assert len(texts) >= 4
    for secret in secrets:
        assert len(secret) > 20
        assert secret not in seen
        assert all(secret not in p.read_bytes() for p in texts)
