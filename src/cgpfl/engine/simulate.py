"""All clients in one compiled program.

A block of rounds is one XLA program: a loop over rounds, in it the clients' work mapped over the
client axis, the server's step, and every n-th round the evaluation. The host only decides how many
rounds the next block has (a traced number: nothing is compiled again) and receives its records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import Cohort, Task
from cgpfl.batch import Batch
from cgpfl.engine.cache import use_compilation_cache
from cgpfl.engine.evaluate import evaluate_client
from cgpfl.engine.problem import (
    Arrays,
    Keys,
    RoundKeys,
    answers,
    client_keys,
    cohort_size,
    draw_cohort,
    host,
    keys_of,
    make_task,
    on_device,
    round_keys,
    with_public,
)
from cgpfl.tree import Tree, all_finite, nbytes, where

CACHE_BLOCK = 9 << 19
"""On a CPU, clients are mapped in blocks whose models together fit in this many bytes (near caches)."""
DEVICE_BLOCK = 2 << 30
"""On an accelerator, bytes of models in one block; gradients and copies take a few times that."""


class State(NamedTuple):
    """Everything that changes over rounds."""

    server: Any
    clients: Any  # stacked, [N, ...]
    answers: Array  # uploads received so far
    diverged: Array  # the round in which a parameter became NaN or infinite, or -1


class Static(NamedTuple):
    """What the program is compiled for."""

    cohort: int  # clients asked in a round
    block: int  # clients computed at once
    capacity: int  # evaluations one call can record
    drops: bool  # whether a client that was asked may not answer
    together: str = ""  # several runs in one program: a key of ARRAYS_AXES, or "" for one run


ARRAYS_AXES: dict[str, Any] = {
    "same": None,  # all with the same data
    "split": Arrays(x=None, y=0, scale=None, shift=None, ids=0, train=0, test=0, validation=0, public=0),  # type: ignore[arg-type]
    "own": 0,  # each with its own
}
"""Which of the data's arrays have an axis of runs, where several runs share a program."""


@dataclass(frozen=True)
class Traffic:
    """Cost of one client in one round."""

    message: int  # bytes
    upload: int  # bytes
    gradients: float  # minibatch gradients (expected)


def over_clients(f: Callable[..., Any], args: Any, block: int) -> Any:
    """Map ``f`` over the leading axis: all at once, or ``block`` at a time where memory is short."""
    n = jax.tree.leaves(args)[0].shape[0]
    if block >= n:
        return jax.vmap(f)(*args)
    return jax.lax.map(lambda a: f(*a), args, batch_size=block)


