"""The contract, as tests that any method can be put to.

>>> import cgpfl
>>> cgpfl.check_algorithm(cgpfl.FedAvg())

``check_algorithm`` runs a method on a tiny federation and raises :class:`ContractError`, in one line that says
what was broken, at the first thing that does not hold. What it checks is what the engines rely on: a method that
passes runs vectorised, sampled, interrupted and on real nodes with the same numbers.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms import METHODS, Algorithm, Cohort, replace
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, State
from cgpfl.engine.problem import client_keys, keys_of, round_keys, with_public
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.together import Run, Together
from cgpfl.errors import CgpflError
from cgpfl.experiment.checkpoint import MethodFolder
from cgpfl.experiment.records import Records
from cgpfl.models import as_model
from cgpfl.tree import nbytes

CLIENTS, ROUNDS, SEED = 6, 5, 3
SETTINGS: dict[str, Any] = {"rounds": ROUNDS, "participation": 0.7, "dropout": 0.3, "seed": SEED}
TOLERANCE = 2e-3


class ContractError(CgpflError, AssertionError):
    """A method does not keep the contract."""


def check_algorithm(method: Any, *, skip: tuple[str, ...] = ()) -> None:
    """Raise :class:`ContractError` where ``method`` (an object of the contract, or a name) breaks it.

    The checks, in this order; ``skip`` leaves some out by name:

    contract        it has the functions of :class:`cgpfl.Algorithm`, its states keep their shapes, and what
                    is sent is made of plain numbers
    deterministic   the same seed gives the same bits, another seed does not
    loop            all clients in one program = one client after the other
    permutation     listing the clients in another order changes nothing but the order
    absent          a client that does not answer has no influence and keeps its state; a round in which
                    nobody answers changes nothing that is sent
    private         no array that a client keeps is in its upload (unless the method says it ``reveals``)
    own_data        personal models depend on training samples, never on test samples
    sweep           float hyper-parameters are traced: several settings in one program = one run each
    resume          saved and loaded in the middle = never stopped
    bytes           the bytes counted are those of the arrays sent
    """
    if isinstance(method, str):
        if method not in METHODS:
            raise CgpflError(f"no method {method!r}; there are {', '.join(METHODS)}")
        method = METHODS[method]
    if not isinstance(method, Algorithm):
        missing = [f for f in _FUNCTIONS if not hasattr(method, f)]
        raise ContractError(f"{type(method).__name__}: contract: lacks {', '.join(missing)}; see cgpfl.Algorithm")
    suite = _Suite(method)
    unknown = set(skip) - set(CHECKS)
    if unknown:
        raise CgpflError(f"skip: no check {sorted(unknown)[0]!r}; there are {', '.join(CHECKS)}")
    for name, check in CHECKS.items():
        if name in skip:
            continue
        try:
            with jax.default_matmul_precision("highest"):
                check(suite)
        except (jax.errors.JAXTypeError, TypeError) as error:
            reason = " ".join(str(error).split("\n")[0].split())
            raise ContractError(f"{suite.name}: {name}: cannot be traced by JAX: {reason}") from error


_FUNCTIONS = (
    *("init_server", "init_client", "send", "train", "aggregate"),
    *("personal", "shared", "report", "gradients"),
)


def tiny_federation() -> FederatedData:
    """Six clients of unequal size in two groups with opposite labels; three classes, four features, public samples."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((3, 4))

    def samples(n: int, turned: bool) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 3, size=n)
        x = directions[y] + 0.3 * rng.standard_normal((n, 4))
        return x.astype(np.float32), (2 - y if turned else y)

    sizes = [5, 6, 8, 9, 7, 6]
    train = [samples(n, i % 2 == 1) for i, n in enumerate(sizes)]
    test = [samples(4, i % 2 == 1) for i in range(CLIENTS)]
    return FederatedData.from_clients(train, test=test, public=samples(8, False), classes=3)


