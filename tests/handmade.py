"""Runs of the paper's room that never ran: their numbers are given, so what is made of them is known."""

import dataclasses
import json

import numpy as np

from cgpfl.experiment.records import Cost, Records
from cgpfl.experiment.table import Runs
from cgpfl.paper.plan import Plan
from cgpfl.paper.settings import FULL, PAPER_SPLIT

TEST = np.array([100, 300])
"""Test samples of the two clients of a run that never ran."""


def runs(*percent, diverged=(), **more):
    """A seed each of ``percent``: its accuracy after each evaluated round (or the last one's alone).

    ``diverged``: the seeds that did. ``more``: further records, one for each evaluation, the same for every seed.
    """
    records, bad = [], [3 if s in diverged else None for s in range(len(percent))]
    for each in percent:
        curve = np.atleast_1d(np.asarray(each, float))
        values = {
            "correct": curve[:, None] / 100 * TEST,
            "train_loss": np.stack([1 / (1 + curve), 2 / (1 + curve)], axis=1),
            **{name: np.asarray(v) for name, v in more.items() if name != "settings"},
        }
        records.append(Records([5 * (e + 1) for e in range(len(curve))], values))
    n = len(percent)
    return Runs(
        label="made",
        seeds=list(range(n)),
        records=records,
        samples=[TEST] * n,
        cost=Cost(1, 1, 1, 2),
        answers=[1] * n,
        rounds=[5] * n,
        diverged=bad,
        seconds=1.0,
        settings=more.get("settings", {}),
        tried=[],
        ari=[None] * n,
    )


def lost(seeds=2):
    """Every seed diverged before anything was recorded."""
    gone = runs(*[[50.0]] * seeds, diverged=range(seeds))
    return dataclasses.replace(gone, records=[Records() for _ in range(seeds)])


class Known:
    """Cells whose runs are given by name: what is not given is not there."""

    on_progress = None

    def __init__(self, cells, seeds=2):
        self.cells, self.seeds, self.times = cells, list(range(seeds)), {}

    def has(self, cell):
        return cell.name in self.cells

    def get(self, cell):
        return self.cells[cell.name]

    def seconds(self):
        return self.times

    def add_seconds(self, name, seconds):
        self.times[name] = self.times.get(name, 0.0) + seconds

    def stop(self):
        return False


def tiny(*names, **change):
    """Some of the paper's settings with eight clients, for sets as small as digits."""
    made = {}
    for name in names or ("mnist-mlr", "fmnist-mlr"):
        data = dataclasses.replace(PAPER_SPLIT, source=FULL[name].data.source, clients=8, smallest=40, largest=600)
        values = {"rounds": 4, "lambdas": (12.0, 13.0), "ks": (1, 2, 4), "evaluations": 4, **change}
        made[name] = dataclasses.replace(FULL[name], data=data, **values)
    return made


def plan(out, cells, settings=None, *, quick=False, seeds=2):
    """A plan whose cells are known."""
    return Plan(out, quick, tiny() if settings is None else settings, Known(cells, seeds))


def section(folder):
    return json.loads((folder / "section.json").read_text())
