"""FedPer: the body of the model is shared, its last layers stay with each client.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers. 2019.

    send        the body b
    client i    (b_i, h_i) ← (b, h_i);  R times: SGD on both            upload b_i, keep the head h_i
    server      b ← Σ_i (m_i / m) b_i
    personal    (b, h_i)

FedRep (Collins, Hassani, Mokhtari, Shakkottai, ICML 2021) is ``head_steps`` > 0: first that many
steps on h_i with the body fixed, then R steps on b_i with the head fixed. A model of one layer has no
body: with ``private=1`` nothing is shared then and this is local training; with ``private=0`` it is FedAvg.
Layers are ordered by name, numbers as numbers (conv1, conv2, hidden, output; Dense_0, Dense_1, ...): where that is not
their order in the model, say by ``named`` which stay private.
"""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from cgpfl.algorithms.base import ClientData, Task
from cgpfl.algorithms.steps import Averaging, Descending
from cgpfl.batch import Batch
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import algorithm, hyper
from cgpfl.tree import Tree

Part = tuple[Array, ...]
"""Some of a model's leaves, in the model's order."""


def layers(params: Tree) -> list[str]:
    """The layer of each leaf: where it is in the tree, without the leaf's own name."""
    paths = [path[:-1] for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]


def in_order(names: list[str]) -> list[str]:
    """Distinct names, numbers in them counted as numbers: Dense_2 before Dense_10."""

    def parts(name: str) -> list[tuple[int, str]]:
        return [(int(t), "") if t.isdigit() else (0, t) for t in re.split(r"(\d+)", name)]

    return sorted(set(names), key=parts)


@algorithm
class FedPer(Averaging, Descending):
    """A shared body and private last layers."""

    name = "fedper"
    citation = "Arivazhagan et al., 2019"
    when = (
        "Deep models whose lower layers suit everybody while labels or outputs differ. Of no use with a "
        "one-layer model."
    )

    private: int = hyper(1, "how many of the last layers, by name, stay private", low=0)
    named: str = hyper("", "private layers by name, separated by commas, instead of the last ones")
    head_steps: int = hyper(0, "FedRep: steps on the private layers alone, before the body's; 0 = FedPer", low=0)

    def is_private(self, params: Tree) -> list[bool]:
        """Which of the model's leaves stay with the client."""
        of_leaf = layers(params)
        ordered = in_order(of_leaf)
        chosen = set(ordered[max(len(ordered) - self.private, 0) :])
        if self.named:
            wanted = {name.strip() for name in self.named.split(",")}
            found = {w: {layer for layer in ordered if w in (layer, layer.split("/")[-1])} for w in wanted}
            unknown = sorted(w for w in wanted if not found[w])
            if unknown:
                there = ", ".join(name for name in ordered if name) or "one layer without a name"
                raise CgpflError(f"fedper: named: no layer {unknown[0]!r}; the model has {there}")
            chosen = set().union(*found.values())
        return [layer in chosen for layer in of_leaf]

    def cut(self, params: Tree) -> tuple[Part, Part]:
        """A model → (body, head)."""
        mask = self.is_private(params)
        leaves = jax.tree.leaves(params)
        return (
            tuple(v for v, own in zip(leaves, mask, strict=True) if not own),
            tuple(v for v, own in zip(leaves, mask, strict=True) if own),
        )

    def join(self, task: Task, body: Part, head: Part) -> Tree:
        """(body, head) → a model."""
        mask = self.is_private(task.initial)
        parts = iter(body), iter(head)
        return jax.tree.unflatten(jax.tree.structure(task.initial), [next(parts[own]) for own in mask])

    def check(self, clients: int, answers: float, rounds: int) -> None:
        """FedRep counts its head's steps."""
        if self.head_steps and not isinstance(self.descent.epochs, str):
            raise CgpflError("fedper: head_steps: goes with steps, not with descent.epochs")

    def init_server(self, task: Task, key: Array) -> Part:
        """The body."""
        return self.cut(task.initial)[0]

    def init_client(self, task: Task, key: Array) -> Part:
        """The head."""
        return self.cut(task.initial)[1]

    def train(self, task: Task, message: Part, client: Part, data: ClientData, key: Array) -> tuple[Part, Part]:
        """SGD on body and head together, or one after the other."""
        model = self.join(task, message, client)
        if not self.head_steps:
            return self.cut(self.descend(task, model, data, key))
        first, second = jax.random.split(key)
        mask = jax.tree.unflatten(jax.tree.structure(model), self.is_private(model))

        def only(head: bool) -> Any:
            def gradient(params: Tree, batch: Batch) -> Tree:
                full = task.grad(params, batch)
                return jax.tree.map(lambda g, own: g if own == head else jnp.zeros_like(g), full, mask)

            return gradient

        model = self.descend(task, model, data, first, steps=self.head_steps, gradient=only(True))
        return self.cut(self.descend(task, model, data, second, gradient=only(False)))

    def personal(self, task: Task, message: Part, client: Part, data: ClientData, key: Array) -> Tree:
        """The shared body under the client's head."""
        return self.join(task, message, client)

    def shared(self, message: Part) -> None:
        """A body alone is no model."""

    def gradients(self) -> float:
        """R, and FedRep's head steps."""
        return self.local_rounds + self.head_steps
