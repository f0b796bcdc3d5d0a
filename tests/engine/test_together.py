"""Several runs in one program are the runs one by one."""

import jax
import numpy as np
import pytest

from cgpfl.algorithms import CGPFL, FedAvg, Local, PFedMe
from cgpfl.data import make_data
from cgpfl.engine import simulate
from cgpfl.engine.together import Run, Together, how_many_fit, padded, simulate_together
from cgpfl.models import as_model
from helpers import points, quadratic


def same(one, other):
    for a, b in zip(jax.tree.leaves(one.clients), jax.tree.leaves(other.clients), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_seeds_with_splits_of_their_own(participation):
    """Clients of other sizes in each split: tables of other widths, and cohorts of other clients."""
    federations = [make_data("digits", "dirichlet", clients=6, alpha=1.0, seed=s) for s in (0, 1, 2)]
    assert len({d.train.rows.shape for d in federations}) == 3
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
