"""A method on a federation, advanced by blocks of rounds.

A block of rounds is one XLA program (:mod:`cgpfl.engine.round`). The host only decides how many rounds the next
block has (a traced number: nothing is compiled again) and receives its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from cgpfl.algorithms import Task, Wrapper
from cgpfl.engine.blocks import auto_block, client_bytes, is_ragged, record_capacity
from cgpfl.engine.cache import use_compilation_cache
from cgpfl.engine.drive import Drive, Traffic
from cgpfl.engine.kept import Kept, kept
from cgpfl.engine.mesh import everywhere, filled, put, row_of_devices, split, to_host
from cgpfl.engine.precision import computed
from cgpfl.engine.problem import (
    Arrays,
    client_keys,
    cohort_size,
    host,
    keys_of,
    make_task,
    on_device,
    round_keys,
    shapes_of,
    with_public,
)
from cgpfl.engine.round import State, Static, advance, begin
from cgpfl.engine.settings import Settings
from cgpfl.metrics import measured, of_attack
from cgpfl.tree import Tree, nbytes


def check_start(methods: Iterable[Any], data: Any, model: Any) -> None:
    """Raise what a method has to say against the model before anything runs: every first state is traced."""
    keys = keys_of(0)
    task, arrays = make_task(model, keys, data.clients), shapes_of(data)
    for method in methods:
        first = jax.eval_shape(begin, method, task, arrays, keys)
        if isinstance(method, Wrapper):  # what leaves a client must be something that its method moved
            client = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape[1:], v.dtype), first.clients)
            traffic_of(method, task, arrays, first.server, client, 1.0)


class Simulation:
    """One method on one federation, advanced block by block."""

    def __init__(
        self,
        method: Any,
        data: Any,
        model: Any,
        *,
        devices: int = 1,
        **settings: Any,
    ) -> None:
        """``settings``: the fields of :class:`~cgpfl.engine.settings.Settings`."""
        use_compilation_cache()
        plan = Settings(**settings)
        self.method, self.rounds, self.eval_every = method, plan.rounds, plan.every
        self.data, self.patience = data, plan.patience
        mesh = row_of_devices(devices)
        self._on_one_device = partial(Simulation, method, data, model, **settings)
        self.arrays = on_device(data, mesh=mesh)
        self.keys = keys_of(plan.seed)
        self.task = make_task(model, self.keys, data.clients)
        if mesh is not None:
            self.keys, self.task = put((self.keys, self.task), everywhere(mesh))
        self.dropout = np.float32(plan.dropout)
        self._program: Callable[..., Any] | None = None
        self._traffic: Traffic | None = None
        cohort = cohort_size(plan.participation, data.clients)
        own = filled(cohort, mesh) // (1 if mesh is None else mesh.size)
        size = client_bytes(model, self.task.initial, frozen=self.task.frozen)
        self.static = Static(
            clients=data.clients,
            cohort=cohort,
            drops=plan.dropout > 0,
            block=plan.clients_per_block or auto_block(size, own),
            capacity=record_capacity(plan.rounds, plan.every, data.clients),
            mesh=mesh,
            precision=plan.precision,
            metrics=(*measured(plan.metrics, getattr(model, "objective", None)), *of_attack(method)),
            ragged=is_ragged(data),
        )

    def start(self) -> State:
        state: State = begin(self.method, self.task, self.arrays, self.keys, self.static.together, self.static.mesh)
        return state

    def compile(self) -> Any:
        """Compile the programs into the compilation cache, without running them (from another thread, say).

        Returns the compiled block of rounds.
        """
        parts = (self.method, self.task, self.arrays, self.keys)
        of = (self.static.together, self.static.mesh)
        begin.lower(*parts, *of).compile()
        state = begin.eval_shape(*parts, *of)
        schedule = tuple(np.int32(0) for _ in range(4))
        args = (*parts, state, schedule, self.dropout)
        self._program = self._kept(args)
        return advance.lower(*args, self.static).compile() if self._program is None else self._program.program

    def prepare(self) -> None:
        """Have all ready that the first block of rounds needs (in another thread, say)."""
        self.traffic()
        if self.static.mesh is None:
            self.compile()

    def advance(self, state: State, start: int, stop: int) -> tuple[State, dict[str, np.ndarray], list[int]]:
        """Run rounds ``start``..``stop`` (counted from 0, stop exclusive; ``state`` is used up).

        Returns the new state, the records ``{name: [evaluations, ...]}`` and the rounds (counted
        from 1) they belong to. A record of a round that diverged is left out.
        """
        state, records, due = self._advance(state, start, stop)
        kept = [i for i, t in enumerate(due) if int(state.diverged) < 0 or t <= int(state.diverged)]
        return state, {k: v[: len(kept)] for k, v in records.items()}, due[: len(kept)]

    def _advance(self, state: State, start: int, stop: int) -> tuple[State, dict[str, np.ndarray], list[int]]:
        """The same, with every record that was written."""
        every, total = self.eval_every, self.rounds
        due = [t for t in range(start + 1, stop + 1) if t % every == 0 or t == total]
        assert len(due) <= self.static.capacity, "a block must not hold more evaluations than its buffer"
        schedule = tuple(np.int32(v) for v in (start, stop, every, total))
        state, records, filled = self._block(state, schedule)
        n = int(filled)
        written = host(records) if n else {k: np.empty(v.shape, v.dtype) for k, v in records.items()}
        return state, {k: v[:n] for k, v in written.items()}, due[:n]

    def _block(self, state: State, schedule: tuple[np.int32, ...]) -> Any:
        """A block of rounds, by a kept program where there is one."""
        args = (self.method, self.task, self.arrays, self.keys, state, schedule, self.dropout)
        if self._program is None:
            self._program = self._kept(args) or partial(advance, static=self.static)
        return self._program(*args)

    def _kept(self, args: tuple[Any, ...]) -> Kept | None:
        return kept(advance, args, self.static, used_up=4) if self.static.mesh is None else None

    def furthest(self, start: int) -> int:
        """The last round a block from ``start`` may reach without overflowing its record buffer."""
        return min(self.rounds, (start // self.eval_every + self.static.capacity) * self.eval_every)

    def traffic(self) -> Traffic:
        """Bytes and gradients of one client in one round, from the shapes of what is sent."""
        if self._traffic is None:
            state = self.shapes()
            client = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape[1:], v.dtype), state.clients)
            arrays = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), self.arrays)
            held = float(np.mean(self.data.train.counts))
            self._traffic = traffic_of(self.method, self.task, arrays, state.server, client, held)
        return self._traffic

    def shapes(self) -> State:
        state = begin.eval_shape(self.method, self.task, self.arrays, self.keys)
        n = self.static.clients
        clients = jax.tree.map(lambda v: jax.ShapeDtypeStruct((n, *v.shape[1:]), v.dtype), state.clients)
        return state._replace(clients=clients)

    def whole(self, state: State) -> State:
        """The state as it is saved: as one device has it, in this process (every process must ask)."""
        if self.static.mesh is None:
            return state
        state = to_host(state, self.static.mesh)
        return state._replace(clients=jax.tree.map(lambda v: v[: self.static.clients], state.clients))

    def placed(self, state: State) -> State:
        """A saved state, to go on with: personal states on their devices."""
        mesh = self.static.mesh
        if mesh is None:
            return state
        more = filled(self.static.clients, mesh) - self.static.clients
        clients = jax.tree.map(
            lambda v: np.pad(v, [(0, more)] + [(0, 0)] * (v.ndim - 1), mode="edge"), host(state.clients)
        )
        rest = put(state._replace(clients=()), everywhere(mesh))
        return rest._replace(clients=put(clients, split(mesh)))

    def alone(self) -> Simulation:
        """The same run on one device of this process, for what is asked of it afterwards."""
        return self if self.static.mesh is None else self._on_one_device()

    def personal(self, state: State, i: int) -> Tree:
        """All parameters of the model client ``i`` uses, as of the last round; ``state`` as :meth:`whole` gives it."""
        if self.static.mesh is not None:
            return self.alone().personal(state, i)
        own = client_keys(round_keys(self.keys, self.rounds - 1), self.arrays.ids[i])
        client = jax.tree.map(lambda v: v[i], state.clients)
        view = self.arrays.view(self.arrays.train.rows[i], self.arrays.train.counts[i])
        message = self.method.send(state.server, self.arrays.ids[i])
        personal = computed(self.method.personal, self.static.precision)
        task = with_public(self.task, self.arrays)
        return task.whole(personal(task, message, client, view, own.personal))


def traffic_of(method: Any, task: Task, arrays: Arrays, server: Any, client: Any, samples: float) -> Traffic:
    """What one client and the server send each other, from the forms of all; ``samples`` are a client's on average."""

    def train(message: Any, arrays: Arrays, client: Any, key: Array) -> Any:
        view = arrays.view(arrays.train.rows[0], arrays.train.counts[0])
        return method.train(with_public(task, arrays), message, client, view, key)

    message = jax.eval_shape(method.send, server, jax.ShapeDtypeStruct((), jnp.int32))
    key = jax.eval_shape(lambda: jax.random.key(0))
    upload, _ = jax.eval_shape(train, message, arrays, client, key)
    gradients = method.gradients_of(samples) if hasattr(method, "gradients_of") else method.gradients()
    return Traffic(nbytes(message), nbytes(upload), float(gradients))


def simulate(
    method: Any, data: Any, model: Any, *, rounds: int, **settings: Any
) -> tuple[State, dict[str, Any], list[int]]:
    """Run a method from start to end in memory → (state, records, evaluated rounds).

    The engine alone: no folder, no checkpoint, no progress (see :func:`cgpfl.run` for those).
    """
    done = Drive(Simulation(method, data, model, rounds=rounds, **settings)).quick()
    return done.state, done.records.values, done.records.rounds
