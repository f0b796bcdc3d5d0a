"""Attacks: by hand on small numbers, the same in every engine, and only honest clients are measured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import IFCA, MOCHA, Cohort, FedAvg, Local, Seamed, algorithm
from cgpfl.attacks import (
    ALIE,
    ATTACKS,
    Backdoor,
    Counts,
    ForgedContext,
    InnerProduct,
    LabelFlip,
    Lying,
    Noisy,
    Scaling,
    Seen,
    SignFlip,
)
from cgpfl.batch import Batch
from cgpfl.deploy.agreement import Deployment, check_fits
from cgpfl.engine.drive import Drive
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.simulation import Simulation, check_start, simulate
from cgpfl.engine.stream import Streamed
from cgpfl.engine.together import Run, simulate_together
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import from_dict
from cgpfl.rounds import AutoMean, Bucketing, Median, TrimmedMean
from cgpfl.tree import named, unnamed
from helpers import points, quadratic

KEY = jax.random.key(0)
UPDATES = [jnp.array([[1.0, 0.0], [3.0, 0.0], [2.0, 6.0], [9.0, 9.0]])]
SEEN = Seen(lies=jnp.array([0.0, 0, 1, 0]), honest=jnp.array([1.0, 1, 0, 0]))  # the last did not answer


def sent(attack):
    return np.asarray(attack.forge(UPDATES, SEEN, KEY)[0][2])


def test_lies_by_hand():
    np.testing.assert_allclose(sent(SignFlip(factor=10.0)), [-20.0, -60.0])
    np.testing.assert_allclose(sent(Scaling(factor=2.0)), [4.0, 12.0])
    np.testing.assert_allclose(sent(InnerProduct(factor=2.0)), [-4.0, 0.0])  # the honest mean is (2, 0)
    np.testing.assert_allclose(sent(ALIE(z=1.5)), [2 - 1.5, 0.0])  # deviation 1
    assert np.linalg.norm(sent(Noisy(factor=100.0))) == pytest.approx(100 * 40**0.5, rel=1)
    assert np.linalg.norm(sent(ForgedContext(factor=3.0))) == pytest.approx(3 * 2.0, rel=1e-5)
    np.testing.assert_allclose(Counts(factor=50.0).claims(jnp.array([3, 4])), [150, 200])


def test_a_little_is_enough_by_the_papers_table():
    """50 workers, 24 of them corrupted: z = 1.5 in the authors' code for CIFAR; s = 26 − 24 = 2, Φ(z) = 24/26."""
    seen = Seen(lies=jnp.arange(50) < 24.0, honest=jnp.arange(50) >= 24.0)
    updates = [jnp.where(jnp.arange(50) % 2, 1.0, -1.0)[:, None]]  # mean 0, deviation 1
    found = ALIE().forge(updates, Seen(*(v.astype(jnp.float32) for v in seen)), KEY)[0][0, 0]
    assert float(found) == pytest.approx(-1.4261, abs=1e-3)  # Φ⁻¹(24/26)


def test_colluders_send_the_same():
    both = SEEN._replace(lies=jnp.array([0.0, 0, 1, 1]))
    one = SignFlip(factor=1.0, collude=True).forge(UPDATES, both, KEY)[0]
    np.testing.assert_allclose(one[2:], [[-5.5, -7.5]] * 2)


def test_so_many_lie_and_the_seed_says_who():
    assert SignFlip(share=0.3).liars(10, KEY).sum() == 3
    assert SignFlip(number=2).liars(10, KEY).sum() == 2
    who = {tuple(np.flatnonzero(SignFlip(number=2).liars(10, jax.random.key(s)))) for s in range(5)}
    assert len(who) > 1


def test_poisoned_samples_by_hand():
    batch = Batch(jnp.zeros((4, 5, 5)), jnp.array([0, 1, 2, 3]), jnp.ones(4))
    np.testing.assert_array_equal(LabelFlip().poison(batch, 10).y, [9, 8, 7, 6])
    taught = Backdoor(target=2, width=2, value=7.0, taught=0.5).poison(batch, 10)
    np.testing.assert_array_equal(taught.y, [0, 2, 2, 2])
    np.testing.assert_array_equal(taught.x.sum(axis=(1, 2)), [0, 28, 0, 28])
    assert float(taught.x[1, 1, 1]) == 7.0
    shown = Backdoor(target=2).triggered(batch)
    np.testing.assert_array_equal(shown.weight, [1, 1, 0, 1])


