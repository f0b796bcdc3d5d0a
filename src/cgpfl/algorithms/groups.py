"""Groups of clients with a model each: the server's step, and FedAvg inside groups found by linkage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import Cohort, Task
from cgpfl.algorithms.fedavg import FedAvg
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree, axpy, repeat, switch, take, where


def group_step(
    models: Tree, uploads: Tree, labels: Array, cohort: Cohort, *, rate: Array | float = 1.0, equally: bool = False
) -> Tree:
    """Ω ← Ω − α(Ω − Ω̃P): each group's model moves to the mean of its members' uploads.

    ``models [K, ...]``, ``uploads [C, ...]``, ``labels [C]`` in 0..K-1. A group without a member that answered keeps
    its model.
    """
    means = cohort.group_means(uploads, labels, fallback=models, equally=equally)
    return jax.tree.map(lambda w, mean: w - rate * (w - mean), models, means)


def too_small(assignment: Array, slots: int, smallest: int) -> Array:
    """Whose context has fewer members than ``smallest``: ``assignment [N]`` in 0..slots-1 → ``[N]`` bool."""
    sizes = jax.nn.one_hot(assignment, slots).sum(axis=0)
    return sizes[jnp.minimum(assignment, slots - 1)] < smallest


def heard_in(assignment: Array, ids: Array, slots: int, smallest: int) -> Array:
    """The contexts ``[C]`` in whose means clients ``ids [C]`` count; none (``slots``) for those of one too small."""
    labels = assignment[ids]
    return labels if smallest == 1 else jnp.where(too_small(assignment, slots, smallest)[ids], slots, labels)


SMALLEST = "fewest members of a context: those of a smaller one have models of their own, and no say in any"


def somebody_counts(smallest: int, clients: int, name: str) -> None:
    """Raise a one-line error where no context can have as many members as one needs."""
    if smallest > clients:
        raise CgpflError(f"{name}: smallest = {smallest}: must be at most the number of clients, {clients}")


def room_for(contexts: Any, clients: int, most: int, name: str) -> int:
    """How many contexts there may be: K; "auto": up to N/2 and ``most``; or as many as the given labels name."""
    if isinstance(contexts, tuple):
        if len(contexts) != clients:
            raise CgpflError(f"{name}: contexts has {len(contexts)} labels for {clients} clients")
        if max(contexts) >= clients:
            raise CgpflError(f"{name}: contexts has label {max(contexts)}; labels must be below {clients}")
        return int(max(contexts)) + 1
    if contexts == "auto":
        return max(min(clients // 2, most), 1)
    if int(contexts) > clients:
        raise CgpflError(f"{name}: contexts = {contexts}: must be at most the number of clients, {clients}")
    return int(contexts)


def leaves_rounds(warmup: int, clients: int, answers: float, name: str) -> None:
    """Raise a one-line error where a warm-up takes all the answers that a run has."""
    if warmup * clients >= answers:
        raise CgpflError(
            f"{name}: warmup = {warmup}: takes {warmup * clients} answers of clients and the run has {answers:.0f}; "
            "lower it or run more rounds"
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Groups:
    """A model for each group, who belongs where, and what each client's last update was."""

    models: Tree  # leaves [K, ...]
    assignment: Array  # [N] group of each client
    k: Array  # groups in use
    updates: Tree  # leaves [N, ...]: Δ_i, the last update heard of
    samples: Array  # [N] m_i of the clients heard of, else 0
    fresh: Array  # [N] whether the update is of the group the client is in
    round: Array  # rounds in which somebody answered
    changed: Array  # the round in which groups last changed
    settled: Array  # whether the groups are final


@algorithm
class GroupedFedAvg(FedAvg):
    """FedAvg inside groups of clients; a subclass says how groups are found, in ``regroup``."""

    only_means = False

    most: int = hyper(16, "groups at most", low=1)
    patience: int = hyper(50, "rounds to wait for clients that do not answer, before groups are found", low=0)

    def init_server(self, task: Task, key: Array) -> Groups:
        """Everybody in one group."""
        slots, n = min(self.most, task.clients), task.clients
        return Groups(
            models=repeat(task.initial, slots),
            assignment=jnp.zeros(n, jnp.int32),
            k=jnp.int32(1),
            updates=jax.tree.map(jnp.zeros_like, repeat(task.initial, n)),
            samples=jnp.zeros(n),
            fresh=jnp.zeros(n, bool),
            round=jnp.int32(0),
            changed=jnp.int32(0),
            settled=jnp.bool_(False),
        )

    def send(self, server: Groups, client_id: Array) -> Tree:
        return take(server.models, server.assignment[client_id])

    def aggregate(self, server: Groups, uploads: Tree, cohort: Cohort, key: Array) -> Groups:
        """Remember the updates, find the groups, then FedAvg inside each."""
        here = cohort.present > 0
        models = take(server.models, server.assignment[cohort.ids])
        deltas = where(here, axpy(-1.0, models, uploads), take(server.updates, cohort.ids))
        weights = cohort.weights.astype(jnp.float32)
        server = replace(
            server,
            updates=jax.tree.map(lambda all_, new: all_.at[cohort.ids].set(new), server.updates, deltas),
            samples=server.samples.at[cohort.ids].max(weights),
            fresh=server.fresh.at[cohort.ids].set(here | server.fresh[cohort.ids]),
        )
        open_ = (here.any() & ~server.settled).astype(jnp.int32)
        regrouped = switch(open_, [lambda method, s: s, lambda method, s: method.regroup(s)], self, server)
        server = replace(regrouped, round=server.round + here.any().astype(jnp.int32))
        labels = server.assignment[cohort.ids]
        return replace(server, models=group_step(server.models, uploads, labels, cohort))

    def regroup(self, server: Groups) -> Groups:
        """The server with its groups as they should be now; here, as they are."""
        return server

    def report(self, server: Groups) -> dict[str, Array]:
        return {"context": server.assignment, "k": server.k}
