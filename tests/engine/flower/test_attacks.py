"""What a registered node that is not honest may try, each on messages of Flower's, in this process."""

import io
import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid
from in_process import Here, said
from test_rounds import ran

from cgpfl.algorithms import get_method
from cgpfl.data import make_data
from cgpfl.engine.flower.apps import client_app
from cgpfl.engine.flower.bounds import outliers
from cgpfl.engine.flower.link import Link, _array
from cgpfl.engine.flower.orders import cleaned
from cgpfl.engine.flower.pull import pulled
from cgpfl.engine.flower.rules import Rules
from cgpfl.engine.flower.seal import make_key, signer, summed, verifier

BIG = 5 << 20


def signing():
    pem, public = make_key()
    return signer(pem, "key")[0], verifier(public, "orders")


def order(client=0, **more):
    return {"token": "t", "client": client, "base": 0, "train": 0, "evaluate": -1, "nonce": "n"} | more


def asked(app, facts, record=None):
    """What a node's app answers to these facts."""
    Here.identity()
    content = RecordDict({"order": ConfigRecord(facts), "message": record or ArrayRecord({})})
    message = Message(content, dst_node_id=1, message_type="train")
    context = Context(run_id=1, node_id=1, node_config={"client": 0}, state=RecordDict(), run_config={})
    return app(message, context).content.config_records["said"]


def test_an_order_that_is_none_is_answered(capsys):
    """Without order or model it ended the node's app with a traceback; bytes among its facts were no line of ours."""
    app = client_app(lambda *args: ({}, {}), lambda: signing()[1])
    odd = {"order": ConfigRecord({"token": b"t", "train": 0}), "message": ArrayRecord({})}
    for content in ({}, {"order": ConfigRecord({"token": "t"})}, {"message": ArrayRecord({})}, odd):
        Here.identity()
        message = Message(RecordDict(content), dst_node_id=1, message_type="train")
        context = Context(run_id=1, node_id=1, node_config={"client": 0}, state=RecordDict(), run_config={})
        answer = app(message, context).content.config_records["said"]
        assert answer["problem"] == "its node cannot take part; its log says why"
        assert "an order came that is none" in capsys.readouterr().err


def test_a_header_that_is_no_python_is_refused():
    """Found by a fuzzer: NumPy's own reader raises what nobody expects of it (tokenize.TokenError)."""
    for text in (
        "{'descr':   \n\0\0   \n",
        "(" * 150,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9" + "9" * 5000,
    ):
        content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(24)
        with pytest.raises(ValueError, match="another header"):
            _array(content, (3, 2), np.dtype(np.float32))


def test_a_node_does_only_what_the_server_signed(capsys):
    (sign, verify), (stranger, _) = signing(), signing()
    done = []
    app = client_app(lambda context, facts, arrays: (done.append(facts["base"]), ({}, {}))[1], lambda: verify)
    record = ArrayRecord({"w": Array(np.arange(3.0))})
    other = ArrayRecord({"w": Array(np.arange(3.0) + 1)})
    facts = order()
    for forged, arrays in (
        (facts, record),  # no signature
        (facts | {"signature": stranger(summed(facts, record))}, record),
        (order(base=7) | {"signature": sign(summed(facts, record))}, record),  # other facts
        (facts | {"signature": sign(summed(facts, record))}, other),  # another model
        (facts | {"signature": "zz"}, record),
    ):
        assert asked(app, forged, arrays)["problem"] == "its node cannot take part; its log says why"
        assert "not signed by the server" in capsys.readouterr().err
    assert done == []
    answer = asked(app, facts | {"signature": sign(summed(facts, record))}, record)
    assert (done, answer["problem"], answer["nonce"]) == ([0], "", "n")


