"""Rounds over Flower's messages, in this process: the same numbers as a loop over clients, whatever nodes do."""

import io
import math

import httpx
import jax
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from in_process import Here, said

from cgpfl.algorithms import METHODS, FedAvg, Parts, Seamed, get_method
from cgpfl.engine.flower import link as link_module
from cgpfl.engine.flower.link import Link
from cgpfl.engine.flower.server import Coordinator, Rules
from cgpfl.engine.reference import simulate_loop
from cgpfl.errors import LostError
from cgpfl.models import as_model
from cgpfl.rounds import ByLoss, BySize, Clip, Quantise
from cgpfl.tree import named, size

ROUNDS = 4
NAMES = ("cgpfl", "cgpfl-heur", "cgpfl-auto", "pfedme", "fedavg", "ditto", "ifca")
OTHERS = [n for n in METHODS if n not in NAMES and not getattr(get_method(n), "needs_public", False)]
SETTINGS = {"cgpfl-heur": {"warmup": 2}}
LONGER = {"cgpfl-auto": {"rounds": 8}}
"""Of which six are its warm-up."""


class Ran:
    def __init__(self, state, records, lines, happened):
        self.state, self.records, self.lines, self.happened = state, records, lines, happened


def ran(method, data, model, folder, *, behave=None, rules=None, grid=None, before=None, sign=None, **settings):
    """The rounds and the last evaluation; ``before(t, grid)`` is called ahead of each."""
    grid = grid or Here(data, model, {"m": method}, folder, behave=behave)
    lines, records, happened = [], [], []
    link = Link(grid, data.clients, tell=lines.append, sign=sign)
    link.label = "m"
    options = {"rounds": ROUNDS, "eval_every": 2} | settings
    rules = rules or Rules(deadline=0.2)
    server = Coordinator(
        method, model, clients=data.clients, shape=data.shape, rules=rules, tell=lines.append, **options
    )
    if before:
        before(0, grid)
    link.wait(0.1, 1)
    state = server.start()
    for t in range(options["rounds"]):
        if before and t:
            before(t, grid)
        happened.append(server.step(state, link))
        state = happened[-1].state
    happened.append(server.evaluate(state, link))
    records = [h.record for h in happened if h.record is not None]
    return Ran(happened[-1].state, records, lines, happened)


def same(found, data, model, method, *, answered=None, **settings):
    """The rounds gave what a loop over clients gives, bit for bit."""
    options = {"rounds": ROUNDS, "eval_every": 2} | settings
    server, _, records = simulate_loop(method, data, model, answered=answered, **options)
    for name, values in records.items():
        np.testing.assert_array_equal(np.stack([r[name] for r in found.records]), values, err_msg=name)
    for name, value in named(server).items():
        np.testing.assert_array_equal(named(found.state.server)[name], value, err_msg=name)


@pytest.mark.parametrize(
    "name", [n if n in ("cgpfl", "fedavg") else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_the_numbers_of_a_loop(name, four, model, tmp_path):
    method, more = get_method(name, SETTINGS.get(name, {})), LONGER.get(name, {})
    same(ran(method, four, model, tmp_path, **more), four, model, method, **more)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_numbers_of_a_loop_for_the_others(name, four, model, tmp_path):
    method = get_method(name)
    same(ran(method, four, model, tmp_path), four, model, method)


def test_half_of_the_clients_a_round(four, model, tmp_path):
    method = get_method("cgpfl")
    found = ran(method, four, model, tmp_path, participation=0.5)
    assert [len(h.answered) for h in found.happened] == [2, 2, 2, 2, 4]
    same(found, four, model, method, participation=0.5)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param({"sampler": ByLoss()}, marks=pytest.mark.slow),
        {"sampler": BySize(), "outgoing": (Clip(), Quantise(bits=4))},
    ],
)
def test_rules_of_a_round(rules, four, model, tmp_path):
    """Losses that nobody has told yet are infinite, and no sign of a broken upload."""
    method = Seamed(FedAvg(), **rules)
    same(ran(method, four, model, tmp_path, participation=0.5), four, model, method, participation=0.5)


