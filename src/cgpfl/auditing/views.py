"""What others see of a client, as models: its upload, the shared or context's model, its personal model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import Task
from cgpfl.algorithms.wrapper import Seamed
from cgpfl.batch import Batch
from cgpfl.data import FederatedData
from cgpfl.data.federated import IndexTable
from cgpfl.engine import Drive, Simulation, State
from cgpfl.engine.problem import client_keys, round_keys, with_public
from cgpfl.errors import CgpflError
from cgpfl.tree import Tree

VIEWS = {
    "upload": "the server, who gets it",
    "shared": "everybody who is sent it",
    "personal": "the client, and whom it gives the model",
}
"""By whom each model is seen."""
MOST_AT_ONCE = 64
"""Clients whose models are looked at at once."""


@dataclass(frozen=True)
class Trained:
    """A method after its last round, or after so many ``rounds``."""

    simulation: Simulation
    state: State
    rounds: int

    def losses(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Loss of each client's samples ``rows [N, P]`` under each model that there is, ``{view: [N, P]}``."""
        of, block = self.simulation, min(MOST_AT_ONCE, self.simulation.static.clients)
        found = _losses(of.method, of.task, of.arrays, of.keys, self.state, jnp.asarray(rows), self.rounds, block)
        return {view: np.asarray(v, np.float64) for view, v in found.items()}


def trained(method: Any, data: FederatedData, model: Any, settings: dict[str, Any]) -> Trained:
    """Run it in memory; ``settings``: of :class:`~cgpfl.engine.Simulation`, of which ``rounds`` may be 0."""
    rounds = settings["rounds"]
    quiet = {**settings, "rounds": max(rounds, 1), "eval_every": max(rounds, 1), "patience": 0, "metrics": []}
    simulation = Simulation(method, data, model, **quiet)
    if not rounds:
        return Trained(simulation, simulation.start(), 0)
    done = Drive(simulation).quick()
    if int(done.state.diverged) >= 0:
        raise CgpflError(
            f"audit: a training of its own diverged in round {int(done.state.diverged) + 1}; lower the rates"
        )
    return Trained(simulation, done.state, rounds)


def upload_of(method: Any, server: Any, client_id: Array, sent: Any) -> Any:
    """The method's upload as the server understands it, of what a client sent."""
    if not isinstance(method, Seamed):
        return sent
    if method.encoder is not None:
        return method._decoded(method.inner(server), client_id, sent)
    return sent.upload if method.sampler.by_loss else sent


def is_model(tree: Any, like: Tree) -> bool:
    """Whether a tree has the form of a model's parameters."""
    forms: list[Any] = [jax.tree.map(lambda v: (v.shape, v.dtype), t) for t in (tree, like)]
    return bool(jax.tree.leaves(like)) and bool(forms[0] == forms[1])


def _one(method: Any, task: Task, arrays: Any, keys: Any, server: Any, rounds: int, args: Any) -> dict[str, Array]:
    client_id, client, rows, count, looked = args
    view, message = arrays.view(rows, count), method.send(server, client_id)
    last, next_ = (client_keys(round_keys(keys, t), client_id) for t in (max(rounds - 1, 0), rounds))
    sent, _ = method.train(task, message, client, view, next_.train)
    models = {
        "upload": upload_of(method, server, client_id, sent),
        "shared": method.shared(message),
        "personal": method.personal(task, message, client, view, last.personal),
    }
    batch = view.take(looked, jnp.ones(looked.shape[0], jnp.float32))

    def each(params: Tree) -> Array:
        def sample(x: Array, y: Array) -> Array:
            return task.score(params, Batch(x[None], y[None], jnp.ones(1)))[1]

        return jax.vmap(sample)(batch.x, batch.y)

    return {name: each(params) for name, params in models.items() if is_model(params, task.initial)}


def _all(
    method: Any, task: Task, arrays: Any, keys: Any, state: State, rows: Array, rounds: int, block: int
) -> dict[str, Array]:
    known = with_public(task, arrays)
    args = (arrays.ids, state.clients, arrays.train.rows, arrays.train.counts, rows)
    return jax.lax.map(lambda one: _one(method, known, arrays, keys, state.server, rounds, one), args, batch_size=block)


_losses = jax.jit(_all, static_argnames=("rounds", "block"))


def padded(parts: list[np.ndarray], width: int) -> IndexTable:
    """A table of at least ``width`` columns: trainings with tables of one form share a program."""
    table = IndexTable.of(parts)
    more = max(width - table.rows.shape[1], 0)
    return IndexTable(np.pad(table.rows, ((0, 0), (0, more))), table.counts)


def with_parts(data: FederatedData, train: list[np.ndarray], test: list[np.ndarray], width: int) -> FederatedData:
    """The same samples, held otherwise."""
    return dataclasses.replace(data, train=padded(train, width), test=padded(test, 1), validation=None, made=None)
