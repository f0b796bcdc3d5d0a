"""Evaluation of one client: the same function for every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms import Task
from cgpfl.batch import Batch, chunk_size
from cgpfl.engine.problem import Arrays, ClientKeys, Part
from cgpfl.metrics import Metric, of_attack
from cgpfl.tree import Tree, squared_distance


def score(
    task: Task,
    params: Tree,
    arrays: Arrays,
    part: Part,
    metrics: Sequence[Metric] = (),
    change: Callable[[Batch], Batch] = lambda batch: batch,
) -> tuple[Array, Array, dict[str, Tree]]:
    """Correct answers (count), mean loss and ``metrics``' sums on one client's part (``rows [max]``, ``count``).

    ``change``: what becomes of its samples before.
    """
    rows, count = part.rows, part.counts
    width = min(chunk_size(), rows.shape[0])
    chunks = -(-rows.shape[0] // width)
    rows = jnp.pad(rows, (0, chunks * width - rows.shape[0]))

    def chunk(start: Array) -> tuple[Array, Array, dict[str, Tree]]:
        at = jax.lax.dynamic_slice(rows, (start,), (width,))
        weight = (start + jnp.arange(width) < count).astype(jnp.float32)
        batch = change(arrays.view(rows, count).take(at, weight))
        correct, loss = task.score(params, batch)
        if not metrics:
            return correct, loss, {}
        outputs = task.apply(params, batch.x)  # the compiler sees that the score has them, too
        seen = flat(task.model, outputs, batch.y, batch.weight)
        return correct, loss, {m.name: m.statistics(*seen) for m in metrics}

    if chunks == 1:
        correct, loss, sums = chunk(jnp.int32(0))
    else:
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(chunk, jnp.int32(0))[2])
        used = (count + width - 1) // width
        correct, loss, sums = jax.lax.fori_loop(
            *(0, used, lambda i, total: jax.tree.map(jnp.add, total, chunk(i * width))),
            (jnp.float32(0), jnp.float32(0), nothing),
        )
    return correct, loss / count, sums


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
) -> dict[str, Any]:
    """What is recorded of one client, with the message it would be sent now (see :func:`evaluate_message`).

    Of a liar nothing is: what is reported is that of honest clients.
    """
    record = evaluate_message(method, task, arrays, method.send(server, client_id), client, parts, keys, metrics)
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
    correct, loss, sums = score(task, personal, arrays, test, [m for m in metrics if m not in fooled])
    if fooled:
        sums |= score(task, personal, arrays, test, fooled, method.attack.triggered)[2]
    record = {
        "correct": correct,
        "loss": loss,
        "train_loss": score(task, personal, arrays, train)[1] + task.penalty(personal),
    }
    if validation is not None:
        record["validation_correct"] = score(task, personal, arrays, validation)[0]
    shared = method.shared(message)
    if shared is not None:
        record["shared_correct"], record["shared_loss"], _ = score(task, shared, arrays, test)
        record["distance"] = squared_distance(personal, shared)
    return record | sums