def test_orders_are_signed_and_answers_repeat_their_nonce(four, model, tmp_path):
    """An answer was believed by the id of its order alone, which can be guessed."""
    sign, verify = signing()
    method = get_method("fedavg")
    grid = Here(four, model, {"m": method}, tmp_path, behave={1: lambda order, answer: said(answer, nonce="guessed")})
    found = ran(method, four, model, tmp_path, grid=grid, rounds=1, sign=sign)
    assert found.happened[0].answered == (0, 2, 3)
    assert "client 1: refused, it does not answer what was asked" in found.lines
    sent = [m.content for m in grid.sent if "order" in m.content]
    for content in sent:
        facts = dict(content.config_records["order"])
        assert verify(summed(facts, content.array_records["message"]), facts["signature"])
    nonces = {c.config_records["order"]["nonce"] for c in sent}
    assert len(nonces) == len(sent) > 4


def test_a_key_is_of_one_client(four, model, tmp_path):
    """Node 9, registered for client 3, is there first and says it is client 0."""
    method = get_method("fedavg")
    grid = Here(four, model, {"m": method}, tmp_path)
    grid.join(9, 0, grid.apps[1])
    grid.join(10, 2, grid.apps[3])
    grid.online = [9, 10, 1, 2, 3, 4]
    keys = {9: 3, 1: 0, 2: 1, 3: 2, 4: 3}
    lines = []
    link = Link(grid, 4, tell=lines.append, member=keys.get)
    assert link.wait(0.2, 4) == [0, 1, 2, 3]
    assert link.claims == {0: 1, 1: 2, 2: 3, 3: 4}
    assert "a node whose key is registered for client 3 says it is client 0; refused" in lines
    assert "a node whose key is registered for no client says it is client 2; refused" in lines


class Stub:
    """The SuperLink's runtime interface, with these replies waiting."""

    def __init__(self, replies):
        self.replies, self.objects, self.confirmed, self.pulled = [], {}, 0, 0
        for order, (source, root) in replies.items():
            Here.identity()
            objects = get_all_nested_objects(root)
            self.objects |= {name: o.deflate() for name, o in objects.items()}
            stored = message_to_proto(Message(RecordDict({}), dst_node_id=1, message_type="train"))
            stored.metadata.message_id = root.object_id
            stored.metadata.reply_to_message_id, stored.metadata.src_node_id = order, source
            self.replies.append((stored, get_object_tree(root)))

    def PullMessages(self, request):
        protos, trees = zip(*self.replies, strict=True)
        return PullAppMessagesResponse(messages_list=protos, message_object_trees=trees)

    def PullObject(self, request):
        content = self.objects[request.object_id]
        self.pulled += len(content)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request):
        self.confirmed += 1


def flower(replies):
    """Flower's own grid, of a SuperLink that is a stub."""
    grid = HttpGrid(token="t")
    grid._client = Stub(replies)
    grid.set_run(Run.create_empty(1))
    return grid


def reply(content, source=1):
    """A whole message; what it says of itself is for the sender to choose."""
    Here.identity()
    message = Message(content, dst_node_id=1, message_type="train")
    message.metadata.__dict__["_src_node_id"] = source
    message.metadata.__dict__["_reply_to_message_id"] = "order-of-another"
    return message


def test_one_malformed_reply_costs_its_sender_alone():
    good = RecordDict({"said": ConfigRecord({"train": 0})})
    replies = {
        "a": (11, ConfigRecord({"train": 0})),  # its root is no message
        "b": (12, Array(np.zeros(3))),
        "c": (13, reply(good, source=99)),  # says it is of another node, and answers another order
    }
    grid = flower(replies)
    found = {p.to: p for p in pulled(grid, list(replies))}
    assert found["a"].why.startswith("cannot be read")
    assert found["b"].why.startswith("cannot be read")
    assert (found["c"].source, found["c"].why) == (13, "")  # as the SuperLink stored it
    assert dict(found["c"].content.config_records["said"]) == {"train": 0}
    assert grid._client.confirmed == 3


