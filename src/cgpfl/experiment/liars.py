"""Honest clients' accuracy over the share of liars: one attack, several means."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from cgpfl.attacks import Lying
from cgpfl.engine.simulation import check_start
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import Experiment
from cgpfl.experiment.run import Progress, checked, run_method
from cgpfl.files import written
from cgpfl.hyperparameters import build, name_in, replace
from cgpfl.report.liars import draw_liars
from cgpfl.rounds import MEANS

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4)
"""Of liars, where nothing is said."""


def over_shares(
    experiment: Experiment,
    means: Sequence[Any] = ("weighted", "auto"),
    shares: Sequence[float] = SHARES,
    seeds: int = 1,
    tell: Callable[[Progress], None] | None = None,
) -> pd.DataFrame:
    """Run an experiment's methods under its attack with each mean and share of liars, over ``seeds`` from its own on.

    One row each: method, mean, share, seed, accuracy (of honest clients, pooled), backdoor (where there is a trigger).
    """
    attack = experiment.attack
    if not isinstance(attack, Lying):
        raise CgpflError(f"attack = {attack.name!r}: must be one by some clients, such as sign-flip")
    if seeds < 1 or not means or not shares:
        raise CgpflError("liars: needs at least one seed, one mean and one share")
    for share in shares:
        if not 0 <= share < 1:
            raise CgpflError(f"share {share:g}: must be >= 0 and < 1: somebody must be honest")
    rules = [build(MEANS, mean, "mean") for mean in means]
    rows: list[dict[str, Any]] = []
    for seed in range(experiment.seed, experiment.seed + seeds):
        data = experiment.data.build(seed)
        model = experiment.make_model(data)
        lying = [replace(attack, {"share": share, "number": 0}) for share in shares]
        for lies in lying:
            lies.check(data.clients)
        for rule in rules:
            for share, lies in zip(shares, lying, strict=True):
                plan = dataclasses.replace(experiment, seed=seed, mean=rule, attack=lies)
                methods = {label: checked(m, data, plan) for label, m in plan.methods().items()}
                if not rows:
                    check_start(methods.values(), data, model)
                for label, method in methods.items():
                    result = run_method(method, data, model, plan, label=label, on_progress=tell)
                    row = {"method": label, "mean": name_in(MEANS, rule), "share": share, "seed": seed}
                    row["accuracy"] = result.accuracy
                    if attack.triggers:
                        row["backdoor"] = result.metrics.get("backdoor", {}).get("pooled", float("nan"))  # diverged
                    rows.append(row)
    return pd.DataFrame(rows)


def save_shares(found: pd.DataFrame, attack: str, folder: Path) -> list[Path]:
    """``liars.csv`` and the figure, as .png, .svg and .pdf, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with written(folder / "liars.csv") as file:
        file.write(found.to_csv(index=False).encode())
    return [folder / "liars.csv", *draw_liars(found, attack, folder)]
