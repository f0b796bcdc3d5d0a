"""Methods around methods: what is added to any of them without a subclass of each."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.algorithms.lying import LIES, Told, bounded, forged, poisoned
from cgpfl.algorithms.private import noisy, word_of
from cgpfl.algorithms.steps import full_loss
from cgpfl.attacks import ATTACKS, Attack, Nobody
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, component, hyper_parameters, plain
from cgpfl.rounds import (
    MEANS,
    OUTGOING,
    SAMPLERS,
    ClientLevel,
    Encoder,
    Known,
    Mean,
    Noise,
    Outgoing,
    Privacy,
    SampleLevel,
    Sampler,
    Uniform,
    WeightedMean,
)
from cgpfl.rounds.privacy import ALIKE, sends
from cgpfl.rounds.sums import NoisySums
from cgpfl.tree import Tree


class Wrapper:
    """Does what its ``method`` does. A subclass overrides what it adds; everything else is the inner method's.

    A subclass declares ``method: Any = component(FedAvg(), "what it is around", METHODS)``. Hooks beside the contract,
    hyper-parameters and the name are found in the inner method, where the wrapper has none.
    """

    method: Any
    within: ClassVar[bool] = False
    """Whether it is one of the rules of a round, and no method by itself."""

    def __getattr__(self, name: str) -> Any:
        """What a wrapper does not have itself is its method's."""
        if name.startswith("__") or name == "method":
            raise AttributeError(name)
        return getattr(self.method, name)

    def init_server(self, task: Task, key: Array) -> Any:
        return self.method.init_server(task, key)

    def init_client(self, task: Task, key: Array) -> Any:
        return self.method.init_client(task, key)

    def send(self, server: Any, client_id: Array) -> Any:
        return self.method.send(server, client_id)

    def train(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> tuple[Any, Any]:
        return self.method.train(task, message, client, data, key)

    def aggregate(self, server: Any, uploads: Any, cohort: Cohort, key: Array) -> Any:
        return self.method.aggregate(server, uploads, cohort, key)

    def personal(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> Tree:
        return self.method.personal(task, message, client, data, key)

    def shared(self, message: Any) -> Tree | None:
        return self.method.shared(message)

    def report(self, server: Any) -> dict[str, Array]:
        return self.method.report(server)

    def gradients(self) -> float:
        return float(self.method.gradients())


class Sent(NamedTuple):
    """What a client sends where that is more, or in another form, than the method's upload."""

    upload: Any
    """The method's; empty where a part of it is encoded."""
    encoded: Any
    loss: Any
    """f_i of the model it was sent, where the sampler asks for it."""


class Heard(NamedTuple):
    """The method's server and, where it is needed, the losses ``[N]`` that its sampler was told, who lies ``[N]``, and
    what its mean remembers.
    """

    server: Any
    losses: Any
    liars: Any = ()
    known: Any = ()


class Kept(NamedTuple):
    """The method's private state, and what of a client's updates was not sent yet."""

    client: Any
    residual: list[Array]


@algorithm
class Seamed(Wrapper):
    """A method under the rules of a round: who is asked, what leaves a client, how uploads become a mean."""

    method: Any = dataclasses.field(metadata={"child": True})
    sampler: Sampler = component(Uniform(), "who is asked", SAMPLERS)
    outgoing: tuple[Outgoing, ...] = component((), "what leaves a client", OUTGOING, many=True)
    mean: Mean = component(WeightedMean(), "how uploads become a mean", MEANS)
    privacy: Privacy = dataclasses.field(default=Privacy(), metadata={"child": True})
    """What uploads may tell; made from epsilon, delta and clip."""
    attack: Attack = component(Nobody(), "who lies, and how", ATTACKS)

    @property
    def _called(self) -> str:
        """The method's name, for messages."""
        return getattr(self.method, "name", "") or type(self.method).__name__

    @property
    def _hears(self) -> bool:
        """Whether the server knows more than the method's."""
        return self.sampler.by_loss or self.attack.active or self.mean.remembers

    @property
    def encoder(self) -> Encoder | None:
        """The rule that gives updates another form, if there is one."""
        last = self.outgoing[-1] if self.outgoing else None
        return last if isinstance(last, Encoder) else None

    def check(self, clients: int, answers: float, rounds: int) -> None:
        """The method's own, and rules that do not go with each other."""
        if hasattr(self.method, "check"):
            self.method.check(clients, answers, rounds)
        self.attack.check(clients)
        if any(isinstance(rule, Encoder) for rule in self.outgoing[:-1]):
            names = ", ".join(rule.name for rule in self.outgoing)
            raise CgpflError(f"outgoing = {names}: one rule at most may encode, and it must be the last")

    def init_server(self, task: Task, key: Array) -> Any:
        """The method's, losses that nobody has told yet, who will lie, and a mean that knows nobody."""
        server = self.method.init_server(task, key)
        if not self._hears:
            return server
        losses = jnp.full(task.clients, jnp.inf) if self.sampler.by_loss else ()
        liars = self.attack.liars(task.clients, jax.random.fold_in(key, LIES)) if self.attack.active else ()
        return Heard(server, losses, liars, self.mean.begin(task.clients) if self.mean.remembers else ())

    @property
    def keeps(self) -> bool:
        """Whether clients keep what was not sent."""
        return self.encoder is not None and self.encoder.feedback

    def init_client(self, task: Task, key: Array) -> Any:
        """The method's, and nothing that was not sent yet."""
        client = self.method.init_client(task, key)
        return Kept(client, self._nothing_left(task, key)) if self.keeps else client

    def _nothing_left(self, task: Task, key: Array) -> list[Array]:
        """Zeros in the form of an update."""

        def anchors(task: Task, key: Array) -> Any:
            message = self.method.send(self.method.init_server(task, key), jnp.int32(0))
            return jax.tree.leaves(self.method.anchor(message, None))

        try:
            form = jax.eval_shape(anchors, task, key)
        except AttributeError:
            rule = self.outgoing[-1].name
            raise CgpflError(
                f"{self._called}: outgoing = {rule}: its updates have no form before it trains; take sparsify"
            ) from None
        return [jnp.zeros(v.shape, v.dtype) for v in form]

    def inner(self, server: Any) -> Any:
        """The method's own server."""
        return server.server if self._hears else server

    def send(self, server: Any, client_id: Array) -> Any:
        """The method's; to one who may be a liar that trains as one, whether it is."""
        message = self.method.send(self.inner(server), client_id)
        return Told(message, server.liars[client_id]) if self.attack.poisons else message

    def _message(self, told: Any) -> Any:
        """The method's message."""
        return told.message if self.attack.poisons else told

    def personal(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> Tree:
        own = client.client if self.keeps else client
        return self.method.personal(task, self._message(message), own, data, key)

    def shared(self, message: Any) -> Tree | None:
        return self.method.shared(self._message(message))

    def lies(self, server: Any, client_id: Array) -> Array | None:
        """Whether a client is a liar; None where nobody is."""
        return server.liars[client_id] if self.attack.active else None

    def report(self, server: Any) -> dict[str, Array]:
        """The method's, and who lies."""
        found = self.method.report(self.inner(server))
        return found | {"liar": server.liars} if self.attack.active else found

    def train(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> tuple[Any, Any]:
        """The method's, and then the rules for what leaves."""
        level = self.privacy
        if self.attack.poisons:
            data, message = poisoned(data, message.lies, self.attack, task), message.message
        seen, own_key = (task, data), self.own_key(key)
        if isinstance(level, SampleLevel) and level.steps:  # else nothing leaves, and nothing is to be protected
            seen, key = noisy(task, data, level.clip, level.noise(data.count)), own_key
        left = client.residual if self.keeps else []
        client = client.client if self.keeps else client
        upload, new = self.method.train(seen[0], message, client, seen[1], key)
        if is_private(self):
            self._must_be_update(message, upload)
        encoded: Any = ()
        if self.attack.active:
            self._updates(message, upload)  # there must be some to lie about: said before anything is trained
        if self.outgoing or isinstance(level, ClientLevel):
            moving, anchors = self._updates(message, upload)
            update = [v - a for v, a in zip(moving, anchors, strict=True)]
            if self.keeps:
                update = [v + r for v, r in zip(update, left, strict=True)]
            keys = jax.random.split(jax.random.fold_in(key, STREAM), max(len(self.outgoing), 1))
            for rule, own in zip(self.outgoing, keys, strict=False):
                if not isinstance(rule, Encoder):
                    update = rule.change(update, own)
            if isinstance(level, ClientLevel):  # the last before the wire: what is done to it then costs nothing
                update = level.change(update, jax.random.fold_in(own_key, NOISE))
            if self.encoder is not None:
                encoded = self.encoder.encode(update, keys[-1])
                if self.keeps:
                    sent = self.encoder.decode(encoded, update)
                    left = [v - s for v, s in zip(update, sent, strict=True)]
            whole = [a + d for a, d in zip(anchors, update, strict=True)]
            upload = self._with(message, upload, whole if self.encoder is None else [jnp.zeros(0)] * len(update))
        kept = Kept(new, left) if self.keeps else new
        if self.encoder is None and not self.sampler.by_loss:
            return upload, kept
        return Sent(upload, encoded, self._loss(task, message, client, data, key)), kept

    def own_key(self, key: Array) -> Array:
        """A client's key for what protects it: of another method, or with other settings or noise, it is another.

        So several methods' noises are independent, as the sum of what they cost needs it. Itself without privacy.
        """
        if not is_private(self):
            return key
        words = repr(jax.tree.map(lambda _: 0.0, self)).encode()  # all that is no number of the program's
        start = int.from_bytes(hashlib.sha256(words).digest()[:4], "big")
        return jax.random.fold_in(key, word_of(self, jnp.uint32(start)))

    def _loss(self, task: Task, message: Any, client: Any, data: ClientData, key: Array) -> Any:
        """f_i of the shared model, or of the personal one where there is none; nothing if nobody asks."""
        if not self.sampler.by_loss:
            return ()
        model = self.method.shared(message)
        model = self.method.personal(task, message, client, data, key) if model is None else model
        return full_loss(task, model, data)

    def aggregate(self, server: Any, uploads: Any, cohort: Cohort, key: Array) -> Any:
        """The method's, with uploads as they were meant and the mean of these rules."""
        own, sent = self.inner(server), uploads
        if self.encoder is not None or self.sampler.by_loss:
            uploads = sent.upload
        if self.encoder is not None:
            uploads = jax.vmap(lambda i, one: self._decoded(own, i, one))(cohort.ids, sent)
        cohort = dataclasses.replace(cohort, rule=self._rule(key), noised=is_private(self) or adds_noise(self))
        uploads, cohort, known = self._heard(server, uploads, cohort, key)
        if is_private(self):  # how many samples a client has is not told
            cohort = dataclasses.replace(cohort, weights=ALIKE * (cohort.weights > 0).astype(cohort.weights.dtype))
        new = self.method.aggregate(own, uploads, cohort, key)
        if not self._hears:
            return new
        server = server._replace(server=new, known=known)
        if not self.sampler.by_loss:
            return server
        told = jnp.where(cohort.present > 0, sent.loss, server.losses[cohort.ids])
        return server._replace(losses=server.losses.at[cohort.ids].set(told))

    def _rule(self, key: Array) -> Mean:
        """How uploads become a mean in a round: where the server adds the noise, by sums of its own."""
        level = self.privacy
        if isinstance(level, ClientLevel) and level.summed:
            return NoisySums(level.clip, level.noise, jax.random.fold_in(self.own_key(key), NOISE))
        return self.mean.drawn(key)

    def _heard(self, server: Any, uploads: Any, cohort: Cohort, key: Array) -> tuple[Any, Cohort, Any]:
        """Uploads and counts as liars send them, and as a robust mean lets them in: no update too long.

        And what that mean knows then: it is in the cohort, with that.
        """
        lied, bounds, own = self.attack.active, self.mean.robust, self.inner(server)
        known = server.known if self._hears else ()
        looks = (bounds or self.mean.remembers) and hasattr(self.method, "anchor")
        if not jax.tree.leaves(uploads) or not (lied or looks):
            return uploads, cohort, known
        messages = jax.vmap(lambda i: self.method.send(own, i))(cohort.ids)
        if not lied and jax.eval_shape(jax.vmap(self.method.anchor), messages, uploads) is None:
            return uploads, cohort, known  # no updates, and nothing that is averaged
        moving, anchors = jax.vmap(self._updates)(messages, uploads)
        updates = [v - a for v, a in zip(moving, anchors, strict=True)]
        if lied:
            updates, cohort = forged(self.attack, updates, cohort, server.liars, key)
        if bounds:
            updates, cohort = bounded(updates, cohort)
        if self.mean.remembers:
            # How many differ, and not whether all are the same: of one model for all XLA sees that this is no sum.
            same = ~jnp.stack([(a != a[:1]).sum(axis=0).any() for a in anchors]).any()
            known, rule = cohort.rule.learned(known, updates, same, cohort.ids, cohort.present)
            cohort = dataclasses.replace(cohort, rule=rule)
        moved = [a + d for a, d in zip(anchors, updates, strict=True)]
        return jax.vmap(self._with)(messages, uploads, moved), cohort, known

    def _decoded(self, server: Any, client_id: Array, sent: Sent) -> Any:
        """An upload, of what was sent."""
        message = self.method.send(server, client_id)
        _, anchors = self._updates(message, sent.upload)
        assert self.encoder is not None
        update = self.encoder.decode(sent.encoded, anchors)
        return self._with(message, sent.upload, [a + d for a, d in zip(anchors, update, strict=True)])

    def _anchored(self, message: Any, upload: Any) -> tuple[list[Any], list[Any], Any]:
        """Leaves of an upload, of what they moved away from (None: no update), and their structure."""
        leaves, structure = jax.tree.flatten(upload)
        anchor = upload
        if leaves:
            anchor = self.method.anchor(message, upload) if hasattr(self.method, "anchor") else None
        if anchor is None:
            rule = "outgoing" if self.outgoing else "attack"
            raise CgpflError(f"{self._called}: {rule}: its uploads are no updates of something that was sent")
        form: Any = structure
        return leaves, form.flatten_up_to(anchor), structure

    def _must_be_update(self, message: Any, upload: Any) -> None:
        """Refuse uploads of which a part is no update: a choice, a count. Noise does not cover it."""
        leaves, anchors, _ = self._anchored(message, upload)
        if leaves and not sends(self.method):
            raise CgpflError(
                f"{self._called}: privacy: its noisy_steps say that nothing leaves, and it sends something"
            )
        if any(a is None and v.size for v, a in zip(leaves, anchors, strict=True)):
            raise CgpflError(
                f"{self._called}: privacy: its uploads say more than updates (a choice, a count); take another method"
            )

    def _updates(self, message: Any, upload: Any) -> tuple[list[Any], list[Any]]:
        """The leaves that are updates, and what they moved away from."""
        leaves, anchors, _ = self._anchored(message, upload)
        pairs = [(v, a) for v, a in zip(leaves, anchors, strict=True) if a is not None]
        return [v for v, _ in pairs], [a for _, a in pairs]

    def _with(self, message: Any, upload: Any, values: list[Any]) -> Any:
        """The upload with other values where it is an update."""
        leaves, anchors, structure = self._anchored(message, upload)
        given = iter(values)
        new = [v if a is None else next(given) for v, a in zip(leaves, anchors, strict=True)]
        return jax.tree.unflatten(structure, new)


STREAM, NOISE = 0x5EA, 0xD1FF
"""Folded into a client's key for what leaves it, and for its noise: other draws than its training's."""


def is_private(method: Any) -> bool:
    """Whether a method's uploads are protected: then neither counts nor metrics leave a client."""
    return isinstance(method, Seamed) and type(method.privacy) is not Privacy


def adds_noise(method: Any) -> bool:
    """Whether clients noise what leaves by a rule of the round, of which no ε is counted."""
    return isinstance(method, Seamed) and any(isinstance(rule, Noise) for rule in method.outgoing)


def seamed(method: Any, rules: dict[str, Any]) -> Any:
    """A method under the rules of a round that are not the usual ones; itself where there are none."""
    return Seamed(method, **rules) if rules and not isinstance(method, Seamed) else method


def unseamed(method: Any) -> Any:
    """The method itself."""
    while isinstance(method, Seamed) or (isinstance(method, Wrapper) and method.within):
        method = method.method
    return method


def inner_of(method: Any, server: Any) -> Any:
    """The method's own server."""
    return method.inner(server) if isinstance(method, Seamed) else server


def rules_in(values: dict[str, Any], where: str) -> dict[str, Any]:
    """The rules of a round among the values of a configuration."""
    fields = {name: field for name, field in hyper_parameters(Seamed).items() if name not in ("method", "privacy")}
    return {name: plain(values[name], field, f"{where}: {name}") for name, field in fields.items() if name in values}


def sampler_of(method: Any) -> Sampler:
    """The rule by which clients of a method are asked."""
    return method.sampler if isinstance(method, Seamed) else Uniform()


def known_of(method: Any, server: Any, ids: Array, samples: Array) -> Known:
    """What that rule may know of the clients at ``ids [N]``, with ``samples [N]``."""
    told = isinstance(method, Seamed) and method.sampler.by_loss
    return Known(ids, samples, server.losses[ids] if told else jnp.zeros(ids.shape[0]))


def standing_alone() -> list[str]:
    """Names of the methods that go around no other."""
    from cgpfl.algorithms import METHODS  # which imports this

    return [name for name, method in METHODS.items() if not isinstance(method, Wrapper)]
