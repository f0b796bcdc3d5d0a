"""Privacy around methods: what is clipped and noised, and what is left alone because it never leaves."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import IFCA, SCAFFOLD, ClientData, Cohort, Ditto, FedAvg, FedProx, Local, Seamed, Task
from cgpfl.algorithms.parts import Parts
from cgpfl.algorithms.private import NoisyTask, PoissonData, noisy
from cgpfl.attacks import ATTACKS
from cgpfl.batch import Batch
from cgpfl.engine import Settings
from cgpfl.engine.privacy import most_often, protected, says_its_own
from cgpfl.engine.simulation import check_start
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm
from cgpfl.rounds import ClientLevel, Median, Quantise, RoundRobin, SampleLevel, Uniform
from cgpfl.rounds.account import Steps
from cgpfl.rounds.outgoing import norm
from cgpfl.rounds.privacy import clipped_sum
from helpers import points, quadratic

CENTRES = points([[3.0, 4.0], [0.0, 0.5]], samples=1)
MODEL = quadratic(CENTRES)
KEY = jax.random.key(7)


def task_of(model=MODEL, clients=2):
    return Task(initial=model.init(KEY), model=model, clients=clients)


def samples(rows, places=None, kind=ClientData):
    """A client with these samples ``[n, d]``, its table padded to ``places``."""
    x = jnp.asarray(rows, jnp.float32)
    table = jnp.pad(jnp.arange(len(rows)), (0, (places or len(rows)) - len(rows)))
    one = jnp.float32(1)
    return kind(x, jnp.zeros(len(rows), jnp.int32), table, jnp.int32(len(rows)), one, 0 * one)


def test_each_sample_is_clipped_by_itself_over_all_leaves():
    gradients = {"a": jnp.array([[3.0], [0.3], [9.0]]), "b": jnp.array([[4.0], [0.4], [9.0]])}
    found = clipped_sum(gradients, jnp.array([1.0, 1.0, 0.0]), 1.0)
    assert float(found["a"][0]) == pytest.approx(0.6 + 0.3)  # (3, 4) has length 5, (0.3, 0.4) a half; 9 is padding
    assert float(found["b"][0]) == pytest.approx(0.8 + 0.4)


def test_what_is_not_finite_leaves_as_nothing():
    gradients = {"a": jnp.array([[3.0], [jnp.nan], [0.5]]), "b": jnp.array([[4.0], [0.4], [jnp.inf]])}
    found = clipped_sum(gradients, jnp.ones(3), 1.0)
    assert (float(found["a"][0]), float(found["b"][0])) == (pytest.approx(0.6), pytest.approx(0.8))
    level = ClientLevel(clip=1.0, noise=0.0)
    sent = level.change([jnp.array([jnp.inf, 1.0]), jnp.ones(2)], KEY)
    assert [v.tolist() for v in sent] == [[0, 0], [0, 0]]
    assert float(norm(level.change([jnp.full(2, 1e30)], KEY))) <= 1.0


def test_a_gradient_without_noise_is_the_mean_of_clipped_ones():
    task, data = noisy(task_of(), samples([[3.0, 4.0], [0.0, 0.5]]), 1.0, jnp.float32(0))
    batch = data.batch(KEY, 0)
    grad = jax.jit(lambda batch: [t.grad({"w": jnp.zeros(2)}, batch)["w"] for t in (task, task.own)])
    found, own = grad(batch)  # −x of each: (−0.6, −0.8) and (0, −0.5)
    np.testing.assert_allclose(found, [-0.3, -0.65], rtol=1e-6)
    np.testing.assert_allclose(own, [-1.5, -2.25], rtol=1e-6)
    assert type(task.own) is Task
    with pytest.raises(CgpflError, match="gradients of other functions than the loss"):
        task.gradient(lambda p: p["w"].sum(), {"w": jnp.zeros(2)})


def test_noise_is_a_multiple_of_the_clip_and_new_in_each_step():
    nothing = Batch(jnp.zeros((4, 1000)), jnp.zeros(4, jnp.int32), jnp.zeros(4), KEY, jnp.float32(4))
    task = NoisyTask(task_of().initial, quadratic(points(np.zeros((2, 1000)))), 2, clip=2.0, noise=3.0)
    grad = jax.jit(lambda at, batch: task.grad({"w": at}, batch)["w"])
    zeros = {"w": jnp.zeros(1000)}
    one = grad(zeros["w"], nothing)
    assert float(one.std()) == pytest.approx(3 * 2 / 4, rel=0.1)
    # θ moves by the sum of the noises: of two independent ones √2 times that of one, of two equal ones twice
    two = jax.jit(lambda at: task.proximal_steps(at, at, nothing, 0.0, 1.0, 2)["w"])(zeros)
    assert float(two.std()) == pytest.approx(np.sqrt(2) * 3 * 2 / 4, rel=0.1)
    other = grad(zeros["w"], nothing._replace(key=jax.random.key(8)))
    assert abs(float(np.corrcoef(one, other)[0, 1])) < 0.1
    # on the same minibatch, elsewhere: the loss of nothing is flat, so both gradients are noise alone, in a loop, too
    moved = {"w": jnp.full(1000, 1e-3)}
    assert abs(float(np.corrcoef(one, grad(moved["w"], nothing))[0, 1])) < 0.1
    both = jax.jit(jax.vmap(grad, (0, None)))(np.stack([zeros["w"], moved["w"]]), nothing)
    assert abs(float(np.corrcoef(*both)[0, 1])) < 0.1
    np.testing.assert_array_equal(grad(zeros["w"], nothing), one)  # the same again tells nothing new


def test_minibatches_are_poisson_samples_whatever_the_padding():
    rows = np.arange(50.0)[:, None]
    keys = jax.random.split(KEY, 400)
    one = samples(rows, kind=PoissonData)
    at, weight = jax.jit(jax.vmap(lambda k: one.poisson(k, 10)))(keys)
    sizes = weight.sum(axis=1)
    assert float(sizes.mean()) == pytest.approx(10, abs=0.5)
    assert float(sizes.var()) == pytest.approx(50 * 0.2 * 0.8, rel=0.25)  # of a fixed size it would be 0
    seen = np.bincount(np.asarray(at).ravel(), np.asarray(weight).ravel(), 50) / 400
    np.testing.assert_allclose(seen, 0.2, atol=0.08)
    padded = samples(rows, 90, kind=PoissonData)
    there, heavy = jax.jit(lambda k: padded.poisson(k, 10))(keys[0])
    chosen = set(np.asarray(at[0])[np.asarray(weight[0]) > 0].tolist())
    assert chosen == set(np.asarray(there)[np.asarray(heavy) > 0].tolist())
    assert float(one.poisson(KEY, 80)[1].sum()) == 50  # more than there are: all


def test_steps_are_as_long_on_a_fold_as_on_all():
    """Thirty samples at 0.4 in minibatches of 20: of all 20 are expected, of a fold its ten; the mean is −0.4."""
    task, data = noisy(task_of(), samples(np.full((30, 2), 0.4)), 1.0, jnp.float32(0))
    fold = data.fold(jnp.int32(0), 3, jnp.uint32(1))
    assert [float(data.batch(KEY, b).expected) for b in (0, 20, 40)] == [30, 20, 30]
    assert [float(fold.batch(KEY, b).expected) for b in (0, 5, 20)] == [10, 5, 10]
    found = jax.jit(lambda batch: task.grad({"w": jnp.zeros(2)}, batch)["w"])(fold.batch(KEY, 20))
    np.testing.assert_allclose(found, [-0.4, -0.4], rtol=1e-6)


def test_noise_of_another_method_setting_or_bound_is_another():
    """Samples at 0 move nothing, so uploads are noise alone: of what differs in anything it is independent."""
    task, data = task_of(quadratic(points(np.zeros((2, 4000))))), samples(np.zeros((1, 4000)))
    level = ClientLevel(clip=1.0, noise=3.0, times=4)
    sample = SampleLevel(noises=(3.0,), steps=(Steps(4, 1, 1, 0),))
    one = FedAvg(local_rounds=1, batch_size=0)

    @jax.jit
    def train(method):
        return method.train(task, task.initial, (), data, KEY)

    def sent(method, privacy, **rules):
        upload, _ = train(Seamed(method, privacy=privacy, **rules))
        return np.asarray(upload["w"]) / float(np.asarray(upload["w"]).std())

    def alike(a, b):
        return abs(float(np.corrcoef(a, b)[0, 1])) > 0.1

    for kind, larger in ((level, 6.0), (sample, (6.0,))):
        name = "noise" if kind is level else "noises"
        found = [
            sent(one, kind),
            sent(FedProx(local_rounds=1, batch_size=0), kind),
            sent(dataclasses.replace(one, rate=0.02), kind),
            sent(one, dataclasses.replace(kind, clip=0.5)),
            sent(one, dataclasses.replace(kind, **{name: larger})),
            sent(one, kind, mean=Median()),
        ]
        assert not any(alike(a, b) for i, a in enumerate(found) for b in found[:i])
        np.testing.assert_array_equal(found[0], sent(one, kind))  # the same again is the same upload
    shared = [sent(one, dataclasses.replace(level, together=k)) for k in (1, 9)]
    assert not alike(*shared)


def test_a_program_draws_as_its_method_does():
    """Settings are numbers of a program: the same noise, whether it is compiled or not."""
    task, data = task_of(), samples([[3.0, 4.0]])
    method = Seamed(FedAvg(local_rounds=1), privacy=ClientLevel(noise=5.0))
    one, _ = method.train(task, task.initial, (), data, KEY)
    two, _ = jax.jit(lambda m: m.train(task, task.initial, (), data, KEY))(method)
    np.testing.assert_allclose(one["w"], two["w"], rtol=1e-5)


def test_the_clip_is_over_all_that_is_uploaded():
    method = Seamed(SCAFFOLD(local_rounds=2), privacy=ClientLevel(clip=0.1, noise=0.0))
    task = task_of()
    message = method.send(method.init_server(task, KEY), jnp.int32(0))
    upload, _ = method.train(task, message, method.init_client(task, KEY), samples([[3.0, 4.0]]), KEY)
    assert float(norm(upload)) == pytest.approx(0.1, rel=1e-5)
    assert float(norm(upload.control)) > 0


def test_noise_has_its_size_and_shares_of_it_add_up():
    model = quadratic(points(np.zeros((2, 4000))))
    task, data = task_of(model), samples(np.zeros((1, 4000)))
    for together, expected in ((1, 6.0), (9, 2.0)):
        method = Seamed(FedAvg(local_rounds=1), privacy=ClientLevel(clip=2.0, noise=3.0, together=together))
        upload, _ = method.train(task, task.initial, (), data, KEY)
        assert float(upload["w"].std()) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("level", [ClientLevel(noise=5.0), SampleLevel(noises=(5.0,), steps=(Steps(1, 10, 1, 0),))])
def test_a_personal_model_has_no_noise(level):
    """Ditto's model of its own is what it is without privacy, given the same message, to the last bit."""
    task, data = task_of(), samples([[3.0, 4.0], [1.0, 0.0]])
    plain = Ditto(batch_size=0)
    upload, own = plain.train(task, task.initial, task.initial, data, KEY)
    noised, private = Seamed(plain, privacy=level).train(task, task.initial, task.initial, data, KEY)
    np.testing.assert_array_equal(private["w"], own["w"])
    assert float(jnp.abs(noised["w"] - upload["w"]).min()) > 0


