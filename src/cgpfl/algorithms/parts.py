"""Parts: which parameters are everybody's, a context's or a client's own, for any method and model.

    send        the method's message μ without the private parameters
    client i    its own private parameters put into μ; the method's training, from μ to an upload u;
                own ← own + (u − anchor of u in μ) at the private parameters; upload u without them
    server      the method's step, with the anchors in their place: on the server they never move
                common parameters of K contexts ← their mean, by members that answered
    personal    the method's, with the client's own parameters put in

Parameters are named by patterns over their paths: ``private="*norm*,output.*"``. With FedAvg that is FedPer
(Arivazhagan et al., 2019) for any model, and with ``*norm*`` FedBN (Li, Jiang, Zhang, Kamp, Dou, ICLR 2021). A leaf of
what is sent, uploaded or kept by the server is a parameter if its path ends with the parameter's and its last axes have
the parameter's shape. A method that does not send and upload parameters is refused. Where a client is sent K models to
choose from, its own parameters are in each of them.

``common`` is for methods with contexts: these parameters are the same in all contexts. What is neither is as the method
has it. Parameters that nobody trains are no part of this: see the setting ``frozen``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms import METHODS
from cgpfl.algorithms.base import ClientData, Cohort, Task
from cgpfl.algorithms.fedavg import FedAvg
from cgpfl.algorithms.wrapper import Wrapper
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, component, hyper
from cgpfl.rounds.account import Steps
from cgpfl.tree import Tree, matching, paths

PRIVATE, COMMON = "private", "common"


class Place(NamedTuple):
    """A parameter: its path, its shape, and whose it is (PRIVATE, COMMON, or "": as the method has it)."""

    path: str
    shape: tuple[int, ...]
    whose: str

    def is_at(self, path: str, shape: tuple[int, ...]) -> bool:
        """Whether a leaf is this parameter, or what :meth:`Laid.cut` leaves of it."""
        ends = not self.path or path == self.path or path.endswith(f".{self.path}")
        lead = len(shape) - len(self.shape)
        return ends and ((lead >= 0 and shape[lead:] == self.shape) or shape[-1:] == (0,))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Laid:
    """A tree of the method's – server, message or upload – and the parameters that may be in it."""

    tree: Any
    layout: tuple[Place, ...] = field(metadata={"static": True})

    def found(self, whose: str) -> list[tuple[int, Place]]:
        """Which of the leaves are parameters of that kind, in their order; of two that fit, the longer path."""
        there: list[tuple[int, Place]] = []
        for i, (path, leaf) in enumerate(zip(paths(self.tree), jax.tree.leaves(self.tree), strict=True)):
            fit = [p for p in self.layout if p.is_at(path, jnp.shape(leaf))]
            if fit and (place := max(fit, key=lambda p: len(p.path))).whose == whose:
                there.append((i, place))
        return there

    def changed(self, new: dict[int, Any]) -> Laid:
        """The same with other leaves at some places."""
        leaves, structure = jax.tree.flatten(self.tree)
        return Laid(jax.tree.unflatten(structure, [new.get(i, v) for i, v in enumerate(leaves)]), self.layout)

    def cut(self) -> Laid:
        """Without the private parameters: of ``[K, ...]`` is left ``[K, 0]``."""
        leaves = jax.tree.leaves(self.tree)
        lead = {i: jnp.shape(leaves[i])[: jnp.ndim(leaves[i]) - len(p.shape)] for i, p in self.found(PRIVATE)}
        return self.changed({i: jnp.zeros((*axes, 0), leaves[i].dtype) for i, axes in lead.items()})

    def filled(self, own: tuple[Array, ...]) -> Laid:
        """The way back from :meth:`cut`, with a client's own parameters."""
        leaves = jax.tree.leaves(self.tree)
        given = zip(self.found(PRIVATE), own, strict=True)
        return self.changed({i: jnp.broadcast_to(v, (*leaves[i].shape[:-1], *v.shape)) for (i, _), v in given})


