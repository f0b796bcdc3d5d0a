"""CGPFL-Auto: contexts, their number and the pull towards them, all measured from the clients' own updates.

Our own method, after Tang, Guo, Guo (IJCAI 2022): K context models on the server, a personal model on each client,
pulled towards its context's. What the paper sets by hand or by a bound is measured here, so that it can be switched on
blindly: it finds contexts where there are some, one for all where clients are alike, and leaves clients alone where
nothing is shared.

    warm-up     n rounds with one model for all; a client trains on each of F folds of its samples, one an answer, then
                on all but each fold, on E times as many minibatches as later: what a model becomes says more about
                its client than where it first goes, which depends on how many samples of each class it has
    first       contexts and K by cross-fitting over the folds (:mod:`cgpfl.contexts.crossfit`), K from 1 to N
    send        ω_k(i) and λ_i to client i
    client i    ω̃ ← ω_k(i);  R times: draw one minibatch;
                S times ω̃ ← ω̃ − η∇f_i(ω̃);   θ_i ← (θ_i − η_p∇f_i(θ_i) + η_p λ_i ω_k(i)) / (1 + η_p λ_i)
    server      ω_k ← Σ m_i ω̃_i / Σ m_i over its members
    personal    θ_i; where λ_i = ∞, ω_k(i)

θ's step is the proximal term taken implicitly: stable at every λ, ω itself at λ = ∞. λ_i = h (1 − s_i)/s_i, where s_i
is the share of the client's distance from its context that is no noise: clients that hardly differ from their context
use its model as it is, those that differ much their own. Of clients with fewer samples than folds this cannot be told:
they use their context's. Alone (K = N), λ = 0: local training. Unlike in Algorithm 1, ω̃ does not follow θ: a strong
pull would stop it, and at 2β/N = 1 an upload would be the personal model itself.

A wrong start is repaired: for three more warm-ups the server goes on to note how each client's update differs from its
context's mean, and k-means goes on from the contexts it has with that. A client that was misplaced is pulled towards
its own context in every round, and moves there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Method, Task
from cgpfl.algorithms.groups import SMALLEST, group_step, heard_in, leaves_rounds, room_for, somebody_counts, too_small
from cgpfl.algorithms.steps import over_batches
from cgpfl.batch import Batch
from cgpfl.contexts import Evidence, add, cross_fit, match, no_evidence, placed
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.rounds.account import Steps
from cgpfl.tree import Tree, axpy, repeat, size, switch, take, where

REPAIRS = 3
"""Warm-ups' worth of rounds after the first contexts in which clients may still move."""
HIDDEN = 0.75
"""Share of noise in a model that is learned by sums with noise, from which on nobody is pulled to it."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Server:
    """Ω, who belongs where, how much each client is pulled, and what was found. Kmax slots."""

    models: Tree  # Ω: leaves [slots, ...]
    assignment: Array  # [N] context of each client (its own number, where everybody stands alone)
    k: Array
    prox: Array  # [N] λ_i
    settled: Array  # how often contexts were looked for
    evidence: Evidence
    samples: Array  # [N] m_i of those that answered
    centres: Array  # [slots, p] where the contexts are in the evidence
    score: Array  # [slots + 1]: of K = 1..slots, and N
    error: Array
    shared: Array
    personal: Array
    spread: Array  # [3] how much clients differ: between contexts, inside, by noise
    agreement: Array
    trust: Array  # [N]
    seeding: Array


class Message(NamedTuple):
    """What a client is sent."""

    model: Tree
    prox: Array  # λ_i
    part: Array  # which fold to train on; F and more: all but fold part − F; 2F: all samples


class Private(NamedTuple):
    """What a client keeps."""

    model: Tree  # θ_i
    folds: Array  # uint32: where its folds begin


@algorithm
class CGPFLAuto(Method):
    """Contexts, their number and the pull towards them measured by cross-fitting; nothing lost where there are none."""

    name = "cgpfl-auto"
    citation = "this project, after Tang et al., IJCAI 2022"
    when = (
        "By default: it finds contexts where there are some, one model where clients are alike, and leaves clients "
        "alone where nothing is shared. Nothing has to be set."
    )

    contexts: int | str | tuple[int, ...] = hyper(
        "auto",
        'K: number of contexts; "auto" = measured; or the context of each client, if known',
        kind=int,
        low=1,
        words=("auto",),
        labels=True,
    )
    prox: float | str = hyper(
        "auto",
        'λ: pull of the personal model towards its context\'s; "auto" = measured, for each client',
        kind=float,
        low=0,
        words=("auto",),
    )
    rate: float = hyper(0.1, "η: rate of the context copy's steps", above=0, tune=(0.01, 1.0))
    personal_rate: float = hyper(0.1, "η_p: rate of the personal model's steps", above=0, tune=(0.01, 1.0))
    stiffness: float = hyper(0.5, 'h in λ = h(1 − s)/s, for prox = "auto"', above=0, tune=(0.1, 3.0))
    local_rounds: int = hyper(10, "R: minibatches a client draws in a round", low=1)
    inner_steps: int = hyper(4, "S: steps of the context's copy on one minibatch; the personal model takes one", low=1)
    batch_size: int = hyper(20, "samples in a minibatch; 0 = all of the client's", low=0)
    warmup: int = hyper(6, "rounds with one shared model, before contexts are looked for; 2F at least", low=2)
    folds: int = hyper(3, "F: folds of each client's samples in the warm-up", low=3)
    effort: int = hyper(5, "E: in the warm-up a client draws E·R minibatches", low=1)
    most: int = hyper(32, "largest K that is considered, beside N", low=1)
    restarts: int = hyper(50, "k-means++ seedings tried for the contexts that are used", low=1)
    smallest: int = hyper(1, SMALLEST, low=1)

    def slots(self, clients: int) -> int:
        """How many context models the server has room for."""
        return room_for(self.contexts, clients, self.most, self.name)

    def check(self, clients: int, answers: float, rounds: int) -> None:
        """K against N, folds against the warm-up, and a warm-up that leaves rounds for contexts."""
        self.slots(clients)
        somebody_counts(self.smallest, clients, self.name)
        if self.warmup < 2 * self.folds:
            why = f"must be at least twice the number of folds, {2 * self.folds}"
            raise CgpflError(f"cgpfl-auto: warmup = {self.warmup}: {why}")
        leaves_rounds(self.warmup, clients, answers, self.name)

    def init_server(self, task: Task, key: Array) -> Server:
        """One model, no evidence."""
        slots, n = self.slots(task.clients), task.clients
        evidence = no_evidence(2 * self.folds, n, size(task.initial), jax.random.fold_in(key, 1))
        return Server(
            models=repeat(task.initial, slots),
            assignment=jnp.asarray(self.contexts if isinstance(self.contexts, tuple) else [0] * n, jnp.int32),
            k=jnp.int32(slots if isinstance(self.contexts, tuple) else 1),
            prox=jnp.full(n, 1.0 if isinstance(self.prox, str) else self.prox, jnp.float32),
            settled=jnp.int32(0),
            evidence=evidence,
            samples=jnp.zeros(n),
            centres=jnp.zeros((slots, evidence.sums.shape[-1])),
            score=jnp.zeros(slots + 1),
            error=jnp.zeros(slots + 1),
            shared=jnp.zeros(slots + 1),
            personal=jnp.zeros(slots + 1),
            spread=jnp.zeros(3),
            agreement=jnp.float32(0),
            trust=jnp.zeros(n),
            seeding=key,
        )

    def init_client(self, task: Task, key: Array) -> Private:
        """θ_i, and folds drawn from (seed, client)."""
        return Private(task.initial, jax.random.bits(key, (), jnp.uint32))

    def send(self, server: Server, client_id: Array) -> Message:
        """The model of the client's context, its λ, and in the warm-up the part of its samples to train on."""
        slots = server.centres.shape[0]
        slot = jnp.where(server.k > slots, 0, server.assignment[client_id])  # alone: one model that nobody uses
        parts = 2 * self.folds
        part = server.evidence.answers[client_id].astype(jnp.int32) % parts
        warm = server.settled == 0
        prox = server.prox[client_id]
        if self.smallest > 1:
            prox = jnp.where(too_small(server.assignment, slots, self.smallest)[client_id] & ~warm, 0.0, prox)
        return Message(take(server.models, slot), prox, jnp.where(warm, part, parts))

    def train(
        self, task: Task, message: Message, client: Private, data: ClientData, key: Array
    ) -> tuple[Tree, Private]:
        """R minibatches (warm: E·R): S steps of the context's copy on each, one proximal step of the personal model."""
        warm, of = message.part < 2 * self.folds, (message.part % self.folds, self.folds, client.folds)
        ways = [data.fold(*of), data.without(*of), data]
        which = jnp.clip(message.part // self.folds, 0, 2)
        rows, count = (jnp.stack(each)[which] for each in zip(*((w.rows, w.count) for w in ways), strict=True))
        seen = replace(data, rows=rows, count=count)
        pull = 1.0 - 1.0 / (1.0 + self.personal_rate * message.prox)

        def local_round(state: tuple[Tree, Tree], batch: Batch) -> tuple[Tree, Tree]:
            omega, theta = state
            omega = task.proximal_steps(omega, omega, batch, 0.0, self.rate, self.inner_steps)
            moved = axpy(-self.personal_rate, task.own.grad(theta, batch), theta)
            theta = jax.tree.map(lambda t, w: (1.0 - pull) * t + pull * w, moved, message.model)
            return omega, theta

        def draw(_: Array, state: tuple[Array, tuple[Tree, Tree]]) -> tuple[Array, tuple[Tree, Tree]]:
            key, models = state
            models = over_batches(local_round, models, seen, key, self.local_rounds, self.batch_size)
            return jax.random.fold_in(key, 1), models

        start = (key, (message.model, client.model))
        _, (omega, theta) = jax.lax.fori_loop(0, jnp.where(warm, self.effort, 1), draw, start)
        return omega, client._replace(model=theta)

    def aggregate(self, server: Server, uploads: Tree, cohort: Cohort, key: Array) -> Server:
        """Note the evidence, look for contexts when that is due, then move each context's model to its mean."""
        slots, n = server.centres.shape[0], server.assignment.shape[0]
        answers = server.evidence.answers.at[cohort.ids].add(cohort.present)
        if isinstance(self.prox, str) and cohort.noised:  # nobody is pulled to a model of noise before it is known
            server = replace(server, prox=jnp.where(server.settled == 0, 0.0, server.prox))  # what is shared
        # After n answers a client on average, and one on each part of everybody; who never answers is not waited for.
        total, needed = answers.sum(), self.warmup * n * (server.settled + 1.0)
        due = (total >= needed) & ((answers >= 2 * self.folds).all() | (total >= needed + 2 * self.warmup * n))
        watching = (server.settled <= REPAIRS) & (server.k <= slots) & ((server.settled == 0) | (server.k > 1))
        noting = cohort.present.any() & watching
        if cohort.summed:
            server = self._counted(server, cohort)
        else:
            server = switch(
                noting,
                [lambda method, server, *seen: server, lambda method, server, *seen: method._note(server, *seen)],
                *(self, server, uploads, cohort),
            )
            server = switch(
                jnp.where(noting & due, 1 + (server.settled > 0), 0),
                [
                    lambda method, s: s,
                    lambda method, s: method._first(s, cohort.noised),
                    lambda method, s: method._again(s),
                ],
                *(self, server),
            )
        warm = (server.settled == 0) | (server.k > slots)
        labels = jnp.where(warm, 0, heard_in(server.assignment, cohort.ids, slots, self.smallest))
        models = group_step(server.models, uploads, labels, cohort)
        first = jax.tree.map(lambda w: w[0], models)  # contexts are born equal: from the model shared until then
        return replace(server, models=where(server.settled == 0, repeat(first, slots), models))

    def placed(self, server: Server, labels: Array, k: Array, hidden: Array) -> Server:
        """With contexts that were found elsewhere, for good, and a pull to their models as far as these are no noise.

        ``hidden [slots]``: how much of each will be noise. Where that is all that is to be had, everybody stands alone.
        """
        slots, n = server.centres.shape[0], server.assignment.shape[0]
        alone = (hidden >= HIDDEN) | (jnp.arange(slots) >= k)
        alone = jnp.where(isinstance(self.prox, str), alone.all(), False)
        prox = server.prox
        if isinstance(self.prox, str):
            prox = jnp.where(hidden < HIDDEN, self.stiffness * (1.0 - hidden), 0.0)[labels]
        return replace(
            server,
            assignment=jnp.where(alone, jnp.arange(n, dtype=jnp.int32), labels),
            k=jnp.where(alone, n, k).astype(jnp.int32),
            prox=prox,
            settled=server.settled + 1,
        )

    def anchor(self, message: Message, upload: Tree) -> Tree:
        """The context's model."""
        return message.model

    def personal(self, task: Task, message: Message, client: Private, data: ClientData, key: Array) -> Tree:
        """θ_i; at λ = ∞ its context's model."""
        return where(jnp.isinf(message.prox), message.model, client.model)

    def shared(self, message: Message) -> Tree:
        """The context's model."""
        return message.model

    def report(self, server: Server) -> dict[str, Array]:
        """Contexts over rounds, and how they were chosen."""
        return {
            "context": server.assignment,
            "k": server.k,
            "score": server.score,
            "score_error": server.error,
            "score_shared": server.shared,
            "score_personal": server.personal,
            "spread": server.spread,
            "agreement": server.agreement,
            "trust": server.trust,
            "heard": self._heard(server),
        }

    def gradients(self) -> float:
        """R·(S + 1), of rounds of the warm-up, too, though those take E times that."""
        return self.local_rounds * (self.inner_steps + 1)

    def noisy_steps(self, rounds: int) -> tuple[Steps, ...]:
        """The context copy's steps, in the warm-up on a fold of the samples, or on all others; θ never leaves."""
        warm = min(self.warmup, rounds)
        times, rest = divmod(warm, 2 * self.folds)
        alone = times * self.folds + min(rest, self.folds)
        each = (self.inner_steps, self.batch_size)
        first = (self.effort * self.local_rounds, *each, self.folds)
        later = Steps(rounds - warm, self.local_rounds, *each)
        return Steps(alone, *first), Steps(warm - alone, *first, self.folds - 1), later

    # Contexts

    def _counted(self, server: Server, cohort: Cohort) -> Server:
        """With who answered on which part, and nothing of what."""
        part = server.evidence.answers[cohort.ids].astype(jnp.int32) % (2 * self.folds)
        counts = server.evidence.counts.at[part, cohort.ids].add(cohort.present)
        samples = server.samples.at[cohort.ids].max(cohort.weights.astype(jnp.float32))
        return replace(server, evidence=replace(server.evidence, counts=counts), samples=samples)

    def _note(self, server: Server, uploads: Tree, cohort: Cohort) -> Server:
        """Add this round's updates to the evidence."""
        slots = server.centres.shape[0]
        labels = jnp.where(server.settled == 0, 0, jnp.minimum(server.assignment[cohort.ids], slots - 1))
        updates = axpy(-1.0, take(server.models, labels), uploads)
        warm = (server.settled == 0).astype(jnp.float32)
        seen = add(server.evidence, updates, cohort.ids, cohort.present, labels, server.centres, warm)
        samples = server.samples.at[cohort.ids].max(cohort.weights.astype(jnp.float32))
        return replace(server, evidence=seen, samples=samples)

    def _heard(self, server: Server) -> Array:
        """Who was heard on every part ``[N]``. Folds of fewer samples than folds repeat them: their noise is unseen."""
        return (server.evidence.counts > 0).all(axis=0) & (server.samples >= self.folds)

    def _first(self, server: Server, noised: bool) -> Server:
        """Contexts, K and every client's λ from the evidence of the warm-up."""
        slots, n = server.centres.shape[0], server.assignment.shape[0]
        updates, heard = server.evidence.means(), self._heard(server)
        given = None if isinstance(self.contexts, str) else self.contexts
        layered = len(jax.tree.leaves(server.models)) > 2  # weights and bias
        rest: dict[str, Any] = {"given": given, "restarts": self.restarts, "noised": noised, "layered": layered}
        found = cross_fit(updates, heard, server.seeding, largest=slots, **rest)
        server = replace(
            server,
            assignment=jnp.where(found.alone, jnp.arange(n, dtype=jnp.int32), found.labels),
            k=found.k,
            settled=server.settled + 1,
            score=found.score,
            error=found.error,
            shared=found.shared,
            personal=found.personal,
            spread=jnp.stack([found.between, found.within, found.noise]),
            agreement=found.agreement,
            trust=found.trust,
        )
        if isinstance(self.prox, str):
            pull = self.stiffness * (1.0 - found.trust) / found.trust
            pull = jnp.minimum(pull, self.stiffness) if noised else pull
            server = replace(server, prox=jnp.where(found.alone, 0.0, pull))
        return self._centred(server)

    def _again(self, server: Server) -> Server:
        """The contexts as k-means leaves them that goes on from them with all the evidence so far."""
        if isinstance(self.contexts, tuple):
            return replace(server, settled=server.settled + 1)
        slots = server.centres.shape[0]
        updates, heard = server.evidence.means(), self._heard(server)
        found = placed(updates, heard, server.assignment, server.k, slots)
        names = match(found, server.assignment, slots, server.k)
        return self._centred(replace(server, assignment=names[found], settled=server.settled + 1))

    def _centred(self, server: Server) -> Server:
        """Where contexts are in the evidence: the means of their members' deviations."""
        slots = server.centres.shape[0]
        evidence = server.evidence
        own = evidence.sums.sum(axis=0) / jnp.maximum(evidence.answers, 1.0)[:, None]
        heard = (evidence.answers > 0).astype(jnp.float32)
        members = jax.nn.one_hot(jnp.minimum(server.assignment, slots - 1), slots) * heard[:, None]
        return replace(server, centres=(members / jnp.maximum(members.sum(axis=0), 1.0)).T @ own)
