"""The reference engine: a plain Python loop over clients, for tests.

It calls the same method functions one client at a time, the way a deployment does, and shares with
the vectorised engine only the derivation of keys. The two must agree to float tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms import Cohort
from cgpfl.engine.evaluate import evaluate_client, over_clients, pooled
from cgpfl.engine.problem import (
    Part,
    answers,
    client_keys,
    cohort_size,
    draw_cohort,
    keys_of,
    make_task,
    on_device,
    round_keys,
    with_public,
)
from cgpfl.metrics import measured, of_attack

# Hyper-parameters are arguments, as in the vectorised program: folded constants round otherwise. Compiled once, however
# often a loop is run.
_TRAIN = jax.jit(lambda method, *args: method.train(*args))
_AGGREGATE = jax.jit(lambda method, *args: method.aggregate(*args))
_EVALUATE = jax.jit(evaluate_client, static_argnames="metrics")


def simulate_loop(
    method: Any,
    data: Any,
    model: Any,
    *,
    rounds: int,
    seed: int = 0,
    eval_every: int = 1,
    participation: float = 1.0,
    dropout: float = 0.0,
    answered: Callable[[int, int], bool] | None = None,
    metrics: Sequence[str] = (),
) -> tuple[Any, list[Any], dict[str, np.ndarray]]:
    """Run a method client by client → (server, clients' states, records ``{name: [evaluations, ...]}``).

    ``answered(t, client)``: who answers in round t, instead of a draw.
    """
    arrays, keys = on_device(data), keys_of(seed)
    task = with_public(make_task(model, keys, data.clients), arrays)
    server_key, client_key = jax.random.split(keys.setup)
    server = method.init_server(task, server_key)
    clients = [method.init_client(task, jax.random.fold_in(client_key, i)) for i in arrays.ids]
    train, aggregate = partial(_TRAIN, method), partial(_AGGREGATE, method)
    more = (*measured(metrics, getattr(model, "objective", None)), *of_attack(method))
    evaluate = partial(_EVALUATE, method, task, arrays, metrics=more)
    size = cohort_size(participation, data.clients)
    records: list[dict[str, np.ndarray]] = []
    total = 0

    def part(table: Part | None, i: int) -> Any:
        return None if table is None else Part(table.rows[i], table.counts[i])

    for t in range(rounds):
        of_round = round_keys(keys, t)
        asked = [int(i) for i in draw_cohort(method, server, of_round, arrays.ids, arrays.train.counts, size)]
        uploads, weights = [], []
        for i in asked:
            own = client_keys(of_round, arrays.ids[i])
            view = arrays.view(arrays.train.rows[i], arrays.train.counts[i])
            message = method.send(server, arrays.ids[i])
            upload, new = train(task, message, clients[i], view, own.train)
            counts = bool(answers(own.answer, dropout)) if answered is None else answered(t, i)
            clients[i] = new if counts else clients[i]
            uploads.append(upload)
            weights.append(int(arrays.train.counts[i]) if counts else 0)
            total += counts
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *uploads)
        cohort = Cohort(arrays.ids[jnp.asarray(asked)], jnp.asarray(weights, jnp.int32))
        server = aggregate(server, stacked, cohort, of_round.server)
        if (t + 1) % eval_every == 0 or t + 1 == rounds:
            each = []
            for i in range(data.clients):
                parts = (part(arrays.train, i), part(arrays.test, i), part(arrays.validation, i))
                own = client_keys(of_round, arrays.ids[i])
                each.append(evaluate(server, clients[i], arrays.ids[i], parts, own))
            record = jax.tree.map(lambda *values: np.array([np.asarray(v, float) for v in values]), *each)
            record = jax.tree.map(np.asarray, pooled(over_clients(record, more), more))
            report = {k: np.asarray(v) for k, v in method.report(server).items()}
            if "context" in report:
                report["context"] = report["context"][np.asarray(arrays.ids)]
            records.append({**record, **report, "answers": np.asarray(total)})
    return server, clients, {k: np.stack([r[k] for r in records]) for k in records[0]}
