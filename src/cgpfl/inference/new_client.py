"""A new client: its context by the published models' losses, its model by the method's own step on the client.

No round is run and nothing is sent: the client reads what the server publishes and trains on its own samples, as a
member of the federation does between two messages.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import ClientData, Task
from cgpfl.algorithms.steps import losses
from cgpfl.data import FederatedData, Form, load_local
from cgpfl.data.local import one_client
from cgpfl.engine.cache import use_compilation_cache
from cgpfl.engine.problem import Keys, client_keys, keys_of, round_keys
from cgpfl.errors import CgpflError
from cgpfl.experiment.reload import Published, load_published, published, ranked
from cgpfl.experiment.result import PersonalModel, Result
from cgpfl.files import a_path
from cgpfl.inference.candidates import candidates
from cgpfl.inference.folder import Exported, write_export
from cgpfl.inference.score import Score, padded, scored
from cgpfl.tree import Tree

STEPS = 20
"""Rounds' worth of training on the client. On digits no method gains more than two points of accuracy by 80, except
L2SGD+ (four)."""


@dataclass(frozen=True)
class Personalized:
    """A new client's model."""

    published: Published
    data: FederatedData
    """The client's own samples."""
    contexts: list[int]
    """The contexts there are; empty for a method without any."""
    members: list[int]
    """Clients of each."""
    losses: list[float]
    """Mean loss of each context's model, or of the one shared, on the client's training samples; empty without one."""
    context: int | None
    """The context with the smallest loss."""
    model: PersonalModel
    score: Score
    """Of the personal model, on the samples held out."""
    shared: Score | None
    """Of the context's or shared model, on the same."""
    steps: int
    seconds: float

    def save(self, out: str | Path, formats: tuple[str, ...] = ("safetensors",)) -> Exported:
        """Write the model as an export folder (which must not exist yet); see :func:`cgpfl.export`."""
        samples = self.data.x[np.concatenate([self.data.test.parts()[0], self.data.train.parts()[0]])]
        facts = {"client": "new", "context": self.context, "steps": self.steps}
        return write_export(
            a_path(out), self.model, self.published, facts, self.score, self.shared, samples=samples, formats=formats
        )


def personalize(
    run: Result | str | Path,
    data: FederatedData | str | Path,
    *,
    method: str | None = None,
    steps: int = STEPS,
    test: float = 0.25,
    seed: int = 0,
) -> Personalized:
    """A context and a personal model for a client that was not in the federation.

    ``run``: a :class:`Result` or a run folder, of which ``method`` names the method (None = the most accurate
    that has something for a new client).
    ``data``: the client's file or folder (see :func:`cgpfl.data.load_local`; ``test`` is the share held out, drawn by
    ``seed``), or a federation of one client. ``steps``: rounds' worth of the method's own training on the client.
    """
    if steps < 1:
        raise CgpflError(f"steps = {steps}: must be at least 1")
    use_compilation_cache()
    known = published_of(run, method)
    local = _local(data, known, test, seed)
    began = time.perf_counter()
    there = candidates(known)
    samples, task, keys = _on_device(local), known.task, keys_of(known.seed)
    found = [] if there.models is None else np.asarray(_losses(task, there.models, samples), float).tolist()
    best = int(np.nanargmin(found)) if np.isfinite(found).any() else 0
    message = there.messages[best]
    params = _adapt(known.method, task, message, samples, keys, np.int32(known.rounds), np.int32(steps))
    model = _usable(params, known)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model.params)):
        raise CgpflError(f"{known.label}: the personal model is not finite; use fewer steps than {steps}")
    rows = local.test.parts()[0]
    context_model = None if there.models is None else _usable(jax.tree.map(lambda v: v[best], there.models), known)
    return Personalized(
        published=known,
        data=local,
        contexts=there.contexts,
        members=there.members,
        losses=found,
        context=there.contexts[best] if there.contexts else None,
        model=model,
        score=scored(model, local.x[rows], local.y[rows]),
        shared=None if context_model is None else scored(context_model, local.x[rows], local.y[rows]),
        steps=steps,
        seconds=time.perf_counter() - began,
    )


