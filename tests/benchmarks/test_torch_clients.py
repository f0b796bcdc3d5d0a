"""PyTorch's contestants compute what ours do."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch", reason="make bench installs PyTorch, some GB, and checks the same before it times")

from benchmarks.bench import torch_clients as pytorch
from benchmarks.bench.check import TOLERANCE, agree, difference
from benchmarks.bench.ours import Ours
from benchmarks.bench.rivals import _worthwhile, fastest, rivals
from benchmarks.bench.torch_nets import as_torch
from benchmarks.bench.work import Case
from cgpfl.errors import CgpflError

pytorch.threads(1)


@pytest.mark.parametrize("model", ["mlr", "dnn", "cnn"])
@pytest.mark.parametrize("method", ["pfedme", "fedavg"])
def test_the_same_minibatches_give_the_same_models(model, method):
    ours = Ours(Case(method, model, 4, samples=160))
    expected = ours.client_rounds(2)
    found = pytorch.results(model, expected, ours.rule, pytorch.device())
    start = as_torch(model, expected.start)
    assert set(found) == {"loop", "vmap"}
    for theta, upload in found.values():
        assert difference(as_torch(model, expected.upload), upload, start) < TOLERANCE
        if method == "pfedme":
            assert difference(as_torch(model, expected.personal), theta, start) < TOLERANCE


def test_another_rule_is_noticed():
    ours = Ours(Case("pfedme", "mlr", 4, samples=160))
    expected = ours.client_rounds(2)
    wrong = dataclasses.replace(ours.rule, prox=ours.rule.prox + 0.1)
    theta, _ = pytorch.results("mlr", expected, wrong, pytorch.device())["loop"]
    off = difference(as_torch("mlr", expected.personal), theta, as_torch("mlr", expected.start))
    with pytest.raises(CgpflError, match="PyTorch's loop does not compute the client's round: off by 0"):
        agree("pfedme mlr, 4 clients", "PyTorch's loop", off)


def test_a_part_of_the_clients_is_scaled(monkeypatch):
    monkeypatch.setattr("benchmarks.bench.rivals.SUBSET", 2)
    ours = Ours(Case("fedavg", "mlr", 8, samples=160))
    found = rivals(ours, ours.client_rounds(2))
    assert found.clients == {"loop": 2, "vmap": 2}
    assert {c.units for c in found.contestants} == {0.25}
    assert found.difference < TOLERANCE
    for contestant in found.contestants:
        contestant.run()


def test_a_smaller_part_where_memory_is_short():
    import torch

    def build(clients):
        if clients > 40:
            raise torch.OutOfMemoryError("too many")
        return lambda: None

    assert pytorch.largest(build, 4000)[1] == 40


def test_minibatches_are_of_the_clients_own_samples():
    ours = Ours(Case("fedavg", "mlr", 8, samples=160))
    own = pytorch.held("mlr", ours.data, 3, pytorch.device())
    parts = ours.data.train.parts()[:3]
    assert own.counts.tolist() == [len(p) for p in parts]
    for i, part in enumerate(parts):
        rows = slice(int(own.first[i]), int(own.first[i] + own.counts[i]))
        np.testing.assert_allclose(own.x[rows].numpy(), ours.data.x[part].reshape(len(part), -1) / 255, atol=1e-6)
        np.testing.assert_array_equal(own.y[rows].numpy(), ours.data.y[part])


def test_threads_that_wait_for_each_other_are_not_timed(monkeypatch):
    monkeypatch.setattr("benchmarks.bench.rivals.cores", lambda: 2)
    used = []
    monkeypatch.setattr("benchmarks.bench.rivals.seconds", lambda f: (f(), 10.0 if used[-1] == 2 else 1.0)[1])
    assert _worthwhile(lambda: None, used.append) == [1]
    monkeypatch.setattr("benchmarks.bench.rivals.seconds", lambda f: (f(), 1.0)[1])
    assert _worthwhile(lambda: None, used.append) == [1, 2]


def test_the_better_number_of_threads_counts():
    medians = {"ours": 1.0, "loop, 1 thread": 3.0, "loop, 2 threads": 2.0}
    assert fastest(medians, "loop") == (2.0, "loop, 2 threads")
    assert fastest(medians, "vmap") is None
