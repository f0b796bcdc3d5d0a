"""A method with contexts under a server that is trusted: clients are placed by noised sums, once, after its warm-up.

What a method looks for in single uploads is found elsewhere (:mod:`cgpfl.contexts.placing`), from all that each client
sent in the warm-up. Then clients stay where they are, and contexts' models move by sums with noise
(:mod:`cgpfl.rounds.sums`). A method that can do without single uploads has ``placed``, and leaves them alone where
``cohort.summed``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import Cohort, Task
from cgpfl.algorithms.wrapper import Wrapper
from cgpfl.contexts.placing import MOST, WIDTH, place, sketch
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.rounds.sums import NoisySums
from cgpfl.tree import Tree, size, squared_distance, switch, where


class Placing(NamedTuple):
    """The method's server, and what places clients."""

    server: Any
    seen: Array  # [N, p] sums of each client's updates in the warm-up, sketched
    answers: Array  # [N]
    sizes: Array  # [slots] about how many are in each context; before, all in the first
    first: Tree  # the model before the first round
    drift: Array  # variance of the noise in each number of the shared model
    rounds: Array  # in which somebody answered
    settled: Array
    public: Array  # by what updates are sketched: all may know it


@algorithm
class Placed(Wrapper):
    """A method whose contexts are found by sums with ``noise``."""

    method: Any = dataclasses.field(metadata={"child": True})
    noise: float = hyper(1.0, "noise of all that placing takes, as a multiple of a client's part", low=0)
    times: int = hyper(1, "rounds in which a client is asked, at most", low=1)

    within: ClassVar[bool] = True

    def init_server(self, task: Task, key: Array) -> Placing:
        """The method's, and nobody seen."""
        n, slots = task.clients, self.method.slots(task.clients)
        return Placing(
            server=self.method.init_server(task, key),
            seen=jnp.zeros((n, min(size(task.initial), WIDTH))),
            answers=jnp.zeros(n),
            sizes=jnp.zeros(slots).at[0].set(n),
            first=task.initial,
            drift=jnp.float32(0),
            rounds=jnp.float32(0),
            settled=jnp.bool_(False),
            public=jax.random.bits(jax.random.fold_in(key, 0x91ACE), (), jnp.uint32),
        )

    def send(self, server: Placing, client_id: Array) -> Any:
        return self.method.send(server.server, client_id)

    def report(self, server: Placing) -> dict[str, Array]:
        return dict(self.method.report(server.server)) | {"placed": server.settled}

    def aggregate(self, server: Placing, uploads: Any, cohort: Cohort, key: Array) -> Placing:
        """Note what is sent in the warm-up, place clients at its end, then the method's by noised sums."""
        rule = cohort.rule
        assert isinstance(rule, NoisySums)
        n = server.answers.shape[0]
        answers = server.answers.at[cohort.ids].add(cohort.present)
        needed = self.method.warmup * n
        due = (answers.sum() >= needed) & ((answers > 0).all() | (answers.sum() >= 3 * needed))
        warming = cohort.present.any() & ~server.settled
        server = switch(
            jnp.where(warming, 1 + due.astype(jnp.int32), 0),
            [
                lambda method, server, *seen: server,
                lambda method, server, *seen: method._noted(server, *seen),
                lambda method, server, *seen: method._placed(method._noted(server, *seen), seen[1]),
            ],
            *(self, server, uploads, cohort),
        )
        cohort = dataclasses.replace(cohort, rule=dataclasses.replace(rule, sizes=server.sizes))
        new = self.method.aggregate(server.server, uploads, cohort, key)
        answered = cohort.present.sum()
        here = (answered > 0).astype(jnp.float32)
        added = here * jnp.square(rule.noise * rule.clip / jnp.maximum(answered, 1.0))
        return server._replace(server=new, drift=server.drift + added, rounds=server.rounds + here)

    def _noted(self, server: Placing, uploads: Any, cohort: Cohort) -> Placing:
        """With each client's update added to what was seen of it."""
        messages = jax.vmap(lambda i: self.method.send(server.server, i))(cohort.ids)
        updates = jax.tree.map(lambda u, a: u - a, uploads, jax.vmap(self.method.anchor)(messages, uploads))
        seen = sketch(updates, server.public)
        seen = where(cohort.present > 0, jnp.where(jnp.isfinite(seen), seen, 0.0), jnp.zeros_like(seen))
        answers = server.answers.at[cohort.ids].add(cohort.present)
        return server._replace(seen=server.seen.at[cohort.ids].add(seen), answers=answers)

    def _placed(self, server: Placing, cohort: Cohort) -> Placing:
        """With everybody in a context."""
        slots, n = server.sizes.shape[0], server.answers.shape[0]
        labels, k, sizes, gain = jnp.zeros(n, jnp.int32), jnp.int32(1), server.sizes, jnp.ones(slots)
        known = self.method.contexts != "auto"
        among = slots if known else min(slots, MOST)
        if slots > 1:
            rule: Any = cohort.rule
            found = place(server.seen, jax.random.fold_in(rule.key, 1), self.noise, among, known)
            labels, k, sizes = found.labels, found.k, jnp.zeros(slots).at[:among].set(found.sizes)
            gain = jnp.ones(slots).at[:among].set(found.gain)
        new = self.method.placed(server.server, labels, k, self._hidden(server, cohort, sizes, gain))
        # Where everybody is left alone all are in the first, whose model nobody uses.
        alone = self.method.report(new)["k"] > slots
        sizes = jnp.where(alone, jnp.zeros(slots).at[0].set(n), sizes)
        return server._replace(server=new, sizes=sizes, settled=jnp.bool_(True), seen=jnp.zeros_like(server.seen))

    def _hidden(self, server: Placing, cohort: Cohort, sizes: Array, gain: Array) -> Array:
        """How much of what contexts' models learn in the rounds that are left will be noise, ``[slots]``: 0 to 1.

        By how far the shared model came, how far noise has carried it, and how much more a context's clients have in
        common than all have. All of that is public.
        """
        rule: Any = cohort.rule
        now = self.method.anchor(self.method.send(server.server, jnp.int32(0)), None)
        d, rounds = size(server.first), jnp.maximum(server.rounds, 1.0)
        signal = jnp.maximum(squared_distance(now, server.first) - d * server.drift, 0.0) / jnp.square(rounds)
        members = cohort.present.sum() * sizes / jnp.maximum(sizes.sum(), 1.0)
        noise = d * jnp.square(rule.noise * rule.clip / jnp.maximum(members, 1.0))
        return noise / jnp.maximum(noise + gain * signal * jnp.maximum(self.times - rounds, 1.0), 1e-30)
