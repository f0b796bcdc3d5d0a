"""An audit of a small run, from its folder to its page."""

import json

import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms.wrapper import Seamed
from cgpfl.attacks import ATTACKS
from cgpfl.auditing import attack
from cgpfl.auditing.attack import accounted, is_noised, noise_of
from cgpfl.auditing.bounds import gaussian_noise
from cgpfl.auditing.canaries import bound_of, canary_clients, planted
from cgpfl.auditing.invert import correlations, invert
from cgpfl.auditing.words import at_most
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation
from cgpfl.engine.problem import keys_of
from cgpfl.models import as_model
from cgpfl.report.page import few_samples
from cgpfl.rounds import ClientLevel, Clip, Noise, TopK
from helpers import cgpfl as command


def tiny(samples=4, clients=4):
    """Images of 3×3 with one bright row, which is the label."""
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(clients):
        y = np.arange(samples + 2) % 3
        x = 0.3 * rng.normal(size=(samples + 2, 3, 3)).astype(np.float32)
        x[np.arange(samples + 2), y] += 1
        pairs.append((x, y))
    train, test = ([(x[part], y[part]) for x, y in pairs] for part in (slice(samples), slice(samples, None)))
    return FederatedData.from_clients(train, test=test, classes=3)


def test_matching_by_hand():
    true = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0]])
    found = np.array([[4.0, -2.0, 4.0], [30.0, 20.0, 10.0]])
    values, which = correlations(true, found[:1])
    assert (values[1], which[1]) == (pytest.approx(1), 0)  # the first is like none of them
    assert values[0] == 0
    found[1] = found[1, ::-1]
    values, which = correlations(true, found)
    assert which.tolist() == [1, 0]
    assert values == pytest.approx([1, 1])


def test_samples_are_found_in_an_upload_and_not_under_noise():
    data, model = tiny(), as_model("dnn", (3, 3), 3, hidden=32)
    plain = cgpfl.FedAvg(local_rounds=3)
    one = invert(Simulation(plain, data, model, rounds=1), [0], steps=600)[0]
    assert one.correlation.min() > 0.95
    assert one.right == 4
    rules = (Clip(norm=1.0), Noise(scale=gaussian_noise(2.0, 1, 1e-5)))
    noisy = Seamed(plain, outgoing=rules)
    hidden = invert(Simulation(noisy, data, model, rounds=1), [0], steps=600)[0]
    assert hidden.correlation.mean() < 0.8


@pytest.mark.slow
def test_a_liars_upload_is_looked_at_as_well():
    data, lying = tiny(), Seamed(cgpfl.FedAvg(local_rounds=1), attack=ATTACKS["label-flip"])
    one = invert(Simulation(lying, data, as_model("mlr", (3, 3), 3), rounds=1), [0], steps=2)[0]
    assert np.isfinite(one.unexplained)
    noised = Seamed(lying.method, attack=lying.attack, privacy=ClientLevel(noise=1.0))
    told, _ = canary_clients(noised, {"w": np.zeros(3, np.float32)}, keys_of(0), 1, 0)
    assert np.isfinite(told).all()


def test_canaries_have_wrong_labels_and_belong_to_nobody():
    data = tiny(samples=8)
    found = planted(data, 0)
    own = found.rows[found.known]
    assert len(set(own.tolist())) == len(own) == len(found.data.y) - len(data.y)
    origin = [np.flatnonzero((data.x == x).all(axis=(1, 2)))[0] for x in found.data.x[own]]
    assert (data.y[origin] != found.data.y[own]).all()
    assert found.data.train.counts.tolist() == [8] * 4


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    where = tmp_path_factory.mktemp("audit") / "run"
    rules = [{"name": "clip", "norm": 1.0}, {"name": "noise", "scale": gaussian_noise(2.0, 5, 1e-5)}]
    cgpfl.run("fedavg", tiny(clients=6), "dnn", rounds=5, outgoing=rules, out=where, progress=False)
    done = command("audit", where, "--references", "2", "--attacked", "2")
    return where, done.stdout, json.loads((where / "audit-fedavg.json").read_text())


