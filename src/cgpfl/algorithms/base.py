"""The contract of a method: what one client does and what the server does.

A method is a frozen dataclass of hyper-parameters with pure functions on it. It never loops over
clients, opens a file, picks a device or logs: the engines decide where and how often its functions
run. The same class therefore runs vectorised in simulation and on real nodes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.batch import Batch
from cgpfl.tree import Tree


class Cohort(NamedTuple):
    """Who was asked in a round, in the order of the stacked uploads.

    ``ids [C]`` are client ids, ``weights [C]`` their training samples m_i; weight 0 means the client
    was asked but did not answer, and its upload must be ignored.
    """

    ids: Array
    weights: Array

    @property
    def present(self) -> Array:
        """1.0 for each client that answered, else 0.0. Shape ``[C]``."""
        return (self.weights > 0).astype(jnp.float32)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ClientData:
    """One client's training samples: a view into arrays shared by all clients.

    ``x [n, ...]`` and ``y [n]`` hold every sample once; ``rows [max]`` are this client's positions in
    them, of which the first ``count`` are real. Model inputs are x * ``scale`` + ``shift``.
    """

    x: Array
    y: Array
    rows: Array
    count: Array
    scale: Array
    shift: Array

    def batch(self, key: Array, size: int) -> Batch:
        """``size`` samples drawn uniformly with replacement; ``size=0``: all of them, in order.

        A draw depends on the key and the client's own count alone, never on how far the table is
        padded, so the same client draws the same batches in every engine.
        """
        if size == 0:
            return self.all()
        picks = jax.random.randint(key, (size,), 0, self.count)
        return self.take(self.rows[picks], jnp.ones(size, jnp.float32))

    def all(self) -> Batch:
        """Every sample of this client, padding at weight 0."""
        return self.take(self.rows, (jnp.arange(self.rows.shape[0]) < self.count).astype(jnp.float32))

    def take(self, rows: Array, weight: Array) -> Batch:
        """The samples at ``rows``, scaled to float32."""
        return Batch(self.x[rows].astype(jnp.float32) * self.scale + self.shift, self.y[rows], weight)


class ModelLike(Protocol):
    """What a method may ask of a model (see :class:`cgpfl.models.Model`)."""

    def init(self, key: Array) -> Tree:
        """Fresh parameters."""
        ...

    def loss(self, params: Tree, batch: Batch) -> Array:
        """f: weighted mean loss over the batch, regulariser included."""
        ...

    def penalty(self, params: Tree) -> Array | float:
        """The regulariser in the loss."""
        ...

    def score(self, params: Tree, batch: Batch) -> tuple[Array, Array]:
        """Weighted sums over the batch: correct answers, and loss without the regulariser."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Task:
    """What is learned, as every method sees it.

    ``initial`` are the parameters that every method and every client start from. ``clients`` is N.
    """

    initial: Tree
    model: ModelLike = dataclasses.field(metadata={"static": True})
    clients: int = dataclasses.field(metadata={"static": True})

    def loss(self, params: Tree, batch: Batch) -> Array:
        """f_i on a batch."""
        return self.model.loss(params, batch)

    def grad(self, params: Tree, batch: Batch) -> Tree:
        """∇f_i on a batch."""
        return jax.grad(self.model.loss)(params, batch)


@runtime_checkable
class Algorithm(Protocol):
    """The contract. N clients; a round asks a cohort of C of them.

    *Server* state is known to the server alone, *Client* state never leaves its client, a *Message*
    goes down and an *Upload* comes back. Each is any pytree of arrays, with shapes that do not change
    over rounds. All functions are pure and traceable by JAX; randomness comes from ``key`` alone,
    which the engine derives from (seed, round, client).
    """

    def init_server(self, task: Task, key: Array) -> Any:
        """The server's state before the first round."""
        ...

    def init_client(self, task: Task, key: Array) -> Any:
        """One client's private state before its first round."""
        ...

    def send(self, server: Any, client_id: Array) -> Any:
        """The message for one client."""
        ...

    def train(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> tuple[Any, Any]:
        """One round on one client → (upload, its new private state)."""
        ...

    def aggregate(self, server: Any, uploads: Any, cohort: Cohort, key: Array) -> Any:
        """The server's new state from the uploads, stacked ``[C, ...]`` in the cohort's order."""
        ...

    def personal(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> Tree:
        """The model this client uses. May train on ``data``, the client's own training samples."""
        ...

    def shared(self, message: Any) -> Tree | None:
        """The shared or context model the client was sent, or None where there is none."""
        ...

    def report(self, server: Any) -> dict[str, Array]:
        """What to record of the server's state; ``context [N]`` and ``k`` where clients are grouped."""
        ...

    def gradients(self) -> int:
        """Minibatch gradients one client evaluates in a round."""
        ...


class Method:
    """Base class of the methods here: what most of them share, and two hooks beside the contract.

    ``check`` and ``likely_cause`` are optional: the runner calls them where a method has them.
    """

    name: str = ""
    """Name on the command line."""
    citation: str = ""

    def shared(self, message: Any) -> Tree | None:
        """By default the message is the shared model."""
        return message

    def report(self, server: Any) -> dict[str, Array]:
        """By default nothing beside the metrics."""
        return {}

    def check(self, clients: int, answers: float) -> None:
        """Raise a one-line CgpflError where the settings do not fit the run.

        ``answers`` is how many uploads the run expects in all: rounds × clients asked × share answering.
        """

    def likely_cause(self) -> str:
        """Why this method may have diverged, in a few words."""
        return "the rates are too high for this model and data"
