"""One method on a tiny federation, and what several checks need of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms import Cohort, Task, replace
from cgpfl.data import FederatedData
from cgpfl.engine import Simulation, State
from cgpfl.engine.problem import Arrays, RoundKeys, client_keys, cohort_size, round_keys, with_public
from cgpfl.errors import CgpflError
from cgpfl.models import as_model

CLIENTS, ROUNDS, SEED = 6, 5, 3
SETTINGS: dict[str, Any] = {"rounds": ROUNDS, "participation": 0.7, "dropout": 0.3, "seed": SEED}
LONGER = (10, 15, 20)
"""Rounds of a method that says its settings need more."""
TOLERANCE = 2e-3


class ContractError(CgpflError, AssertionError):
    """A method does not keep the contract."""


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


class Work(NamedTuple):
    """What everybody does in a round, and the models they use before it; all stacked ``[N, ...]``."""

    messages: Any
    uploads: Any
    clients: Any  # their states after it
    models: Any


@jax.jit
def everyone(
    method: Any, task: Task, arrays: Arrays, keys: RoundKeys, server: Any, clients: Any, x: Any, y: Any
) -> Work:
    """A round in which all take part, as one program.

    Its samples are ``x [N, n, ...]`` and ``y [N, n]``: each client may be shown other ones.
    """

    def one(i: Any, client: Any, rows: Any, count: Any, x: Any, y: Any) -> Work:
        seen = dataclasses.replace(arrays, x=x, y=y)
        known, view, own = with_public(task, seen), seen.view(rows, count), client_keys(keys, i)
        message = method.send(server, i)
        upload, after = method.train(known, message, client, view, own.train)
        return Work(message, upload, after, method.personal(known, message, client, view, own.personal))

    return jax.vmap(one)(arrays.ids, clients, arrays.train.rows, arrays.train.counts, x, y)


class Suite:
    """One method on the tiny federation."""

    def __init__(self, method: Any, name: str) -> None:
        # Few clients and rounds: what a method does only with more of them should happen here, too.
        small = {"contexts": 2, "folds": 3, "warmup": 6 if hasattr(method, "folds") else 1}
        given: dict[str, Any] = {k: getattr(method, k, None) for k in small}
        less = {k: v for k, v in small.items() if type(given[k]) is int and given[k] > v}
        self.method: Any = replace(method, less) if less and dataclasses.is_dataclass(method) else method
        self.name = name
        self.data = tiny_federation()
        self.model = as_model("mlr", self.data.shape, self.data.classes)
        self.rounds = next((t for t in (ROUNDS, *LONGER) if self._fits(t)), ROUNDS)

    def _fits(self, rounds: int) -> bool:
        """Whether the method's settings fit so many rounds."""
        answers = rounds * cohort_size(SETTINGS["participation"], CLIENTS) * (1 - SETTINGS["dropout"])
        try:
            getattr(self.method, "check", lambda *run: None)(CLIENTS, answers, rounds)
        except CgpflError:
            return False
        return True

    @property
    def settings(self) -> dict[str, Any]:
        return {**SETTINGS, "rounds": self.rounds}

    def fail(self, check: str, why: str) -> NoReturn:
        raise ContractError(f"{self.name}: {check}: {why}")

    def simulation(self, data: FederatedData | None = None, seed: int = SEED) -> Simulation:
        return Simulation(self.method, data or self.data, self.model, **{**self.settings, "seed": seed})

    def run(self, data: FederatedData | None = None, seed: int = SEED) -> tuple[State, dict[str, np.ndarray]]:
        """All rounds → (state, records)."""
        simulation = self.simulation(data, seed)
        state, records, _ = simulation.advance(simulation.start(), 0, self.rounds)
        if int(state.diverged) >= 0:
            self.fail("contract", f"not finite in round {int(state.diverged) + 1} of a tiny problem; lower its rates")
        return state, records

    @cached_property
    def whole(self) -> tuple[State, dict[str, np.ndarray]]:
        """The run that others are compared with."""
        return self.run()

    def work(self, server: Any, clients: Any, x: Any, y: Any) -> Work:
        """One more round from the states (server, clients); see :func:`everyone`."""
        simulation = self.simulation()
        of_round = round_keys(simulation.keys, self.rounds)
        work: Work = everyone(self.method, simulation.task, simulation.arrays, of_round, server, clients, x, y)
        return work

    def shown(self, data: FederatedData | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The same samples for every client of :meth:`work`."""
        of = data or self.data
        return np.tile(of.x, (CLIENTS, *[1] * of.x.ndim)), np.tile(of.y, (CLIENTS, 1))

    @cached_property
    def one_round(self) -> Work:
        """A round after the whole run."""
        state = self.whole[0]
        return self.work(state.server, state.clients, *self.shown())

    @property
    def cohort(self) -> Cohort:
        """Everyone, with their samples."""
        return Cohort(jnp.asarray(self.data.ids), jnp.asarray(self.data.train.counts))

    @cached_property
    def aggregate(self) -> Callable[..., Any]:
        """The server's step, compiled."""
        return jax.jit(self.method.aggregate)

    def sent(self, server: Any) -> Any:
        return jax.vmap(lambda i: self.method.send(server, i))(jnp.arange(CLIENTS))

    def close(self, check: str, what: str, a: Any, b: Any) -> None:
        """``a`` and ``b`` agree to float tolerance; the message names the first leaf that does not."""
        ours, theirs = (jax.tree_util.tree_leaves_with_path(plain(t)) for t in (a, b))
        if [p for p, _ in ours] != [p for p, _ in theirs]:
            self.fail(check, f"{what} has another form")
        for (path, x), (_, y) in zip(ours, theirs, strict=True):
            one, other = np.asarray(x, float), np.asarray(y, float)
            largest = max(1.0, float(np.abs(one[np.isfinite(one)]).max(initial=0.0)))
            if not np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE / 20 * largest):
                apart = float(np.abs(one - other).max())
                self.fail(check, f"{what} differs: {jax.tree_util.keystr(path)} by {apart:.2g}")


def plain(tree: Any) -> Any:
    """Random keys as their numbers."""
    keys = jax.dtypes.prng_key
    return jax.tree.map(lambda v: jax.random.key_data(v) if jnp.issubdtype(v.dtype, keys) else v, tree)


def equal(a: Any, b: Any) -> bool:
    """Whether two trees are the same bits."""
    pairs = zip(jax.tree.leaves(plain(a)), jax.tree.leaves(plain(b)), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)
