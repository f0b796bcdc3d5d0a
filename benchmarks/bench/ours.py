"""Our contestant: the whole compiled round, and one client's part of it for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array

from benchmarks.bench.machine import seconds
from benchmarks.bench.work import Case, Rule, federation, method_of, model_of, rule_of
from cgpfl.data import FederatedData
from cgpfl.engine import Drive, Simulation, State
from cgpfl.engine.placement import enough_devices
from cgpfl.engine.problem import client_keys, host, round_keys
from cgpfl.errors import CgpflError

FOREVER = 10**6
"""Rounds of a run that never ends, so that no round is evaluated."""


@dataclass(frozen=True)
class ClientRounds:
    """The first round of a few clients: what they drew, and what came of it. Trees of NumPy arrays."""

    start: Any  # θ and ω̃ before it
    x: np.ndarray  # [C, R, B, ...] model inputs
    y: np.ndarray  # [C, R, B]
    upload: Any  # leaves [C, ...]
    personal: Any  # leaves [C, ...]; None where clients keep nothing


class Ours:
    """A simulation that is advanced round by round."""

    def __init__(self, case: Case, precision: str = "default") -> None:
        self.case = case
        self.data: FederatedData = federation(case)
        self.rule: Rule = rule_of(case)
        model = model_of(case.model)
        devices = enough_devices(model, self.data.clients, self.data.x.nbytes)
        settings: dict[str, Any] = {"rounds": FOREVER, "eval_every": FOREVER, "precision": precision}
        self.simulation = Simulation(method_of(case.method), self.data, model, devices=devices, **settings)
        self.drive = Drive(self.simulation)
        self.program: Any = None
        """The compiled block of rounds, once it is."""

    def compile(self) -> float:
        """Trace and compile everything; returns the seconds it took."""
        return seconds(self._compile)

    def _compile(self) -> None:
        self.program = self.simulation.compile()

    def advance(self, rounds: int) -> None:
        """Run ``rounds`` rounds in one call, to their end."""
        self.drive.block(rounds)
        jax.block_until_ready(self.drive.state)
        if self.drive.lost[0] is not None:
            raise CgpflError(f"{self.case.name}: diverged in round {self.drive.lost[0]}; nothing was timed")

    def client_rounds(self, clients: int) -> ClientRounds:
        """The first round of the first ``clients`` clients, from the engine's keys, in full precision."""
        s = self.simulation.alone()

        def one(i: Array, start: State, task: Any, arrays: Any) -> Any:
            own = client_keys(round_keys(s.keys, 0), arrays.ids[i])
            view = arrays.view(arrays.train.rows[i], arrays.train.counts[i])
            message = s.method.send(start.server, arrays.ids[i])
            client = jax.tree.map(lambda v: v[i], start.clients)
            upload, new = s.method.train(task, message, client, view, own.train)
            drawn = jax.random.split(own.train, self.rule.local_rounds)
            batches = jax.vmap(lambda key: view.batch(key, self.rule.batch))(drawn)
            return batches.x, batches.y, upload, new

        each = jax.jit(jax.vmap(one, in_axes=(0, None, None, None)))
        with jax.default_matmul_precision("highest"):
            x, y, upload, new = host(each(np.arange(clients), s.start(), s.task, s.arrays))
        return ClientRounds(host(s.task.initial), x, y, upload, None if self.rule.pull is None else new)
