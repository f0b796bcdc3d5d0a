"""CGPFL with K as a number: several K in one program are what pFedMe and CGPFL are at that K."""

import jax
import numpy as np
import pytest

from cgpfl.algorithms import CGPFL, PFedMe
from cgpfl.data import make_data
from cgpfl.engine import blocks, simulate
from cgpfl.engine.together import Run, simulate_together
from cgpfl.models import as_model
from cgpfl.paper.at_k import CGPFLAtK
from helpers import Instead

pytestmark = pytest.mark.slow
KS = (1, 2, 4, 6)
RUN = {"rounds": 4, "eval_every": 2}
WORK = {"prox": 5.0, "local_rounds": 3, "inner_steps": 2, "batch_size": 0}


@pytest.fixture(scope="module")
def data():
    return make_data("digits", "rotation", clients=12, contexts=4, seed=0)


@pytest.fixture(scope="module")
def model(data):
    return as_model("mlr", data.shape, data.classes)


@pytest.fixture(scope="module")
def at(data, model):
    """K → (state, records, rounds): all K in one program, as on an accelerator, where the servers are mapped, too."""
    with pytest.MonkeyPatch.context() as patch:
        mapped = Instead(jax, default_backend=lambda: "gpu", lax=Instead(jax.lax, map=None))
        patch.setattr(blocks, "jax", mapped)
        runs = simulate_together([Run(method(k), data, 0) for k in KS], model, **RUN)
    return dict(zip(KS, runs, strict=True))


def method(k):
    return CGPFLAtK(k=float(k), context_rate=0.3, warmup=0, **WORK)


def close(one, other):
    """Two runs: the clients' models, and the loss of the model each was sent."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), one[0].clients, other[0].clients)
    np.testing.assert_allclose(one[1]["shared_loss"], other[1]["shared_loss"], rtol=1e-3)
    assert one[2] == other[2] == [2, 4]


def partition(labels):
    """Whether each two clients are in one context ``[N, N]``, whatever its name."""
    return labels[:, None] == labels[None, :]


def test_one_context_is_pfedme(at, data, model):
    close(at[1], simulate(PFedMe(global_rate=0.3, **WORK), data, model, **RUN))


def test_four_contexts_are_cgpfl(at, data, model):
    """Which has room for four; here there is room for six."""
    other = simulate(CGPFL(contexts=4, context_rate=0.3, warmup=0, **WORK), data, model, **RUN)
    close(at[4], other)
    for ours, theirs in zip(at[4][1]["context"], other[1]["context"], strict=True):
        np.testing.assert_array_equal(partition(ours), partition(theirs))


def test_every_k_has_that_many_contexts(at):
    for k, (_, records, _) in at.items():
        assert (records["k"] == k).all()
        assert [len(np.unique(labels)) for labels in records["context"]] == [k, k]
    losses = [records["train_loss"][-1].mean() for _, records, _ in at.values()]
    assert len({round(float(v), 4) for v in losses}) == len(KS)  # K makes a difference


def test_alone_is_as_one_of_several(at, data, model):
    alone = simulate(method(2), data, model, **RUN)
    close(at[2], alone)
    np.testing.assert_array_equal(at[2][1]["context"], alone[1]["context"])