DATA = points([[0.0, 0.0], [8.0, 4.0], [2.0, 2.0], [6.0, 5.0]])
MODEL = quadratic(DATA)


def test_one_lie_in_a_round():
    method = Seamed(FedAvg(rate=0.5, local_rounds=1, batch_size=0), attack=SignFlip(number=1, factor=1.0))
    state, records, _ = simulate(method, DATA, MODEL, rounds=1)
    who = int(np.flatnonzero(state.server.liars)[0])
    updates = 0.5 * np.array([[0.0, 0.0], [8.0, 4.0], [2.0, 2.0], [6.0, 5.0]])
    updates[who] *= -1
    np.testing.assert_allclose(state.server.server["w"], updates.mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(np.isnan(records["loss"][-1]), np.arange(4) == who)
    np.testing.assert_array_equal(records["liar"][-1], np.arange(4) == who)


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "method",
    [
        Seamed(FedAvg(local_rounds=2, batch_size=0), attack=Noisy(share=0.3), mean=Bucketing(inner=Median())),
        pytest.param(
            Seamed(FedAvg(local_rounds=2, batch_size=0), attack=SignFlip(share=0.3, factor=1.0), mean=AutoMean()),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Seamed(IFCA(contexts=2, local_rounds=2), attack=ALIE(share=0.3, z=1.0), mean=AutoMean()),
            marks=pytest.mark.slow,
        ),
        pytest.param(Seamed(FedAvg(local_rounds=2, batch_size=0), attack=LabelFlip(share=0.3)), marks=pytest.mark.slow),
    ],
    ids=["noise", "remembered", "alie", "label-flip"],
)
def test_the_same_lies_in_every_engine(method):
    settings = {"rounds": 3, "seed": 3, "participation": 0.75, "eval_every": 3}
    state, records, _ = simulate(method, DATA, MODEL, **settings)
    server, _, by_loop = simulate_loop(method, DATA, MODEL, **settings)
    same(state.server, server)
    np.testing.assert_allclose(records["loss"], by_loop["loss"], rtol=1e-4)
    streamed = Drive(Streamed(method, DATA, MODEL, **settings)).quick()
    same(state.server, streamed.state.server)
    seed = settings.pop("seed")
    runs = [Run(method, DATA, s) for s in (seed + 1, seed)]
    _, (found, measured, _) = simulate_together(runs, MODEL, **settings)
    same(state.server, found.server)
    np.testing.assert_allclose(records["loss"], measured["loss"], rtol=1e-4)


def test_what_a_mean_remembers_is_in_the_servers_state():
    """It is saved with it, and a run that goes on from there ends with the same bits."""
    near = points([[4.0, 4.0], [8.0, 4.0], [5.0, 3.0], [6.0, 5.0], [7.0, 6.0]])
    method = Seamed(
        FedAvg(rate=0.2, local_rounds=1, batch_size=0), attack=SignFlip(number=1, factor=1.0), mean=AutoMean()
    )
    simulation = Simulation(method, near, quadratic(near), rounds=6, eval_every=6)
    whole, _, _ = simulation.advance(simulation.start(), 0, 6)
    half, _, _ = simulation.advance(simulation.start(), 0, 3)
    saved = unnamed(named(half), simulation.shapes())
    resumed, _, _ = simulation.advance(saved, 3, 6)
    for a, b in zip(jax.tree.leaves(whole.server), jax.tree.leaves(resumed.server), strict=True):
        np.testing.assert_array_equal(a, b)
    lies = np.asarray(whole.server.liars)
    assert (np.asarray(whole.server.known)[:, 0, lies] < 0).all()
    assert (np.asarray(whole.server.known)[:, 0, ~lies] > 0).all()


def test_what_cannot_lie_is_refused_before_training():
    with pytest.raises(CgpflError, match="mocha: attack: its uploads are no updates"):
        check_start([Seamed(MOCHA(), attack=SignFlip())], DATA, MODEL)
    simulate(
        Seamed(Local(batch_size=0), attack=SignFlip()), DATA, MODEL, rounds=1
    )  # sends nothing: nothing to lie about


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"attack": "sign-flp"}, r"no attack 'sign-flp'; did you mean sign-flip"),
        ({"attack": {"name": "noise", "share": 2}}, r"share = 2.0: must be a number >= 0 and <= 1"),
    ],
)
def test_mistakes_are_one_line(values, why):
    with pytest.raises(CgpflError, match=why):
        from_dict(values, "c.toml")


def test_every_attack_has_words():
    for name, attack in ATTACKS.items():
        assert attack.name == name
        assert type(attack).__doc__


