"""What a result and a report ask of a federation and its engine, where the data is on nodes and only counted here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgpfl.data import Form, IndexTable
from cgpfl.deploy.agreement import Agreement
from cgpfl.engine.flower.rules import ServerState
from cgpfl.engine.flower.server import Coordinator


@dataclass(frozen=True)
class RemoteData:
    """What the server knows of the federation's data: counts, and nothing else."""

    train: IndexTable
    test: IndexTable
    agreed: Form
    names: tuple[str, ...] = ()
    context: None = None

    @classmethod
    def of(cls, agreed: Agreement, state: ServerState | None = None) -> Any:
        """From what the nodes have said (None: nothing yet), in the place of a :class:`~cgpfl.data.FederatedData`."""
        deploy, none = agreed.deploy, np.zeros((agreed.deploy.clients, 0), np.int32)
        unknown = np.zeros(deploy.clients, np.int32)
        train, test = (unknown, unknown) if state is None else (state.samples, state.tests)
        return cls(IndexTable(none, train), IndexTable(none, test), agreed.form, deploy.names)

    def form(self) -> Form:
        """Of the nodes' samples."""
        return self.agreed

    @property
    def clients(self) -> int:
        return len(self.train.counts)

    @property
    def ids(self) -> np.ndarray:
        """Client ids ``[N]``."""
        return np.arange(self.clients, dtype=np.int32)

    @property
    def digest(self) -> str:
        """Hash of all the server knows."""
        return hashlib.sha256(f"{self.train.counts} {self.test.counts} {self.agreed.shape}".encode()).hexdigest()[:16]

    def summary(self) -> dict[str, Any]:
        there = self.train.counts[self.train.counts > 0]
        return {
            "source": "nodes",
            "split": "node",
            "clients": self.clients,
            "samples": int(self.train.counts.sum() + self.test.counts.sum()),
            "train_samples": int(self.train.counts.sum()),
            "test_samples": int(self.test.counts.sum()),
            "smallest_client": int(there.min()) if len(there) else 0,
            "largest_client": int(there.max(initial=0)),
            **self.agreed.facts(),
            **({"names": list(self.names)} if self.names else {}),
            "true_contexts": None,
            "split_hash": self.digest if len(there) else None,
        }


@dataclass(frozen=True)
class Participation:
    """How many take part in a round."""

    cohort: int


@dataclass(frozen=True)
class RemoteEngine:
    """What a result asks of its engine."""

    server: Coordinator

    @property
    def static(self) -> Participation:
        return Participation(self.server.cohort)

    @property
    def task(self) -> Any:
        return self.server.task

    def traffic(self) -> Any:
        return self.server.traffic()
