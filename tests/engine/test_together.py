"""Several runs in one program are the runs one by one."""

import dataclasses

import jax
import numpy as np
import pytest

from cgpfl.algorithms import CGPFL, FedAvg, Local, Method, PFedMe, algorithm, hyper
from cgpfl.data import FederatedData, make_data
from cgpfl.data.federated import IndexTable
from cgpfl.engine import simulate
from cgpfl.engine.together import Run, Together, how_many_fit, padded, same_samples, simulate_together
from cgpfl.models import as_model
from cgpfl.tree import axpy, weighted_mean
from helpers import Quadratic, points, quadratic


def same(one, other):
    for a, b in zip(jax.tree.leaves(one.clients), jax.tree.leaves(other.clients), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_seeds_with_splits_of_their_own(participation):
    """Clients of other sizes in each split: tables of other widths, and cohorts of other clients."""
    federations = [make_data("digits", "dirichlet", clients=6, alpha=1.0, seed=s) for s in (0, 1)]
    assert len({d.train.rows.shape for d in federations}) == 2
    model = as_model("mlr", (8, 8), 10)
    method = CGPFL(contexts=2, warmup=1)
    settings = {"rounds": 5, "eval_every": 2, "participation": participation, "dropout": 0.2}
    together = simulate_together([Run(method, d, s) for s, d in enumerate(federations)], model, **settings)
    for s, (state, records, due) in enumerate(together):
        alone, expected, evaluated = simulate(method, federations[s], model, seed=s, **settings)
        assert due == evaluated == [2, 4, 5]
        same(state, alone)
        np.testing.assert_array_equal(records["context"], expected["context"])
        np.testing.assert_allclose(records["loss"], expected["loss"], rtol=1e-3)
        np.testing.assert_allclose(records["correct"], expected["correct"], atol=1)


def test_settings_on_one_split(digits, mlr):
    methods = [PFedMe(prox=v, personal_rate=r) for v, r in ((1.0, 0.1), (5.0, 0.05), (12.0, 0.02))]
    together = simulate_together([Run(m, digits, 4) for m in methods], mlr, rounds=3)
    for method, (state, _, _) in zip(methods, together, strict=True):
        same(state, simulate(method, digits, mlr, rounds=3, seed=4)[0])


def test_one_that_diverges_leaves_the_others_alone():
    data = points([[1.0], [2.0]])
    methods = [Local(rate=r, local_rounds=1, batch_size=0) for r in (0.5, 1e30, 0.1)]
    fine, bad, other = simulate_together([Run(m, data, 0) for m in methods], quadratic(data), rounds=6, eval_every=1)
    assert [int(s.diverged) for s, _, _ in (fine, bad, other)] == [-1, 0, -1]
    assert bad[2] == []
    assert fine[2] == other[2] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(np.asarray(fine[0].clients["w"])[:, 0], [1 - 0.5**6, 2 - 2 * 0.5**6], rtol=1e-5)


def test_all_diverged_ends_early():
    data = points([[1.0]])
    together = Together([Run(Local(rate=1e30, batch_size=0), data, s) for s in (0, 1)], quadratic(data), rounds=50)
    state, _, due = together.advance(together.start(), 0, 50)
    assert due == [1]
    assert (np.asarray(state.diverged) == 0).all()


@algorithm
class Walk(Method):
    """Clients walk by what they see: a minibatch of their own, x·y, and the first of the public samples."""

    pace: float = hyper(0.1, "how far")

    def init_server(self, task, key):
        return task.initial

    def init_client(self, task, key):
        return task.initial

    def train(self, task, message, client, data, key):
        own, public = data.batch(key, 8), task.everybodys.all()
        new = axpy(self.pace, {"w": own.y @ own.x + public.x[0] * public.y[0]}, client)
        return new, new

    def aggregate(self, server, uploads, cohort, key):
        return weighted_mean(uploads, cohort.present, server)

    def personal(self, task, message, client, data, key):
        return client

    def gradients(self):
        return 0.0


class Sums(Quadratic):
    """Its score is a sum over the samples it is shown, whatever the parameters."""

    def score(self, params, batch):
        return batch.weight @ (batch.x[:, 0] + batch.y), super().score(params, batch)[1]


def splits(x, seeds):
    """Federations of the same samples, each with its own labels, sizes, order of clients and public samples."""
    federations = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        y = rng.integers(3, size=1400)
        sizes = [30, 20 + 40 * seed, 450 - 40 * seed]  # public samples, then clients; the last has what is left
        everybody, *parts = np.split(rng.permutation(1400), np.cumsum(sizes))
        more = {"validation": 0.1, "public": everybody, "classes": 3, "seed": seed, "scale": 0.5, "shift": 0.1}
        data = FederatedData.from_parts(x, y, parts, **more)
        federations.append(data.permute([[0, 1, 2], [2, 0, 1]][seed]))
    return federations


@pytest.mark.slow
def test_splits_of_one_set_hold_its_samples_once():
    """Paces × seeds, each seed with its own split: of the tables, long ones padded, but the samples are there once."""
    x = np.random.default_rng(0).standard_normal((1400, 3)).astype(np.float32)
    federations = splits(x, (0, 1))
    model = Sums((3,), 3)
    runs = [Run(Walk(pace=p), d, 5 + s) for p in (0.1, 0.3) for s, d in enumerate(federations)]
    settings = {"rounds": 4, "eval_every": 3, "participation": 0.7}
    together = Together(runs, model, **settings)
    assert together.static.together == "split"
    assert together.arrays.x.shape == x.shape
    assert together.arrays.train.rows.shape == (4, 3, 1024)
    assert federations[0].train.rows.shape == federations[1].train.rows.shape == (3, 585)
    states, values, due = together.advance(together.start(), 0, 4)
    for r, (run, (records, evaluated)) in enumerate(zip(runs, together.split(states, values, due), strict=True)):
        alone, expected, wanted = simulate(run.method, run.data, model, seed=run.seed, **settings)
        assert evaluated == wanted == [3, 4]
        for a, b in zip(jax.tree.leaves(together.one(states, r)), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)
        assert records.keys() == expected.keys()
        for name, value in records.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
        for name, part in (("correct", "test"), ("validation_correct", "validation")):
            sums = [(cx[:, 0] + cy).sum() for cx, cy in (run.data.inputs(i, part) for i in range(3))]
            np.testing.assert_allclose(records[name][-1], sums, rtol=1e-4)
    ends = np.asarray(states.clients["w"])
    assert all(np.abs(a - b).max() > 0.1 for i, a in enumerate(ends) for b in ends[:i])


def test_other_samples_or_another_scale_are_each_runs_own():
    """One step of rate 1 on f_i = ½·mean ‖w − (x·scale + shift)‖² ends at the client's point as the model sees it."""
    data = points([[1.0], [2.0], [4.0]])
    others = [
        dataclasses.replace(data, x=data.x + 1),
        dataclasses.replace(data, scale=2.0),
        dataclasses.replace(data, shift=-1.0),
    ]
    assert [same_samples([data, other]) for other in others] == [False] * 3
    assert same_samples([data, data, dataclasses.replace(data)])
    method = Local(rate=1.0, local_rounds=1, batch_size=0)
    together = Together([Run(method, d, 0) for d in (data, *others)], quadratic(data), rounds=1)
    assert together.static.together == "own"
    ends = together.advance(together.start(), 0, 1)[0].clients["w"]
    np.testing.assert_allclose(ends[..., 0], [[1, 2, 4], [2, 3, 5], [2, 4, 8], [0, 1, 3]], rtol=1e-6)


def test_memory_bounds_how_many(digits, mlr, monkeypatch):
    run = Run(FedAvg(), digits, 0)
    monkeypatch.setattr("cgpfl.engine.together.memory", lambda: 1 << 40)
    assert how_many_fit(run, mlr) > 1000
    monkeypatch.setattr("cgpfl.engine.together.memory", lambda: 1)
    assert how_many_fit(run, mlr) == 1


def test_padding_changes_no_sample():
    federations = [make_data("digits", "dirichlet", clients=5, alpha=0.5, validation=0.1, seed=s) for s in (0, 3)]
    wide = padded(federations)
    assert wide[0].train.rows.shape == wide[1].train.rows.shape
    for a, b in zip(federations, wide, strict=True):
        for part in ("train", "test", "validation"):
            pairs = zip(getattr(a, part).parts(), getattr(b, part).parts(), strict=True)
            assert all((x == y).all() for x, y in pairs)


@pytest.mark.parametrize(("longest", "width"), [(63, 63), (64, 64), (65, 128), (128, 128), (513, 1024)])
def test_long_tables_get_a_power_of_two(longest, width):
    """However a set is split, its programs have few shapes; short tables stay as they are."""
    x = np.zeros((longest + 14, 1), np.float32)
    train, few, held = np.arange(longest), np.arange(longest, longest + 5), np.arange(longest + 5, longest + 14)
    small, large = IndexTable.of([few]), IndexTable.of([train])
    data = [
        FederatedData(x, np.zeros(len(x), int), 2, train=large, test=small, validation=IndexTable.of([held])),
        FederatedData(x, np.zeros(len(x), int), 2, train=small, test=large, validation=IndexTable.of([held[:1]])),
    ]
    for wide, narrow in zip(padded(data), data, strict=True):
        assert (wide.train.rows.shape, wide.test.rows.shape) == ((1, width), (1, width))
        assert wide.validation.rows.shape == (1, 9)
        assert wide.digest == narrow.digest  # of the samples, not of the padding
    assert padded(data[:1])[0].train.rows.shape == (1, width)
    assert padded(data[:1])[0].test.rows.shape == (1, 5)