@pytest.mark.slow
def test_private_and_frozen_parameters(four, tmp_path):
    """What is frozen is on each node from the start; of what is private nothing is in an upload."""
    model = as_model("lora", four.shape, four.classes, of="dnn", hidden=6, rank=2)
    method = Parts(FedAvg(), private="*.b")
    same(ran(method, four, model, tmp_path), four, model, method)
    server = Coordinator(method, model, clients=four.clients, shape=four.shape, rounds=1)
    inputs = math.prod(four.shape)
    assert size(server.upload_like) == size(server.message_like) == 2 * inputs + 2 * 6  # a [2, in] of each layer


def lose(client, rounds):
    """This client trains in these rounds and its answer is lost."""
    return {client: lambda order, answer: None if order["train"] in rounds else answer}


def test_an_answer_that_is_lost_counts_as_none(four, model, tmp_path):
    # Client 2 trains in rounds 2 and 3 (from 1) and keeps states of them, but nobody hears of it: it goes on from
    # the one that counted, as in a simulation where it drops out.
    method = get_method("cgpfl")
    found = ran(method, four, model, tmp_path, behave=lose(2, (1, 2)))
    assert [h.answered for h in found.happened] == [(0, 1, 2, 3), (0, 1, 3), (0, 1, 3), (0, 1, 2, 3), (0, 1, 2, 3)]
    assert found.state.heard.tolist() == [4, 4, 4, 4]
    assert found.state.answers == 14
    server, _, _ = simulate_loop(method, four, model, rounds=ROUNDS, answered=lambda t, i: not (i == 2 and t in (1, 2)))
    for name, value in named(server).items():
        np.testing.assert_array_equal(named(found.state.server)[name], value, err_msg=name)
    assert np.isnan(found.records[0]["correct"]).tolist() == [False, False, True, False]
    assert np.isfinite(found.records[1]["correct"]).all()


def arrays(answer, change):
    """The answer with another upload."""
    upload = {name: a.numpy() for name, a in answer.array_records["upload"].items()}
    made = ArrayRecord({name: v if isinstance(v, Array) else Array(v) for name, v in change(upload).items()})
    return RecordDict({**dict(answer.items()), "upload": made})


def with_nan(upload):
    name = next(iter(upload))
    return {**upload, name: np.full_like(upload[name], np.nan)}


def lying(upload):
    name = next(iter(upload))
    v = upload[name]
    return {**upload, name: Array(str(v.dtype), tuple(v.shape), "numpy.ndarray", b"\x93NUMPY" + b"x" * (v.nbytes + 90))}


def too_long(upload):
    name = next(iter(upload))
    v = upload[name]
    return {**upload, name: Array(str(v.dtype), tuple(v.shape), "numpy.ndarray", bytes(v.nbytes + 2000))}


def zipped(upload):
    name = next(iter(upload))
    v = upload[name]
    file = io.BytesIO()
    np.savez(file, v[:0])
    return {**upload, name: Array(str(v.dtype), tuple(v.shape), "numpy.ndarray", file.getvalue())}


def enormous(upload):
    name = next(iter(upload))
    v = upload[name]
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**15,)})
    return {**upload, name: Array(str(v.dtype), tuple(v.shape), "numpy.ndarray", file.getvalue())}


