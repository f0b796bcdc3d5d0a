"""The paper's split, drawn: who holds which classes, and how much."""

from __future__ import annotations

import numpy as np

from cgpfl.data import FederatedData
from cgpfl.data.sets import SETS
from cgpfl.files import save_csv
from cgpfl.paper.cells import federation
from cgpfl.paper.plan import Part, Plan
from cgpfl.paper.section import Figure, Section
from cgpfl.paper.settings import ORIGINS
from cgpfl.report.federation import draw_federation
from cgpfl.report.pictures import FORMATS
from cgpfl.tables import Table


def counts(data: FederatedData) -> np.ndarray:
    """Samples of each class at each client, training and test together. ``[N, classes]``."""
    parts = [np.concatenate(p) for p in zip(data.train.parts(), data.test.parts(), strict=True)]
    return np.stack([np.bincount(data.y[rows], minlength=data.classes) for rows in parts])


def _make(plan: Plan) -> Section:
    folder = plan.out / "split"
    folder.mkdir(parents=True, exist_ok=True)
    figures, rows, facts = [], [], []
    for source in dict.fromkeys(s.data.source for s in plan.settings.values()):
        setting = next(s for s in plan.settings.values() if s.data.source == source)
        for seed in plan.seeds:
            sizes = counts(federation(setting, seed)).sum(axis=1)
            values = [int(v) for v in (sizes.min(), np.median(sizes), sizes.max(), sizes.sum())]
            rows.append([source, str(seed), *(f"{v:,}" for v in values)])
            facts.append(
                dict(zip(("set", "seed", "smallest", "median", "largest", "all"), (source, seed, *values), strict=True))
            )
        for suffix in FORMATS:
            title = f"{source}, {setting.data.split} split, seed {plan.seeds[0]}"
            draw_federation(
                counts(federation(setting, plan.seeds[0])), title, folder / f"{source}{suffix}", SETS[source].names
            )
        figures.append(Figure(source, f"{source}: samples of each class at each client, training and test together."))
    save_csv(folder / "split.csv", facts)
    sizes = Table("Client sizes", ["set", "seed", "smallest", "median", "largest", "all"], rows)
    origin = Table(
        "Every setting and where it comes from", ["setting", "value", "origin", "remark"], [list(r) for r in ORIGINS]
    )
    return Section("split", "The federation and the settings", [], [origin, sizes], figures)


SPLIT = Part("split", "client sizes and label sets of the paper's split", lambda plan: [], _make)