def test_what_sends_nothing_needs_no_noise():
    task, data = task_of(), samples([[3.0, 4.0], [1.0, 0.0]])
    alone = Local(batch_size=1)
    _, own = alone.train(task, (), task.initial, data, KEY)
    for level in (ClientLevel(noise=5.0), SampleLevel(steps=alone.noisy_steps(10))):
        _, private = Seamed(alone, privacy=level).train(task, (), task.initial, data, KEY)
        np.testing.assert_array_equal(private["w"], own["w"])


def test_everybody_weighs_alike():
    """How many samples a client has moves nothing: 90 to 10, and the mean is in the middle."""
    uploads, cohort = {"w": jnp.array([[0.0], [8.0]])}, Cohort(jnp.arange(2), jnp.array([90, 10]))
    start = {"w": jnp.zeros(1)}
    assert float(FedAvg().aggregate(start, uploads, cohort, KEY)["w"][0]) == pytest.approx(0.8)
    private = Seamed(FedAvg(), privacy=ClientLevel())
    assert float(private.aggregate(start, uploads, cohort, KEY)["w"][0]) == pytest.approx(4.0)
    silent = dataclasses.replace(cohort, weights=jnp.array([90, 0]))
    assert float(private.aggregate(start, uploads, silent, KEY)["w"][0]) == 0.0


