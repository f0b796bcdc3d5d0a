"""``[deploy]``: what a federation of nodes agrees on. Read on nodes, too: nothing heavy is imported."""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from cgpfl.algorithms import get_method
from cgpfl.algorithms.wrapper import rules_in, seamed
from cgpfl.data.form import Form
from cgpfl.data.tables import Reading
from cgpfl.errors import CgpflError
from cgpfl.hyperparameters import from_values, hyper
from cgpfl.models import as_model
from cgpfl.registry import look_in
from cgpfl.rounds import Encoder

ASKED = "nodes"
"""The form that nodes are asked for."""
NAME = re.compile(r"[^\W\d_][\w .-]{0,39}")
"""What a node may be called: it is part of messages, and must be no number."""
FORM = "form"
"""Its section with the form of the nodes' samples, where that takes more than a shape and classes."""
EXPERIMENT = "experiment.toml"
"""The file of an app that describes its experiment."""


@dataclass(frozen=True)
class Deployment:
    """What nodes and server agree on, and when a round counts."""

    clients: int = hyper(4, "N, nodes of the federation", low=1)
    names: tuple[str, ...] = hyper((), "what the nodes are called, in order", kind=tuple, labels=str)
    form: str = hyper("given", "whether shape and classes are given, or nodes are asked", words=("given", "nodes"))
    shape: tuple[int, ...] = hyper((0,), "shape of one input", kind=tuple, labels=True)
    classes: int = hyper(2, "number of classes, or of numbers predicted", low=1)
    scale: float = hyper(1.0, "model inputs are x * scale + shift")
    shift: float = hyper(0.0, "model inputs are x * scale + shift")
    test: float = hyper(0.25, "share of a node's samples held out, where it brings no test file", above=0, high=0.99)
    deadline: float = hyper(120.0, "seconds that nodes have for a round", above=0)
    minimum: int = hyper(1, "answers without which a round is repeated", low=1)
    repeats: int = hyper(2, "how often a round is repeated before the run stops", low=0)
    join: float = hyper(120.0, "seconds to wait for all nodes before the first round", low=0)
    largest: float | str = hyper(
        "auto", "largest norm of an upload; 0 = any; auto = by the round's median", kind=float, low=0, words=("auto",)
    )
    most: int = hyper(0, "samples that a client may say it has; 0 = 10 times the clients' median", low=0)
    orders: str = hyper("", "public key of the server's orders; its other half is keys/orders.key")


@dataclass(frozen=True)
class Agreement:
    """An app's experiment, as far as a node needs it."""

    values: dict[str, Any]
    """The experiment, without ``[deploy]`` and ``[form]``."""
    deploy: Deployment
    where: Path
    given: dict[str, Any] | None = None
    """``[form]``, where the samples' form takes more than a shape and classes."""

    @property
    def seed(self) -> int:
        return int(self.values.get("seed", 0))

    def method(self, label: str, samples: int = 1) -> Any:
        """The method as a client with so many training samples has it."""
        from cgpfl.engine.privacy import protected_for
        from cgpfl.engine.settings import Settings

        known = {f.name for f in fields(Settings)}
        own = {name: value for name, value in self.values.items() if name in known}
        settings = from_values(Settings, own, str(self.where))
        for m in self.values.get("method", []):
            chosen = {k: v for k, v in m.items() if k not in ("name", "label")}
            if label in (m.get("label"), m.get("name")):
                rules = rules_in(self.values, str(self.where))
                check_honest(rules.get("attack"), str(self.where))
                found = seamed(get_method(m["name"], chosen), rules)
                return protected_for(found, settings, self.deploy.clients, [samples])
        raise CgpflError(f"{self.where}: has no method {label!r}")

    @property
    def asks(self) -> bool:
        """Whether the form is still to be made from what nodes say of their tables."""
        return self.deploy.form == ASKED and self.given is None

    @property
    def reading(self) -> Reading:
        """How the nodes' tables are read."""
        known = vars(Reading())
        own = {k: v for k, v in self.values.get("data", {}).items() if k in known}
        return from_values(Reading, own, f"{self.where}: data")

    @property
    def loss(self) -> str:
        """What training minimises."""
        return str(self.values.get("loss", "auto"))

    def with_form(self, form: Form) -> Agreement:
        """The same, with the form that nodes' statistics gave."""
        return replace(self, given=form.facts())

    def client(self, who: int | str) -> int:
        """Which client a name, or a number, is."""
        names = self.deploy.names
        if str(who) in names:
            return names.index(str(who))
        if not str(who).isdigit() or int(who) >= self.deploy.clients:
            there = ", ".join(names) or f"0..{self.deploy.clients - 1}"
            raise CgpflError(f"client {who}: this federation has clients {there}")
        return int(who)

    @property
    def form(self) -> Form:
        """Of the nodes' samples: the section ``[form]``, what nodes' statistics gave, or what ``[deploy]`` says."""
        if self.asks:
            raise CgpflError(f"{self.where}: deploy: form = {ASKED!r}: is known once nodes were asked")
        if self.given is not None:
            return Form.of(self.given)
        return Form(self.deploy.shape, self.deploy.classes, self.deploy.scale, self.deploy.shift)

    def model(self) -> Any:
        settings, form = dict(self.values.get("model", {})), self.form
        given = {"objective": form.objective, "frozen": str(self.values.get("frozen", "")), **settings}
        return as_model(given.pop("name", "mlr"), form.shape, form.classes, **given)


