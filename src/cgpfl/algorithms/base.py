"""The contract of a method: what one client does and what the server does.

A method is a frozen dataclass of hyper-parameters with pure functions on it. It never loops over
clients, opens a file, picks a device or logs: the engines decide where and how often its functions
run. The same class therefore runs vectorised in simulation and on real nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.batch import Batch, model_key
from cgpfl.contexts.evidence import hashed
from cgpfl.errors import CgpflError
from cgpfl.rounds.account import Steps
from cgpfl.rounds.means import Mean, WeightedMean
from cgpfl.rounds.sums import NoisySums
from cgpfl.tree import Tree, matching, merged, partition, paths


@partial(jax.tree_util.register_dataclass, data_fields=["ids", "weights", "rule"], meta_fields=["noised"])
@dataclass(frozen=True)
class Cohort:
    """Who was asked in a round, in the order of the stacked uploads.

    ``ids [C]`` are client ids, ``weights [C]`` their training samples m_i; weight 0 means the client
    was asked but did not answer, and its upload must be ignored. Means are taken by :meth:`mean` and
    :meth:`group_means`: what a mean is, is not the method's business.
    """

    ids: Array
    weights: Array
    rule: Mean = dataclasses.field(default_factory=WeightedMean)
    noised: bool = False
    """Whether uploads carry noise for privacy: what they do not show may be hidden in it."""

    @property
    def summed(self) -> bool:
        """Whether nothing may follow from single uploads: a server that is trusted noises sums of them."""
        return isinstance(self.rule, NoisySums)

    @property
    def present(self) -> Array:
        """1.0 for each client that answered, else 0.0. Shape ``[C]``."""
        return (self.weights > 0).astype(jnp.float32)

    def mean(self, uploads: Tree, fallback: Tree, *, equally: bool = False) -> Tree:
        """Of the uploads ``[C, ...]``, by samples or everybody ``equally``; ``fallback`` where nobody answered."""
        return self.rule.mean(uploads, self._shares(equally), fallback)

    def group_means(self, uploads: Tree, labels: Array, fallback: Tree, *, equally: bool = False) -> Tree:
        """Of each group's uploads ``[K, ...]``, ``labels [C]`` in 0..K-1; of an empty one ``fallback [K, ...]``."""
        return self.rule.group_means(uploads, labels, self._shares(equally), fallback)

    def _shares(self, equally: bool) -> Array:
        return self.present if equally else self.weights.astype(jnp.float32)


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
        padded, so the same client draws the same batches in every engine. The model has a key of its own.
        """
        batch = self.all() if size == 0 else self.take(self.draw(key, size), jnp.ones(size, jnp.float32))
        return batch._replace(key=model_key(key))

    def draw(self, key: Array, size: int) -> Array:
        """Where the samples of a :meth:`batch` of ``size`` are, ``[size]``."""
        return self.rows[jax.random.randint(key, (size,), 0, self.count)]

    def all(self) -> Batch:
        """Every sample of this client, padding at weight 0."""
        return self.take(self.rows, (jnp.arange(self.rows.shape[0]) < self.count).astype(jnp.float32))

    def part(self, first: Array, count: Array) -> ClientData:
        """``count`` of this client's samples from position ``first`` on, as a client of their own."""
        return dataclasses.replace(self, rows=jnp.roll(self.rows, -first), count=count)

    def fold(self, fold: Array, folds: int, seed: Array) -> ClientData:
        """Fold ``fold`` of ``folds`` of this client's samples, as a client of its own.

        Of every ``folds`` samples that follow each other each fold has one, drawn by ``seed`` (uint32): the folds
        depend on that and the client's own count alone. A client with fewer samples than folds has one in several.
        """
        places = self.rows.shape[0]
        blocks = jnp.arange(-(-places // folds))
        at = blocks * folds + (fold + hashed(blocks, seed) % folds) % folds
        count = (at < self.count).sum()  # only the last block may be incomplete, so these come first
        at = jnp.where(count > 0, jnp.minimum(at, places - 1), fold % jnp.maximum(self.count, 1))
        rows = jnp.pad(self.rows[at], (0, places - at.shape[0]))
        return dataclasses.replace(self, rows=rows, count=jnp.maximum(count, 1))

    def without(self, fold: Array, folds: int, seed: Array) -> ClientData:
        """All samples but those of :meth:`fold` ``fold``, as a client of its own; of a client with one sample, that."""
        places = self.rows.shape[0]
        blocks, each = jnp.divmod(jnp.arange(-(-places // folds) * (folds - 1)), folds - 1)
        at = blocks * folds + each + (each >= (fold + hashed(blocks, seed) % folds) % folds)
        count = (at < self.count).sum()  # in order, so these come first
        rows = self.rows[jnp.where(count > 0, jnp.minimum(at, places - 1), 0)][:places]
        rows = jnp.pad(rows, (0, places - rows.shape[0]))
        return dataclasses.replace(self, rows=rows, count=jnp.maximum(count, 1))

    def take(self, rows: Array, weight: Array) -> Batch:
        """The samples at ``rows``, scaled to float32."""
        return Batch(self.x[rows].astype(jnp.float32) * self.scale + self.shift, self.y[rows], weight)


class ModelLike(Protocol):
    """What a method may ask of a model (see :class:`cgpfl.models.Model`)."""

    def init(self, key: Array) -> Tree:
        """Fresh parameters."""

    def apply(self, params: Tree, x: Array) -> Array:
        """Logits ``[B, classes]`` of inputs ``x [B, ...]``."""

    def loss(self, params: Tree, batch: Batch) -> Array:
        """f: weighted mean loss over the batch, regulariser included."""

    def penalty(self, params: Tree) -> Array | float:
        """The regulariser in the loss."""

    def score(self, params: Tree, batch: Batch) -> tuple[Array, Array]:
        """Weighted sums over the batch: correct answers, and loss without the regulariser."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Task:
    """What is learned, as every method sees it.

    ``initial`` are the parameters that every method and every client start from. ``clients`` is N.
    ``public`` are samples that everybody has, where the federation has any. ``frozen`` are the parameters that nobody
    trains: one copy for all clients, None where ``initial`` has a leaf (and the other way round). Methods never see
    them; what asks the model goes through the task, which puts them in.
    """

    initial: Tree
    model: ModelLike = dataclasses.field(metadata={"static": True})
    clients: int = dataclasses.field(metadata={"static": True})
    public: ClientData | None = None
    frozen: Tree = ()

    @property
    def own(self) -> Task:
        """The task for what never leaves its client: the same, but without noise where gradients have some."""
        return self

    @property
    def everybodys(self) -> ClientData:
        """The public samples, for a method that needs them."""
        if self.public is None:
            raise CgpflError("this method needs samples that everybody has; set data.public, for instance to 0.1")
        return self.public

    def whole(self, params: Tree) -> Tree:
        """All of the model's parameters: those given, and the frozen ones."""
        return merged(params, self.frozen)

    def fresh(self, key: Array) -> Tree:
        """Parameters as ``initial``, of another key."""
        return trained(self.model, self.model.init(key))[0]

    def apply(self, params: Tree, x: Array) -> Array:
        return self.model.apply(self.whole(params), x)

    def score(self, params: Tree, batch: Batch) -> tuple[Array, Array]:
        """The model's: weighted sums over the batch of correct answers and loss."""
        return self.model.score(self.whole(params), batch)

    def penalty(self, params: Tree) -> Array | float:
        return self.model.penalty(self.whole(params))

    def loss(self, params: Tree, batch: Batch) -> Array:
        """f_i on a batch."""
        return self.model.loss(self.whole(params), batch)

    def grad(self, params: Tree, batch: Batch) -> Tree:
        """∇f_i on a batch."""
        return self.gradient(lambda p: self.loss(p, batch), params)

    def gradient(self, f: Callable[[Tree], Array], params: Tree) -> Tree:
        """∇f of any other function of the parameters."""
        return jax.grad(f)(params)

    def proximal_steps(
        self, params: Tree, anchor: Tree, batch: Batch, prox: Array | float, rate: Array | float, steps: int
    ) -> Tree:
        """``steps`` times θ ← θ − η(∇f_i(θ) + λ(θ − anchor)) on one minibatch; a model may know a shorter way."""
        shortcut = None if jax.tree.leaves(self.frozen) else getattr(self.model, "proximal_steps", None)
        found = None if shortcut is None else shortcut(params, anchor, batch, prox, rate, steps)
        if found is not None:
            return found

        def step(theta: Tree, _: None) -> tuple[Tree, None]:
            g = self.grad(theta, batch)
            return jax.tree.map(lambda t, g, w: -rate * (g + prox * (t - w)) + t, theta, g, anchor), None

        return jax.lax.scan(step, params, None, length=steps)[0]


def trained(model: Any, params: Tree) -> tuple[Tree, Tree]:
    """A model's parameters as (those that are trained, those that are frozen by the model's pattern)."""
    patterns = getattr(model, "frozen", "")
    if not patterns:
        return params, ()
    found = matching(patterns, paths(params), "frozen")
    if len(found) == len(paths(params)):
        raise CgpflError(f"frozen = {patterns!r}: matches every parameter; some must be left to train")
    return partition(params, found)


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

    def init_client(self, task: Task, key: Array) -> Any:
        """One client's private state before its first round."""

    def send(self, server: Any, client_id: Array) -> Any:
        """The message for one client."""

    def train(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> tuple[Any, Any]:
        """One round on one client → (upload, its new private state)."""

    def aggregate(self, server: Any, uploads: Any, cohort: Cohort, key: Array) -> Any:
        """The server's new state from the uploads, stacked ``[C, ...]`` in the cohort's order."""

    def personal(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> Tree:
        """The model this client uses. May train on ``data``, the client's own training samples."""

    def shared(self, message: Any) -> Tree | None:
        """The shared or context model the client was sent, or None where there is none."""

    def report(self, server: Any) -> dict[str, Array]:
        """What to record of the server's state; ``context [N]`` and ``k`` where clients are grouped."""

    def gradients(self) -> float:
        """Gradients one client evaluates in a round (the expected number, where that is random)."""


class Method:
    """Base class of the methods here: what most of them share, and hooks beside the contract.

    ``anchor``, ``check``, ``choices``, ``gradients_of``, ``likely_cause``, ``needs_public``, ``noisy_steps``,
    ``placed`` and ``reveals`` are optional: who uses them asks first.
    """

    name: str = ""
    """Name on the command line."""
    citation: str = ""
    original: str = ""
    """Settings of the original paper, where it states them."""
    when: str = ""
    """When to use it, in a sentence or two."""
    needs_public: bool = False
    """Whether the method needs samples that everybody has, ``task.public``."""
    reveals: bool = False
    """Whether an upload is what the client keeps, too: such a method has no secret from its server."""
    only_means: bool = False
    """Whether the server uses nothing of a round's uploads but one mean of them all."""

    def init_client(self, task: Task, key: Array) -> Any:
        """By default a client keeps nothing."""
        return ()

    def send(self, server: Any, client_id: Array) -> Any:
        """By default everyone gets all of the server's state, the one model."""
        return server

    def personal(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> Tree:
        """By default the model the client was sent."""
        return message

    def shared(self, message: Any) -> Tree | None:
        """By default the message is the shared model."""
        return message

    def choices(self, message: Any) -> Tree | None:
        """The models of all contexts ``[K, ...]``, where a client is sent all to choose one by its own loss."""
        return None

    def anchor(self, message: Any, upload: Any) -> Any:
        """What an upload has moved away from, for what clips or compresses updates: a tree of the upload's form.

        Zeros where a part is a difference already, None where it is none of both (a choice, a count): such parts alone
        may be read from ``upload``. By default the message, as for a moved copy of the model.
        """
        return message

    def report(self, server: Any) -> dict[str, Array]:
        """By default nothing beside the metrics."""
        return {}

    def check(self, clients: int, answers: float, rounds: int) -> None:
        """Raise a one-line CgpflError where the settings do not fit the run.

        ``answers`` is how many uploads the run expects in all: ``rounds`` × clients asked × share answering.
        """

    def noisy_steps(self, rounds: int) -> tuple[Steps, ...] | None:
        """What a client's uploads of ``rounds`` rounds are made of: gradients by ``task.grad`` or ``proximal_steps``.

        Each minibatch is drawn by the client's data. By default None: they are made of something else, too, and there
        is no privacy of samples.
        """
        return None

    def gradients(self) -> float:
        """By default none are counted."""
        return 0.0

    def gradients_of(self, samples: float) -> float:
        """Gradients that a client with so many samples evaluates in a round."""
        return self.gradients()

    def likely_cause(self) -> str:
        """Why this method may have diverged, in a few words."""
        return "the rates are too high for this model and data"
