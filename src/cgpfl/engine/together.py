"""Several runs of one method in one compiled program: other seeds, other hyper-parameters, other data.

Float hyper-parameters, keys, the initial model and the data get a leading axis of runs; the clients of
all runs are then mapped as the clients of one run are (see :func:`cgpfl.engine.round.program`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cgpfl.data import FederatedData
from cgpfl.data.federated import IndexTable
from cgpfl.engine.blocks import SHARE_OF_MEMORY, auto_block, client_bytes, is_ragged, memory, record_capacity
from cgpfl.engine.drive import Drive, Recorded, Traffic, of_each
from cgpfl.engine.problem import Arrays, keys_of, make_task, on_device
from cgpfl.engine.round import State, begin
from cgpfl.engine.settings import Settings
from cgpfl.engine.simulation import Simulation
from cgpfl.tree import nbytes, plain, take


class Run(NamedTuple):
    """One of several runs."""

    method: Any
    data: FederatedData
    seed: int


class Together(Simulation):
    """Runs of one method (hyper-parameters declared as floats may differ) on federations of one shape."""

    def __init__(
        self,
        runs: Sequence[Run],
        model: Any,
        **settings: Any,
    ) -> None:
        """``settings``: those of :class:`~cgpfl.engine.settings.Settings`, but the seed: each run has its own."""
        first = runs[0]
        super().__init__(first.method, padded([first.data])[0], model, seed=first.seed, **settings)
        plan = Settings(**settings)
        self.runs = list(runs)
        self._first = partial(Simulation, first.method, first.data, model, seed=first.seed, **settings)
        same = all(r.data is first.data for r in runs)
        one_set = same_samples([r.data for r in runs])
        self.method = stack([r.method for r in runs], np.arange(len(runs)))
        seeds = list(dict.fromkeys(r.seed for r in runs))
        keys = [keys_of(s) for s in seeds]
        of_run = np.array([seeds.index(r.seed) for r in runs])
        self.keys = stack(keys, of_run)
        self.task = stack([make_task(model, k, first.data.clients) for k in keys], of_run)
        if not same:
            self.arrays = self._stacked(one_set)
        clients, cohort = len(runs) * first.data.clients, self.static.cohort
        one = jax.tree.map(lambda v: v[0], self.task)
        fit = auto_block(len(runs) * client_bytes(model, one.initial, frozen=one.frozen), cohort)
        self.static = self.static._replace(
            block=plan.clients_per_block or fit,
            capacity=record_capacity(plan.rounds, plan.every, clients),
            together="same" if same else "split" if one_set else "own",
            ragged=is_ragged(*{id(r.data): r.data for r in runs}.values()),
        )

    def traffic(self) -> Traffic:
        """Bytes and gradients of one client in one round of the first run."""
        return self._first().traffic()

    def shapes(self) -> State:
        shapes: State = begin.eval_shape(self.method, self.task, self.arrays, self.keys, self.static.together)
        return shapes

    def _stacked(self, one_set: bool) -> Arrays:
        """The runs' federations on the device, with a leading axis; samples that all share are there once."""
        places = {id(r.data): r.data for r in self.runs}
        federations = padded(list(places.values()))
        of_run = np.array([list(places).index(id(r.data)) for r in self.runs])
        whole = self.arrays
        each: Arrays = stack([on_device(d, samples=not one_set) for d in federations], of_run)
        return dataclasses.replace(each, x=whole.x, scale=whole.scale, shift=whole.shift) if one_set else each

    def one(self, state: State, r: int) -> State:
        """The state of run ``r``."""
        return entry(state, r)

    def split(
        self, state: State, records: dict[str, np.ndarray], due: list[int]
    ) -> list[tuple[dict[str, np.ndarray], list[int]]]:
        """Each run's records and rounds; those of and after a round that diverged are left out."""
        return [(own.values, own.rounds) for own in of_each(state, Recorded(due, records))]

    def advance(self, state: State, start: int, stop: int) -> tuple[State, dict[str, np.ndarray], list[int]]:
        """As :meth:`Simulation.advance`, with records ``{name: [evaluations, runs, ...]}``, all that were written."""
        return self._advance(state, start, stop)


def simulate_together(
    runs: Sequence[Run], model: Any, *, rounds: int, **settings: Any
) -> list[tuple[State, dict[str, np.ndarray], list[int]]]:
    """Run all to the end in memory → for each (state, records, evaluated rounds), as :func:`simulate` does."""
    together = Together(runs, model, rounds=rounds, **settings)
    done = Drive(together).quick()
    own = of_each(done.state, done.records, done.patience)
    return [(together.one(done.state, r), own[r].values, own[r].rounds) for r in range(len(runs))]


@jax.jit
def stack(trees: Sequence[Any], which: np.ndarray) -> Any:
    """Trees of one form → those of ``which`` as one tree with a leading axis; one program, not one for each leaf."""
    return take(jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(v) for v in leaves]), *trees), which)


@jax.jit
def entry(stacked: Any, r: int) -> Any:
    """Tree ``r`` of those stacked."""
    return take(stacked, r)


def same_samples(federations: Sequence[FederatedData]) -> bool:
    """Whether all hold the same samples (the same array), however those are split."""
    first = federations[0]
    units = np.array([first.scale, first.shift])
    return all(d.x is first.x and np.array_equal(np.array([d.scale, d.shift]), units) for d in federations)


def padded(federations: Sequence[FederatedData]) -> list[FederatedData]:
    """The federations with tables of one width (draws do not depend on the padding).

    Tables that are not short get a power of two: sets of one size then share a compiled program, whatever their split.
    """

    def widen(tables: list[IndexTable]) -> list[IndexTable]:
        width = max(t.rows.shape[1] for t in tables)
        width = 1 << (width - 1).bit_length() if width > 64 else width
        return [IndexTable(np.pad(t.rows, ((0, 0), (0, width - t.rows.shape[1]))), t.counts) for t in tables]

    train, test = widen([d.train for d in federations]), widen([d.test for d in federations])
    held = [d.validation for d in federations if d.validation is not None]
    validation = widen(held) if held else [None] * len(federations)
    return [
        dataclasses.replace(d, train=a, test=b, validation=c)
        for d, a, b, c in zip(federations, train, test, validation, strict=True)
    ]


def how_many_fit(run: Run, model: Any, one_set: bool = False) -> int:
    """How many runs like this one fit into one program's memory; ``one_set``: all with the same samples."""
    one = Simulation(run.method, run.data, model, rounds=1)
    state = one.shapes()
    size = nbytes(jax.eval_shape(plain, (state.server, state.clients)))
    samples = 0 if one_set else run.data.x.nbytes
    return max(1, int(SHARE_OF_MEMORY * memory() / (3 * (size + samples))))
