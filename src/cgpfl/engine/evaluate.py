"""Evaluation of one client: the same function for every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms import Task
from cgpfl.batch import Batch, chunk_size
from cgpfl.engine.problem import Arrays, ClientKeys, Part
from cgpfl.metrics import Metric, of_attack
from cgpfl.tree import Tree, squared_distance, where

Sums = tuple[Array, Array, dict[str, Tree]]
"""Right answers, losses and metrics' sums, over some samples."""
MOST_SUMS = 1 << 28
"""Bytes of all chunks' sums up to which they are kept: a metric may have thousands of numbers for each."""


def score(
    task: Task,
    params: Tree,
    arrays: Arrays,
    part: Part,
    metrics: Sequence[Metric] = (),
    ragged: bool = False,
    change: Callable[[Batch], Batch] = lambda batch: batch,
) -> Sums:
    """Correct answers (count), mean loss and ``metrics``' sums on one client's part (``rows [max]``, ``count``).

    ``ragged``: where this is mapped over clients, small ones do not wait for the largest (see :func:`in_lanes`).
    ``change``: what becomes of its samples before.
    """
    width = min(chunk_size(), part.rows.shape[0])
    chunks = -(-part.rows.shape[0] // width)
    part = part._replace(rows=jnp.pad(part.rows, (0, chunks * width - part.rows.shape[0])))

    def chunk(task: Task, params: Tree, arrays: Arrays, part: Part, start: Array) -> Sums:
        at = jax.lax.dynamic_slice(part.rows, (start,), (width,))
        weight = (start + jnp.arange(width) < part.counts).astype(jnp.float32)
        batch = change(arrays.view(part.rows, part.counts).take(at, weight))
        correct, loss = task.score(params, batch)
        if not metrics:
            return correct, loss, {}
        outputs = task.apply(params, batch.x)  # the compiler sees that the score has them, too
        seen = flat(task.model, outputs, batch.y, batch.weight)
        return correct, loss, {m.name: m.statistics(*seen) for m in metrics}

    def whole(task: Task, params: Tree, arrays: Arrays, part: Part) -> Sums:
        each = partial(chunk, task, params, arrays, part)
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(each, jnp.int32(0))[2])
        used = jax.lax.div(part.counts + (width - 1), jnp.int32(width))
        return jax.lax.fori_loop(
            *(0, used, lambda i, total: jax.tree.map(jnp.add, total, each(i * width))),
            (jnp.float32(0), jnp.float32(0), nothing),
        )

    if chunks == 1:
        correct, loss, sums = chunk(task, params, arrays, part, jnp.int32(0))
    else:
        total = in_lanes(whole, chunk, width) if ragged else whole
        correct, loss, sums = total(task, params, arrays, part)
    return correct, loss / part.counts, sums