def over_servers(f: Callable[..., Any], args: Any) -> Any:
    """Map ``f`` over the leading axis, of runs.

    On an accelerator all at once: a server's work is many small steps, mostly waiting (100 runs of CGPFL
    with MLR: 368 → 29 ms a round on an H200). On a CPU one after the other is as fast and compiles in half the time.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda a: f(*a), args)
    return jax.vmap(f)(*args)


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
    everyone = static.cohort == arrays.ids.shape[0]
    at = draw_cohort(keys, arrays.ids, static.cohort)

    def pick(tree: Tree) -> Tree:
        return tree if everyone else jax.tree.map(lambda v: v[at], tree)

    def work(client_id: Array, client: Any, rows: Array, count: Array) -> tuple[Any, Any, Array, Array]:
        own = client_keys(keys, client_id)
        message = method.send(state.server, client_id)
        upload, new = method.train(task, message, client, arrays.view(rows, count), own.train)
        finite = all_finite((upload, new))  # here, while both are in the cache
        if not static.drops:
            return upload, new, jnp.bool_(True), finite
        answered = answers(own.answer, dropout)
        return upload, where(answered, new, client), answered, finite

    ids, before, counts = pick(arrays.ids), pick(state.clients), pick(arrays.train.counts)
    uploads, after, answered, finite = over_clients(work, (ids, before, pick(arrays.train.rows), counts), static.block)
    clients = after if everyone else jax.tree.map(lambda all_, new: all_.at[at].set(new), state.clients, after)
    return Work(uploads, clients, Cohort(ids, jnp.where(answered, counts, 0)), finite.all())


def evaluate(
    method: Any, task: Task, arrays: Arrays, keys: RoundKeys, state: State, static: Static
) -> dict[str, Array]:
    """The record of a round: per-client values ``[N]``, and what the method reports of its server."""

    def one(client_id: Array, client: Any, train: Any, test: Any, validation: Any) -> dict[str, Array]:
        own = client_keys(keys, client_id)
        return evaluate_client(method, task, arrays, state.server, client, client_id, (train, test, validation), own)

    args = (arrays.ids, state.clients, arrays.train, arrays.test, arrays.validation)
    record = over_clients(one, args, static.block)
    report = method.report(state.server)
    if "context" in report:  # by client id → by place in the table
        report = report | {"context": report["context"][arrays.ids]}
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
        return method.aggregate(state.server, work.uploads, work.cohort, key)

    if not static.together:
        task = with_public(task, arrays)
        return Program(
            keys=lambda t: round_keys(keys, t),
            work=lambda k, s: clients_work(method, task, arrays, k, s, dropout, static),
            aggregate=lambda s, w, k: aggregate(method, s, w, k.server),
            evaluate=lambda k, s: evaluate(method, task, arrays, k, s, static),
        )
    data = ARRAYS_AXES[static.together]

    def work(method: Any, task: Task, arrays: Arrays, keys: RoundKeys, state: State) -> Work:
        return clients_work(method, with_public(task, arrays), arrays, keys, state, dropout, static)

    def record(method: Any, task: Task, arrays: Arrays, keys: RoundKeys, state: State) -> dict[str, Array]:
        return evaluate(method, with_public(task, arrays), arrays, keys, state, static)

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
        t, state, records, filled = carry
        of_round = of.keys(t)
        work = of.work(of_round, state)
        server = of.aggregate(state, work, of_round)
        answered = (work.cohort.weights > 0).sum(axis=-1, dtype=jnp.int32)
        heard = state.answers + jnp.where(state.diverged < 0, answered, 0)
        state = State(server, work.clients, heard, state.diverged)

        def write() -> tuple[dict[str, Array], Array, Array]:
            record = of.evaluate(of_round, state)
            fine = jnp.isfinite(record["train_loss"]).all(axis=-1)
            return {k: v.at[filled].set(record[k]) for k, v in records.items()}, filled + 1, fine

        due = ((t + 1) % every == 0) | (t + 1 == total)
        records, filled, fine = jax.lax.cond(due, write, lambda: (records, filled, jnp.ones_like(work.finite)))
        bad = jnp.where(work.finite & fine, -1, t)
        return t + 1, state._replace(diverged=jnp.where(state.diverged < 0, bad, state.diverged)), records, filled

    _, state, records, filled = jax.lax.while_loop(going, body, (start, state, empty, jnp.int32(0)))
    return state, records, filled


def first_state(method: Any, task: Task, arrays: Arrays, keys: Keys) -> State:
    """The state before the first round."""
    task = with_public(task, arrays)
    server_key, client_key = jax.random.split(keys.setup)
    clients = jax.vmap(lambda i: method.init_client(task, jax.random.fold_in(client_key, i)))(arrays.ids)
    server = method.init_server(task, server_key)
    return State(server, clients, jnp.int32(0), jnp.int32(-1))


@partial(jax.jit, static_argnames=("together",))
def begin(method: Any, task: Task, arrays: Arrays, keys: Keys, together: str = "") -> State:
    """The state before the first round, of one run or of several."""
    if not together:
        return first_state(method, task, arrays, keys)
    return jax.vmap(first_state, in_axes=(0, 0, ARRAYS_AXES[together], 0))(method, task, arrays, keys)


def check_start(methods: Iterable[Any], data: Any, model: Any) -> None:
    """Raise what a method has to say against the model before anything runs: every first state is traced."""
    keys = keys_of(0)
    task, arrays = make_task(model, keys, data.clients), on_device(data)
    for method in methods:
        jax.eval_shape(begin, method, task, arrays, keys)


class Simulation:
    """One method on one federation, advanced block by block."""

    def __init__(
        self,
        method: Any,
        data: Any,
        model: Any,
        *,
        rounds: int,
        seed: int = 0,
        eval_every: int = 1,
        participation: float = 1.0,
        dropout: float = 0.0,
        clients_per_block: int = 0,
    ) -> None:
        use_compilation_cache()
        self.method, self.rounds, self.eval_every = method, rounds, eval_every
        self.arrays = on_device(data)
        self.keys = keys_of(seed)
        self.task = make_task(model, self.keys, data.clients)
        self.dropout = jnp.float32(dropout)
        cohort = cohort_size(participation, data.clients)
        self.static = Static(
            cohort=cohort,
            drops=dropout > 0,
            block=clients_per_block or auto_block(client_bytes(model, self.task.initial), cohort),
            capacity=record_capacity(rounds, eval_every, data.clients),
        )

    def start(self) -> State:
        """The state before the first round."""
        state: State = begin(self.method, self.task, self.arrays, self.keys, self.static.together)
        return state

    def compile(self) -> None:
        """Compile the programs into the compilation cache, without running them (from another thread, say)."""
        parts = (self.method, self.task, self.arrays, self.keys)
        begin.lower(*parts, self.static.together).compile()
        state = jax.eval_shape(begin, *parts, self.static.together)
        schedule = tuple(jnp.int32(0) for _ in range(4))
        advance.lower(*parts, state, schedule, self.dropout, self.static).compile()

    def advance(self, state: State, start: int, stop: int) -> tuple[State, dict[str, np.ndarray], list[int]]:
        """Run rounds ``start``..``stop`` (counted from 0, stop exclusive; ``state`` is used up).

        Returns the new state, the records ``{name: [evaluations, ...]}`` and the rounds (counted
        from 1) they belong to. A record of a round that diverged is left out.
        """
        state, records, due = self._advance(state, start, stop)
        kept = [i for i, t in enumerate(due) if int(state.diverged) < 0 or t <= int(state.diverged)]
        return state, {k: v[: len(kept)] for k, v in records.items()}, due[: len(kept)]

    def _advance(self, state: State, start: int, stop: int) -> tuple[State, dict[str, np.ndarray], list[int]]:
        """The same, with every record that was written."""
        every, total = self.eval_every, self.rounds
        due = [t for t in range(start + 1, stop + 1) if t % every == 0 or t == total]
        assert len(due) <= self.static.capacity, "a block must not hold more evaluations than its buffer"
        schedule = tuple(jnp.int32(v) for v in (start, stop, every, total))
        state, records, filled = advance(
            self.method, self.task, self.arrays, self.keys, state, schedule, self.dropout, self.static
        )
        n = int(filled)
        return state, {k: np.asarray(v[:n]) for k, v in host(records).items()}, due[:n]

    def furthest(self, start: int) -> int:
        """The last round a block from ``start`` may reach without overflowing its record buffer."""
        return min(self.rounds, (start // self.eval_every + self.static.capacity) * self.eval_every)

    def traffic(self) -> Traffic:
        """Bytes and gradients of one client in one round, from the shapes of what is sent."""
        state = jax.eval_shape(begin, self.method, self.task, self.arrays, self.keys)
        client = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape[1:], v.dtype), state.clients)
        one = jax.ShapeDtypeStruct((), jnp.int32)
        message = jax.eval_shape(self.method.send, state.server, one)
        task = with_public(self.task, self.arrays)

        def train(message: Any, client: Any, rows: Array, count: Array, key: Array) -> Any:
            return self.method.train(task, message, client, self.arrays.view(rows, count), key)

        upload, _ = jax.eval_shape(
            train, message, client, self.arrays.train.rows[0], self.arrays.train.counts[0], self.keys.rounds
        )
        return Traffic(nbytes(message), nbytes(upload), float(self.method.gradients()))

    def personal(self, state: State, i: int) -> Tree:
        """Parameters of the model client ``i`` uses, as of the last round."""
        own = client_keys(round_keys(self.keys, self.rounds - 1), self.arrays.ids[i])
        client = jax.tree.map(lambda v: v[i], state.clients)
        view = self.arrays.view(self.arrays.train.rows[i], self.arrays.train.counts[i])
        message = self.method.send(state.server, self.arrays.ids[i])
        return self.method.personal(with_public(self.task, self.arrays), message, client, view, own.personal)


def record_capacity(rounds: int, eval_every: int, clients: int) -> int:
    """Evaluations one call can record: all of the run's, or what 32 MB hold."""
    return min(-(-rounds // eval_every), max(1, min(64, (32 << 20) // (48 * clients))))


def auto_block(client_bytes: int, cohort: int) -> int:
    """How many clients to map at once: all that fit; evenly divided if that costs little."""
    limit = CACHE_BLOCK if jax.default_backend() == "cpu" else DEVICE_BLOCK
    fit = min(max(1, limit // max(client_bytes, 1)), cohort)
    even = next(b for b in range(fit, 0, -1) if cohort % b == 0)
    return even if 2 * even > fit else fit


def client_bytes(model: Any, params: Tree, samples: int = 20) -> int:
    """What one client's step has to hold: its model, or on a CPU the largest array made on the way to the loss.

    What a convolution unfolds of a minibatch is many times its input: few clients' fit in a cache (CNN,
    20 clients on two cores: 1.7 → 0.9 s a round). An array no larger than the minibatch does not count.
    """
    if jax.default_backend() != "cpu":
        return nbytes(params)
    inputs = jnp.zeros((samples, *model.shape))
    batch = Batch(inputs, jnp.zeros(samples, jnp.int32), jnp.ones(samples))
    steps = jax.make_jaxpr(model.loss)(params, batch).eqns
    largest = max((math.prod(v.aval.shape) * 4 for step in steps for v in step.outvars), default=0)
    return max(nbytes(params), largest if largest > inputs.nbytes else 0)


def simulate(
    method: Any, data: Any, model: Any, *, rounds: int, **settings: Any
) -> tuple[State, dict[str, Any], list[int]]:
    """Run a method from start to end in memory → (state, records, evaluated rounds).

    The engine alone: no folder, no checkpoint, no progress (see :func:`cgpfl.run` for those).
    """
    simulation = Simulation(method, data, model, rounds=rounds, **settings)
    state, t = simulation.start(), 0
    blocks: list[dict[str, np.ndarray]] = []
    due: list[int] = []
    while t < rounds and int(state.diverged) < 0:
        stop = simulation.furthest(t)
        state, records, evaluated = simulation.advance(state, t, stop)
        blocks.append(records)
        due += evaluated
        t = stop
    return state, {k: np.concatenate([b[k] for b in blocks]) for k in blocks[0]}, due