def test_sizes_are_looked_at_before_an_array_is_put_together():
    """Forty pieces of zeros travel as one."""
    zeros = io.BytesIO()
    np.save(zeros, np.zeros(40 * BIG, np.uint8))
    many = RecordDict({"upload": ArrayRecord({"w": Array("uint8", (40 * BIG,), "numpy.ndarray", zeros.getvalue())})})
    grid = flower({"a": (11, reply(many)), "b": (12, reply(RecordDict({"x": ConfigRecord({"y": 1})})))})
    assert grid._client.objects
    found = {p.to: p for p in pulled(grid, ["a", "b"], most=64 << 20)}
    assert "has arrays of 2" in found["a"].why
    assert found["b"].why == ""
    assert grid._client.pulled < 4 * BIG
    wide = reply(RecordDict({str(i): ConfigRecord({"i": i}) for i in range(5000)}))
    grid = flower({"a": (11, wide)})
    assert "parts" in pulled(grid, ["a"])[0].why
    assert grid._client.pulled == 0


def test_pieces_that_never_come_keep_nobody_waiting():
    grid = flower({"a": (11, reply(RecordDict({"x": ConfigRecord({"y": 1})}))), "b": (12, reply(RecordDict({})))})
    missing = grid._client.replies[0][1].children[0].object_id
    whole = grid._client.PullObject

    def slow(request):
        if request.object_id == missing:
            return PullObjectResponse(object_found=True, object_available=False)
        return whole(request)

    grid._client.PullObject = slow
    began = time.monotonic()
    found = {p.to: p for p in pulled(grid, ["a", "b"], seconds=0.2)}
    assert found["a"].why == "cannot be read: ObjectPullError"
    assert found["b"].why == ""
    assert time.monotonic() - began < 10  # Flower's own patience is minutes


def test_any_answer_can_be_refused(four, model, tmp_path):
    """Records of other kinds where a record is expected."""
    kinds = {
        0: lambda order, answer: RecordDict({**dict(answer.items()), "metrics": MetricRecord({"a": [1.0] * 9})}),
        1: lambda order, answer: RecordDict({**dict(answer.items()), "said": MetricRecord({"train": 0})}),
        2: lambda order, answer: said(answer, samples=True),
    }
    found = ran(get_method("fedavg"), four, model, tmp_path, behave=kinds, rounds=1)
    assert found.happened[0].answered == (0, 3)  # nobody asked client 0 to measure, nobody reads what it did


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nround 9: done", "a round 9: done"),
        ("\x1b]0;title\x07\x1b[2Jx", "]0;title[2Jx"),
        ("a\u202egnp", "agnp"),
        ("x" * 5_000_000, "x" * 199 + "…"),
    ],
)
def test_what_nodes_say_is_one_clean_line(text, line):
    assert cleaned(text) == line


def test_names_that_nodes_choose_reach_no_terminal_as_they_are(four, model, tmp_path):
    evil = "\x1b[2J\nround 7: all is well " + "x" * 5000

    def stranger(order, answer):
        upload = ArrayRecord({**dict(answer.array_records["upload"].items()), evil: Array(np.zeros(1))})
        return RecordDict({**dict(answer.items()), "upload": upload})

    def measure(order, answer):
        answer.metric_records["metrics"][evil] = 1.0
        return answer

    found = ran(get_method("fedavg"), four, model, tmp_path, behave={0: stranger, 1: measure}, rounds=2, eval_every=1)
    told = [*found.lines, *(why for h in found.happened for why in h.refused.values())]
    assert any("which nobody asked for" in line or "has [2J" in line for line in told)
    assert any("has measured" in line for line in told)
    assert all(line.isprintable() and len(line) < 300 for line in told)


def grown(answer, times):
    """The answer with all numbers of its upload so many times as large."""
    upload = {name: Array(a.numpy() * np.float32(times)) for name, a in answer.array_records["upload"].items()}
    return RecordDict({**dict(answer.items()), "upload": ArrayRecord(upload)})


