"""Private uploads on nodes: the noise is the node's own, nothing else leaves, and no more than was counted."""

import dataclasses
import json
import re
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from in_process import only
from test_rounds import ran

from cgpfl.algorithms import Ditto, FedAvg, Local, Seamed
from cgpfl.engine.flower.node import Node
from cgpfl.engine.flower.noise import BYTES, SECRET, OwnKeys
from cgpfl.engine.flower.orders import Order, RefusedError
from cgpfl.engine.flower.private import RUNS_KEPT, Private
from cgpfl.engine.flower.wire import pack
from cgpfl.engine.reference import simulate_loop
from cgpfl.errors import CgpflError
from cgpfl.models import as_model
from cgpfl.rounds import ClientLevel, Clip, Noise, SampleLevel
from cgpfl.tree import named

METHOD = Seamed(FedAvg(local_rounds=2), privacy=ClientLevel(clip=1.0, noise=0.5, times=4))


ORDER, MESSAGE, KEY = Order("run", 0, 0, 0), {"w": np.zeros(3, np.float32)}, jax.random.key(5)


def bits(key):
    return jax.random.key_data(key).tolist()


def test_but_for_their_keys_the_numbers_are_the_simulations(four, model, tmp_path, monkeypatch):
    monkeypatch.setattr(OwnKeys, "key", lambda self, order, message, plain, *more: plain)
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
    assert len(json.loads(OwnKeys(tmp_path / "client-0", 4).spent("run").read_text())) == 3


def test_noise_that_nobody_counts_is_the_nodes_own_too(four, model, tmp_path):
    """Of the rules clip and noise, without ε: the server can make no noise of the public seed that it takes away."""
    method = Seamed(FedAvg(local_rounds=2), outgoing=(Clip(norm=1.0), Noise(scale=0.5)))
    uploads = []
    for place, t in (("one", 0), ("one", 0), ("other", 0), *(("one", t) for t in range(1, 4))):
        node = Node(method, model, only(four, 0), 0, four.clients, 0, tmp_path / place)
        reply = node.work(Order("run", 0, 0, t), pack(model.init(node._keys.model)))
        uploads.append(np.concatenate([v.ravel() for v in reply.upload.values()]))
    assert (uploads[0] == uploads[1]).all()
    for other in uploads[2:]:
        assert (uploads[0] - other).std() > 0.5  # √2 · 0.5
    assert reply.samples == four.train.counts[0]  # it is no private run, and nothing is counted
    assert not OwnKeys(tmp_path / "one" / "client-0", None).spent("run").exists()


def test_where_nothing_leaves_there_is_no_noise_to_count(four, model, tmp_path):
    """Local training answers every round, and at the level of samples no upload is allowed: none is sent."""
    for level in (SampleLevel(steps=Local().noisy_steps(4)), ClientLevel(times=1)):
        node = Node(Seamed(Local(local_rounds=1), privacy=level), model, only(four, 0), 0, four.clients, 0, tmp_path)
        for t in (0, 1):
            assert node.work(Order("run", 0, 0, t), {}).upload == {}
    assert not (tmp_path / "client-0" / SECRET).exists()


def test_another_secret_is_another_upload(tmp_path):
    keys = OwnKeys(tmp_path, 2)
    one = keys.key(ORDER, MESSAGE, KEY)
    assert bits(keys.key(ORDER, MESSAGE, KEY)) == bits(one)
    (tmp_path / SECRET).unlink()
    two = keys.key(ORDER, MESSAGE, KEY)
    assert bits(two) != bits(one)
    (tmp_path / SECRET).unlink()
    with pytest.raises(RefusedError, match="has sent the 2 uploads"):
        keys.key(ORDER, MESSAGE, KEY)
    noted = keys.spent("run").read_text()
    assert not any(np.asarray(bits(key), np.uint32).tobytes().hex() in noted for key in (one, two))


@pytest.mark.parametrize(("content", "what"), [(bytes(BYTES), "has nothing but zeros"), (b"short", "has 5 bytes")])
def test_a_secret_that_is_none_is_refused(content, what, tmp_path):
    (tmp_path / SECRET).write_bytes(content)
    with pytest.raises(CgpflError, match=f"{SECRET}: {what}; must have 32 at random: delete it to draw others"):
        OwnKeys(tmp_path, 1).key(ORDER, MESSAGE, KEY)
    assert not OwnKeys(tmp_path, 1).spent("run").exists()


def test_a_secret_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Cut off while it is written, there is none, and nothing was counted with it."""

    def cut(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", cut)
        with pytest.raises(OSError, match="No space left"):
            OwnKeys(tmp_path, 1).key(ORDER, MESSAGE, KEY)
    assert [f.name for f in tmp_path.iterdir()] == ["noise.lock"]


def test_two_workers_of_a_client_lose_no_count(tmp_path):
    def ask(t):
        return bits(OwnKeys(tmp_path, 1000).key(Order("run", 0, 0, t), MESSAGE, KEY))

    with ThreadPoolExecutor(4) as workers:  # each asks for the file's lock by itself, as processes do
        found = list(workers.map(ask, range(40)))
    assert len(json.loads(OwnKeys(tmp_path, 1000).spent("run").read_text())) == 40
    assert found == [ask(t) for t in range(40)]  # of one secret


def test_what_was_spent_outlives_the_states_of_its_run(tmp_path):
    for i in range(RUNS_KEPT + 3):
        OwnKeys(tmp_path, 1).key(Order(f"run-{i}", 0, 0, 0), MESSAGE, KEY)
        Private(tmp_path, f"run-{i}").save(1, MESSAGE, 0)
    assert sum(place.is_dir() for place in tmp_path.iterdir()) == RUNS_KEPT
    assert Private(tmp_path, "run-0").versions() == []
    with pytest.raises(RefusedError, match="has sent the 1 uploads"):
        OwnKeys(tmp_path, 1).key(Order("run-0", 0, 0, 1), MESSAGE, KEY)


def test_a_key_follows_from_the_model_its_loss_and_who_adds_noise(four, model, tmp_path):
    def seen(method, model):
        return Node(method, model, only(four, 0), 0, four.clients, 0, tmp_path)._seen

    more = as_model("mlr", four.shape, four.classes, l2=0.1)
    weighed = dataclasses.replace(model, objective=dataclasses.replace(model.objective, weights=(2.0,) + (1.0,) * 9))
    together = dataclasses.replace(METHOD, privacy=dataclasses.replace(METHOD.privacy, together=3))
    found = [seen(METHOD, m) for m in (model, more, weighed)] + [seen(together, model)]
    assert len(set(found)) == 4
    assert seen(METHOD, as_model("mlr", four.shape, four.classes)) == found[0]
    assert not re.search("0x[0-9a-f]{6}", "".join(found))  # no address: it is the same after a restart


def test_a_private_node_does_not_tell_that_it_diverged(four, model, tmp_path, capsys):
    wild = Seamed(Ditto(local_rounds=2, rate=1e30, personal_rate=1e30), privacy=METHOD.privacy)
    node = Node(wild, model, only(four, 0), 0, four.clients, 0, tmp_path)
    reply = node.work(Order("run", 0, 0, 0), pack(model.init(node._keys.model)))
    assert all(np.isfinite(v).all() for v in reply.upload.values())
    assert "training gave NaN or infinity" in capsys.readouterr().err