def test_infinite_epsilon_is_the_plain_method():
    method, settings = FedAvg(), Settings(epsilon=float("inf"), delta=1e-3, privacy="sample", clip=0.1)
    assert protected(method, settings, {0: CENTRES}) is method
    assert settings.engine() == Settings().engine() | {"delta": 1e-3, "privacy": "sample", "clip": 0.1}


def test_what_no_noise_covers_is_refused():
    with pytest.raises(CgpflError, match="ifca: privacy: its uploads say more than updates"):
        check_start([Seamed(IFCA(contexts=2), privacy=ClientLevel())], CENTRES, MODEL)
    few = Settings(epsilon=1.0, rounds=3)
    for settings, why in (
        (dataclasses.replace(few, sampler=cgpfl.rounds.ByLoss()), "sampler = by-loss: looks at counts or losses"),
        (dataclasses.replace(few, trusted="server"), "fl-hc: trusted = server: it looks at single uploads"),
        (dataclasses.replace(few, privacy="sample"), "per-fedavg: privacy = sample: its uploads are made of more"),
    ):
        name = "per-fedavg" if settings.privacy == "sample" else "fl-hc"
        with pytest.raises(CgpflError, match=why):
            protected(cgpfl.algorithms.get_method(name), settings, {0: CENTRES})


