"""Private uploads on nodes: the noise is the node's own, nothing else leaves, and no more than was counted."""

import dataclasses
import json

import numpy as np
import pytest
from in_process import only
from test_rounds import ran

from cgpfl.algorithms import Ditto, FedAvg, Seamed
from cgpfl.engine.flower.node import Node
from cgpfl.engine.flower.noise import BYTES, SECRET, SPENT
from cgpfl.engine.flower.orders import Order, RefusedError
from cgpfl.engine.flower.wire import pack
from cgpfl.engine.reference import simulate_loop
from cgpfl.rounds import ClientLevel
from cgpfl.tree import named

METHOD = Seamed(FedAvg(local_rounds=2), privacy=ClientLevel(clip=1.0, noise=0.5, times=4))


def test_with_a_secret_of_zeros_the_numbers_are_the_simulations(four, model, tmp_path):
    for i in range(four.clients):
        place = tmp_path / str(i) / f"client-{i}"
        place.mkdir(parents=True)
        (place / SECRET).write_bytes(bytes(BYTES))
    found = ran(METHOD, four, model, tmp_path)
    server, _, _ = simulate_loop(METHOD, four, model, rounds=4, eval_every=2)
    for name, value in named(server).items():
        np.testing.assert_array_equal(named(found.state.server)[name], value, err_msg=name)
    assert found.state.samples.tolist() == found.state.tests.tolist() == [1, 1, 1, 1]  # counts are not told
    assert [np.isnan(r["correct"]).all() for r in found.records] == [True]  # and neither are scores


def test_a_node_draws_its_own_noise_and_counts_it(four, model, tmp_path):
    node = Node(METHOD, model, only(four, 0), 0, four.clients, 0, tmp_path)
    message = pack(model.init(node._keys.model))

    def upload(t, sent=message, of=node):
        return of.work(Order("run", 0, 0, t), sent).upload

    def differs(a, b):
        return any((a[name] != b[name]).any() for name in a)

    first = upload(0)
    secret = tmp_path / "client-0" / SECRET
    assert len(secret.read_bytes()) == BYTES
    assert secret.stat().st_mode & 0o777 == 0o600
    assert not differs(first, upload(0))  # asked the same again
    elsewhere = Node(METHOD, model, only(four, 0), 0, four.clients, 0, tmp_path / "other")
    assert differs(first, upload(0, of=elsewhere))
    moved = {name: value + 1 for name, value in message.items()}
    again = {name: value - 1 for name, value in upload(0, moved).items()}
    noise = np.concatenate([(again[name] - first[name]).ravel() for name in first])
    assert noise.std() > 0.5  # the same round with another message: another noise, √2 · 0.5
    upload(1)
    upload(2)
    with pytest.raises(RefusedError, match="has sent the 4 uploads that its privacy allows"):
        upload(3)
    assert not differs(first, upload(0))


def test_no_noise_is_under_two_uploads(four, model, tmp_path):
    """The same order on other samples, or from another state: two uploads, which differ in their noise, too."""
    uploads = []
    for client, method in ((0, METHOD), (1, METHOD), (0, dataclasses.replace(METHOD, method=FedAvg(local_rounds=3)))):
        node = Node(method, model, only(four, client), 0, four.clients, 0, tmp_path)
        reply = node.work(Order("run", 0, 0, 0), pack(model.init(node._keys.model)))
        uploads.append(np.concatenate([v.ravel() for v in reply.upload.values()]))
    for other in uploads[1:]:
        assert (uploads[0] - other).std() > 0.5  # √2 · 0.5; updates have norm 1 at most, in all
    assert len(json.loads((tmp_path / "client-0" / "run" / SPENT).read_text())) == 3


def test_a_private_node_does_not_tell_that_it_diverged(four, model, tmp_path, capsys):
    wild = Seamed(Ditto(local_rounds=2, rate=1e30, personal_rate=1e30), privacy=METHOD.privacy)
    node = Node(wild, model, only(four, 0), 0, four.clients, 0, tmp_path)
    reply = node.work(Order("run", 0, 0, 0), pack(model.init(node._keys.model)))
    assert all(np.isfinite(v).all() for v in reply.upload.values())
    assert "training gave NaN or infinity" in capsys.readouterr().err
