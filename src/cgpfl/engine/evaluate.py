"""Evaluation of one client: the same function for every engine."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms import Task
from cgpfl.batch import chunk_size
from cgpfl.engine.problem import Arrays, ClientKeys, Part
from cgpfl.tree import Tree, squared_distance


def score(task: Task, params: Tree, arrays: Arrays, part: Part) -> tuple[Array, Array]:
    """Correct answers (count) and mean loss of ``params`` on one client's part (``rows [max]``, ``count``)."""
    rows, count = part.rows, part.counts
    width = min(chunk_size(), rows.shape[0])
    chunks = -(-rows.shape[0] // width)
    rows = jnp.pad(rows, (0, chunks * width - rows.shape[0]))

    def chunk(start: Array) -> tuple[Array, Array]:
        at = jax.lax.dynamic_slice(rows, (start,), (width,))
        weight = (start + jnp.arange(width) < count).astype(jnp.float32)
        return task.model.score(params, arrays.view(rows, count).take(at, weight))

    if chunks == 1:
        correct, loss = chunk(jnp.int32(0))
    else:

        def add(i: Array, total: tuple[Array, Array]) -> tuple[Array, Array]:
            correct, loss = chunk(i * width)
            return total[0] + correct, total[1] + loss

        used = (count + width - 1) // width
        correct, loss = jax.lax.fori_loop(0, used, add, (jnp.float32(0), jnp.float32(0)))
    return correct, loss / count


def evaluate_client(
    method: Any,
    task: Task,
    arrays: Arrays,
    server: Any,
    client: Any,
    client_id: Array,
    parts: tuple[Part, Part, Part | None],
    keys: ClientKeys,
) -> dict[str, Array]:
    """What is recorded of one client, with the message it would be sent now (see :func:`evaluate_message`)."""
    return evaluate_message(method, task, arrays, method.send(server, client_id), client, parts, keys)


def evaluate_message(
    method: Any,
    task: Task,
    arrays: Arrays,
    message: Any,
    client: Any,
    parts: tuple[Part, Part, Part | None],
    keys: ClientKeys,
) -> dict[str, Array]:
    """What is recorded of one client.

    correct, loss: its personal model on its test part; train_loss: f_i of that model (regulariser
    included); validation_correct where there is such a part. Where the method has a shared or
    context model: shared_correct, shared_loss on the test part, and distance, ‖θ_i − ω‖².
    """
    train, test, validation = parts
    data = arrays.view(train.rows, train.counts)
    personal = method.personal(task, message, client, data, keys.personal)
    correct, loss = score(task, personal, arrays, test)
    record = {
        "correct": correct,
        "loss": loss,
        "train_loss": score(task, personal, arrays, train)[1] + task.model.penalty(personal),
    }
    if validation is not None:
        record["validation_correct"] = score(task, personal, arrays, validation)[0]
    shared = method.shared(message)
    if shared is not None:
        record["shared_correct"], record["shared_loss"] = score(task, shared, arrays, test)
        record["distance"] = squared_distance(personal, shared)
    return record