class _Suite:
    """One method on the tiny federation, and what several checks need of it."""

    def __init__(self, method: Any) -> None:
        # Few clients and rounds: what a method does only with more of them should happen here, too.
        small = {"contexts": 2, "warmup": 1}
        given: dict[str, Any] = {k: getattr(method, k, None) for k in small}
        less = {k: v for k, v in small.items() if type(given[k]) is int and given[k] > v}
        self.method: Any = replace(method, less) if less and dataclasses.is_dataclass(method) else method
        self.name = getattr(method, "name", "") or type(method).__name__
        self.data = tiny_federation()
        self.model = as_model("mlr", self.data.shape, self.data.classes)

    def fail(self, check: str, why: str) -> None:
        raise ContractError(f"{self.name}: {check}: {why}")

    def simulation(self, data: FederatedData | None = None, seed: int = SEED) -> Simulation:
        return Simulation(self.method, data or self.data, self.model, **{**SETTINGS, "seed": seed})

    def run(self, data: FederatedData | None = None, seed: int = SEED) -> tuple[State, dict[str, np.ndarray]]:
        simulation = self.simulation(data, seed)
        state, records, _ = simulation.advance(simulation.start(), 0, ROUNDS)
        if int(state.diverged) >= 0:
            self.fail("contract", f"not finite in round {int(state.diverged) + 1} of a tiny problem; lower its rates")
        return state, records

    @cached_property
    def whole(self) -> tuple[State, dict[str, np.ndarray]]:
        """The run that others are compared with."""
        return self.run()

    @cached_property
    def one_round(self) -> tuple[Any, Any, Any, Any, Any, Cohort]:
        """(task, server, messages, uploads, clients after, cohort) of a round after the whole run, everyone asked."""
        simulation, state = self.simulation(), self.whole[0]
        arrays, task = simulation.arrays, with_public(simulation.task, simulation.arrays)
        of_round = round_keys(keys_of(SEED), ROUNDS)

        def work(i: Any, client: Any, rows: Any, count: Any) -> Any:
            message = self.method.send(state.server, i)
            own = client_keys(of_round, i)
            return message, *self.method.train(task, message, client, arrays.view(rows, count), own.train)

        args = (arrays.ids, state.clients, arrays.train.rows, arrays.train.counts)
        messages, uploads, clients = jax.jit(jax.vmap(work))(*args)
        return task, state.server, messages, uploads, clients, Cohort(arrays.ids, arrays.train.counts)

    @cached_property
    def aggregate(self) -> Callable[..., Any]:
        """The server's step, compiled."""
        return jax.jit(self.method.aggregate)

    def sent(self, server: Any) -> Any:
        return jax.vmap(lambda i: self.method.send(server, i))(jnp.arange(CLIENTS))


def _contract(suite: _Suite) -> None:
    simulation = suite.simulation()
    before = jax.eval_shape(simulation.start)
    after = jax.eval_shape(lambda s: s, suite.whole[0])
    if jax.tree.map(_form, before) != jax.tree.map(_form, after):
        suite.fail("contract", "a state changes its shape or type over rounds")
    _, _, messages, uploads, _, _ = suite.one_round
    for what, tree in (("message", messages), ("upload", uploads)):
        for leaf in jax.tree.leaves(tree):
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                suite.fail("contract", f"a {what} holds a random key; send numbers")
    if not suite.method.gradients() >= 0:
        suite.fail("contract", f"gradients() = {suite.method.gradients()!r}: must be a number from 0 up")
    report = suite.method.report(suite.whole[0].server)
    if "context" in report and ("k" not in report or report["context"].shape != (CLIENTS,)):
        suite.fail("contract", "report: context must be one number a client and come with k")


def _deterministic(suite: _Suite) -> None:
    if not _equal(suite.whole, suite.run()):
        suite.fail("deterministic", "two runs with one seed differ")
    if _equal(suite.whole[1]["loss"], suite.run(seed=SEED + 1)[1]["loss"]):
        suite.fail("deterministic", "another seed gives the same result; is its randomness from the key?")


