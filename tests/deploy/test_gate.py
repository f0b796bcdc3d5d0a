"""Flower's own SuperLink application with our gate in front: what a known node, a stranger and a local user may not."""

import base64
import datetime
import hashlib
import os
import socket
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore import constant
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink import main
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.supernode import main as supernode_main
from starlette.testclient import TestClient

from cgpfl.deploy import gate, supernode

SERVER = 1


@pytest.fixture
def door(monkeypatch, tmp_path):
    """A client of the application, its state, and a key with its node's id for each of two nodes."""
    for place, name in ((main, "_get_middleware"), (fleet_handlers, "push_messages")):
        monkeypatch.setattr(place, name, getattr(place, name))  # undone at the end
    monkeypatch.setattr(fleet_handlers, "confirm_message_received", fleet_handlers.confirm_message_received)
    gate.install()
    monkeypatch.setattr(main, "get_ee_linkstate_db", lambda: str(tmp_path / "superlink.db"))
    app = main.create_app()
    state = app.state.linkstate_factory.state()
    app.state.enable_supernode_auth = True
    keys = [ec.generate_private_key(ec.SECP384R1()) for _ in range(3)]
    nodes = [state.create_node("me", "me", public_key_to_bytes(k.public_key()), 30) for k in keys[:2]]
    for node in nodes:
        assert state.activate_node(node, 30)
    return TestClient(app, client=("127.0.0.1", 9)), state, keys, nodes


def a_run(state):
    """A run that goes on."""
    run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, "me", TaskType.SERVER_APP)
    (task,) = state.get_tasks(run_ids=[run])
    state.claim_task(task.task_id)
    state.activate_task(task.task_id)
    return run


def signed(key, **more):
    """A node's headers, with its key."""
    stamp = now().isoformat()
    own = {
        constant.FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(public_key_to_bytes(key.public_key())).decode(),
        constant.FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(sign_message(key, stamp.encode())).decode(),
        "flwr-timestamp": stamp,
        "content-type": PROTOBUF_MEDIA_TYPE,
    }
    return own | more


def test_a_known_node_posts_its_own_answers_and_nothing_else(door):
    """Flower looks at who asks, and stored whatever the message said: orders to others, answers of others."""
    client, state, keys, (me, other) = door
    run = a_run(state)

    def made(source, to, reply_to=""):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, source, 1
        content, ttl = RecordDict({"order": ConfigRecord({"a": 1})}), 30 if reply_to else 60  # an answer ends earlier
        message = Message(content, dst_node_id=to, message_type="train", ttl=ttl)
        message.metadata.__dict__["_reply_to_message_id"] = reply_to
        message.metadata.__dict__["_message_id"] = message.object_id
        return message

    def push(source, to, reply_to):
        message = made(source, to, reply_to)
        proto, tree = message_to_proto(message), get_object_tree(message)
        sent = PushMessagesRequest(node=Node(node_id=me), messages_list=[proto], message_object_trees=[tree])
        return client.post("/v1/fleet/push-messages", content=sent.SerializeToString(), headers=signed(keys[0]))

    orders = {node: state.store_message_ins(made(SERVER, node)) for node in (me, other)}
    for node in (me, other):
        assert len(state.get_message_ins(node_id=node, limit=None)) == 1  # they have got them
    for why, forged in {
        "a message of another node": (other, SERVER, orders[other]),
        "no answer to an order": (me, other, ""),
    }.items():
        found = push(*forged)
        assert found.status_code == 403
        assert why in found.text
    assert push(SERVER, other, "").status_code == 403
    assert state.get_message_ins(node_id=other, limit=None) == []
    assert push(me, SERVER, orders[me]).status_code == 200
    answers = state.get_message_res({*orders.values()}, run)
    assert [(m.metadata.src_node_id, m.metadata.reply_to_message_id) for m in answers] == [(me, orders[me])]


def test_what_is_others_is_not_deleted(door):
    client, _, keys, (me, _other) = door
    sent = ConfirmMessageReceivedRequest(node=Node(node_id=me), run_id=1, message_object_id="f" * 64)
    found = client.post("/v1/fleet/confirm-message-received", content=sent.SerializeToString(), headers=signed(keys[0]))
    assert found.status_code == 403
    assert "no message to this node" in found.text


