"""A new client: contexts by loss, personal models by the method's own step. Parabolas first, then digits."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cgpfl import CGPFL, IFCA, MOCHA, FedAvg, FederatedData, FedPer, Local, PerFedAvg
from cgpfl.algorithms import METHODS, get_method
from cgpfl.algorithms.ifca import Server as IFCAServer
from cgpfl.data import load, load_local, make_data
from cgpfl.data.splits import sample
from cgpfl.engine.problem import client_keys, keys_of, make_task, on_device, round_keys
from cgpfl.errors import CgpflError
from cgpfl.experiment import run as run_method
from cgpfl.experiment.reload import Published, choose, load_published, published
from cgpfl.files import SUMS
from cgpfl.inference import personalize
from cgpfl.inference.candidates import candidates
from cgpfl.inference.new_client import published_of
from cgpfl.models import DNN
from helpers import points, quadratic


def at(*values):
    """Stacked one-dimensional models."""
    return {"w": jnp.asarray(values, jnp.float32)[:, None]}


def parabolas(method, clients, change):
    """A method on parabolas, its server as ``change`` makes it of the first state."""
    data = points(np.zeros((clients, 1)))
    task = make_task(quadratic(data), keys_of(0), clients)
    server = change(method.init_server(task, jax.random.key(0)))
    return Published(getattr(method, "name", "own"), method, task, server, 0, 7, data.summary())


def newcomer(x):
    return points([[x]])


def personalized(monkeypatch, known, x, **more):
    monkeypatch.setattr("cgpfl.inference.new_client.published_of", lambda run, method: known)
    return personalize("anything", newcomer(x), **more)


def test_the_nearest_context_and_the_pull_towards_it(monkeypatch):
    """f(w) = ½(w − 9)²; contexts at 0 and 10. θ* minimises ½(θ − 9)² + ½·λ(θ − 10)², λ = 3: θ* = 9.75."""
    method = CGPFL(contexts=(0, 1, 0), prox=3.0, context_rate=0.0, personal_rate=0.1)
    known = parabolas(method, 3, lambda s: dataclasses.replace(s, models=at(0.0, 10.0)))
    found = personalized(monkeypatch, known, 9.0)
    assert (found.contexts, found.members, found.context) == ([0, 1], [2, 1], 1)
    np.testing.assert_allclose(found.losses, [40.5, 0.5])
    np.testing.assert_allclose(found.model.params["w"], [9.75], atol=1e-5)
    assert found.score.loss == pytest.approx(0.5 * 0.75**2, abs=1e-5)
    assert found.shared.loss == pytest.approx(0.5)


def test_few_steps_are_few_steps(monkeypatch):
    """One round: θ from 0, R·S = 2 steps of θ ← θ − ¼((θ − 8) + (θ − 4)), so 3 and then 4.5."""
    settings = {"prox": 1.0, "context_rate": 0.0, "personal_rate": 0.25, "local_rounds": 1, "inner_steps": 2}
    known = parabolas(CGPFL(contexts=(0,), **settings), 1, lambda s: dataclasses.replace(s, models=at(4.0)))
    assert personalized(monkeypatch, known, 8.0, steps=1).model.params["w"] == pytest.approx(4.5)
    assert personalized(monkeypatch, known, 8.0, steps=2).model.params["w"] == pytest.approx(5.625)
    with pytest.raises(CgpflError, match="steps = 0: must be at least 1"):
        personalized(monkeypatch, known, 8.0, steps=0)


def test_a_context_without_clients_is_not_offered():
    method = CGPFL(contexts=3)
    known = parabolas(
        method,
        4,
        lambda s: dataclasses.replace(s, models=at(1.0, 2.0, 3.0), assignment=jnp.array([2, 0, 0, 2]), k=jnp.int32(3)),
    )
    there = candidates(known)
    assert (there.contexts, there.members) == ([0, 2], [2, 2])
    np.testing.assert_array_equal(there.models["w"][:, 0], [1.0, 3.0])


def test_slots_that_are_not_in_use_are_not_offered():
    """CGPFL-Heur has room for N/2 contexts; k of them count."""
    known = parabolas(
        CGPFL(contexts="auto"),
        8,
        lambda s: dataclasses.replace(s, models=at(5.0, 6.0, 7.0, 8.0), assignment=jnp.arange(8) % 2, k=jnp.int32(2)),
    )
    assert candidates(known).contexts == [0, 1]


def test_models_that_a_client_chooses_from_are_all_offered(monkeypatch):
    """IFCA sends all models; the best one here has no clients."""
    known = parabolas(IFCA(contexts=3), 2, lambda s: IFCAServer(at(0.0, 5.0, 20.0), jnp.array([0, 2])))
    found = personalized(monkeypatch, known, 6.0)
    assert (found.contexts, found.members, found.context) == ([0, 1, 2], [1, 0, 1], 1)
    np.testing.assert_allclose(found.losses, [18.0, 0.5, 98.0])
    np.testing.assert_allclose(found.model.params["w"], [5.0])  # the model itself: IFCA's personal model


def test_one_model_for_all(monkeypatch):
    known = parabolas(FedAvg(), 2, lambda s: {"w": jnp.float32([3.0])})
    found = personalized(monkeypatch, known, 5.0)
    assert (found.contexts, found.context, found.losses) == ([], None, [2.0])
    np.testing.assert_allclose(found.model.params["w"], [3.0])
    stepped = parabolas(PerFedAvg(adapt_rate=0.25), 2, lambda s: {"w": jnp.float32([3.0])})
    np.testing.assert_allclose(personalized(monkeypatch, stepped, 5.0).model.params["w"], [3.5])  # 3 − ¼(3 − 5)


def test_methods_with_nothing_for_a_stranger(monkeypatch):
    with pytest.raises(CgpflError, match="local: its server sends nothing"):
        personalized(monkeypatch, parabolas(Local(), 2, lambda s: s), 1.0)

    def apart(server):
        return server._replace(models=at(1.0, 2.0, 4.0))

    with pytest.raises(CgpflError, match="mocha: its server's messages are made for each client"):
        personalized(monkeypatch, parabolas(MOCHA(relation="mean"), 3, apart), 1.0)


def test_a_method_without_hooks(monkeypatch):
    """The contract is enough: a class of one's own need not have ``choices``."""

    class Bare:
        """Everybody uses the server's model."""

        init_server = staticmethod(lambda task, key: task.initial)
        init_client = staticmethod(lambda task, key: ())
        send = staticmethod(lambda server, client_id: server)
        personal = staticmethod(lambda task, message, client, data, key: message)
        shared = staticmethod(lambda message: message)
        report = staticmethod(lambda server: {})

    jax.tree_util.register_static(Bare)
    known = parabolas(Bare(), 2, lambda s: {"w": jnp.float32([2.0])})
    assert personalized(monkeypatch, known, 4.0).losses == [2.0]