@pytest.mark.slow
def test_facts(audited):
    _, _, facts = audited
    assert (facts["method"], facts["clients"], facts["samples"], facts["references"]) == ("fedavg", 6, [4, 4], 2)
    assert set(facts["membership"]) == {"upload", "shared", "personal"}
    for attacks in facts["membership"].values():
        assert set(attacks) == {"loss", "ratio"}
        assert attacks["loss"]["members"] == 24
    assert facts["privacy"]["epsilon"] == pytest.approx(2.0)
    assert set(facts["bounds"]) == {"sample", "client"}
    for bound in facts["bounds"].values():
        assert bound["epsilon"] <= 2.0
    assert facts["bounds"]["client"]["canaries"] == 1000
    assert [c["samples"] for c in facts["reconstruction"]["clients"]] == [4, 4]


@pytest.mark.slow
def test_words_and_page(audited):
    where, said, _ = audited
    assert max(map(len, said.splitlines()[:-1])) <= 80
    for text in ("Membership: ", "Reconstruction: ", "Canary clients: ", "the account says at most 2", "found at 1 %"):
        assert text in " ".join(said.split())
    page = (where / "audit-fedavg.html").read_text()
    assert "data:image/png;base64," in page
    assert "http://" not in page.replace('xmlns="http://', "")
    assert "https://" not in page
    assert "6 clients with 4 to 4 training samples" in page


@pytest.mark.slow
def test_the_runs_own_account_is_read(audited):
    where = audited[0]
    summary = json.loads((where / "summary.json").read_text())
    assert accounted(where, "fedavg") is None
    told = {"level": "sample", "epsilon": 3.0, "delta": 1e-6}
    for place in (summary, summary["methods"]["fedavg"]):
        place["privacy"] = told
        (where / "summary.json").write_text(json.dumps(summary))
        assert accounted(where, "fedavg") == {**told, "by": "the run's account"}
        del place["privacy"]


def test_noise_that_is_not_there_is_found():
    """A tenth of the noise gives a larger bound."""
    scale = gaussian_noise(8.0, 5, 1e-5)
    like = {"w": np.zeros(20, np.float32)}
    bounds = []
    for used in (scale, scale / 10):
        rules = (Clip(norm=1.0), Noise(scale=used))
        method = Seamed(cgpfl.FedAvg(), outgoing=rules)
        bounds.append(bound_of(*canary_clients(method, like, keys_of(0), 5, 0), 1e-5).epsilon)
    assert 0 < bounds[0] < 8.0
    assert bounds[1] > bounds[0] + 1


def test_what_was_not_sent_waits_with_a_canary_and_with_a_client():
    rules = (Clip(norm=1.0), Noise(scale=0.1), TopK(percent=33))
    told, inside = canary_clients(
        Seamed(cgpfl.FedAvg(), outgoing=rules), {"w": np.zeros(3, np.float32)}, keys_of(0), 9, 0
    )
    assert told[inside].min() > told[~inside].max() + 1  # one number of three at a time, the others in their turn
    data, keeps = tiny(), Seamed(cgpfl.Ditto(local_rounds=1), outgoing=(TopK(percent=50),))
    one = invert(Simulation(keeps, data, as_model("mlr", (3, 3), 3), rounds=1), [0], steps=2)[0]
    assert np.isfinite(one.unexplained)


def test_canaries_have_the_noise_of_the_account():
    """z of ε = 8 for five uploads, by itself or as one of nine parts; a tenth of it is found."""
    z = gaussian_noise(8.0, 5, 1e-5)
    like, found = {"w": np.zeros(20, np.float32)}, []
    for noise, together in ((z, 1), (z, 9), (z / 10, 1)):
        level = ClientLevel(clip=0.5, noise=noise, times=5, together=together)
        method = Seamed(cgpfl.FedAvg(), privacy=level)
        assert is_noised(method)
        found.append(bound_of(*canary_clients(method, like, keys_of(0), 5, 0), 1e-5).epsilon)
    assert 0 < found[0] < 8.0
    assert found[1] == found[0]
    assert found[2] > found[0] + 1


