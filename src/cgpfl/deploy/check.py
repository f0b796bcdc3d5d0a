"""A finished trial against a simulation of the same experiment on the same samples."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.algorithms.wrapper import adds_noise
from cgpfl.data import FederatedData
from cgpfl.data.local import load_local
from cgpfl.deploy.agreement import EXPERIMENT, FORM, Agreement, read_agreement
from cgpfl.deploy.layout import TRIAL_DATA
from cgpfl.deploy.survey import form_of, survey_of
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import config_of, from_dict, to_toml
from cgpfl.experiment.run import checked, run_method
from cgpfl.files import load_arrays

TOLERANCE = 1e-5
"""Of parameters: the simulation computes all clients in one program, a node computes its own."""


def together(agreed: Agreement) -> FederatedData:
    """The nodes' data of a trial as one federation."""
    deploy, folders = agreed.deploy, trial_data(agreed)
    form = (settled(agreed) if agreed.asks else agreed).form
    each = [load_local(folder, form, test=deploy.test, seed=agreed.seed) for folder in folders]
    train, test = ([(d.x[d.rows(0, part)], d.y[d.rows(0, part)]) for d in each] for part in ("train", "test"))
    first = each[0]
    more: dict[str, Any] = {"classes": form.classes, "task": first.task, "scale": first.scale, "shift": first.shift}
    more["names"] = deploy.names
    return FederatedData.from_clients(train, test, **more).with_form(form)


def trial_data(agreed: Agreement) -> list[Path]:
    """Where the data of each of a trial's nodes is."""
    return [agreed.where.parent / TRIAL_DATA / str(i) for i in range(agreed.deploy.clients)]


def settled(agreed: Agreement) -> Agreement:
    """With the form that a trial's nodes must agree on, made from their data here."""
    said = {i: survey_of(agreed, place) for i, place in enumerate(trial_data(agreed))}
    return agreed.with_form(form_of(agreed, said))


def compare(app: Path, out: Path) -> str:
    """Simulate the trial in ``out`` → what was found equal; an error where it is not."""
    from cgpfl.experiment.folder import RunFolder

    agreed = read_agreement(app / EXPERIMENT)
    if agreed.asks:
        agreed = settled(agreed)
        if to_toml(config_of(out).get(FORM, {})) != to_toml(agreed.given or {}):
            raise CgpflError(f"run {out}: nodes agreed on another form than their data gives here")
    if not math.isinf(float(agreed.values.get("epsilon", math.inf))):
        raise CgpflError("check: nodes' noise is their own, and they tell no scores: nothing can be compared")
    experiment = from_dict(agreed.values, str(agreed.where))
    if any(adds_noise(method) for method in experiment.methods().values()):
        raise CgpflError("check: outgoing = noise: nodes' noise is their own: nothing can be compared")
    data, model = together(agreed), agreed.model()
    metrics = pd.read_parquet(out / "metrics.parquet")
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder(Path(scratch))
        for label, method in experiment.methods().items():
            place = folder.method(label)
            result = run_method(checked(method, data, experiment), data, model, experiment, label=label, folder=place)
            here, there = result.clients, metrics[metrics["method"] == label].reset_index(drop=True)
            for name in ("round", "client", "n", "correct"):
                if not np.array_equal(here[name].to_numpy(), there[name].to_numpy()):
                    raise CgpflError(f"{label}: {name} of the deployment is not the simulation's")
            ours, _ = load_arrays(place.path / "state.safetensors")
            theirs, _ = load_arrays(out / "methods" / label / "state.safetensors")
            for name, value in theirs.items():
                if name.startswith(".server") and np.issubdtype(value.dtype, np.floating):
                    worst = max(worst, float(np.abs(value - ours[name]).max(initial=0)))
    if worst > TOLERANCE:
        raise CgpflError(f"the server's parameters differ from the simulation's by {worst:.2g}")
    labels = ", ".join(experiment.methods())
    return (
        f"The same in simulation: {labels}: every client's accuracy in every round equal, "
        f"the server's parameters to {worst:.1g} (up to {TOLERANCE:g} is rounding)."
    )