def in_lanes(whole: Callable[..., Sums], chunk: Callable[..., Sums], width: int) -> Callable[..., Sums]:
    """``whole``, and mapped over clients the same sums without the chunks that smaller clients do not have.

        clients     0    1          2
        chunks      0    0  1  2    0  1        as many at once as there are clients, whosever they are
        lanes      [0    1  2][3    4  5]

    A client's sums are added in the order of its chunks, so they do not depend on the others'. Its model is copied to
    each of its lanes: no more at once than there are clients. Models that all share are not copied. Where the chunks'
    sums would take much memory, clients wait.
    """
    call = jax.custom_batching.custom_vmap(whole)

    @call.def_vmap
    def mapped(clients: int, batched: Any, task: Task, params: Tree, arrays: Arrays, part: Part) -> tuple[Sums, Sums]:
        axes = jax.tree.map(lambda own: 0 if own else None, batched)

        def plainly() -> tuple[Sums, Sums]:
            out = jax.vmap(whole, in_axes=tuple(axes), axis_size=clients)(task, params, arrays, part)
            return out, jax.tree.map(lambda _: True, out)

        if not all(batched[3]) or any(jax.tree.leaves((batched[0], batched[2]))):  # not over clients, but over runs
            return plainly()
        used = jax.lax.div(part.counts + (width - 1), jnp.int32(width))
        ends = jnp.cumsum(used)
        first = ends - used
        most = part.rows.shape[1] // width

        def lanes(at: Array) -> Sums:
            client = jnp.minimum(jnp.searchsorted(ends, at, side="right"), clients - 1)
            mine = jax.tree.map(lambda v, own: v[client] if own else v, params, batched[1])
            starts = (at - first[client]) * width
            rows = part.rows.reshape(clients * most, width)[client * most + jnp.minimum(at - first[client], most - 1)]
            # a lane's table is its chunk alone; its count, what of the client's samples is in it
            own = Part(rows, jnp.clip(part.counts[client] - starts, 0, width))
            return jax.vmap(chunk, in_axes=(None, axes[1], None, 0, None))(task, mine, arrays, own, jnp.int32(0))

        shapes = jax.eval_shape(lanes, jnp.arange(clients))
        if sum(s.size * s.dtype.itemsize for s in jax.tree.leaves(shapes)) * (most + 1) > MOST_SUMS:
            return plainly()
        empty = jax.tree.map(lambda s: jnp.zeros((clients * (most + 1), *s.shape[1:]), s.dtype), shapes)

        def step(i: Array, found: Sums) -> Sums:
            new = lanes(i * clients + jnp.arange(clients))
            return jax.tree.map(
                lambda all_, v: jax.lax.dynamic_update_slice_in_dim(all_, v, i * clients, 0), found, new
            )

        found = jax.lax.fori_loop(0, (ends[-1] + clients - 1) // clients, step, empty)

        def add(i: Array, total: Sums) -> Sums:
            new = jax.tree.map(lambda v: v[first + jnp.minimum(i, used - 1)], found)
            return jax.vmap(where)(i < used, jax.tree.map(jnp.add, total, new), total)

        start = jax.tree.map(lambda s: jnp.zeros((clients, *s.shape[1:]), s.dtype), shapes)
        out = jax.lax.fori_loop(0, used.max(), add, start)
        return out, jax.tree.map(lambda _: True, out)

    return call


def flat(model: Any, outputs: Array, y: Array, weight: Array) -> tuple[Array, Array, Array]:
    """What a metric sees of a model's outputs (see :meth:`cgpfl.objectives.Objective.flat`)."""
    objective = getattr(model, "objective", None)
    return (outputs, y, weight) if objective is None else objective.flat(outputs, y, weight)


def over_clients(record: dict[str, Any], metrics: Sequence[Metric]) -> dict[str, Any]:
    """A record with the metrics' sums of each client ``[N, ...]`` → with each one's value ``[N]``, and all sums.

    The sums over clients are ``NAME/pooled``, for :func:`pooled`.
    """
    for m in metrics:
        sums = record[m.name]
        total = jax.tree.map(lambda v: v.sum(axis=0), sums)
        record = {**record, m.name: jax.vmap(m.value)(sums), f"{m.name}/pooled": total}
    return record


def pooled(record: dict[str, Any], metrics: Sequence[Metric]) -> dict[str, Any]:
    """The record with values for the metrics' sums over clients."""
    return record | {f"{m.name}/pooled": m.value(record[f"{m.name}/pooled"]) for m in metrics}


def evaluate_client(
    method: Any,
    task: Task,
    arrays: Arrays,
    server: Any,
    client: Any,
    client_id: Array,
    parts: tuple[Part, Part, Part | None],
    keys: ClientKeys,
    metrics: Sequence[Metric] = (),
    ragged: bool = False,
) -> dict[str, Any]:
    """What is recorded of one client, with the message it would be sent now (see :func:`evaluate_message`).

    Of a liar nothing is: what is reported is that of honest clients.
    """
    message = method.send(server, client_id)
    record = evaluate_message(method, task, arrays, message, client, parts, keys, metrics, ragged)
    lies = method.lies(server, client_id) if hasattr(method, "lies") else None
    return record if lies is None else honest(record, lies)


def honest(record: dict[str, Any], lies: Array) -> dict[str, Any]:
    """The record of a client; of a liar NaN, and nothing to the sums over clients.

    Its training loss stays: that tells whether a run has diverged.
    """

    def hidden(name: str, value: Any) -> Any:
        if name in ("train_loss", "distance"):
            return value
        nothing = jnp.nan if name in UNKNOWN else 0.0
        return jax.tree.map(lambda v: jnp.where(lies, nothing, v).astype(v.dtype), value)

    return {name: hidden(name, value) for name, value in record.items()}


UNKNOWN = ("correct", "loss", "shared_correct", "shared_loss")
"""Records that are NaN for a client of whom nothing is known; others are sums."""


def evaluate_message(
    method: Any,
    task: Task,
    arrays: Arrays,
    message: Any,
    client: Any,
    parts: tuple[Part, Part, Part | None],
    keys: ClientKeys,
    metrics: Sequence[Metric] = (),
    ragged: bool = False,
) -> dict[str, Any]:
    """What is recorded of one client.

    correct, loss: its personal model on its test part; train_loss: f_i of that model (regulariser
    included); validation_correct where there is such a part. Where the method has a shared or
    context model: shared_correct, shared_loss on the test part, and distance, ‖θ_i − ω‖². Of each of
    ``metrics`` the sums over the test part, under its name.
    """
    train, test, validation = parts
    data = arrays.view(train.rows, train.counts)
    personal = method.personal(task, message, client, data, keys.personal)
    fooled = of_attack(method)
    correct, loss, sums = score(task, personal, arrays, test, [m for m in metrics if m not in fooled], ragged)
    if fooled:
        sums |= score(task, personal, arrays, test, fooled, ragged, method.attack.triggered)[2]
    record = {
        "correct": correct,
        "loss": loss,
        "train_loss": score(task, personal, arrays, train, ragged=ragged)[1] + task.penalty(personal),
    }
    if validation is not None:
        record["validation_correct"] = score(task, personal, arrays, validation, ragged=ragged)[0]
    shared = method.shared(message)
    if shared is not None:
        record["shared_correct"], record["shared_loss"], _ = score(task, shared, arrays, test, ragged=ragged)
        record["distance"] = squared_distance(personal, shared)
    return record | sums