GARBAGE = {
    "nan": (lambda a: arrays(a, with_nan), "is not finite"),
    "shape": (lambda a: arrays(a, lambda u: {k: v.reshape(-1)[:-1] for k, v in u.items()}), "has shape"),
    "type": (lambda a: arrays(a, lambda u: {k: v.astype(np.float64) for k, v in u.items()}), "is float64, not float32"),
    "missing": (lambda a: arrays(a, lambda u: {}), "is missing"),
    "stranger": (lambda a: arrays(a, lambda u: {**u, "more": np.zeros(3)}), "has more, which nobody asked for"),
    "bytes": (lambda a: arrays(a, lying), "cannot be read"),
    "zip": (lambda a: arrays(a, zipped), "cannot be read"),
    "enormous": (lambda a: arrays(a, enormous), "cannot be read"),
    "too many": (lambda a: said(a, samples=2**40), "says it has 1099511627776 training samples"),
    "size": (lambda a: arrays(a, too_long), "is not what it says it is"),
    "norm": (lambda a: arrays(a, lambda u: {k: v + 1e4 for k, v in u.items()}), "over the bound of 1000"),
    "round": (lambda a: said(a, train=0), "answers round 1, not 2"),
    "samples": (lambda a: said(a, samples=10**6), "says it has 1000000 training samples, before"),
    "no samples": (lambda a: said(a, samples=0), "says it has 0 training samples"),
    "nothing": (lambda a: RecordDict({}), None),
    "words": (lambda a: said(a, train="two"), None),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_has_no_weight(kind, four, model, tmp_path):
    change, reason = GARBAGE[kind]
    method = get_method("fedavg")
    behave = {1: lambda order, answer: change(answer) if order["train"] == 1 else answer}
    found = ran(method, four, model, tmp_path, behave=behave, rules=Rules(deadline=0.2, largest=1000))
    assert found.happened[1].answered == (0, 2, 3)
    assert found.happened[2].answered == (0, 1, 2, 3)
    if reason:
        assert reason in found.happened[1].refused[1]
    else:
        assert any("client 1: refused" in line for line in found.lines)
    same_server, _, _ = simulate_loop(method, four, model, rounds=ROUNDS, answered=lambda t, i: (t, i) != (1, 1))
    for name, value in named(same_server).items():
        np.testing.assert_array_equal(named(found.state.server)[name], value, err_msg=name)


def test_more_correct_answers_than_samples_are_refused(four, model, tmp_path):
    def boast(order, answer):
        record = answer.metric_records["metrics"]
        if "correct" in record:
            record["correct"] = 1e6
        return answer

    found = ran(get_method("fedavg"), four, model, tmp_path, behave={0: boast})
    assert np.isnan(found.records[-1]["correct"][0])
    assert "correct is 1e+06 of" in found.happened[-1].refused[0]


def test_an_evaluation_has_the_numbers_that_are_expected_and_no_others(four, model, tmp_path):
    def more(order, answer):
        answer.metric_records["metrics"]["invented"] = 1.0
        return answer

    def less(order, answer):
        answer.metric_records["metrics"].pop("loss", None)
        return answer

    found = ran(get_method("fedavg"), four, model, tmp_path, behave={0: more, 1: less})
    assert {"correct", "loss", "train_loss"} <= set(found.records[-1])
    assert "invented" not in found.records[-1]
    assert np.isnan(found.records[-1]["loss"]).tolist() == [True, True, False, False]
    assert "has measured" in found.happened[-1].refused[0]


def test_a_nodes_words_are_one_short_line(four, model, tmp_path):
    def shout(order, answer):
        return said(answer, problem="a\nb\x1b[31m" + "c" * 1000)

    found = ran(get_method("fedavg"), four, model, tmp_path, behave={0: shout}, rounds=1)
    line = next(line for line in found.lines if "client 0: refused" in line)
    assert line.startswith("client 0: refused, a b[31mccc")
    assert len(line) < 250


def test_nobody_at_the_last_evaluation_stops_the_run_and_spoils_nothing(four, model, tmp_path):
    silent = dict.fromkeys(range(4), lambda order, answer: None if order["train"] < 0 else answer)
    with pytest.raises(LostError, match="evaluation: 0 answers of at least 1"):
        ran(get_method("fedavg"), four, model, tmp_path, behave=silent, rules=Rules(deadline=0.1))


def test_finite_but_enormous_uploads_do_not_reach_the_server(four, model, tmp_path):
    def huge(order, answer):
        return (
            arrays(answer, lambda u: {k: np.full_like(v, 3e38) for k, v in u.items()})
            if order["train"] == 1
            else answer
        )

    with pytest.raises(LostError, match=r"round 2: what was uploaded is too large to be averaged; set deploy\.largest"):
        ran(get_method("cgpfl"), four, model, tmp_path, behave=dict.fromkeys(range(4), huge))


def test_an_order_for_another_client_is_refused(four, model, tmp_path):
    # A node that came back with another number in its configuration still has its old place at the server.
    method = get_method("fedavg")
    grid = Here(four, model, {"m": method}, tmp_path)
    grid.apps[1] = grid.apps[2]
    found = ran(method, four, model, tmp_path, grid=grid, rounds=1)
    assert found.happened[0].answered == (1, 2, 3)
    assert any("client 0: refused, is asked as client 0, but is client 1" in line for line in found.lines)


def test_too_few_answers_repeat_the_round_without_a_trace(four, model, tmp_path):
    # Three of four answers are lost in the first try of round 2; clients have trained it then, and train it again.
    method, tries = get_method("cgpfl"), []

    def first_try(order, answer):
        if order["train"] == 1:
            tries.append(1)
            return None if len(tries) <= 3 else answer
        return answer

    rules = Rules(deadline=0.2, minimum=3)
    found = ran(method, four, model, tmp_path, behave=dict.fromkeys((0, 1, 2), first_try), rules=rules)
    assert "round 2: 1 answers of at least 3; repeated" in found.lines
    same(found, four, model, method)


def test_it_stops_where_nobody_answers(four, model, tmp_path):
    lost = dict.fromkeys(range(4), lambda order, answer: None if order["train"] == 2 else answer)
    with pytest.raises(LostError, match=r"round 3: 0 answers of at least 1, 3 times; .* round 2 saved"):
        ran(get_method("fedavg"), four, model, tmp_path, behave=lost, rules=Rules(deadline=0.1))


class Unsteady(Here):
    """A SuperLink that answers some calls with an error of its own: ``errors[name]`` is how many, and which status."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.errors = {}

    def _call(self, name, *arguments):
        times, status = self.errors.get(name, (0, 0))
        if times:
            self.errors = self.errors | {name: (times - 1, status)}
            if status is None:
                raise ObjectPushError("array", 1, "session")
            raise httpx.HTTPStatusError("", request=httpx.Request("POST", "https://x"), response=httpx.Response(status))
        return getattr(super(), name)(*arguments)

    def get_node_ids(self):
        return self._call("get_node_ids")

    def push_messages(self, messages):
        return self._call("push_messages", messages)

    def pull_messages(self, message_ids):
        return self._call("pull_messages", message_ids)


def test_a_superlink_in_trouble_is_asked_again(four, model, tmp_path, monkeypatch):
    method = get_method("fedavg")
    grid = Unsteady(four, model, {"m": method}, tmp_path)

    def before(t, grid):
        if t == 1:
            grid.errors = {"get_node_ids": (2, 500), "pull_messages": (2, 503)}
        if t == 2:
            grid.errors = {"push_messages": (1, 500)}
        if t == 3:
            grid.errors = {"push_messages": (1, None)}

    monkeypatch.setattr(link_module, "PAUSE", 0.01)
    found = ran(method, four, model, tmp_path, grid=grid, before=before)
    same(found, four, model, method)
    assert sum("the SuperLink could not answer" in line for line in found.lines) == 4  # once for each kind of call
    assert not any("repeated" in line for line in found.lines)


def test_a_message_that_cannot_be_sent_counts_as_no_answer(four, model, tmp_path):
    method = get_method("fedavg")

    class Picky(Here):
        def push_messages(self, messages):
            ids = super().push_messages(messages)
            return [None if "order" in m.content and m.metadata.dst_node_id < 3 else i
                    for i, m in zip(ids, messages, strict=True)]  # fmt: skip

    found = ran(method, four, model, tmp_path, grid=Picky(four, model, {"m": method}, tmp_path))
    assert [h.answered for h in found.happened] == [(2, 3)] * (ROUNDS + 1)
    server, _, _ = simulate_loop(method, four, model, rounds=ROUNDS, answered=lambda t, i: i > 1)
    for name, value in named(server).items():
        np.testing.assert_array_equal(named(found.state.server)[name], value, err_msg=name)
    assert {f"client {i}: its message could not be sent" for i in (0, 1)} <= set(found.lines)


def test_a_superlink_that_stays_in_trouble_ends_the_run(four, model, tmp_path, monkeypatch):
    method = get_method("fedavg")
    monkeypatch.setattr(link_module, "TROUBLE", 0.0)
    for times, status in ((9, 500), (1, 403)):

        def before(t, grid, error=(times, status)):
            grid.errors = {"get_node_ids": error, "pull_messages": error} if t == 1 else {}

        with pytest.raises(httpx.HTTPStatusError):
            ran(method, four, model, tmp_path, grid=Unsteady(four, model, {"m": method}, tmp_path), before=before)


def test_a_node_that_joins_late(four, model, tmp_path):
    method = get_method("cgpfl")
    grid = Here(four, model, {"m": method}, tmp_path)

    def before(t, grid):
        grid.online = [1, 2, 4] if t < 2 else [1, 2, 3, 4]

    found = ran(method, four, model, tmp_path, grid=grid, before=before)
    assert [h.answered for h in found.happened] == [(0, 1, 3), (0, 1, 3), (0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)]
    server, _, _ = simulate_loop(method, four, model, rounds=ROUNDS, answered=lambda t, i: i != 2 or t >= 2)
    for name, value in named(server).items():
        np.testing.assert_array_equal(named(found.state.server)[name], value, err_msg=name)


def test_a_client_that_lost_its_state_begins_anew_and_says_so(four, model, tmp_path):
    import shutil

    method = get_method("pfedme", {"warm_start": True})

    def before(t, grid):
        if t == 2:
            shutil.rmtree(tmp_path / "1")

    found = ran(method, four, model, tmp_path, before=before)
    assert [h.anew for h in found.happened] == [(), (), (1,), (), ()]


def test_the_first_node_that_claims_a_client_keeps_it(four, model, tmp_path):
    method = get_method("fedavg")
    grid = Here(four, model, {"m": method}, tmp_path)
    grid.join(9, 0, grid.apps[2])
    grid.join(10, None, grid.apps[2])
    grid.join(11, 99, grid.apps[2])
    grid.online += [9, 10, 11]
    found = ran(method, four, model, tmp_path, grid=grid)
    told = " ".join(found.lines)
    assert "a second node says it is client 0; refused" in told
    assert "a node cannot take part: its node config has no client" in told
    assert "a node says it is client 99; there are 0..3" in told
    assert {m.metadata.dst_node_id for m in grid.sent if "order" in m.content} == {1, 2, 3, 4}
    same(found, four, model, method)


def test_nothing_of_a_clients_samples_is_in_what_it_sends(four, model, tmp_path):
    method = get_method("cgpfl")
    grid = Here(four, model, {"m": method}, tmp_path)
    ran(method, four, model, tmp_path, grid=grid)
    sent = b"".join(a.data for m in grid.got for r in m.content.array_records.values() for a in r.values())
    assert len(sent) > 1000
    scaled = four.x * np.float32(four.scale) + np.float32(four.shift)
    for image in (*four.x[::50], *scaled[::50].astype(np.float32), *four.x[::50].astype(np.float64)):
        for row in image:
            assert len(set(row.tolist())) == 1 or row.tobytes() not in sent


def test_orders_carry_one_message_each(four, model, tmp_path):
    # With everybody asked, a round and the evaluation before it are one message a node: 4 rounds and the last one.
    method = get_method("fedavg")
    grid = Here(four, model, {"m": method}, tmp_path)
    ran(method, four, model, tmp_path, grid=grid)
    assert len([m for m in grid.sent if "order" in m.content]) == 4 * (ROUNDS + 1)


def test_an_upload_has_the_form_that_is_expected(four, model):
    for name in NAMES:
        method = get_method(name)
        server = Coordinator(method, model, clients=4, shape=four.shape, rounds=1)
        assert jax.tree.leaves(server.upload_like)
        assert server.traffic().upload > 0