def test_noise_of_others_counts_only_where_it_stays(monkeypatch):
    monkeypatch.setattr("cgpfl.engine.privacy.noise_of_uploads", lambda *asked: 4.0)
    few = Settings(epsilon=1.0, rounds=3, trusted="server")
    four = points(np.zeros((4, 2)))
    assert protected(FedAvg(), few, {0: four}).privacy.together == 3  # each of the others can take its own away
    assert protected(FedAvg(), few, {0: points(np.zeros((1, 2)))}).privacy.together == 1
    for method, why in (
        (Seamed(FedAvg(), outgoing=(Quantise(),)), "noise adds up in sums of plain uploads alone"),
        (Seamed(FedAvg(), attack=ATTACKS["noise"]), "liars add none"),
        (Seamed(FedAvg(), sampler=cgpfl.rounds.ByLoss()), "sampler = by-loss: looks at counts or losses"),
    ):
        with pytest.raises(CgpflError, match=why):
            protected(method, few, {0: four})


def test_lies_that_are_trained_on_do_not_get_lost():
    method = Seamed(FedAvg(), attack=ATTACKS["label-flip"])
    with pytest.raises(CgpflError, match="no liars that train on lies"):
        protected(method, Settings(epsilon=1.0, rounds=3, privacy="sample"), {0: CENTRES})


class Other(FedAvg):
    """Another train, of which nothing is said."""

    def train(self, task, message, client, data, key):
        return message, ()


class Said(Other):
    noisy_steps = FedAvg.noisy_steps


@algorithm
class Talking(Local):
    """Sends what its steps say stays."""

    def train(self, task, message, client, data, key):
        return super().train(task, message, client, data, key)[1], client

    def anchor(self, message, upload):
        return upload


def test_a_train_of_ones_own_says_what_it_takes():
    for name in (
        "fedavg",
        "fedprox",
        "fedadam",
        "cfl",
        "cgpfl-heur",
        "ditto",
        "scaffold",
        "pfedme",
        "cgpfl",
        "cgpfl-auto",
    ):
        assert says_its_own(cgpfl.algorithms.get_method(name)), name
    assert says_its_own(Parts(FedAvg()))
    assert says_its_own(Said())
    assert not says_its_own(Other())
    assert not says_its_own(Parts(Other()))
    with pytest.raises(CgpflError, match="has a train of its own"):
        protected(Other(), Settings(epsilon=1.0, rounds=3, privacy="sample"), {0: CENTRES})
    with pytest.raises(CgpflError, match="say that nothing leaves, and it sends something"):
        check_start([Seamed(Talking(), privacy=ClientLevel())], CENTRES, MODEL)


def test_the_most_often_asked():
    assert most_often(RoundRobin(), 0, 10, 4, 0.5) == 5
    assert most_often(Uniform(), 0, 10, 4, 1.0) == 10
    assert 5 <= most_often(Uniform(), 0, 10, 4, 0.5) <= 10


def test_a_run_says_what_it_spent():
    pytest.importorskip("dp_accounting")
    data = points([[0.0, 1.0], [2.0, 1.0], [3.0, 1.0]], samples=9)
    result = cgpfl.run("fedavg", data, quadratic(data), rounds=4, progress=False, epsilon=8.0, privacy="sample")
    spent = result.summary()["privacy"]
    assert max(spent["clients"]) == pytest.approx(spent["epsilon"], abs=1e-4)
    assert 7.9 < spent["epsilon"] <= 8.0
    assert len(spent["clients"]) == 3
    with_clients = cgpfl.run("fedavg", data, quadratic(data), rounds=4, progress=False, epsilon=8.0, clip=0.5)
    spent = with_clients.summary()["privacy"]
    assert (spent["uploads"], spent["clip"], spent["parts"]) == (4, 0.5, {"uploads": pytest.approx(8.0, rel=1e-3)})
    assert with_clients.summary()["notes"][0].startswith("privacy of clients against the server: ε = 8 at δ = 1e-05")
