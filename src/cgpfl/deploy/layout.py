"""The app that ``cgpfl deploy init`` writes: a folder that Flower can run, and what its hosts need."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Any

import numpy as np

from cgpfl.data import FederatedData, Form, Reading
from cgpfl.deploy.agreement import (
    ASKED,
    EXPERIMENT,
    FORM,
    Deployment,
    check_asked,
    check_bounds,
    check_fits,
    check_names,
    read_agreement,
)
from cgpfl.deploy.secrets import ORDERS, make_orders, orders_of
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import Experiment, to_toml
from cgpfl.files import write
from cgpfl.hyperparameters import parameters
from cgpfl.models import MODELS, as_model
from cgpfl.registry import own_modules

KEYS = "keys"
TRIAL_DATA = "trial-data"
TEMPLATES = (
    "pyproject.toml",
    "federation/__init__.py",
    "federation/server.py",
    "federation/client.py",
    "certificates.sh",
    "nginx.conf",
    "systemd/cgpfl-superlink.service",
    "systemd/cgpfl-node@.service",
    "README.md",
    ".gitignore",
)


def write_app(
    folder: Path,
    experiment: Experiment,
    deploy: Deployment,
    form: Form | None = None,
    *,
    host: str = "localhost",
    port: int = 9443,
    parent_mode: int = 0o777,
) -> None:
    """Write the app into the new folder ``folder``; ``parent_mode``: of the one it is in, where that is new, too.

    What cannot be leaves no folder. Nodes reach nginx as ``host``:``port``; behind it, on loopback, the SuperLink has
    the next port.
    """
    check_fits(experiment, deploy, str(folder))
    if folder.exists() and any(folder.iterdir()):
        raise CgpflError(f"{folder}: exists already and is not empty; choose another folder")
    check_names(deploy, str(folder))
    check_bounds(deploy, str(folder), form is not None)
    if deploy.form == ASKED:
        check_asked(experiment.data, str(folder))
        values = _asked_values(experiment, deploy)
    else:
        values = _values(experiment, deploy, form or Form(deploy.shape, deploy.classes, deploy.scale, deploy.shift))
    own = own_modules({key: value for key, value in values.items() if key not in ("data", "deploy")})
    facts = {
        "host": host,
        "port": port,
        "inner": port + 1,
        "clients": deploy.clients,
        "last": deploy.clients - 1,
        "connections": 32 + 16 * deploy.clients,
        "rate": 20 + 20 * deploy.clients,
        "folder": folder.resolve(),
        "program": Path(sys.executable).parent / "cgpfl",
        "files": '", "'.join(
            [EXPERIMENT, *(f"{name}/**/*.py" if at.is_dir() else at.name for name, at in own.items())]
        ),
    }
    for name in ("folder", "program"):
        if any(c in str(facts[name]) for c in "\"'`$\\%\n"):
            raise CgpflError(f"{facts[name]}: may have no quotes, $, % or backslashes, for nginx, systemd and shells")
    folder.parent.mkdir(mode=parent_mode, parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    (folder / ".flwr").mkdir(mode=0o700)
    values["deploy"]["orders"] = make_orders(folder / KEYS)
    for name in TEMPLATES:
        text = (
            resources.files("cgpfl.deploy").joinpath("templates", name.replace(".gitignore", "gitignore")).read_text()
        )
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(facts), encoding="utf-8")
    (folder / "certificates.sh").chmod(0o755)
    write(folder / EXPERIMENT, to_toml(values).encode())
    for name, source in own.items():  # a method of one's own travels with the app
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / source.name)


def _values(experiment: Experiment, deploy: Deployment, form: Form) -> dict[str, Any]:
    """Everything written out; the data section is of simulations and of no use to nodes."""
    stand_in: Any = SimpleNamespace(
        clients=deploy.clients, shape=form.shape, classes=form.classes, form=lambda loss: form
    )
    values = experiment.complete({experiment.seed: stand_in}, experiment.make_model(stand_in))
    if form != Form(deploy.shape, deploy.classes, deploy.scale, deploy.shift):
        values[FORM] = form.facts()
    values["deploy"] = _plain(deploy)
    return values


def _asked_values(experiment: Experiment, deploy: Deployment) -> dict[str, Any]:
    """The same where the form is not known yet: the model is made when it is, but of ours it is known what fits."""
    model = experiment.model
    if model.name in MODELS:
        as_model(model.name, (2,), 2, **model.settings)
    stand_in: Any = SimpleNamespace(clients=deploy.clients)
    made: Any = SimpleNamespace(settings=lambda: model.settings, frozen=experiment.frozen)
    values = experiment.complete({experiment.seed: stand_in}, made)
    values["data"] = {k: v for k, v in values["data"].items() if k in vars(Reading())}
    values["deploy"] = {k: v for k, v in _plain(deploy).items() if k not in ("shape", "classes", "scale", "shift")}
    return values


def _plain(deploy: Deployment) -> dict[str, Any]:
    found = parameters(dataclasses.asdict(deploy))
    return {k: v for k, v in found.items() if (k, v) not in (("names", []), ("form", "given"), ("orders", ""))}


def write_trial_data(folder: Path, data: FederatedData) -> list[Path]:
    """Each client's own samples as a node would have them: a folder each, with files train and test."""
    places = []
    for i in range(data.clients):
        place = folder / TRIAL_DATA / str(i)
        place.mkdir(parents=True, exist_ok=True)
        for name in ("train", "test"):
            x, y = data.client(i, name)
            if data.columns is None:
                np.savez(place / f"{name}.npz", x=x, y=y)
            else:
                labels = [c.strip() for c in data.columns.label.split(",")]
                columns = y.reshape(len(y), -1).T
                x.assign(**dict(zip(labels, columns, strict=True))).to_parquet(place / f"{name}.parquet", index=False)
        places.append(place)
    return places