def read_agreement(path: Path, form: str = "") -> Agreement:
    """An app's experiment. Modules beside it, which came with it, can be imported from then on.

    ``form``: of the samples, as JSON, where nodes were asked for it.
    """
    look_in(path.parent)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CgpflError(f"{path}: no such file; write an app by: cgpfl deploy init") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CgpflError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from error
    if "deploy" not in values:
        raise CgpflError(f"{path}: has no section [deploy]; write an app by: cgpfl deploy init")
    deploy = from_values(Deployment, values.pop("deploy"), f"{path}: deploy")
    found = Agreement(values, deploy, path, values.pop(FORM, None))
    if deploy.form == ASKED:
        check_asked(found.reading, f"{path}: data")
    elif 0 in deploy.shape:
        raise CgpflError(f"{path}: deploy: shape must be the shape of one input, such as [28, 28]")
    check_names(deploy, f"{path}: deploy")
    check_bounds(deploy, f"{path}: deploy", found.given is not None)
    return replace(found, given=json.loads(form)) if form else found


def check_bounds(deploy: Deployment, where: str, given: bool = False) -> None:
    """What no federation can have; ``given``: its form says more than shape and classes."""
    if deploy.form != ASKED and not given and deploy.classes < 2:
        raise CgpflError(f"{where}: classes = {deploy.classes}: must be an integer >= 2")
    if deploy.minimum > deploy.clients:
        raise CgpflError(f"{where}: minimum = {deploy.minimum}: there are only {deploy.clients} clients")


def check_asked(reading: Reading, where: str) -> None:
    """What must be said, and what cannot be, where the form is made from what nodes say of their tables."""
    if not reading.label:
        raise CgpflError(f"{where}: label: must name the column that is predicted")
    for name in ("time", "held"):
        if getattr(reading, name):
            raise CgpflError(f"{where}: {name}: is not for nodes; give a node files train and test")
    if reading.task == "next-token":
        raise CgpflError(f"{where}: task: next-token is not learned from tables")


def check_names(deploy: Deployment, where: str) -> None:
    """Nodes have names of their own, all of them or none."""
    names = deploy.names
    if names and (len(names) != deploy.clients or len(set(names)) < len(names)):
        raise CgpflError(
            f"{where}: names: {len(set(names))} different ones for {deploy.clients} nodes; give each its own"
        )
    for name in names:
        if not NAME.fullmatch(name):
            raise CgpflError(
                f"{where}: names: {name!r}: must begin with a letter; letters, digits, blank, . - _; to 40"
            )


def check_honest(attack: Any, where: str) -> None:
    """Attacks are for simulations."""
    if attack is not None and attack.active:
        raise CgpflError(f"{where}: attack = {attack.name!r}: is for simulations; nodes are real, and honest")


def check_fits(experiment: Any, deploy: Deployment, where: str) -> None:
    """Raise a one-line error where an experiment cannot be run on nodes."""
    if experiment.dropout > 0:
        raise CgpflError(f"{where}: dropout = {experiment.dropout:g}: is for simulations, nodes drop out themselves")
    check_honest(experiment.attack, where)
    if experiment.patience:
        raise CgpflError(f"{where}: patience: is for simulations, nodes keep no validation samples")
    if experiment.precision != "default":
        raise CgpflError(
            f"{where}: precision = {experiment.precision!r}: is for simulations, nodes compute as JAX does"
        )
    if deploy.largest not in ("auto", 0.0) and any(isinstance(rule, Encoder) for rule in experiment.outgoing):
        raise CgpflError(f"{where}: deploy: largest: cannot be measured of quantised or sparse uploads")
    if not math.isinf(experiment.epsilon):
        check_private(experiment, deploy, where)
    for label, method in experiment.methods().items():
        if getattr(method, "needs_public", False):
            raise CgpflError(f"{where}: {label}: needs samples that everybody has, which nodes have not")
        if hasattr(method, "check"):
            asked = max(1, round(experiment.participation * deploy.clients))
            method.check(deploy.clients, experiment.rounds * asked, experiment.rounds)


def check_private(experiment: Any, deploy: Deployment, where: str) -> None:
    """What would tell more of nodes than their ε says."""
    if deploy.form == ASKED:
        raise CgpflError(f"{where}: epsilon: nodes' statistics have no noise; say shape and classes in [deploy]")
    asked = max(1, round(experiment.participation * deploy.clients))
    if experiment.trusted == "server" and deploy.minimum < asked:
        raise CgpflError(f"{where}: trusted = server: needs everybody's noise; set deploy.minimum = {asked}")
    for label, method in experiment.methods().items():
        if experiment.trusted == "server" and experiment.privacy == "client" and hasattr(type(method), "placed"):
            raise CgpflError(
                f"{where}: {label}: trusted = server: its noise would be the server's; set trusted = nobody"
            )
        steps = method.noisy_steps(1) if experiment.privacy == "sample" and hasattr(method, "noisy_steps") else None
        if any(part.folds > 1 for part in steps or ()):
            raise CgpflError(f"{where}: {label}: privacy = sample: nodes that do not answer make its warm-up longer")