def test_what_bounds_an_update_comes_before_its_noise():
    clip, noise = Clip(norm=2.0), Noise(scale=3.0)
    assert noise_of((clip, noise)) == 1.5
    assert noise_of((clip, Noise(scale=3.0), Noise(scale=4.0))) == 2.5
    assert noise_of((clip, noise, Clip(norm=0.1))) == 1.5
    assert noise_of((noise, clip)) is noise_of((noise,)) is noise_of((clip,)) is None
    assert not is_noised(cgpfl.FedAvg())


def test_samples_are_held_against_data_that_are_replaced():
    told = {"level": "client", "epsilon": 2.0, "epsilon_replaced": 5.0}
    assert at_most(told, "client") == 2.0
    assert at_most(told, "sample") == 5.0
    assert at_most({"level": "sample", "epsilon": 3.0}, "sample") == 3.0
    assert at_most({"level": "sample", "epsilon": 3.0}, "client") is at_most(None, "client") is None


@pytest.mark.parametrize(
    ("rules", "rounds"),
    [([{"name": "clip"}, {"name": "noise", "scale": 0.5}], 0), pytest.param(["clip"], 1, marks=pytest.mark.slow)],
)
def test_an_account_counts_the_upload_that_is_looked_at(tmp_path, monkeypatch, rules, rounds):
    """Of a run of one round: the only upload, from the model before it; without an account one that comes after it."""
    trained, asked = attack.trained, []

    def noted(method, data, model, settings):
        found = trained(method, data, model, settings)
        asked.append(found.rounds)
        assert int(found.state.answers) == 4 * found.rounds
        return found

    monkeypatch.setattr(attack, "trained", noted)
    cgpfl.run("fedavg", tiny(), "mlr", rounds=1, outgoing=rules, out=tmp_path / "run", progress=False)
    facts = cgpfl.audit(tmp_path / "run", references=0, attacked=0).facts
    assert asked == [rounds]
    assert facts["bounds"]["sample"]["view"] == "upload"


@pytest.mark.slow
@pytest.mark.parametrize("level", ["client", "sample"])
def test_a_private_run_is_audited(tmp_path, level):
    pytest.importorskip("dp_accounting")
    more = {"epsilon": 8.0, "privacy": level, "participation": 0.5}
    cgpfl.run("fedavg", tiny(clients=6), "mlr", rounds=4, out=tmp_path / "run", progress=False, **more)
    facts = cgpfl.audit(tmp_path / "run", references=0, attacked=1).facts
    spent = json.loads((tmp_path / "run" / "summary.json").read_text())["methods"]["fedavg"]["privacy"]
    assert facts["privacy"]["level"] == level
    assert facts["privacy"]["epsilon"] == spent["epsilon"] == pytest.approx(8.0, rel=0.02)
    assert set(facts["bounds"]) == ({"sample", "client"} if level == "client" else {"sample"})
    assert all(bound["epsilon"] <= 8.0 for bound in facts["bounds"].values())
    assert facts["reconstruction"]["clients"][0]["unexplained"] > 0.3


@pytest.mark.slow
def test_refused(tmp_path, audited):
    with pytest.raises(cgpfl.CgpflError, match="references = -1: must be a whole number >= 0"):
        cgpfl.audit(audited[0], references=-1)
    with pytest.raises(cgpfl.CgpflError, match="no such folder"):
        cgpfl.audit(tmp_path / "none")


def test_a_report_warns_of_small_clients():
    assert few_samples({"smallest_client": 8})[0].startswith("A client trains on 8 samples: ")
    assert few_samples({"smallest_client": 20}) == few_samples({}) == []