class Kept(NamedTuple):
    """What the method keeps on a client, and the client's own parameters, one for each of its message's."""

    state: Any
    own: tuple[Array, ...]


@algorithm
class Parts(Wrapper):
    """Around any method: some parameters never leave a client, some are common to all contexts."""

    name = "parts"
    citation = "Arivazhagan et al., 2019; Li et al., ICLR 2021"
    original = ""
    when = (
        "Some layers are to stay with each client (the last ones, norms, biases), or to be common to all contexts, "
        "whatever the method and the model."
    )

    method: Any = component(FedAvg(), "the method that this is around", METHODS)
    private: str = hyper("*bias", "patterns of the parameters that never leave a client, separated by commas")
    common: str = hyper("", "patterns of the parameters that all contexts have in common, separated by commas")

    def _layout(self, task: Task) -> tuple[Place, ...]:
        """The trained parameters, and whose each is."""
        names = paths(task.initial)
        private = matching(self.private, names, "parts: private")
        common = matching(self.common, names, "parts: common")
        if both := sorted(private & common):
            raise CgpflError(f"parts: {both[0]} is both private and common; must be one of them")
        whose = dict.fromkeys(common, COMMON) | dict.fromkeys(private, PRIVATE)
        shapes = [jnp.shape(v) for v in jax.tree.leaves(task.initial)]
        return tuple(Place(n, s, whose.get(n, "")) for n, s in zip(names, shapes, strict=True))

    def init_server(self, task: Task, key: Array) -> Laid:
        """The method's; common parameters are the same in all contexts from the start."""
        server = Laid(self.method.init_server(task, key), self._layout(task))
        return self._in_common(server, jnp.arange(task.clients), jnp.ones(task.clients))

    def init_client(self, task: Task, key: Array) -> Kept:
        """The method's, and private parameters as in a first message (of K models, the first's)."""
        state = self.method.init_client(task, key)
        if not self.private:
            return Kept(state, ())
        # The server's key is nobody else's: another one, the same for all, so that this is computed once for all.
        first = self.method.send(self.method.init_server(task, jax.random.key(0)), jnp.int32(0))
        message = Laid(first, self._layout(task))
        leaves, places = jax.tree.leaves(first), message.found(PRIVATE)
        return Kept(state, tuple(leaves[i].reshape(-1, *p.shape)[0] for i, p in places))

    def send(self, server: Laid, client_id: Array) -> Laid:
        """The method's, without private parameters."""
        return Laid(self.method.send(server.tree, client_id), server.layout).cut()

    def train(self, task: Task, message: Laid, client: Kept, data: ClientData, key: Array) -> tuple[Laid, Kept]:
        """The method's, from the client's own parameters; what these moved by stays here."""
        full = message.filled(client.own)
        sent, state = self.method.train(task, full.tree, client.state, data, key)
        upload = Laid(sent, message.layout)
        moved = self._moved(full, upload)
        own = tuple(v + moved[p.path].pop(0) for (_, p), v in zip(message.found(PRIVATE), client.own, strict=True))
        return upload.cut(), Kept(state, own)

    def noisy_steps(self, rounds: int) -> tuple[Steps, ...] | None:
        """The method's: a part of what it would send."""
        return self.method.noisy_steps(rounds) if hasattr(self.method, "noisy_steps") else None

    def aggregate(self, server: Laid, uploads: Laid, cohort: Cohort, key: Array) -> Laid:
        """The method's, with every private parameter where it was."""

        def whole(client_id: Array, upload: Laid) -> Any:
            anchors = self._anchors(self.method.send(server.tree, client_id), upload)
            return upload.changed({i: anchors[i] for i, _ in upload.found(PRIVATE)}).tree

        sent = jax.vmap(whole)(cohort.ids, uploads) if self.private else uploads.tree
        new = Laid(self.method.aggregate(server.tree, sent, cohort, key), server.layout)
        before = jax.tree.leaves(server.tree)
        new = new.changed({i: before[i] for i, _ in new.found(PRIVATE)})
        return self._in_common(new, cohort.ids, cohort.present)

    def personal(self, task: Task, message: Laid, client: Kept, data: ClientData, key: Array) -> Tree:
        """The method's, with the client's own parameters."""
        return self.method.personal(task, message.filled(client.own).tree, client.state, data, key)

    def shared(self, message: Laid) -> Tree | None:
        """The method's; without private parameters it is no model."""
        return None if self.private else self.method.shared(message.tree)

    def choices(self, message: Laid) -> Tree | None:
        """The method's; without private parameters these are no models."""
        return None if self.private or not hasattr(self.method, "choices") else self.method.choices(message.tree)

    def report(self, server: Laid) -> dict[str, Array]:
        return self.method.report(server.tree)

    def anchor(self, message: Laid, upload: Laid) -> Laid | None:
        """The method's; of what stays with the client nothing is left to move."""
        if not hasattr(self.method, "anchor") or self.method.anchor(message.tree, upload.tree) is None:
            return None
        anchors: list[Any] = self._anchors(message.tree, upload)
        gone = {i for i, _ in upload.found(PRIVATE)}
        structure = jax.tree.structure(upload.tree)
        kept = [None if i in gone else a for i, a in enumerate(anchors)]
        return Laid(jax.tree.unflatten(structure, kept), upload.layout)

    def _anchors(self, message: Any, upload: Laid) -> list[Any]:
        """What each leaf of an upload has moved away from; None for what is no update."""
        anchor = self.method.anchor(message, upload.tree) if hasattr(self.method, "anchor") else None
        form: Any = jax.tree.structure(upload.tree)
        return [None] * form.num_leaves if anchor is None else form.flatten_up_to(anchor)

    def _moved(self, message: Laid, upload: Laid) -> dict[str, list[Array]]:
        """What each private parameter moved by; an error where it does not come back as it was sent.

        A parameter may be there more than once, say a model's and its control variate's: in the same order then.
        """
        found, values = upload.found(PRIVATE), jax.tree.leaves(upload.tree)
        anchors = self._anchors(message.tree, upload.cut())
        sent, back = (sorted(p.path for _, p in places) for places in (message.found(PRIVATE), found))
        private = {p.path for p in upload.layout if p.whose == PRIVATE}
        updates = all(anchors[i] is not None and anchors[i].shape == values[i].shape == p.shape for i, p in found)
        if set(sent) != private or sent != back or not updates:
            raise CgpflError(
                f"parts: private: {self._inside()} sends no parameters that its clients move; must be empty"
            )
        moved: dict[str, list[Array]] = {}
        for i, p in found:
            moved.setdefault(p.path, []).append(values[i] - anchors[i])
        return moved

    def _inside(self) -> str:
        return getattr(self.method, "name", "") or type(self.method).__name__

    def _in_common(self, server: Laid, ids: Array, present: Array) -> Laid:
        """The server with common parameters the same in all contexts: the mean by members ``ids [C]`` that answered."""
        if not self.common:
            return server
        report = self.method.report(server.tree)
        names = paths(server.tree)
        places = [(i, p) for i, p in server.found(COMMON) if names[i].split(".")[0] == "models"]
        if "context" not in report or not places:
            raise CgpflError(f"parts: common: {self._inside()} has no models of contexts; must be empty")
        leaves = jax.tree.leaves(server.tree)

        def mean(models: Array) -> Array:
            members = jnp.zeros(models.shape[0]).at[report["context"][ids]].add(present)
            total = members.sum()
            share = members / jnp.where(total > 0, total, 1.0)
            one = jnp.tensordot(share, models, axes=1, precision=jax.lax.Precision.HIGHEST)
            return jnp.where(total > 0, jnp.broadcast_to(one, models.shape), models)

        return server.changed({i: mean(leaves[i]) for i, _ in places})
