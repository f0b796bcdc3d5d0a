"""What a server has for a client it has not met, found by the contract alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from cgpfl.errors import CgpflError
from cgpfl.experiment.reload import Published
from cgpfl.tree import Tree


class Candidates(NamedTuple):
    """A message for each context, or the one that everybody gets."""

    contexts: list[int]
    """Which contexts; empty for a method without any."""
    members: list[int]
    """Clients of each."""
    messages: list[Any]
    """What is sent to a client of each."""
    models: Tree | None
    """The published models, stacked ``[K, ...]``; None where what is sent is no model (a body, logits)."""


def candidates(published: Published) -> Candidates:
    """What each context's members are sent, and the models in it.

    A client that was never there gets what the members of its context get, so these must all get the same.
    """
    method, server, label = published.method, published.server, published.label
    clients, report = published.task.clients, method.report(server)
    grouped = "context" in report
    context = np.asarray(report["context"]) if grouped else np.zeros(clients, int)
    groups = [np.flatnonzero(context == k) for k in range(int(report["k"]) if grouped else 1)]

    def send(client: int) -> Any:
        return _send(method, server, np.int32(client))

    first = send(0)
    if not jax.tree.leaves(first):
        raise CgpflError(f"{label}: its server sends nothing, so it has nothing for a new client; use another method")
    all_models = method.choices(first) if hasattr(method, "choices") else None
    if all_models is not None:  # everybody is sent all models, of contexts without members, too
        used = jax.tree.map(lambda v: np.asarray(v)[: len(groups)], all_models)
        sizes = [len(g) for g in groups]
        return Candidates(list(range(len(groups))), sizes, [first] * len(groups), used)
    there = [k for k, members in enumerate(groups) if len(members)]
    messages = [send(int(groups[k][0])) for k in there]
    for k, message in zip(there, messages, strict=True):
        if not _same(message, send(int(groups[k][-1]))):
            raise CgpflError(
                f"{label}: its server's messages are made for each client, none for a new one; use another method"
            )
    shared = [method.shared(message) for message in messages]
    models = None if shared[0] is None else jax.tree.map(lambda *leaves: np.stack(leaves), *shared)
    return Candidates(there if grouped else [], [len(groups[k]) for k in there], messages, models)


@jax.jit
def _send(method: Any, server: Any, client_id: Any) -> Any:
    return method.send(server, client_id)


def _same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
