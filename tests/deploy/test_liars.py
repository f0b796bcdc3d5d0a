"""A registered node that is not honest, in a federation of real processes; and the same where nothing checks it.

Client 2 says it has 2·10⁸ samples, then uploads a hundred times as much, then answers with what is no message. While
client 0 is at work, client 2's owner posts an order to client 1, and an answer in client 0's name: with the node's key,
over TLS, to the SuperLink.
"""

import sqlite3

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from test_faults import PATHS, happened, in_background, make_app, same_as_a_loop, until

from cgpfl.deploy.agreement import read_agreement
from cgpfl.deploy.check import together
from cgpfl.deploy.trial import trial
from cgpfl.engine.flower.apps import to_record
from cgpfl.engine.flower.checks import size_of
from cgpfl.engine.flower.server import Coordinator
from cgpfl.engine.flower.wire import form, pack
from cgpfl.engine.reference import simulate_loop
from cgpfl.errors import LostError
from cgpfl.files import load_arrays
from cgpfl.tree import named

SERVER, CLIENTS, ROUNDS = 1, 3, 3


class Owner:
    """Who has a registered node's key, and may send what he likes with it."""

    def __init__(self, federation, client):
        key = self.key(federation, client)
        auth, ca = NodeAuthHttpInterceptor(key, key.public_key()), (federation.keys / "ca.pem").read_bytes()
        self.client = FleetHttpClient.from_server_address(f"127.0.0.1:{federation.port}", False, ca, [auth])
        self.state = sqlite3.connect(federation.home / "superlink.db")
        self.nodes = [self.node(federation, i) for i in range(CLIENTS)]
        self.own = self.nodes[client]

    @staticmethod
    def key(federation, client):
        return load_ssh_private_key((federation.keys / f"node-{client}.key").read_bytes(), None)

    def node(self, federation, client):
        """A node's number, which he knows from somewhere; so he does orders', below."""
        public = public_key_to_bytes(self.key(federation, client).public_key())
        (found,) = self.state.execute("select node_id from node where public_key = ?", (public,)).fetchone()
        return found % 2**64

    def order(self, client):
        """The last order to a client, and its run."""
        last = "select message_id, run_id from message_ins where message_type = 'train' and dst_node_id = ?"
        node = (self.nodes[client] + 2**63) % 2**64 - 2**63
        message, run = self.state.execute(f"{last} order by created_at desc", (node,)).fetchone()
        return message, run % 2**64

    def message(self, content, source, to, run, answers=""):
        """A message that says of itself what he likes."""
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, source, 1
        message = Message(content, dst_node_id=to, message_type="train", ttl=30 if answers else 90)
        message.metadata.__dict__["_reply_to_message_id"] = answers
        message.metadata.__dict__["_message_id"] = message.object_id
        return message

    def post(self, message, root=None):
        """Post a message and its objects, or others (``root``) → "", or how it was refused."""
        root, node, proto = root or message, Node(node_id=self.own), message_to_proto(message)
        proto.metadata.message_id = root.object_id
        sent = PushMessagesRequest(node=node, messages_list=[proto], message_object_trees=[get_object_tree(root)])
        try:
            wanted = self.client.PushMessages(sent)
        except httpx.HTTPStatusError as error:
            return f"{error.response.status_code} {error.response.text}"
        for name, part in get_all_nested_objects(root).items():
            if name in wanted.objects_to_push:
                about = {"run_id": proto.metadata.run_id, "session_id": wanted.session_id, "object_id": name}
                self.client.PushObject(PushObjectRequest(node=node, object_content=part.deflate(), **about))
        return ""

    def delete(self, client):
        """Confirm an order of another, which deletes it → "", or how it was refused."""
        message, run = self.order(client)
        sent = ConfirmMessageReceivedRequest(node=Node(node_id=self.own), run_id=run, message_object_id=message)
        try:
            self.client.ConfirmMessageReceived(sent)
        except httpx.HTTPStatusError as error:
            return f"{error.response.status_code} {error.response.text}"
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_a_registered_node_that_is_not_honest(tmp_path, monkeypatch, guarded):
    bounds = {} if guarded else {"largest": 0.0, "most": 10**9}
    rules = {"deadline": 120.0, "join": 120.0, "minimum": 2, "repeats": 1, **bounds}
    app = make_app(tmp_path / "app", [{"name": "fedavg"}], clients=CLIENTS, rounds=ROUNDS, **rules)
    out, notes = tmp_path / "run", tmp_path / "notes"
    notes.mkdir()
    lies = {"2-0": "boast", "2-1": "grown" if guarded else "boast grown", "0-1": "hang", "2-2": "hang"}
    for name, what in lies.items():
        (notes / name).write_text(what)
    for name, value in {"PYTHONPATH": PATHS, "HOOK": str(notes), "UNGUARDED": "" if guarded else "1"}.items():
        monkeypatch.setenv(name, value)
    agreed = read_agreement(app / "experiment.toml")
    method, model, data = agreed.method("fedavg"), agreed.model(), together(agreed)
    known = Coordinator(method, model, clients=CLIENTS, shape=data.shape, rounds=ROUNDS)  # what every node can know
    made_up = {name: np.full(shape, 9, dtype) for name, (shape, dtype) in form(known.upload_like).items()}
    counts = {"samples": int(data.train.counts[0]), "tests": int(data.test.counts[0])}
    said = {"train": 1, **counts, "anew": False, "told": "", "problem": "", "nonce": "guessed"}
    sizes = {name: size_of(like) for name, like in known.measures.items()}
    metrics = {name: 0.0 if n == 1 else [0.0] * n for name, n in sizes.items()}
    told = {"said": ConfigRecord(said), "metrics": MetricRecord(metrics), "upload": to_record(made_up)}
    facts = {"token": "forged", "client": 1, "base": 0, "train": 0, "evaluate": -1}
    facts |= {"nonce": "", "label": "fedavg", "form": "", "seconds": 30.0}
    # Another model than the server's: objects that are there already are not sent, and may be gone before they are got.
    heard = {name: value + 1 for name, value in pack(method.send(known.start().server, 0)).items()}
    with trial(app) as federation:
        _, ended = in_background(lambda: federation.run(out))
        until("client 0 in its second round", lambda: ended or (notes / "0-1.here").exists())
        assert not ended, ended
        owner = Owner(federation, 2)
        pending, run = owner.order(0)
        order = RecordDict({"order": ConfigRecord(facts), "message": to_record(heard)})
        refused = [owner.post(owner.message(order, SERVER, owner.nodes[1], run))]
        done = federation.home / "node-1" / "state" / "client-1" / "forged"
        if guarded:
            refused += [owner.delete(0)]
        else:
            until("the forged order done", lambda: ended or done.exists(), 90)
        refused += [owner.post(owner.message(RecordDict(told), owner.nodes[0], SERVER, run, pending))]
        (notes / "0-1").unlink() if guarded else until("second round", lambda: ended or len(happened(out)) >= 2)
        (notes / "0-1").unlink(missing_ok=True)
        until("client 2 in its third round", lambda: ended or (notes / "2-2.here").exists())
        assert not ended, ended
        pending, run = owner.order(2)
        nothing = owner.message(RecordDict({}), owner.own, SERVER, run, pending)
        assert owner.post(nothing, ConfigRecord({"train": 2})) == ""
        until("client 2's answer read", lambda: ended or len(happened(out)) >= 3)
        (notes / "2-2").unlink()
        until("end of the run", lambda: ended)
        logs = [federation.nodes[i].log.read_text() for i in range(CLIENTS)]
    answered = {e["round"] - 1: set(e["answered"]) for e in happened(out)[:ROUNDS]}  # then the evaluation
    lines = " ".join(e["line"] for e in happened(out, "say"))
    if guarded:
        assert ended == [None]
        for why, line in zip(("another node", "no message to this node", "another node"), refused, strict=True):
            assert line.startswith("403 ")
            assert why in line
        assert answered == {0: {0, 1}, 1: {0, 1}, 2: {0, 1}}
        assert "client 2 refused: says it has 200000000 training samples" in lines
        assert "client 2 refused: its update has norm" in lines
        assert "client 2: no answer (cannot be read" in lines
        assert not done.exists()
        assert "an order came that" not in " ".join(logs)
        same_as_a_loop(app, out, "fedavg", answered)
        return
    assert refused == ["", ""]
    assert "refused" not in lines
    assert answered == {0: {0, 1, 2}, 1: {0, 1, 2}}
    assert isinstance(ended[0], LostError)  # one reply that is no message ended the run of all
    state = load_arrays(out / "methods" / "fedavg" / "state.safetensors")[0]
    honest = named(simulate_loop(method, data, model, rounds=2, eval_every=2)[0])
    assert all(np.linalg.norm(state[f".server{name}"]) > 20 * np.linalg.norm(value) for name, value in honest.items())