def _loop(suite: _Suite) -> None:
    server, clients, records = simulate_loop(suite.method, suite.data, suite.model, **SETTINGS)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *clients)
    state, ours = suite.whole
    pairs = {"server": (state.server, server), "clients": (state.clients, stacked), "records": (ours, records)}
    for what, (a, b) in pairs.items():
        _close(suite, "loop", f"the {what} of a loop over clients", a, b)


def _permutation(suite: _Suite) -> None:
    order = [4, 0, 5, 2, 1, 3]
    _, server, _, uploads, _, cohort = suite.one_round
    aggregate, at = suite.aggregate, jnp.asarray(order)
    listed = aggregate(server, uploads, cohort, jax.random.key(0))
    moved = aggregate(server, *jax.tree.map(lambda v: v[at], (uploads, cohort)), jax.random.key(0))
    _close(suite, "permutation", "what is sent after uploads in another order", suite.sent(listed), suite.sent(moved))
    _, permuted = suite.run(suite.data.permute(order))
    for name, value in suite.whole[1].items():
        each = value.ndim == 2 and value.shape[1] == CLIENTS
        expected = value[:, order] if each else value
        _close(suite, "permutation", f"{name} with the clients in another order", expected, permuted[name])


def _absent(suite: _Suite) -> None:
    _, server, _, uploads, _, cohort = suite.one_round
    key, aggregate = jax.random.key(0), suite.aggregate
    weights = cohort.weights.at[1].set(0).at[4].set(0)

    def garbage(leaf: Any) -> Any:
        away = jnp.asarray([1, 4])
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf.at[away].set(1e3)
        return leaf.at[away].set(0)

    clean = aggregate(server, uploads, Cohort(cohort.ids, weights), key)
    dirty = aggregate(server, jax.tree.map(garbage, uploads), Cohort(cohort.ids, weights), key)
    _close(suite, "absent", "the server, when clients that did not answer had uploaded something else,", clean, dirty)
    nobody = aggregate(server, uploads, Cohort(cohort.ids, jnp.zeros_like(weights)), key)
    if not _equal(suite.sent(nobody), suite.sent(server)):
        suite.fail("absent", "a round in which nobody answers changes what is sent")
    simulation = suite.simulation()
    start = jax.tree.map(np.asarray, _plain(simulation.start().clients))
    state, records, _ = simulation.advance(simulation.start(), 0, 1)
    end = jax.tree.map(np.asarray, _plain(state.clients))
    moved = [
        any(not np.array_equal(a[i], b[i]) for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(end), strict=True))
        for i in range(CLIENTS)
    ]
    if sum(moved) > int(records["answers"][-1]):
        suite.fail("absent", f"{sum(moved)} clients changed their state and {int(records['answers'][-1])} took part")


def _private(suite: _Suite) -> None:
    if getattr(suite.method, "reveals", False):
        return
    _, _, _, uploads, clients, _ = suite.one_round
    kept = [np.asarray(v) for v in jax.tree.leaves(_plain(clients))]
    for path, upload in jax.tree_util.tree_leaves_with_path(uploads):
        flat = np.asarray(upload).reshape(CLIENTS, -1)
        for own in kept:
            if (
                own[0].size > 1
                and own.reshape(CLIENTS, -1).shape == flat.shape
                and np.allclose(own.reshape(CLIENTS, -1), flat, rtol=1e-6, atol=0)
            ):
                where = jax.tree_util.keystr(path) or "the upload"
                suite.fail("private", f"{where} is what the client keeps; if the method needs that, set reveals = True")


def _own_data(suite: _Suite) -> None:
    rows = np.concatenate(suite.data.test.parts())
    x, y = suite.data.x.copy(), suite.data.y.copy()
    x[rows], y[rows] = -x[rows], (y[rows] + 1) % suite.data.classes
    changed = dataclasses.replace(suite.data, x=x, y=y)
    state, _ = suite.run(changed)
    if not _equal(suite.whole[0], state):
        suite.fail("own_data", "other test samples give another state")
    one, other = suite.simulation(), suite.simulation(changed)
    for i in (0, CLIENTS - 1):
        if not _equal(one.personal(suite.whole[0], i), other.personal(state, i)):
            suite.fail("own_data", "other test samples give another personal model")


