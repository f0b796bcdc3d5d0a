"""Contexts that liars would capture: bounded updates, the smallest context, and what the notes say of forged ones."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cgpfl.algorithms import CGPFL, CGPFLAuto, Cohort, FedAvg, Seamed
from cgpfl.algorithms.groups import heard_in, too_small
from cgpfl.algorithms.lying import REACH, bounded
from cgpfl.attacks import ForgedContext, Seen, SignFlip
from cgpfl.cli import app
from cgpfl.engine.simulation import simulate
from cgpfl.errors import CgpflError
from cgpfl.experiment import liars
from cgpfl.experiment.config import Experiment, from_dict
from cgpfl.experiment.liars import over_shares, save_shares
from cgpfl.report.choice import choice
from cgpfl.rounds import Median
from helpers import points, quadratic


def test_no_update_is_too_long():
    updates = [jnp.array([[3.0, 4.0], [0.0, 5.0], [0.0, 6.0], [300.0, 400.0], [np.inf, 0.0], [1e9, 0.0]])]
    (found,), cohort = bounded(updates, Cohort(jnp.arange(6), jnp.array([9, 8, 7, 6, 5, 0])))
    found = np.asarray(found)  # median 5.5 of those who answered
    np.testing.assert_allclose(np.linalg.norm(found, axis=1)[:4], [5, 5, 6, 5.5 * REACH], rtol=1e-5)
    np.testing.assert_allclose(found[3], 5.5 * REACH * np.array([0.6, 0.8]), rtol=1e-5)
    np.testing.assert_array_equal(found[4], [0, 0])
    np.testing.assert_array_equal(cohort.weights, [9, 8, 7, 6, 0, 0])  # infinite: as if it had not answered


def test_bounds_come_with_a_robust_mean_alone():
    data = points([[1.0], [1.0], [1.0], [100.0]])
    plain = FedAvg(rate=1.0, local_rounds=1)
    weighted, _, _ = simulate(plain, data, quadratic(data), rounds=1)
    assert float(weighted.server["w"][0]) == pytest.approx(103 / 4)
    robust, _, _ = simulate(Seamed(plain, mean=Median()), data, quadratic(data), rounds=1)
    assert float(robust.server["w"][0]) == pytest.approx(1.0)


def test_who_is_in_too_small_a_context():
    assignment = jnp.array([0, 0, 0, 2, 2, 1])
    np.testing.assert_array_equal(too_small(assignment, 3, 2), [False] * 5 + [True])
    np.testing.assert_array_equal(heard_in(assignment, jnp.array([5, 0, 3]), 3, 2), [3, 0, 2])
    np.testing.assert_array_equal(heard_in(assignment, jnp.array([5, 0, 3]), 3, 1), [1, 0, 2])
    for method in (CGPFL(smallest=7), CGPFLAuto(smallest=7)):
        with pytest.raises(CgpflError, match=f"{method.name}: smallest = 7: must be at most the number of clients, 6"):
            method.check(6, 600.0, 100)


def test_a_context_too_small_has_no_say():
    """Three clients at 0, one at 90 in a context of its own: its model stays where all began."""
    data = points([[0.0], [0.0], [0.0], [90.0]])
    for smallest, end in ((1, 90.0), (2, 0.0)):
        method = CGPFL(contexts=(0, 0, 0, 1), prox=0.0, personal_rate=1.0, inner_steps=1, smallest=smallest)
        state, _, _ = simulate(method, data, quadratic(data), rounds=1)
        assert float(state.server.models["w"][1, 0]) == pytest.approx(end)


def test_forged_and_captured_contexts_are_named():
    values = {
        "context": np.array([[0, 0, 0, 1, 1, 2, 2, 3]]),
        "k": np.array([4]),
        "liar": np.array([[0, 0, 1, 1, 1, 1, 0, 0]], bool),
    }
    assert choice(values, {"contexts": 4, "smallest": 2}).suspects() == [
        "context 1, of 2 clients (3 and 4): forged, all of them lie",
        "context 2, of 2 clients (5 and 6): captured, 1 of them lie",
        "context 3, of 1 client (7): fewer than 2; they have models of their own, and no say",
    ]
    assert choice({k: v for k, v in values.items() if k != "liar"}, {"contexts": 4}).suspects() == []


def test_a_forged_context_lies_in_one_direction():
    updates, seen = (
        [jnp.array([[3.0, 4.0], [0.0, 1.0], [1.0, 0.0]])],
        Seen(jnp.array([0.0, 1, 1]), jnp.array([1.0, 0, 0])),
    )
    one, two = (ForgedContext(factor=2.0).forge(updates, seen, jax.random.key(k))[0] for k in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one[1], one[2])
    assert float(jnp.linalg.norm(one[1])) == pytest.approx(10.0)


def test_what_cannot_be_drawn_is_one_line():
    with pytest.raises(CgpflError, match="attack = 'none': must be one by some clients"):
        over_shares(Experiment())
    attacked = from_dict({"attack": "noise", "data": {"clients": 4}}, "x")
    with pytest.raises(CgpflError, match=r"share 1: must be >= 0 and < 1"):
        over_shares(attacked, shares=[1.0])
    with pytest.raises(CgpflError, match="no mean 'meddian'; did you mean median"):
        over_shares(attacked, means=["meddian"])
    with pytest.raises(CgpflError, match=r"share = 0.99: all 4 clients lie"):  # before the others are run
        over_shares(attacked, shares=[0.0, 0.99])
    assert attacked.attack.share == SignFlip().share


def test_a_run_that_diverged_has_no_success_of_its_backdoor(monkeypatch):
    monkeypatch.setattr(liars, "run_method", lambda *args, **kw: SimpleNamespace(accuracy=np.nan, metrics={}))
    attacked = from_dict({"attack": "backdoor", "data": {"clients": 4}}, "x")
    found = over_shares(attacked, means=["weighted"], shares=[0.25])
    assert np.isnan(found[["accuracy", "backdoor"]].to_numpy()).all()


@pytest.mark.pictures
def test_the_figure(tmp_path):
    rows = [
        {"method": m, "mean": mean, "share": s, "seed": 0, "accuracy": 0.8 - s}
        for m in ("fedavg", "ditto")
        for mean in ("weighted", "auto")
        for s in (0.0, 0.2)
    ]
    files = save_shares(pd.DataFrame(rows), "noise", tmp_path / "f")
    assert {f.name for f in files} == {"liars.csv", "liars.png", "liars.svg", "liars.pdf"}
    assert "noise" in (tmp_path / "f" / "liars.svg").read_text() or (tmp_path / "f" / "liars.svg").stat().st_size > 5000
    assert len(pd.read_csv(tmp_path / "f" / "liars.csv")) == 8


@pytest.mark.slow
def test_the_command(tmp_path):
    options = ["--method", "fedavg", "--clients", "5", "--rounds", "3", "--attack", "sign-flip", "--quiet"]
    options += ["--shares", "0,0.4", "--out", str(tmp_path / "l"), "--set", "data.share=0.2"]
    assert CliRunner().invoke(app, ["liars", *options]).exit_code == 0
    found = pd.read_csv(tmp_path / "l" / "liars.csv").set_index(["mean", "share"]).accuracy
    assert found["weighted", 0.0] > found["weighted", 0.4]
    assert (tmp_path / "l" / "liars.png").exists()