# Digits


@pytest.mark.parametrize("k", [0, 1])
def test_unseen_samples_find_their_context(run, stranger, k):
    folder, results = run
    assert results["cgpfl"].contexts.ari == 1.0
    of_truth = results["cgpfl"].contexts.assignment[results["cgpfl"].data.context == k]
    for label in ("cgpfl", "ifca"):
        found = personalize(folder, stranger(k), method=label)
        mine, other = found.losses[found.context], found.losses[1 - found.context]
        assert mine < 0.7 * other
        if label == "cgpfl":
            assert found.context == of_truth[0]
            assert found.score.accuracy >= 0.7  # of 15: the federation's clients have about 0.85


def test_from_the_folder_as_from_the_result(run, stranger):
    folder, results = run
    a = personalize(folder, stranger(0), method="cgpfl")
    b = personalize(results["cgpfl"], stranger(0))
    assert a.losses == b.losses
    jax.tree.map(np.testing.assert_array_equal, a.model.params, b.model.params)
    best = max(results, key=lambda label: results[label].accuracy)
    assert personalize(folder, stranger(0)).published.label == best != "local"
    with pytest.raises(CgpflError, match="method 'ifca': this result is of cgpfl"):
        personalize(results["cgpfl"], stranger(0), method="ifca")


def test_the_personal_model_is_that_of_the_client_step(run, stranger):
    """Against a plain loop over the method's own functions, on samples that are not padded."""
    folder, _ = run
    known = load_published(folder, "cgpfl")
    data = load_local(stranger(1), known.form)
    arrays, keys, method, task = on_device(data), keys_of(known.seed), known.method, known.task
    view = arrays.view(arrays.train.rows[0], arrays.train.counts[0])
    assert view.rows.shape == (45,)
    found = personalize(folder, stranger(1), method="cgpfl", steps=3)
    member = int(np.flatnonzero(np.asarray(known.server.assignment) == found.context)[0])
    message, client = method.send(known.server, member), task.initial
    for t in range(3):
        own = client_keys(round_keys(keys, 40 + t), 8)
        client = method.train(task, message, client, view, own.train)[1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found.model.params, client)


def test_samples_held_out_are_not_used(run, stranger, tmp_path):
    folder, _ = run
    with np.load(stranger(0)) as file:
        x, y = file["x"], file["y"]
    both = []
    for name, held in (("a", y[45:]), ("b", (y[45:] + 1) % 10)):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "train.npz", x=x[:45], y=y[:45])
        np.savez(tmp_path / name / "test.npz", x=x[45:], y=held)
        both.append(personalize(folder, tmp_path / name, method="cgpfl"))
    jax.tree.map(np.testing.assert_array_equal, both[0].model.params, both[1].model.params)
    assert both[0].losses == both[1].losses
    assert both[0].score.accuracy > both[1].score.accuracy