@pytest.mark.parametrize(("who", "status"), [("stranger", 412), ("nobody", 401), ("late", 401), ("node", 413)])
def test_no_byte_of_a_body_is_read_before_the_key(door, who, status):
    client, _, keys, (me, _other) = door
    headers = {"nobody": {}, "stranger": signed(keys[2]), "node": signed(keys[0])}
    headers["late"] = signed(keys[0]) | {"flwr-timestamp": (now() + datetime.timedelta(seconds=12)).isoformat()}
    headers = headers[who]
    read = []

    def body():
        for _ in range(40):
            read.append(1 << 20)
            yield bytes(1 << 20)

    app = client.app

    async def asked(scope, receive, send):
        """The application, told by whoever reads along when its body is asked for."""

        async def watched():
            read.append("asked")
            return await receive()

        await app(scope, watched, send)

    size = {"content-length": str(40 << 20)}
    found = TestClient(asked).post("/v1/fleet/push-object", content=body(), headers=headers | size)
    assert found.status_code == status
    assert "asked" not in read
    small = PushObjectRequest(node=Node(node_id=me), run_id=1, object_id=hashlib.sha256(b"x").hexdigest())
    found = client.post("/v1/fleet/push-object", content=small.SerializeToString(), headers=signed(keys[0]))
    assert found.status_code not in (401, 403, 413)


@pytest.fixture(params=["asked", "listed"])
def way(request, monkeypatch):
    """Both ways in which Linux says whose a connection is; services may be shut off from the first."""
    if request.param == "listed":
        monkeypatch.setattr(gate, "_user", lambda client, server: None)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_one_connection_is_asked_for(host):
    """A reading of all connections is 3.6 ms of every request."""
    try:
        server = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError:
        pytest.skip("no IPv6 here")
    with server, socket.create_connection(server.getsockname()[:2]) as own:
        if gate._user(own.getsockname(), server.getsockname()) is None:
            pytest.skip("the kernel does not say it")
        assert gate._user(own.getsockname(), server.getsockname()) == os.geteuid()
        assert gate._user(server.getsockname(), own.getsockname()) == os.geteuid()  # the other end
        listening = server.getsockname()
        assert gate._user(listening, (host, 1)) is None  # the kernel's answer is who listens there
        assert gate._user((host, 1), (host, 2)) is None


def test_control_and_runtime_are_for_one_user(door, monkeypatch, way):
    """A bundle that anybody on the machine could post ran as the SuperLink's user."""
    client, *_ = door
    for path in ("/v1/control/start-run", "/v1/runtime/acquire-task", "/docs"):
        assert client.post(path, content=b"").status_code == 403  # nobody's connection
    assert client.get("/health").status_code != 403
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
        ends = own.getsockname(), server.getsockname()
        assert gate.is_ours(*ends)
        monkeypatch.setattr(os, "getuid", lambda: 12345)  # the same connection, seen by another user's SuperLink
        assert gate.is_ours(*ends) is (os.geteuid() == 0)
    assert not gate.is_ours(("127.0.0.1", 1), ("127.0.0.1", 2))


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/usr/bin/python3").exists(), reason="only root can be somebody else")
def test_another_users_connection_is_not_ours(way):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        connect = f"import socket; s = socket.create_connection({server.getsockname()!r}); input()"
        other = subprocess.Popen(["/usr/bin/python3", "-c", connect], stdin=subprocess.PIPE, user=65534, cwd="/")
        try:
            accepted, ends = server.accept()
            assert not gate.is_ours(ends, server.getsockname())
            accepted.close()
        finally:
            other.kill()
            other.wait()


def test_a_connection_that_was_closed_is_not_roots(way):
    """The system says 0 of it: who asks and closes at once would have been root."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = socket.create_connection(server.getsockname())
        ends = own.getsockname(), server.getsockname()
        accepted, _ = server.accept()
        own.close()
        assert not gate.is_ours(*ends)
        accepted.close()


def test_a_nodes_own_interface_is_for_one_user(monkeypatch):
    """Other users of a node's machine could take its tasks, or fake them."""
    monkeypatch.setattr(supernode_main, "create_app", supernode_main.create_app)  # undone at the end
    before = TestClient(supernode_main.create_app(), client=("127.0.0.1", 9)).post("/v1/runtime/acquire-task")
    assert before.status_code != 403
    supernode.guarded()
    client = TestClient(supernode_main.create_app(), client=("127.0.0.1", 9))
    assert client.post("/v1/runtime/acquire-task").status_code == 403
