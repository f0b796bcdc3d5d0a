"""Rules of a round around a method: what they must not hide of it."""

import jax
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import CGPFL, Ditto, FedAvg, Local, Seamed
from cgpfl.algorithms.hypcluster import HypCluster, Message, Upload
from cgpfl.engine import Settings
from cgpfl.engine.together import stack
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import check_same
from cgpfl.experiment.config import apply_setting, from_dict
from cgpfl.experiment.run import fingerprint
from cgpfl.hyperparameters import from_values
from cgpfl.rounds import SGD, BySize
from helpers import points, quadratic

DATA = points([[0.0], [8.0], [2.0], [4.0]])
MODEL = quadratic(DATA)


def printed(method):
    return fingerprint(method, MODEL, Settings())


def test_another_method_is_another_run():
    a, b, c = (printed(Seamed(m, sampler=BySize())) for m in (FedAvg(), Local(), FedAvg(rate=0.2)))
    assert a != b
    assert a != c
    assert a != printed(FedAvg())
    assert a["method"] == "FedAvg"


def test_a_run_with_labels_is_found_again(tmp_path):
    run = printed(Seamed(CGPFL(contexts=(0, 0, 1, 1)), sampler=BySize()))
    saved = {k: list(v) if isinstance(v, tuple) else v for k, v in run.items()}
    check_same(tmp_path, saved, run)


def test_floats_inside_are_traced():
    rates = stack([Seamed(FedAvg(rate=r), sampler=BySize()) for r in (0.1, 0.2)], np.arange(2))
    assert rates.method.rate.shape == (2,)


@pytest.mark.slow
def test_a_search_goes_through_the_rules(tmp_path):
    data = cgpfl.make_data("digits", "iid", clients=4, share=0.1, validation=0.2)
    found = cgpfl.compare(["ditto"], data, rounds=2, seeds=1, tune=2, sampler="by-size", out=tmp_path / "c")
    tried = found.runs["ditto"].tried
    assert len(tried) == 2
    assert {"rate", "prox", "personal_rate"} <= set(tried[0])
    assert found.runs["ditto"].settings["prox"] > 0


def test_gradients_of_epochs():
    assert Ditto(descent=SGD(epochs=4.0), batch_size=20).gradients_of(100) == 40
    assert FedAvg(descent=SGD(epochs=0.1), batch_size=20).gradients_of(100) == 1


def test_hypotheses_start_from_everybodys_model():
    method = HypCluster(contexts=3)
    message = Message({"w": jax.numpy.array([[1.0], [2.0], [0.0]])}, jax.numpy.int32(2))
    anchor = method.anchor(message, Upload(jax.numpy.int32(0), {"w": jax.numpy.zeros(1)}, jax.numpy.float32(0)))
    assert float(anchor.model["w"][0]) == 0.0  # the third is not there yet


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"sampler": "cgpfl.rounds:Clip"}, "cgpfl.rounds:Clip: is no sampler"),
        ({"mean": "cgpfl.algorithms:FedAvg"}, "is no mean"),
        ({"metrics": 5}, "metrics = 5: must be"),
        ({"outgoing": 5}, "is no outgoing rule"),
    ],
)
def test_mistakes_are_one_line(values, why):
    with pytest.raises(CgpflError, match=why):
        from_dict(values, "c.toml")


def test_settings_of_rules_on_the_command_line():
    values = {"outgoing": "clip", "method": []}
    apply_setting(values, "outgoing.clip.norm=2")
    assert values["outgoing"] == [{"name": "clip", "norm": 2}]
    with pytest.raises(CgpflError, match="sampler = 5: must be a name or a table"):
        apply_setting({"sampler": 5, "method": []}, "sampler.power=1")
    assert from_values(Settings, {"outgoing": values["outgoing"]}, "x").outgoing[0].norm == 2.0