def test_data_of_another_form_is_refused(run, digits):
    folder, _ = run
    with pytest.raises(CgpflError, match="data: has 8 clients; a new client is one"):
        personalize(folder, digits)
    one = FederatedData.from_clients([(digits.x[:9], digits.y[:9])], classes=10)
    with pytest.raises(CgpflError, match=r"data: scale, shift = 1.0, 0.0; the run has 0\.166"):
        personalize(folder, one)


def test_a_body_is_given_a_head():
    """FedPer publishes no model: the new client trains a head on the body it is sent."""
    data = make_data("digits", "labels", clients=4, contexts=2, share=0.3, seed=0)
    result = run_method(FedPer(), data, DNN(data.shape, 10, hidden=8), rounds=10, eval_every=10)
    rows = data.train.parts()[0]
    one = FederatedData.from_clients([(data.x[rows], data.y[rows])], classes=10, scale=data.scale, shift=data.shift)
    found = personalize(result, one, steps=10)
    assert (found.losses, found.shared) == ([], None)
    body, member = found.model.params["hidden"], result.personal_model(0).params
    jax.tree.map(np.testing.assert_array_equal, body, member["hidden"])
    assert not np.allclose(found.model.params["output"]["weight"], member["output"]["weight"])
    assert found.score.accuracy > 0.3  # labels of the context renamed: chance is 0.1


OF_EACH_KIND = ("cgpfl", "fedavg", "fedper", "ifca", "local")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in OF_EACH_KIND else pytest.mark.long) for n in METHODS]
)
def test_every_method_or_a_reason(name, digits):
    public = make_data("digits", "rotation", clients=8, contexts=2, public=0.1, seed=0)
    method = get_method(name)
    data = public if method.needs_public else digits
    result = run_method(method, data, rounds=30, eval_every=30)
    rows = data.train.parts()[0]
    one = FederatedData.from_clients([(data.x[rows], data.y[rows])], classes=10, scale=data.scale, shift=data.shift)
    if name in ("local", "dapper", "mocha", "fedper"):  # a model of one layer has no body to publish
        with pytest.raises(CgpflError, match=f"{name}: its server"):
            personalize(result, one)
        return
    found = personalize(result, one)
    assert found.score.accuracy > 0.5
    assert published(result).label == found.published.label


@pytest.mark.slow
def test_new_clients_do_as_well_as_the_federation():
    """Digits in four rotations; new clients with samples nobody there has seen, the rest of them to test on."""
    source = load("digits")
    unseen = np.setdiff1d(np.arange(len(source.y)), sample(source.y, 0.8, 0))
    federation = make_data("digits", "rotation", clients=40, contexts=4, share=0.8, seed=0)
    result = run_method(CGPFL(contexts="auto"), federation, rounds=200, eval_every=200)
    assert result.contexts.ari == 1.0
    found, alone = [], []
    for s in range(12):
        rows = np.random.default_rng(s).permutation(unseen)
        pairs = [(np.rot90(source.x[part], s % 4, axes=(1, 2)), source.y[part]) for part in (rows[:27], rows[27:])]
        client = FederatedData.from_clients(
            pairs[:1], pairs[1:], classes=10, scale=federation.scale, shift=federation.shift
        )
        new = personalize(result, client)
        assert new.context == result.contexts.assignment[federation.context == s % 4][0]
        found.append(new.score.accuracy)
        alone.append(run_method("local", client, rounds=200, eval_every=200).accuracy)
    assert np.mean(found) > result.accuracy - 0.03
    assert np.mean(found) > np.mean(alone) + 0.15


def test_the_best_of_those_with_something_for_a_stranger(run, stranger, tmp_path):
    """A run whose most accurate method is local training."""
    folder = shutil.copytree(run[0], tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    for label, value in {"local": 0.9, "fedavg": 0.2, "ifca": 0.8, "cgpfl": 0.7}.items():
        summary["methods"][label]["accuracy"]["pooled"] = value
    (folder / SUMS).unlink(missing_ok=True)  # changed on purpose
    (folder / "summary.json").write_text(json.dumps(summary))
    assert choose(folder, None) == "local"
    assert published_of(folder, None).label == "ifca"
    for label in ("ifca", "cgpfl", "fedavg"):
        (folder / "methods" / label / "state.safetensors").unlink()
    with pytest.raises(CgpflError, match="local: its server sends nothing"):
        personalize(folder, stranger(0))
