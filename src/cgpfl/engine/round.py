"""A block of rounds as one compiled program.

A loop over rounds, in it the clients' work mapped over the client axis, the server's step, and every n-th
round the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from cgpfl.algorithms import Cohort, Task
from cgpfl.engine.blocks import over_devices, over_servers
from cgpfl.engine.evaluate import evaluate_client, over_clients, pooled
from cgpfl.engine.mesh import everywhere, filled, gathered, on_each, split
from cgpfl.engine.precision import computed
from cgpfl.engine.problem import (
    Arrays,
    Keys,
    RoundKeys,
    answers,
    client_keys,
    draw_cohort,
    round_keys,
    with_public,
)
from cgpfl.metrics import Metric
from cgpfl.tree import Tree, all_finite, nbytes, where

GATHERED = 1 << 30
"""Bytes of uploads up to which every device gets all of them: a server's many small steps then need no messages."""


class State(NamedTuple):
    """Everything that changes over rounds."""

    server: Any
    clients: Any  # stacked, [N, ...]
    answers: Array  # uploads received so far
    diverged: Array  # the round in which a parameter became NaN or infinite, or -1


class Static(NamedTuple):
    """What the program is compiled for."""

    clients: int  # N; tables and personal states may have more places, to fill the devices
    cohort: int  # clients asked in a round
    block: int  # clients computed at once
    capacity: int  # evaluations one call can record
    drops: bool  # whether a client that was asked may not answer
    together: str = ""  # several runs in one program: a key of ARRAYS_AXES, or "" for one run
    mesh: Mesh | None = None  # the devices that share the clients, if several
    precision: str = "default"  # of the clients' products: one of PRECISIONS
    metrics: tuple[Metric, ...] = ()  # evaluated beside right answers and the loss
    ragged: bool = False  # whether clients are so unequal that small ones must not wait for the largest


ARRAYS_AXES: dict[str, Any] = {
    "same": None,  # all with the same data
    "split": Arrays(x=None, y=0, scale=None, shift=None, ids=0, train=0, test=0, validation=0, public=0),  # type: ignore[arg-type]
    "own": 0,  # each with its own
}
"""Which of the data's arrays have an axis of runs, where several runs share a program."""


class Shared(NamedTuple):
    """What all clients' work in a round reads."""

    method: Any
    task: Task
    samples: Arrays  # without tables
    keys: RoundKeys
    server: Any
    dropout: Any = None


class Work(NamedTuple):
    """What the clients did in a round."""

    uploads: Any  # [C, ...]
    clients: Any  # everybody's state after it, [N, ...]
    cohort: Cohort
    finite: Array


def clients_work(
    method: Any, task: Task, arrays: Arrays, keys: RoundKeys, state: State, dropout: Array, static: Static
) -> Work:
    """One round on the clients of a cohort."""
    everyone = static.cohort == static.clients
    everybody, held = arrays.ids[: static.clients], arrays.train.counts[: static.clients]
    at = draw_cohort(method, state.server, keys, everybody, held, static.cohort)
    more = filled(static.cohort, static.mesh) - static.cohort
    places = jnp.pad(at, (0, more), mode="edge")

    def pick(tree: Tree) -> Tree:
        return tree if everyone else jax.tree.map(lambda v: v[places], tree)

    def asked(tree: Tree) -> Tree:
        return jax.tree.map(lambda v: v[: static.cohort], tree)

    def work(shared: Shared, client_id: Array, client: Any, rows: Array, count: Array) -> tuple[Any, Any, Array, Array]:
        method, task, samples, keys, server, dropout = shared
        own = client_keys(keys, client_id)
        message = method.send(server, client_id)
        upload, new = method.train(task, message, client, samples.view(rows, count), own.train)
        finite = all_finite((upload, new))  # here, while both are in the cache
        if not static.drops:
            return upload, new, jnp.bool_(True), finite
        answered = answers(own.answer, dropout)
        return upload, where(answered, new, client), answered, finite

    ids, before, counts = pick(arrays.ids), pick(state.clients), pick(arrays.train.counts)
    args = (ids, before, pick(arrays.train.rows), counts)
    shared = Shared(method, task, arrays.samples(), keys, state.server, dropout)
    each = computed(work, static.precision)
    uploads, after, answered, finite = over_devices(each, shared, args, static.block, static.mesh)
    clients = after if everyone else jax.tree.map(lambda all_, new: all_.at[at].set(new), state.clients, asked(after))
    seen = (uploads, ids, jnp.where(answered, counts, 0), finite)
    if is_gathered(uploads, static.mesh):
        seen = gathered(seen, static.mesh)
    uploads, ids, weights, finite = asked(seen)
    return Work(uploads, clients, Cohort(ids, weights), finite.all())