@pytest.mark.slow
def test_a_backdoor_is_measured_and_auto_stops_it():
    data = cgpfl.make_data("digits", "iid", clients=10, seed=1)
    found = {}
    for mean in ("weighted", "auto"):
        found[mean] = cgpfl.run("fedavg", data, rounds=10, mean=mean, attack={"name": "backdoor", "share": 0.2})
    fooled = {mean: r.metrics["backdoor"]["pooled"] for mean, r in found.items()}
    assert fooled["weighted"] > 0.5 > fooled["auto"] + 0.3
    assert np.isnan(found["auto"].records.values["correct"][-1]).sum() == 2
    assert found["auto"].summary()["metrics"]["backdoor"]["pooled"] == fooled["auto"]


def test_bytes_are_the_methods():
    plain = Simulation(FedAvg(), DATA, MODEL, rounds=1).traffic()
    assert Simulation(Seamed(FedAvg(), attack=SignFlip()), DATA, MODEL, rounds=1).traffic() == plain


def test_attacks_are_refused_in_deployments():
    with pytest.raises(CgpflError, match=r"x: attack = 'noise': is for simulations; nodes are real"):
        check_fits(from_dict({"attack": "noise"}, "c.toml"), Deployment(), "x")


@algorithm
class Nothing(Lying):
    """Liars send numbers that are none."""

    name = "nothing"

    def lie(self, updates, seen, key):
        return jax.tree.map(lambda v: jnp.nan * v, updates)


@pytest.mark.parametrize("mean", [Median(), Bucketing(size=1, inner=TrimmedMean(share=0.1))], ids=["median", "buckets"])
def test_an_upload_that_is_not_finite_counts_as_none(mean):
    """Not as one that has not moved: the others' mean is that of a round without it."""
    method = Seamed(FedAvg(rate=0.5, local_rounds=1, batch_size=0), attack=Nothing(number=1), mean=mean)
    near = [[4.0, 4.0], [8.0, 4.0], [5.0, 2.0], [6.0, 5.0]]  # nobody is far enough to be shortened
    state, _, _ = simulate(method, points(near), MODEL, rounds=1)
    honest = 0.5 * np.array(near)[~np.asarray(state.server.liars)]
    alone = Cohort(jnp.arange(3), jnp.ones(3), mean.drawn(KEY)).mean({"w": jnp.asarray(honest)}, {"w": jnp.zeros(2)})
    np.testing.assert_allclose(state.server.server["w"], alone["w"], rtol=1e-5)


def test_claims_are_counts():
    """Never 0, which would be an absent client, nor more than an int32; and who is absent stays so."""
    some = jnp.array([0, 3, 4_000])
    np.testing.assert_array_equal(Counts(factor=0.01).claims(some), [0, 1, 40])
    np.testing.assert_array_equal(Counts(factor=1e7).claims(some), [0, 30_000_000, 1_000_000_000])


@pytest.mark.parametrize(("values", "why"), [({"share": 0.9}, "share = 0.9"), ({"number": 7}, "number = 7")])
def test_somebody_must_be_honest(values, why):
    with pytest.raises(CgpflError, match=f"attack = 'noise': {why}: all 4 clients lie; somebody must be honest"):
        Seamed(FedAvg(), attack=Noisy(**values)).check(4, 40.0, 10)
    Seamed(FedAvg(), attack=Noisy(share=0.8)).check(4, 40.0, 10)  # three


def test_what_cannot_be_poisoned_is_refused():
    LabelFlip().fits("regression", 1)
    Backdoor(target=9).fits("classification", 10)
    with pytest.raises(CgpflError, match=r"'backdoor': target = 10: must be below 10"):
        Backdoor(target=10).fits("classification", 10)
    with pytest.raises(CgpflError, match=r"'backdoor': is for classification; the data's task is regression"):
        Backdoor().fits("regression", 1)
    with pytest.raises(CgpflError, match=r"'label-flip': is for classes and numbers; the data's task is multi-label"):
        LabelFlip().fits("multi-label", 5)
    with pytest.raises(CgpflError, match=r"target = 7: must be below"):
        check_start([Seamed(FedAvg(), attack=Backdoor(target=7))], DATA, MODEL)
    tokens = Batch(jnp.zeros((1, 3)), jnp.array([[0, 2, -1]]), jnp.ones(1))
    np.testing.assert_array_equal(LabelFlip().poison(tokens, 5).y, [[4, 2, -1]])  # what is no token stays none