def test_counts_are_bounded_by_the_cohorts_median(four, model, tmp_path):
    """One client's word took nearly all the weight; and a count of tests made the pooled accuracy what it liked."""
    boast = {
        0: lambda order, answer: said(answer, samples=2 * 10**8),
        2: lambda order, answer: said(answer, tests=10**7),
    }
    found = ran(get_method("fedavg"), four, model, tmp_path, behave=boast, rounds=1)
    assert found.happened[0].answered == (1, 3)
    why = found.happened[0].refused
    middle = sorted([2 * 10**8, *four.train.counts[1:].tolist()])[1]
    assert f"200000000 training samples, over 10 times the median of {middle}; where that is so, set" in why[0]
    assert "10000000 test samples, over 10 times the median" in why[2]
    assert found.state.samples[0] == found.state.tests[2] == 0
    most = Rules(deadline=0.2, most=int(four.train.counts.max()) + 1)
    more = {1: lambda order, answer: said(answer, samples=most.most + 1)}
    found = ran(get_method("fedavg"), four, model, tmp_path, behave=more, rules=most, rounds=1)
    assert found.happened[0].refused[1].endswith(f"samples, over the bound of {most.most} (deploy.most)")


@pytest.mark.slow
def test_a_boast_no_longer_ruins_the_model(model, tmp_path):
    """One of ten said it has 2·10⁸ samples, and the mean of all was its model: of four contexts one was served."""
    ten = make_data("digits", "rotation", clients=10, contexts=4, share=0.5, seed=0)
    method, boast = get_method("fedavg"), {0: lambda order, answer: said(answer, samples=2 * 10**8)}

    def accuracy(place, behave, **rules):
        rules = Rules(deadline=0.2, **rules)
        found = ran(method, ten, model, tmp_path / place, behave=behave, rules=rules, rounds=10, eval_every=10)
        return float(found.records[-1]["correct"][1:].sum() / ten.test.counts[1:].sum())

    honest, before = accuracy("a", {}), accuracy("b", boast, most=10**9)
    now = accuracy("c", boast)
    assert before < honest - 0.1
    assert abs(now - honest) < 0.05


def test_a_count_stays_the_same_in_the_next_method(four, model, tmp_path):
    method, counted = get_method("fedavg"), {1: (7, 9)}
    found = ran(method, four, model, tmp_path, rounds=1, counted=counted)
    assert found.happened[0].refused[1] == f"says it has {four.train.counts[1]} training samples, before 7"
    assert counted[0] == (four.train.counts[0], four.test.counts[0])
    assert counted[1] == (7, 9)


def test_an_update_far_longer_than_the_others_is_refused(four, model, tmp_path):
    """An upload of 100 times the size is finite and of the right form."""
    found = ran(get_method("fedavg"), four, model, tmp_path, behave={2: lambda o, a: grown(a, 100)}, rounds=1)
    assert found.happened[0].answered == (0, 1, 3)
    assert "10 times the median of this round's" in found.happened[0].refused[2]
    anything = Rules(deadline=0.2, largest=0.0)
    found = ran(
        get_method("fedavg"), four, model, tmp_path, behave={2: lambda o, a: grown(a, 100)}, rules=anything, rounds=1
    )
    assert found.happened[0].answered == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("each", "bad"),
    [
        ([(1, 5), (2, 5), (3, 5), (21, 5)], [3]),  # the lower median is 2
        ([(1, 5), (2, 5), (3, 5), (20, 5)], []),
        ([(0.01, 5), (0.01, 5), (0.01, 5), (4, 5)], []),  # comes late: less than a whole model
        ([(0.01, 5), (0.01, 5), (0.01, 5), (6, 8)], [3]),
        ([(1, 5), (50, 5)], []),  # of two nobody knows who is right
        ([(0, 0), (0, 0), (0, 0), (9, 9)], []),
    ],
)
def test_who_is_far_from_the_others(each, bad):
    assert sorted(outliers(dict(enumerate(each)))) == bad


def test_a_context_that_there_is_not_is_refused(four, model, tmp_path):
    def far(order, answer):
        upload = {n: Array(np.full_like(a.numpy(), 7) if n.endswith("choice") else a.numpy())
                  for n, a in answer.array_records["upload"].items()}  # fmt: skip
        return RecordDict({**dict(answer.items()), "upload": ArrayRecord(upload)})

    found = ran(get_method("ifca", {"contexts": 2}), four, model, tmp_path, behave={3: far}, rounds=1)
    assert found.happened[0].refused == {3: "chose context 7; there are 0..1"}