def _sweep(suite: _Suite) -> None:
    leaves, structure = jax.tree.flatten(suite.method)
    floats = [f.name for f in dataclasses.fields(suite.method) if f.metadata.get("kind") is float]
    if any(isinstance(getattr(suite.method, name), float) for name in floats) and not leaves:
        suite.fail("sweep", "its float hyper-parameters are no pytree leaves; use @cgpfl.algorithm")
    settings = {k: v for k, v in SETTINGS.items() if k != "seed"}
    other = jax.tree.unflatten(structure, [0.9 * v for v in leaves])
    runs = [Run(suite.method, suite.data, SEED), Run(other, suite.data, SEED)]
    together = Together(runs, suite.model, **settings)
    state, records, due = together.advance(together.start(), 0, ROUNDS)
    parts = together.split(state, records, due)
    _close(suite, "sweep", "a run among several in one program", suite.whole[1], parts[0][0])
    alone = Simulation(other, suite.data, suite.model, **SETTINGS)
    _, expected, _ = alone.advance(alone.start(), 0, ROUNDS)
    _close(suite, "sweep", "a run with other hyper-parameters among several", expected, parts[1][0])


def _resume(suite: _Suite) -> None:
    simulation = suite.simulation()
    state, _, _ = simulation.advance(simulation.start(), 0, 2)
    with tempfile.TemporaryDirectory() as place:
        folder = MethodFolder(Path(place) / "method")
        folder.save(state, {"round": 2, "records": 0}, Records())
        loaded, _, _ = folder.load(simulation.shapes())
    end, _, _ = simulation.advance(loaded, 2, ROUNDS)
    if not _equal(end, suite.whole[0]):
        suite.fail("resume", "a run that was saved, loaded and continued ends otherwise than one never stopped")


def _bytes(suite: _Suite) -> None:
    traffic = suite.simulation().traffic()
    _, _, messages, uploads, _, _ = suite.one_round
    for what, counted, tree in (("message", traffic.message, messages), ("upload", traffic.upload, uploads)):
        sent = sum(np.asarray(leaf)[0].nbytes for leaf in jax.tree.leaves(tree))
        if counted != sent or sent * CLIENTS != nbytes(tree):
            suite.fail("bytes", f"{counted} bytes counted for a {what} of {sent}")


CHECKS: dict[str, Callable[[_Suite], None]] = {
    "contract": _contract,
    "deterministic": _deterministic,
    "loop": _loop,
    "permutation": _permutation,
    "absent": _absent,
    "private": _private,
    "own_data": _own_data,
    "sweep": _sweep,
    "resume": _resume,
    "bytes": _bytes,
}
"""The checks by name."""


def _form(leaf: Any) -> Any:
    return leaf.shape, leaf.dtype


def _plain(tree: Any) -> Any:
    """Random keys as their numbers."""
    keys = jax.dtypes.prng_key
    return jax.tree.map(lambda v: jax.random.key_data(v) if jnp.issubdtype(v.dtype, keys) else v, tree)


def _equal(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(_plain(a)), jax.tree.leaves(_plain(b)), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


def _close(suite: _Suite, check: str, what: str, a: Any, b: Any) -> None:
    """``a`` and ``b`` agree to float tolerance; the message names the first leaf that does not."""
    ours, theirs = (jax.tree_util.tree_leaves_with_path(_plain(t)) for t in (a, b))
    if [p for p, _ in ours] != [p for p, _ in theirs]:
        suite.fail(check, f"{what} has another form")
    for (path, x), (_, y) in zip(ours, theirs, strict=True):
        one, other = np.asarray(x, float), np.asarray(y, float)
        largest = max(1.0, float(np.abs(one).max(initial=0.0)))
        if not np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE / 20 * largest):
            apart = float(np.abs(one - other).max())
            suite.fail(check, f"{what} differs: {jax.tree_util.keystr(path)} by {apart:.2g}")