def is_gathered(uploads: Tree, mesh: Mesh | None) -> bool:
    """Whether every device gets all ``uploads`` of a round, and makes the server's step for itself."""
    return mesh is not None and nbytes(uploads) <= GATHERED


def evaluate(
    method: Any, task: Task, arrays: Arrays, keys: RoundKeys, state: State, static: Static
) -> dict[str, Array]:
    """The record of a round: per-client values ``[N]``, what the method reports of its server, sums for `pooled`."""

    def one(shared: Shared, client_id: Array, client: Any, *parts: Any) -> dict[str, Any]:
        method, task, samples, keys, server, _ = shared
        own = client_keys(keys, client_id)
        of = (static.metrics, static.ragged)
        return evaluate_client(method, task, samples, server, client, client_id, parts, own, *of)

    args = (arrays.ids, state.clients, arrays.train, arrays.test, arrays.validation)
    shared = Shared(method, task, arrays.samples(), keys, state.server)
    record = over_devices(computed(one, static.precision), shared, args, static.block, static.mesh)
    record = over_clients(jax.tree.map(lambda v: v[: static.clients], record), static.metrics)
    report = method.report(state.server)
    if "context" in report:  # by client id → by place in the table
        report = report | {"context": report["context"][arrays.ids[: static.clients]]}
    return {**record, **report, "answers": state.answers}


class Program(NamedTuple):
    """The parts of a round, for one run or for several at once (everything with a leading axis then)."""

    keys: Callable[[Array | int], RoundKeys]
    work: Callable[[RoundKeys, State], Work]
    aggregate: Callable[[State, Work, RoundKeys], Any]
    evaluate: Callable[[RoundKeys, State], dict[str, Array]]


def program(method: Any, task: Task, arrays: Arrays, keys: Keys, dropout: Array, static: Static) -> Program:
    """How a round is computed.

    Several runs share one program: their clients' work and evaluation are mapped together, as if all were
    clients of one federation, and so are their servers. What a server seldom does (a first clustering,
    say) is written with :func:`cgpfl.tree.switch`, else it would be computed in every round.
    """

    def aggregate(method: Any, state: State, work: Work, key: Array) -> Any:
        args = (method, state.server, work.uploads, work.cohort, key)
        if is_gathered(work.uploads, static.mesh):  # said so, or XLA would divide each of its small steps
            return on_each(lambda method, *seen: method.aggregate(*seen), args, static.mesh)
        return method.aggregate(*args[1:])

    if not static.together:
        task = with_public(task, arrays)
        return Program(
            keys=lambda t: round_keys(keys, t),
            work=lambda k, s: clients_work(method, task, arrays, k, s, dropout, static),
            aggregate=lambda s, w, k: aggregate(method, s, w, k.server),
            evaluate=lambda k, s: pooled(evaluate(method, task, arrays, k, s, static), static.metrics),
        )
    data = ARRAYS_AXES[static.together]

    def work(method: Any, task: Task, arrays: Arrays, keys: RoundKeys, state: State) -> Work:
        return clients_work(method, with_public(task, arrays), arrays, keys, state, dropout, static)

    def record(method: Any, task: Task, arrays: Arrays, keys: RoundKeys, state: State) -> dict[str, Array]:
        return pooled(evaluate(method, with_public(task, arrays), arrays, keys, state, static), static.metrics)

    return Program(
        keys=lambda t: jax.vmap(round_keys, in_axes=(0, None))(keys, t),
        work=lambda k, s: jax.vmap(work, in_axes=(0, 0, data, 0, 0))(method, task, arrays, k, s),
        aggregate=lambda s, w, k: over_servers(aggregate, (method, s, w, k.server)),
        evaluate=lambda k, s: jax.vmap(record, in_axes=(0, 0, data, 0, 0))(method, task, arrays, k, s),
    )


