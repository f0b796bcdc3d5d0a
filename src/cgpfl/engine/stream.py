"""Many clients, few at a time: personal states and samples stay on the host, a round's cohort visits the device.

A round is the program of :mod:`cgpfl.engine.round` for a federation that is the cohort alone, so time and device
memory grow with the cohort; the number of clients costs only the draw of the cohort and the server's own state.
Draws, keys and the order of everything are those of :class:`~cgpfl.engine.simulation.Simulation`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import Task
from cgpfl.algorithms.wrapper import sampler_of
from cgpfl.engine.blocks import auto_block, client_bytes, is_ragged
from cgpfl.engine.cache import use_compilation_cache
from cgpfl.engine.drive import Traffic
from cgpfl.engine.evaluate import pooled
from cgpfl.engine.precision import computed
from cgpfl.engine.problem import (
    Arrays,
    Keys,
    Part,
    client_keys,
    cohort_size,
    draw_cohort,
    host,
    keys_of,
    make_task,
    round_keys,
    with_public,
)
from cgpfl.engine.round import State, Static, clients_work, evaluate
from cgpfl.engine.settings import Settings
from cgpfl.engine.simulation import traffic_of
from cgpfl.engine.store import Store
from cgpfl.metrics import measured, of_attack
from cgpfl.tree import Tree, plain, typed, where

EVALUATED = 1024
"""Clients evaluated at once."""


def _fresh(method: Any, task: Task, keys: Keys, ids: Array) -> Any:
    """Clients' first states ``[C, ...]``."""
    key = jax.random.split(keys.setup)[1]
    return jax.vmap(lambda i: method.init_client(task, jax.random.fold_in(key, i)))(ids)


def _states(method: Any, task: Task, keys: Keys, ids: Array, clients: Any, known: Array) -> Any:
    """Clients' states: as stored, or the first one of a client that is not known yet."""
    fresh = _fresh(method, task, keys, ids)
    return jax.vmap(where)(known, typed(clients, fresh), fresh)


@partial(jax.jit, static_argnames=("size",))
def _cohort(method: Any, server: Any, keys: Keys, ids: Array, samples: Array, t: Array, size: int) -> Array:
    return draw_cohort(method, server, round_keys(keys, t), ids, samples, size)


Here = tuple[Any, Task, Arrays, Keys]
"""Method, task, the clients that are on the device, keys."""


@partial(jax.jit, static_argnames=("static",), donate_argnames=("server", "clients"))
def _round(
    here: Here, server: Any, clients: Any, known: Array, t: Array, dropout: Array, static: Static
) -> tuple[Any, Any, Array, Array]:
    """One round of the clients that are here → (server, their states, how many answered, all finite)."""
    method, task, arrays, keys = here
    task = with_public(task, arrays)
    states = _states(method, task, keys, arrays.ids, clients, known)
    of_round = round_keys(keys, t)
    work = clients_work(method, task, arrays, of_round, State(server, states, t, t), dropout, static)
    server = method.aggregate(server, work.uploads, work.cohort, of_round.server)
    answered = (work.cohort.weights > 0).sum(dtype=jnp.int32)
    return server, plain(work.clients), answered, work.finite


@partial(jax.jit, static_argnames=("static",))
def _evaluate(here: Here, server: Any, clients: Any, known: Array, t: Array, static: Static) -> dict[str, Array]:
    method, task, arrays, keys = here
    task = with_public(task, arrays)
    states = _states(method, task, keys, arrays.ids, clients, known)
    record = evaluate(method, task, arrays, round_keys(keys, t), State(server, states, t, t), static)
    return {name: value for name, value in record.items() if name != "answers"}


