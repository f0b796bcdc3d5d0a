"""Robust means over Flower's messages: the numbers of a loop, and one liar among ten."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from test_rounds import ROUNDS, ran, same

from cgpfl.algorithms import CGPFL, FedAvg, Seamed
from cgpfl.attacks import ATTACKS, SignFlip
from cgpfl.data import make_data
from cgpfl.engine.flower.server import Rules
from cgpfl.engine.reference import simulate_loop
from cgpfl.hyperparameters import build
from cgpfl.models import as_model
from cgpfl.rounds import AutoMean, Bucketing, Median
from cgpfl.tree import named

LIAR = 3


@pytest.mark.parametrize(
    "method",
    [
        Seamed(FedAvg(), mean=AutoMean()),
        pytest.param(Seamed(FedAvg(), mean=Bucketing(inner=Median())), marks=pytest.mark.slow),
        pytest.param(Seamed(CGPFL(contexts=2, warmup=2), mean=Median()), marks=pytest.mark.slow),
    ],
    ids=["auto", "bucketing", "contexts"],
)
def test_the_numbers_of_a_loop(method, four, model, tmp_path):
    same(ran(method, four, model, tmp_path), four, model, method)


def test_what_a_mean_remembers_of_a_liar(four, model, tmp_path):
    """The same bits, in the server's state (only simulations leave liars out of what is measured)."""
    method = Seamed(FedAvg(), mean=AutoMean(), attack=SignFlip(number=1, factor=1.0))
    found = named(ran(method, four, model, tmp_path).state.server)
    server, _, _ = simulate_loop(method, four, model, rounds=ROUNDS)
    for name, value in named(server).items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def lying(order, answer):
    """A node that sends its model turned round, ten times as long."""
    if "upload" not in answer.array_records:
        return answer
    arrays = {k: Array(-10 * v.numpy()) for k, v in answer.array_records["upload"].items()}
    return RecordDict({**dict(answer.items()), "upload": ArrayRecord(arrays)})


@pytest.mark.slow
def test_one_liar_among_ten(tmp_path):
    data = make_data("digits", "iid", clients=10, share=0.6, seed=2)
    model = as_model("mlr", data.shape, data.classes)
    others = np.arange(10) != LIAR

    def honest(name, method, behave=None):
        settings = {"rounds": 8, "eval_every": 8, "rules": Rules(deadline=5.0, largest=0.0)}
        found = ran(method, data, model, tmp_path / name, behave=behave, **settings)
        return 100 * found.records[-1]["correct"][others].sum() / data.test.counts[others].sum()

    usual = honest("usual", FedAvg())
    assert honest("weighted", FedAvg(), {LIAR: lying}) < usual - 15
    assert honest("auto", Seamed(FedAvg(), mean=AutoMean()), {LIAR: lying}) > usual - 2


@pytest.mark.slow
@pytest.mark.parametrize("attack", [{"name": "sign-flip", "factor": 1.0}, "label-flip", "counts"], ids=str)
def test_one_liar_among_ten_who_is_no_farther_away(attack, tmp_path):
    """Lies that no single round tells from honest uploads; made where the answers are, as in simulations."""
    data = make_data("digits", "iid", clients=10, share=0.6, seed=2)
    model = as_model("mlr", data.shape, data.classes)
    values = {"name": attack} if isinstance(attack, str) else attack
    lies = build(ATTACKS, values | {"number": 1}, "attack")

    def honest(name, method, others=None):
        settings = {"rounds": 8, "eval_every": 8, "rules": Rules(deadline=5.0, largest=0.0)}
        found = ran(method, data, model, tmp_path / name, **settings)
        if others is None:
            others = ~np.asarray(found.state.server.liars)
            assert (np.asarray(found.state.server.known)[1, 0] < 0).tolist() == (~others).tolist()
        return 100 * found.records[-1]["correct"][others].sum() / data.test.counts[others].sum(), others

    lied, others = honest("auto", Seamed(FedAvg(), mean=AutoMean(), attack=lies))
    assert lied > honest("usual", FedAvg(), others)[0] - 2
