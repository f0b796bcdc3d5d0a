"""What a node does when it is asked: evaluate the client's model, train it for a round, keep its state."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.algorithms.wrapper import adds_noise, is_private
from cgpfl.data import FederatedData
from cgpfl.engine.cache import use_compilation_cache
from cgpfl.engine.evaluate import evaluate_message
from cgpfl.engine.flower.noise import OwnKeys
from cgpfl.engine.flower.orders import Order, RefusedError, Reply
from cgpfl.engine.flower.private import Private
from cgpfl.engine.flower.wire import pack, unpack
from cgpfl.engine.problem import Part, client_keys, keys_of, make_task, on_device, round_keys
from cgpfl.errors import CgpflError
from cgpfl.metrics import Metric
from cgpfl.rounds.privacy import sends
from cgpfl.tree import all_finite

# Hyper-parameters are arguments of the programs, as in simulation: the same arithmetic.
_FRESH = jax.jit(lambda method, task, key: method.init_client(task, key))
_TRAIN = jax.jit(lambda method, *args: method.train(*args))
_EVALUATE = jax.jit(evaluate_message, static_argnames="metrics")


@dataclass(frozen=True)
class Node:
    """One client of a federation of ``clients``, on its own machine."""

    method: Any
    model: Any
    data: FederatedData
    client: int
    clients: int
    seed: int
    folder: Path
    """Where private states are kept."""
    metrics: tuple[Metric, ...] = ()
    """Measured beside right answers and the loss."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Kept with the server's last message: what it takes to make this node again."""

    def __post_init__(self) -> None:
        use_compilation_cache()
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # no program is compiled twice
        if not 0 <= self.client < self.clients:
            raise CgpflError(f"client {self.client}: this federation has clients 0..{self.clients - 1}")
        if self.data.clients != 1:
            raise CgpflError(f"client {self.client}: its data is of {self.data.clients} clients, not of one")

    @property
    def samples(self) -> int:
        """m_i, training samples."""
        return int(self.data.train.counts[0])

    @property
    def tests(self) -> int:
        return int(self.data.test.counts[0])

    @cached_property
    def _keys(self) -> Any:
        return keys_of(self.seed)

    @cached_property
    def _task(self) -> Any:
        return make_task(self.model, self._keys, self.clients)

    @cached_property
    def _arrays(self) -> Any:
        return on_device(self.data)

    @cached_property
    def _fresh(self) -> Any:
        """Program of the state before the first round."""
        _, key = jax.random.split(self._keys.setup)
        return partial(_FRESH, self.method, self._task, jax.random.fold_in(key, self.client))

    @cached_property
    def message_like(self) -> Any:
        """The form of the server's message."""

        def first(task: Any, key: Any) -> Any:
            return self.method.send(self.method.init_server(task, key), jnp.int32(0))

        return jax.eval_shape(first, self._task, self._keys.setup)

    def work(self, order: Order, message: Mapping[str, np.ndarray]) -> Reply:
        """Evaluate, then train, as ordered, with the server's message as named arrays."""
        if order.client != self.client:
            raise RefusedError(f"is asked as client {order.client}, but is client {self.client}")
        heard = unpack(message, self.message_like)
        private = Private(self.folder / f"client-{self.client}", order.token)
        state, anew = self._state(private, order.base)
        metrics: dict[str, float | list[float]] = {}
        upload: dict[str, np.ndarray] = {}
        if order.evaluate >= 0 and not is_private(self.method):
            metrics = self._evaluate(heard, state, order.evaluate)
        if order.train >= 0:
            upload = self._train(private, heard, state, order, message)
        if order.evaluate >= 0 or order.train >= 0:
            ended = order.evaluate + 1 if order.evaluate >= 0 else order.train
            private.keep(message, ended, order.base, {**self.about, "client": self.client})
        counts = (1, 1) if is_private(self.method) else (self.samples, self.tests)  # how many it has is not told
        return Reply(self.client, *counts, anew, metrics, upload)

    def personal(self, token: str, message: Mapping[str, np.ndarray], round_: int, base: int) -> tuple[Any, Any]:
        """The client's model after ``round_`` rounds of the run ``token``, from what is kept: its own, the shared."""
        heard = unpack(message, self.message_like)
        state, lost = self._state(Private(self.folder / f"client-{self.client}", token), base)
        if lost:
            raise CgpflError(f"{self.folder}: the state of round {base} of this client is not there")
        arrays, keys = self._arrays, client_keys(round_keys(self._keys, max(round_ - 1, 0)), jnp.int32(self.client))
        view = arrays.view(arrays.train.rows[0], arrays.train.counts[0])
        own = jax.jit(self.method.personal)(self._task, heard, state, view, keys.personal)
        return own, self.method.shared(heard)

    def _state(self, private: Private, base: int) -> tuple[Any, bool]:
        if base > 0:
            found = private.load(base, jax.eval_shape(self._fresh))
            if found is not None:
                return found, False
        return self._fresh(), base > 0

    def _part(self, table: Any) -> Part | None:
        return None if table is None else Part(table.rows[0], table.counts[0])

    def _evaluate(self, message: Any, state: Any, t: int) -> dict[str, float | list[float]]:
        arrays, keys = self._arrays, client_keys(round_keys(self._keys, t), jnp.int32(self.client))
        parts = (self._part(arrays.train), self._part(arrays.test), self._part(arrays.validation))
        found = _EVALUATE(self.method, self._task, arrays, message, state, parts, keys, metrics=self.metrics)
        sums = {m.name: jax.tree.leaves(found.pop(m.name)) for m in self.metrics}
        flat = {name: np.concatenate([np.ravel(v) for v in leaves]) for name, leaves in sums.items()}
        return {name: np.asarray(value, float).tolist() for name, value in (found | flat).items()}

    @cached_property
    def _seen(self) -> str:
        """What an upload follows from beside messages and states, in words: the samples, the method, the model."""
        settings = self.model.settings() if hasattr(self.model, "settings") else {}
        more = [getattr(self.model, name, None) for name in ("objective", "frozen")]
        return repr([self.data.digest, self.method, type(self.model).__name__, settings, *more])

    def _train(
        self, private: Private, message: Any, state: Any, order: Order, asked: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        arrays, keys = self._arrays, client_keys(round_keys(self._keys, order.train), jnp.int32(self.client))
        view = arrays.view(arrays.train.rows[0], arrays.train.counts[0])
        key = keys.train
        if sends(self.method) and (is_private(self.method) or adds_noise(self.method)):
            times = self.method.privacy.times if is_private(self.method) else None
            key = OwnKeys(private.folder, times).key(order, asked, key, (self.method, state), self._seen)
        upload, new = _TRAIN(self.method, self._task, message, state, view, key)
        if is_private(self.method) and not bool(all_finite(new)):
            new = state  # to refuse would tell of the samples: it goes on from what it had
            print(f"cgpfl: round {order.train + 1}: training gave NaN or infinity; lower the rates", file=sys.stderr)
        if not bool(all_finite((upload, new))):
            raise RefusedError(f"round {order.train + 1}: training gave NaN or infinity")
        private.save(order.train + 1, new, order.base)
        return pack(upload)