class Streamed:
    """The engine of :class:`~cgpfl.engine.simulation.Simulation`, with ``state.clients`` a :class:`Store`.

    The store is changed in place, and where a run stopped it holds what the last round left.
    """

    def __init__(
        self,
        method: Any,
        data: Any,
        model: Any,
        *,
        folder: Path | None = None,
        **settings: Any,
    ) -> None:
        """``folder``: keep personal states in a file there, not in memory. ``settings``: Settings' fields."""
        use_compilation_cache()
        plan = Settings(**settings)
        self.method, self.data, self.rounds, self.eval_every = method, data, plan.rounds, plan.every
        self.patience = plan.patience
        self.folder = folder
        self.keys = keys_of(plan.seed)
        self.task = make_task(model, self.keys, data.clients)
        self.dropout = np.float32(plan.dropout)
        size = client_bytes(model, self.task.initial, frozen=self.task.frozen)
        self.static = self._program(cohort_size(plan.participation, data.clients), plan.dropout > 0, plan, size)
        self._evaluation = self._program(min(EVALUATED, data.clients), False, plan, size)
        self._ids, self._held = jax.device_put((data.ids, data.train.counts))

    def start(self) -> State:
        _, server = jax.jit(self._first)(self.keys)
        return State(server, self._store(), jnp.int32(0), jnp.int32(-1))

    def shapes(self) -> State:
        """The form of a state, with a store that knows nobody."""
        _, server = jax.eval_shape(self._first, self.keys)
        return State(server, self._store(), jnp.int32(0), jnp.int32(-1))

    def whole(self, state: State) -> State:
        return state

    def placed(self, state: State) -> State:
        return state

    def furthest(self, start: int) -> int:
        return self.rounds

    def advance(self, state: State, start: int, stop: int) -> tuple[State, dict[str, np.ndarray], list[int]]:
        """Run rounds ``start``..``stop`` (counted from 0, stop exclusive) → (state, records, evaluated rounds)."""
        server, store, answers = state.server, state.clients, int(state.answers)
        records: list[dict[str, np.ndarray]] = []
        due: list[int] = []
        waits = sampler_of(self.method).by_loss  # who is asked depends on the round before
        at = np.asarray(self._drawn(server, start))
        arrays = self._part(at)
        for t in range(start, stop):
            upcoming = None if waits else self._drawn(server, t + 1)  # before the device is busy
            here = (self.method, self.task, arrays, self.keys)
            server, clients, answered, finite = _round(
                here, server, store.take(at), store.known[at], np.int32(t), self.dropout, self.static
            )
            asked, at = at, np.asarray(self._drawn(server, t + 1) if upcoming is None else upcoming)
            if t + 1 < stop:
                arrays = self._part(at)  # gathered while the device works
            store.put(asked, clients)
            answers += int(answered)
            state = State(server, store, jnp.int32(answers), jnp.int32(-1))
            if not finite:
                return state._replace(diverged=jnp.int32(t)), _joined(records), due
            if (t + 1) % self.eval_every == 0 or t + 1 == self.rounds:
                record = {**self._evaluate(state, t), "answers": np.array(answers, np.int32)}
                if not np.isfinite(record["train_loss"]).all():
                    return state._replace(diverged=jnp.int32(t)), _joined(records), due
                records.append(record)
                due.append(t + 1)
        return state, _joined(records), due

    def traffic(self) -> Traffic:
        """Bytes and gradients of one client in one round, from the shapes of what is sent."""
        client, server = jax.eval_shape(self._first, self.keys)
        held = float(np.mean(self.data.train.counts))
        part = jax.eval_shape(lambda: self._part(np.arange(1)))
        return traffic_of(self.method, self.task, part, server, client, held)

    def personal(self, state: State, i: int) -> Tree:
        """All parameters of the model client ``i`` uses, as of the last round."""
        at = np.array([i])
        arrays, keys = self._part(at), self.keys
        task = with_public(self.task, arrays)
        known, stored = jax.device_put(state.clients.known[at]), state.clients.take(at)
        client = jax.tree.map(lambda v: v[0], _states(self.method, task, keys, arrays.ids, stored, known))
        own = client_keys(round_keys(keys, self.rounds - 1), arrays.ids[0])
        view = arrays.view(arrays.train.rows[0], arrays.train.counts[0])
        message = self.method.send(state.server, arrays.ids[0])
        personal = computed(self.method.personal, self.static.precision)
        return task.whole(personal(task, message, client, view, own.personal))

    def _program(self, clients: int, drops: bool, plan: Settings, size: int) -> Static:
        block = plan.clients_per_block or auto_block(size, clients)
        alone = Static(clients, cohort=clients, drops=drops, block=block, capacity=1, ragged=is_ragged(self.data))
        found = measured(plan.metrics, getattr(self.task.model, "objective", None))
        return alone._replace(precision=plan.precision, metrics=(*found, *of_attack(self.method)))

    def _first(self, keys: Keys) -> tuple[Any, Any]:
        """A client's and the server's first state."""
        public = self.data.public
        task = self.task if public is None else with_public(self.task, self._part(np.arange(1)))
        client = jax.tree.map(lambda v: v[0], plain(_fresh(self.method, task, keys, self._ids[:1])))
        return client, self.method.init_server(task, jax.random.split(keys.setup)[0])

    def _store(self) -> Store:
        client, _ = jax.eval_shape(self._first, self.keys)
        return Store(client, self.data.clients, self.folder)

    def _drawn(self, server: Any, t: int) -> Array:
        """Who is asked in round ``t``."""
        known = server if sampler_of(self.method).by_loss else ()
        drawn: Array = _cohort(self.method, known, self.keys, self._ids, self._held, np.int32(t), self.static.cohort)
        return drawn

    def _part(self, at: np.ndarray, evaluated: bool = False) -> Arrays:
        """A federation of the clients ``at`` alone, on the device; with test samples if to be ``evaluated``."""
        data = self.data
        public = np.zeros(0, np.int32) if data.public is None else data.public
        tables = [data.train, data.test, data.validation] if evaluated else [data.train]
        taken, first = [public], len(public)
        parts: list[Any] = []
        for table in tables:
            if table is None:
                parts.append(None)
                continue
            counts = table.counts[at]
            held = np.arange(table.rows.shape[1]) < counts[:, None]
            starts = first + np.cumsum(counts) - counts
            places = np.where(held, starts[:, None] + np.arange(table.rows.shape[1]), 0).astype(np.int32)
            parts.append(Part(*jax.device_put((places, counts))))
            taken.append(table.rows[at][held])
            first += int(counts.sum())
        rows = np.concatenate(taken)
        rows = np.pad(rows, (0, rounded(len(rows)) - len(rows)))  # few sizes, so few programs
        return Arrays(
            x=jax.device_put(data.x[rows]),
            y=jax.device_put(data.y[rows]),
            scale=jnp.float32(data.scale),
            shift=jnp.float32(data.shift),
            ids=self._ids[at],
            train=parts[0],
            test=parts[1] if evaluated else parts[0],
            validation=parts[2] if evaluated else None,
            public=None if data.public is None else jnp.arange(len(public), dtype=jnp.int32),
        )

    def _evaluate(self, state: State, t: int) -> dict[str, np.ndarray]:
        """The record of round ``t``: every client, some at a time."""
        n, size, blocks = self.data.clients, self._evaluation.clients, []
        for start in range(0, n, size):
            at = np.minimum(np.arange(start, start + size), n - 1)  # the last block repeats the last client
            arrays = self._part(at, evaluated=True)
            once = jnp.where(jnp.arange(start, start + size) < n, arrays.test.counts, 0)
            arrays = dataclasses.replace(arrays, test=arrays.test._replace(counts=once))
            here, clients = (self.method, self.task, arrays, self.keys), state.clients
            found = _evaluate(here, state.server, clients.take(at), clients.known[at], np.int32(t), self._evaluation)
            blocks.append((host(found), min(size, n - start)))
        facts, metrics = self.method.report(state.server), self._evaluation.metrics
        per_client = {k for k in blocks[0][0] if k == "context" or k not in facts}
        sums = {f"{m.name}/pooled" for m in metrics}
        whole = {k: np.concatenate([record[k][:kept] for record, kept in blocks]) for k in per_client - sums}
        whole |= {k: jax.tree.map(lambda *v: sum(v), *(record[k] for record, _ in blocks)) for k in sums}
        return host(pooled({k: whole.get(k, v) for k, v in blocks[0][0].items()}, metrics))


def _joined(records: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Records of rounds → ``{name: [evaluations, ...]}``."""
    return {k: np.stack([np.asarray(r[k]) for r in records]) for k in records[0]} if records else {}


def rounded(count: int) -> int:
    """``count`` or up to an eighth more: a multiple of a sixteenth of the power of two above it."""
    step = max(1, (1 << max(count - 1, 0).bit_length()) // 16)
    return -(-count // step) * step
