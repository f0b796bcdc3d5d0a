"""Metrics measured on nodes: they send sums, the server makes values of them."""

import numpy as np
import pytest
from in_process import only

import cgpfl
from cgpfl.engine import simulate
from cgpfl.engine.flower.node import Node
from cgpfl.engine.flower.orders import from_bytes, to_bytes
from cgpfl.engine.flower.server import Answer, Server
from cgpfl.metrics import measured

NAMES = ["macro-f1", "auc", "ece"]


class Here:
    """Nodes that are asked directly; ``lost`` ones never answer, and what others measured may be changed."""

    def __init__(self, nodes, lost=(), change=lambda metrics: metrics):
        self.nodes, self.lost, self.change = nodes, lost, change

    def ask(self, orders, deadline):
        found = {}
        for i, (order, message) in orders.items():
            if i not in self.lost:
                reply = self.nodes[i].work(order, message)
                facts, upload = from_bytes(to_bytes(reply.facts(), reply.upload))
                about = (order.train, facts["samples"], facts["tests"], facts["anew"], self.change(facts["metrics"]))
                found[i] = Answer(*about, lambda like, upload=upload: upload)
        return found


@pytest.fixture(scope="module")
def four():
    return cgpfl.make_data("digits", "rotation", clients=4, contexts=2, share=0.2, seed=0)


def ends(four, folder, **nodes):
    """The last evaluation's record, and the server's step before it."""
    method, model = cgpfl.FedAvg(), cgpfl.MLR(four.shape, four.classes)
    metrics = measured(NAMES)
    each = [Node(method, model, only(four, i), i, 4, 0, folder / str(i), metrics) for i in range(4)]
    server = Server(method, model, clients=4, shape=four.shape, rounds=2, metrics=metrics)
    state = server.start()
    for _ in range(2):
        state = server.step(state, Here(each)).state
    return server.evaluate(state, Here(each, **nodes)), simulate(method, four, model, rounds=2, metrics=NAMES)[1]


def test_as_in_simulation(four, tmp_path):
    happened, expected = ends(four, tmp_path)
    for name in [*NAMES, *(f"{n}/pooled" for n in NAMES), "correct"]:
        np.testing.assert_allclose(happened.record[name], expected[name][-1], atol=1e-5, err_msg=name)


def test_who_is_not_heard_does_not_count(four, tmp_path):
    happened, expected = ends(four, tmp_path, lost=(1,))
    for name in NAMES:
        assert np.isnan(happened.record[name][1])
        np.testing.assert_allclose(np.delete(happened.record[name], 1), np.delete(expected[name][-1], 1), atol=1e-5)
        assert np.isfinite(happened.record[f"{name}/pooled"])


def test_sums_of_another_form_are_refused(four, tmp_path):
    cut = {"change": lambda metrics: metrics | {"ece": metrics["ece"][:-1]}}
    with pytest.raises(cgpfl.CgpflError, match="client 0 ece has 44 numbers, not 45"):
        ends(four, tmp_path, **cut)
