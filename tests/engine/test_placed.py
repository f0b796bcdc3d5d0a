"""Contexts under a trusted server: the same numbers in every engine, whoever is asked and answers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cgpfl
from cgpfl.algorithms import CGPFL, CGPFLAuto, Cohort, Seamed
from cgpfl.algorithms.placed import Placed
from cgpfl.algorithms.wrapper import unseamed
from cgpfl.attacks.kit import SignFlip
from cgpfl.engine import Settings, Simulation, Streamed
from cgpfl.engine.privacy import protected
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.together import Run, simulate_together
from cgpfl.errors import CgpflError
from cgpfl.experiment.run import fingerprint
from cgpfl.rounds import ClientLevel, Median
from cgpfl.tree import plain
from helpers import points, quadratic

TRUTH = np.array([0, 1, 0, 1, 1, 0, 0, 1, 0, 1])
DATA = points(np.where(TRUTH[:, None] == 0, [[3.0, 1.0, 0.0]], [[-3.0, 1.0, 0.5]]))
MODEL = quadratic(DATA)
LITTLE = ClientLevel(clip=0.5, noise=0.01, times=9, summed=True, placing=0.01)
METHODS = {
    "cgpfl": CGPFL(contexts=2, warmup=2, batch_size=0, local_rounds=2, inner_steps=2),
    "cgpfl-auto": CGPFLAuto(batch_size=0, local_rounds=1, inner_steps=1, effort=1),
}


def noisy(method, level=LITTLE):
    return Seamed(Placed(method, level.placing), privacy=level)


def close(a, b):
    for (path, one), (_, other) in zip(*map(jax.tree_util.tree_leaves_with_path, map(plain, (a, b))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("cgpfl", {"participation": 0.8, "dropout": 0.2}),
        pytest.param("cgpfl-auto", {}, marks=pytest.mark.slow),
    ],
)
def test_all_engines_agree(name, who):
    method, run = noisy(METHODS[name]), {"rounds": 8, "eval_every": 8, **who}
    simulation = Simulation(method, DATA, MODEL, **run)
    state, records, _ = simulation.advance(simulation.start(), 0, 8)
    context = records["context"][-1]
    assert (context == context[0]).tolist() == (TRUTH[0] == TRUTH).tolist()
    server, _, loop = simulate_loop(method, DATA, MODEL, **run)
    close(state.server, server)
    np.testing.assert_array_equal(loop["context"][-1], context)
    if name == "cgpfl-auto":  # which places by the same lines
        return
    streamed = Streamed(method, DATA, MODEL, **run)
    close(streamed.advance(streamed.start(), 0, 8)[0].server, server)
    first, other = simulate_together([Run(method, DATA, seed) for seed in (0, 1)], MODEL, **run)
    close(first[0].server, server)
    assert float(np.abs(np.asarray(first[0].server.server.models["w"] - other[0].server.server.models["w"])).max()) > 0


def test_clients_add_no_noise_and_the_server_does():
    task = cgpfl.algorithms.Task(MODEL.init(jax.random.key(0)), MODEL, 2)
    loud = noisy(METHODS["cgpfl"], dataclasses.replace(LITTLE, noise=100.0))
    aggregate = jax.jit(loud.aggregate)
    assert LITTLE.change([jnp.array([3.0, 4.0])], jax.random.key(0))[0].tolist() == pytest.approx([0.3, 0.4])
    server = loud.init_server(task, jax.random.key(1))
    still = {"w": jnp.zeros((2, 3))}
    new = aggregate(server, still, Cohort(jnp.arange(2), jnp.ones(2)), jax.random.key(2))
    moved = np.asarray(new.server.models["w"])
    assert np.abs(moved[0]).max() > 1  # 100 × 0.5 over two clients
    assert (moved[1] == 0).all()  # nobody is there yet, as all know
    again = aggregate(server, still, Cohort(jnp.arange(2), jnp.ones(2)), jax.random.key(3))
    assert (np.asarray(again.server.models["w"])[0] != moved[0]).all()


def test_models_that_are_noise_pull_nobody():
    method, n = METHODS["cgpfl-auto"], 6
    server = method.init_server(cgpfl.algorithms.Task(MODEL.init(jax.random.key(0)), MODEL, n), jax.random.key(0))
    labels, k = jnp.array([0, 1, 0, 1, 0, 1]), jnp.int32(2)
    half = method.placed(server, labels, k, jnp.array([0.2, 0.8, 0.0]))
    assert (int(half.k), int(half.settled)) == (2, 1)
    np.testing.assert_allclose(half.prox, [0.4, 0.0] * 3, rtol=1e-6)
    alone = method.placed(server, labels, k, jnp.array([0.75, 0.8, 0.0]))  # the third is no context
    assert int(alone.k) == n
    assert alone.assignment.tolist() == list(range(n))
    given = dataclasses.replace(method, prox=2.0).placed(
        dataclasses.replace(server, prox=jnp.full(n, 2.0)), labels, k, jnp.ones(3)
    )
    assert (int(given.k), given.prox.tolist()) == (2, [2.0] * n)


def test_what_does_not_go_with_it_is_refused(monkeypatch):
    monkeypatch.setattr("cgpfl.engine.privacy.noise_of_uploads", lambda *asked: 2.0)
    few = Settings(epsilon=1.0, rounds=9, trusted="server", clip=0.5)
    for method, why in (
        (CGPFL(contexts=tuple(TRUTH.tolist())), "cgpfl: trusted = server: finds contexts itself"),
        (CGPFL(contexts=2, warmup=0), "cgpfl: trusted = server: needs a warm-up"),
        (CGPFLAuto(smallest=2), "cgpfl-auto: trusted = server: smallest looks at who is where"),
        (
            Seamed(CGPFL(contexts=2), attack=SignFlip()),
            "liars who see others' uploads are not counted; set attack = none",
        ),
        (cgpfl.algorithms.get_method("parts", {"method": {"name": "cgpfl", "contexts": 2}}), "looks at single uploads"),
        (Seamed(CGPFL(contexts=2), mean=Median()), "its contexts are sums with noise; set mean = weighted"),
        (cgpfl.algorithms.get_method("fl-hc"), "fl-hc: trusted = server: it looks at single uploads"),
        (cgpfl.algorithms.get_method("hypcluster"), "hypcluster: trusted = server: it looks at single uploads"),
    ):
        with pytest.raises(CgpflError, match=why):
            protected(method, few, {0: DATA})
    private = protected(METHODS["cgpfl"], few, {0: DATA})
    assert unseamed(private) is METHODS["cgpfl"]
    assert fingerprint(private, MODEL, few)["method"] == "CGPFL"
    level = private.privacy
    assert (level.summed, level.together) == (True, 1)
    assert 9 / level.noise**2 + 1 / level.placing**2 == pytest.approx(1 / 4)  # all of it is spent
    alone = protected(CGPFL(contexts=1), few, {0: DATA}).privacy
    assert (alone.placing, alone.noise) == (0.0, pytest.approx(2.0 * 3))