def published_of(run: Result | str | Path, method: str | None) -> Published:
    """The server's side of a run."""
    if not isinstance(run, Result):
        if method is None:
            method = _able(a_path(run, "run"))
        return load_published(a_path(run, "run"), method)
    if method not in (None, run.label):
        raise CgpflError(f"method {method!r}: this result is of {run.label}")
    return published(run)


def _able(run: Path) -> str | None:
    """The most accurate of a run's methods that has something for a new client; None where none has."""
    for label in ranked(run):
        with suppress(CgpflError):
            candidates(load_published(run, label))
            return label
    return None


def _local(data: FederatedData | str | Path, known: Published, test: float, seed: int) -> FederatedData:
    """The client's samples, which must be of the run's form and in its units."""
    form = known.form
    if not isinstance(data, FederatedData):
        return load_local(a_path(data, "data"), form, test=test, seed=seed)
    if data.clients != 1:
        raise CgpflError(f"data: has {data.clients} clients; a new client is one")
    own = data.form()
    for name in ("columns", "shape", "classes", "labels"):
        if getattr(own, name) != getattr(form, name) and not (name == "columns" and _same_names(own, form)):
            raise CgpflError(f"data: {name} = {getattr(own, name)}; the run has {getattr(form, name)}")
    if form.columns is not None:  # its own columns are fitted to its own samples
        parts = [
            (form.columns.encode(data.client(0, p)[0], "data"), data.y[data.rows(0, p)]) for p in ("train", "test")
        ]
        return one_client(parts[0], form, held=parts[1])
    scale, shift = form.units()
    if not (np.array_equal(scale, np.float32(data.scale)) and np.array_equal(shift, np.float32(data.shift))):
        raise CgpflError(f"data: scale, shift = {data.scale}, {data.shift}; the run has {form.scale}, {form.shift}")
    return data


def _same_names(own: Form, form: Form) -> bool:
    """Whether two tables have the same columns, in whatever order and fitted to whatever."""
    return own.columns is not None and form.columns is not None and set(own.columns.names) == set(form.columns.names)


def _usable(params: Tree, known: Published) -> PersonalModel:
    return PersonalModel(jax.tree.map(np.asarray, known.task.whole(params)), known.model, known.form)


def _on_device(data: FederatedData) -> ClientData:
    """The client's training samples, padded to a power of two: clients of similar size share a program."""
    rows = data.train.parts()[0]
    count = len(rows)
    size = max(32, 1 << (count - 1).bit_length())
    x, y = (jax.device_put(padded(values[rows], size)) for values in (data.x, data.y))
    units = jnp.float32(data.scale), jnp.float32(data.shift)
    return ClientData(x, y, jnp.arange(size, dtype=jnp.int32), jnp.int32(count), *units)


@jax.jit
def _losses(task: Task, models: Tree, data: ClientData) -> Array:
    return losses(task, models, data)


@jax.jit
def _adapt(method: Any, task: Task, message: Any, data: ClientData, keys: Keys, rounds: Array, steps: Array) -> Tree:
    """The personal model after ``steps`` rounds of training on a message that stays as it is.

    Keys are those of a client with the next free id in the rounds after the run's: nobody else's.
    """
    stranger = jnp.int32(task.clients)

    def own(t: Array) -> Any:
        return client_keys(round_keys(keys, rounds + t), stranger)

    client = method.init_client(task, jax.random.fold_in(jax.random.split(keys.setup)[1], stranger))
    if jax.tree.leaves(client):  # else nothing of the training would be kept

        def step(t: Array, state: Any) -> Any:
            return method.train(task, message, state, data, own(t).train)[1]

        client = jax.lax.fori_loop(0, steps, step, client)
    return method.personal(task, message, client, data, own(steps - 1).personal)