def prepare_trial_data(folder: Path, experiment: Experiment, data: FederatedData | None) -> None:
    """Write the experiment's own data as its nodes', unless it is there; it must be what the app is for."""
    deploy = read_agreement(folder / EXPERIMENT).deploy
    if deploy.form == ASKED:
        missing = [i for i in range(deploy.clients) if not (folder / TRIAL_DATA / str(i)).exists()]
        if missing:
            raise CgpflError(f"{folder / TRIAL_DATA / str(missing[0])}: for a trial put the data of each node there")
    if (folder / TRIAL_DATA).exists():
        return
    data = data or experiment.data.build(experiment.seed)
    has, wants = (data.clients, data.shape, data.classes), (deploy.clients, deploy.shape, deploy.classes)
    if has != wants:
        raise CgpflError(
            f"{folder}: the experiment's data has (clients, shape, classes) {has}, the app is for {wants}; "
            f"for a trial put data of each client into {folder / TRIAL_DATA}/0, 1, ..."
        )
    write_trial_data(folder, data)


def sign_orders(folder: Path) -> Path | None:
    """See that an app has a key for orders → the file, where it is new."""
    agreed, keys = read_agreement(folder / EXPERIMENT), folder / KEYS
    if agreed.deploy.orders:
        orders_of(keys, agreed.deploy.orders, str(folder / EXPERIMENT))
        return None
    text = (folder / EXPERIMENT).read_text(encoding="utf-8")
    public = make_orders(keys)
    head, section, rest = text.partition("[deploy]\n")
    write(folder / EXPERIMENT, f'{head}{section}orders = "{public}"\n{rest}'.encode())
    return keys / ORDERS


def read_shape(text: str) -> tuple[int, ...]:
    """``28,28`` as (28, 28)."""
    parts: Sequence[str] = text.replace("x", ",").split(",")
    if not all(p.strip().isdigit() and int(p) > 0 for p in parts):
        raise CgpflError(f"--shape {text}: must be the shape of one input, such as 28,28")
    return tuple(int(p) for p in parts)