@partial(jax.jit, static_argnames=("static",), donate_argnames=("state",))
def advance(
    method: Any,
    task: Task,
    arrays: Arrays,
    keys: Keys,
    state: State,
    schedule: tuple[Array, Array, Array, Array],
    dropout: Array,
    static: Static,
) -> tuple[State, dict[str, Array], Array]:
    """Rounds ``start`` to ``stop`` (exclusive), evaluated every ``every`` and at the last of ``total``.

    ``schedule`` is (start, stop, every, total). Returns the state, records ``[capacity, ...]`` and how
    many of them are filled. Ends early when a parameter is no longer finite (in every run, if several).
    """
    start, stop, every, total = schedule
    of = program(method, task, arrays, keys, dropout, static)
    shapes = jax.eval_shape(lambda s: of.evaluate(of.keys(0), s), state)
    empty = jax.tree.map(lambda s: jnp.zeros((static.capacity, *s.shape), s.dtype), shapes)

    def going(carry: tuple[Array, State, dict[str, Array], Array]) -> Array:
        return (carry[0] < stop) & (carry[1].diverged < 0).any()

    def body(
        carry: tuple[Array, State, dict[str, Array], Array],
    ) -> tuple[Array, State, dict[str, Array], Array]:
        t, state, records, written = carry
        of_round = of.keys(t)
        work = of.work(of_round, state)
        server = of.aggregate(state, work, of_round)
        answered = (work.cohort.weights > 0).sum(axis=-1, dtype=jnp.int32)
        heard = state.answers + jnp.where(state.diverged < 0, answered, 0)
        state = on_mesh(State(server, work.clients, heard, state.diverged), static.mesh)

        def write() -> tuple[dict[str, Array], Array, Array]:
            record, put_at = of.evaluate(of_round, state), jax.lax.dynamic_update_index_in_dim
            fine = jnp.isfinite(record["train_loss"]).all(axis=-1)
            return {k: put_at(v, record[k], written, 0) for k, v in records.items()}, written + 1, fine

        due = (jax.lax.rem(t + 1, every) == 0) | (t + 1 == total)
        records, written, fine = jax.lax.cond(due, write, lambda: (records, written, jnp.ones_like(work.finite)))
        bad = jnp.where(work.finite & fine, -1, t)
        return t + 1, state._replace(diverged=jnp.where(state.diverged < 0, bad, state.diverged)), records, written

    _, state, records, written = jax.lax.while_loop(going, body, (start, state, empty, jnp.int32(0)))
    return state, _everywhere(records, static.mesh), written


def on_mesh(state: State, mesh: Mesh | None) -> State:
    """Personal states divided over the devices, all else on each of them."""
    if mesh is None:
        return state
    clients = jax.tree.map(lambda v: jax.lax.with_sharding_constraint(v, split(mesh)), state.clients)
    return _everywhere(state._replace(clients=()), mesh)._replace(clients=clients)


def _everywhere(tree: Any, mesh: Mesh | None) -> Any:
    if mesh is None:
        return tree
    return jax.tree.map(lambda v: jax.lax.with_sharding_constraint(v, everywhere(mesh)), tree)


def first_state(method: Any, task: Task, arrays: Arrays, keys: Keys) -> State:
    """The state before the first round."""
    task = with_public(task, arrays)
    server_key, client_key = jax.random.split(keys.setup)
    clients = jax.vmap(lambda i: method.init_client(task, jax.random.fold_in(client_key, i)))(arrays.ids)
    server = method.init_server(task, server_key)
    return State(server, clients, jnp.int32(0), jnp.int32(-1))


@partial(jax.jit, static_argnames=("together", "mesh"))
def begin(method: Any, task: Task, arrays: Arrays, keys: Keys, together: str = "", mesh: Mesh | None = None) -> State:
    """The state before the first round, of one run or of several."""
    if not together:
        return on_mesh(first_state(method, task, arrays, keys), mesh)
    return jax.vmap(first_state, in_axes=(0, 0, ARRAYS_AXES[together], 0))(method, task, arrays, keys)
