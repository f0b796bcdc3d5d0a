"""The same numbers however a method is run."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms import Cohort
from cgpfl.engine import Simulation
from cgpfl.engine.problem import cohort_size
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.together import Run, Together
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.records import Records
from cgpfl.testing.suite import CLIENTS, SEED, SETTINGS, Suite, equal, plain
from cgpfl.tree import nbytes


def contract(suite: Suite) -> None:
    """It has the functions, its states keep their form, and what is sent is made of plain numbers."""
    _forms(suite)
    work = suite.one_round
    for what, tree in (("message", work.messages), ("upload", work.uploads)):
        for leaf in jax.tree.leaves(tree):
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                suite.fail("contract", f"a {what} holds a random key; send numbers")
    if not suite.method.gradients() >= 0:
        suite.fail("contract", f"gradients() = {suite.method.gradients()!r}: must be a number from 0 up")
    report = suite.method.report(suite.whole[0].server)
    if "context" in report and ("k" not in report or report["context"].shape != (CLIENTS,)):
        suite.fail("contract", "report: context must be one number a client and come with k")


def _forms(suite: Suite) -> None:
    """States keep their shapes over a round; asked of JAX before anything runs, so that the answer is in our words."""
    start = jax.eval_shape(suite.simulation().start)
    work = jax.eval_shape(suite.work, start.server, start.clients, *suite.shown())
    asked = cohort_size(SETTINGS["participation"], CLIENTS)
    seen = jax.eval_shape(lambda tree: jax.tree.map(lambda v: v[:asked], tree), (work.uploads, suite.cohort))
    after = jax.eval_shape(suite.method.aggregate, start.server, *seen, jax.random.key(0))
    for whose, old, new in (("a client", start.clients, work.clients), ("the server", start.server, after)):
        one, other = _form(old), _form(new)
        changed = sorted(k for k in {*one, *other} if one.get(k) != other.get(k))
        if changed:
            k = changed[0]
            forms = f"{one.get(k, 'nothing')} becomes {other.get(k, 'nothing')}"
            suite.fail("contract", f"the state of {whose} changes its shape or type over rounds: {k or 'it'}: {forms}")


def _form(tree: Any) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{v.dtype}{list(v.shape)}" for path, v in leaves}


def deterministic(suite: Suite) -> None:
    """The same seed gives the same bits, another seed does not."""
    if not equal(suite.whole, suite.run()):
        suite.fail("deterministic", "two runs with one seed differ")
    if equal(suite.whole[1]["loss"], suite.run(seed=SEED + 1)[1]["loss"]):
        suite.fail("deterministic", "another seed gives the same result; is its randomness from the key?")


def loop(suite: Suite) -> None:
    """All clients in one program = one client after the other."""
    server, clients, records = simulate_loop(suite.method, suite.data, suite.model, **suite.settings)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *clients)
    state, ours = suite.whole
    pairs = {"server": (state.server, server), "clients": (state.clients, stacked), "records": (ours, records)}
    for what, (a, b) in pairs.items():
        suite.close("loop", f"the {what} of a loop over clients", a, b)


def permutation(suite: Suite) -> None:
    """Listing the clients in another order changes nothing but the order."""
    order = [4, 0, 5, 2, 1, 3]
    server, uploads, cohort = suite.whole[0].server, suite.one_round.uploads, suite.cohort
    aggregate, at = suite.aggregate, jnp.asarray(order)
    listed = aggregate(server, uploads, cohort, jax.random.key(0))
    moved = aggregate(server, *jax.tree.map(lambda v: v[at], (uploads, cohort)), jax.random.key(0))
    suite.close("permutation", "what is sent after uploads in another order", suite.sent(listed), suite.sent(moved))
    _, permuted = suite.run(suite.data.permute(order))
    servers = suite.method.report(server).keys() - {"context"}  # what a server tells of clients goes by their ids
    for name, value in suite.whole[1].items():
        each = name not in servers and value.ndim == 2 and value.shape[1] == CLIENTS
        expected = value[:, order] if each else value
        suite.close("permutation", f"{name} with the clients in another order", expected, permuted[name])


def absent(suite: Suite) -> None:
    """A client that does not answer has no influence and keeps its state."""
    server, uploads, cohort = suite.whole[0].server, suite.one_round.uploads, suite.cohort
    key, aggregate = jax.random.key(0), suite.aggregate
    weights = cohort.weights.at[1].set(0).at[4].set(0)

    def garbage(leaf: Any) -> Any:
        away = jnp.asarray([1, 4])
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf.at[away].set(1e3)
        return leaf.at[away].set(0)

    clean = aggregate(server, uploads, Cohort(cohort.ids, weights), key)
    dirty = aggregate(server, jax.tree.map(garbage, uploads), Cohort(cohort.ids, weights), key)
    suite.close("absent", "the server, when clients that did not answer had uploaded something else,", clean, dirty)
    nobody = aggregate(server, uploads, Cohort(cohort.ids, jnp.zeros_like(weights)), key)
    if not equal(suite.sent(nobody), suite.sent(server)):
        suite.fail("absent", "a round in which nobody answers changes what is sent")
    simulation = suite.simulation()
    start = jax.tree.map(np.asarray, plain(simulation.start().clients))
    state, records, _ = simulation.advance(simulation.start(), 0, 1)
    end = jax.tree.map(np.asarray, plain(state.clients))
    moved = [
        any(not np.array_equal(a[i], b[i]) for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(end), strict=True))
        for i in range(CLIENTS)
    ]
    if sum(moved) > int(records["answers"][-1]):
        suite.fail("absent", f"{sum(moved)} clients changed their state and {int(records['answers'][-1])} took part")


def sweep(suite: Suite) -> None:
    """Several settings in one program = one run each."""
    leaves, structure = jax.tree.flatten(suite.method)
    floats = [f.name for f in dataclasses.fields(suite.method) if f.metadata.get("kind") is float]
    if any(isinstance(getattr(suite.method, name), float) for name in floats) and not leaves:
        suite.fail("sweep", "its float hyper-parameters are no pytree leaves; use @cgpfl.algorithm")
    settings = {k: v for k, v in suite.settings.items() if k != "seed"}
    other = jax.tree.unflatten(structure, [0.9 * v for v in leaves])
    runs = [Run(suite.method, suite.data, SEED), Run(other, suite.data, SEED)]
    together = Together(runs, suite.model, **settings)
    state, records, due = together.advance(together.start(), 0, suite.rounds)
    parts = together.split(state, records, due)
    suite.close("sweep", "a run among several in one program", suite.whole[1], parts[0][0])
    alone = Simulation(other, suite.data, suite.model, **suite.settings)
    _, expected, _ = alone.advance(alone.start(), 0, suite.rounds)
    suite.close("sweep", "a run with other hyper-parameters among several", expected, parts[1][0])


def resume(suite: Suite) -> None:
    """Saved and loaded in the middle = never stopped."""
    simulation = suite.simulation()
    state, _, _ = simulation.advance(simulation.start(), 0, 2)
    with tempfile.TemporaryDirectory() as place:
        folder = MethodFolder(Path(place) / "method")
        folder.save(state, {"round": 2, "records": 0}, Records())
        loaded, _, _ = folder.load(simulation.shapes())
    end, _, _ = simulation.advance(loaded, 2, suite.rounds)
    if not equal(end, suite.whole[0]):
        suite.fail("resume", "a run that was saved, loaded and continued ends otherwise than one never stopped")


def count_bytes(suite: Suite) -> None:
    """The bytes counted are those of the arrays sent."""
    traffic = suite.simulation().traffic()
    work = suite.one_round
    for what, counted, tree in (("message", traffic.message, work.messages), ("upload", traffic.upload, work.uploads)):
        sent = sum(np.asarray(leaf)[0].nbytes for leaf in jax.tree.leaves(tree))
        if counted != sent or sent * CLIENTS != nbytes(tree):
            suite.fail("bytes", f"{counted} bytes counted for a {what} of {sent}")
