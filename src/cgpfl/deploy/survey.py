"""Agreeing on a form before the first round, where only nodes have the data: the server asks, nodes say statistics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cgpfl.data import Form
from cgpfl.data.labels import listed
from cgpfl.data.survey import Survey, agreeing, common_form, survey
from cgpfl.deploy.agreement import Agreement
from cgpfl.engine.flower.orders import Order, Reply
from cgpfl.errors import CgpflError, LostError
from cgpfl.files import write

if TYPE_CHECKING:
    from cgpfl.engine.flower.link import Link  # Flower itself: a node's worker does without

TOLD = "told.json"
"""What a node said of its data, kept beside its private states for whoever runs it."""
SHOWN = 8
"""Columns that are listed when nodes have agreed on them."""
SHORT = 200
"""Characters of a reason: names in it are a node's."""
LONGEST = 16_000_000
"""Characters that a node may say."""


def survey_of(agreed: Agreement, data: Path) -> Survey:
    """What the node with this data says of it."""
    cut: dict[str, Any] = {"test": agreed.deploy.test, "seed": agreed.seed}
    return survey(data, agreed.reading, **cut, counted=agreed.loss == "balanced")


@dataclass(frozen=True)
class Surveyor:
    """A node of which nothing but statistics is asked."""

    agreed: Agreement
    client: int
    data: Path
    folder: Path
    """Where private states are kept."""

    def work(self, order: Order, message: Mapping[str, np.ndarray]) -> Reply:
        """Say the statistics, and keep what was said."""
        text = json.dumps(survey_of(self.agreed, self.data).plain())
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(self.folder / TOLD, text.encode())
        return Reply(self.client, 0, 0, told=text)


def ask_form(agreed: Agreement, link: Link, say: Callable[[str], None]) -> Form:
    """Ask every node that is there for its statistics → the federation's form.

    Who does not fit the others, by the rule of :func:`cgpfl.data.survey.agreeing`, is named and left out.
    """
    rules, heard = agreed.deploy, dict[int, Survey]()
    for attempt in range(rules.repeats + 1):
        asked = [i for i in link.there() if i not in heard]
        answers = link.ask({i: (Order("statistics", i, 0), {}) for i in asked}, rules.deadline)
        for i, answer in sorted(answers.items()):
            try:
                heard[i] = _read(answer.told, len(agreed.reading.label.split(",")))
            except CgpflError as error:
                say(f"{link.called(i)}: refused, {error}")
        if (
            len(heard) == rules.clients
            or (attempt and len(heard) >= rules.minimum)
            or not set(link.there()) - set(heard)
        ):
            break
    if not heard or len(heard) < rules.minimum:
        raise LostError(f"statistics: {len(heard)} answers of at least {rules.minimum}; the run stops before round 1")
    return form_of(agreed, heard, say)


def form_of(agreed: Agreement, heard: Mapping[int, Survey], say: Callable[[str], None] = lambda line: None) -> Form:
    """The form of a federation whose nodes said this, merged in the clients' order."""
    names = agreed.deploy.names or tuple(map(str, range(agreed.deploy.clients)))
    fit, wrong = agreeing(heard)
    for i, why in sorted(wrong.items()):
        say(f"client {names[i]}: does not fit: {why[:SHORT]}; the form is made without it")
    if len(fit) < agreed.deploy.minimum:
        raise CgpflError(f"statistics: {len(fit)} nodes fit together of at least {agreed.deploy.minimum}")
    return common_form([heard[i] for i in fit], [names[i] for i in fit], agreed.reading, agreed.loss)


def described(form: Form) -> str:
    """What was agreed on, in a few words."""
    names = () if form.columns is None else form.columns.names
    shown = ", ".join(names[:SHOWN]) + ", …" * (len(names) > SHOWN)
    said = f"; {len(form.labels)} labels: {listed(form.labels)}" if form.labels else ""
    return f"{len(names)} columns: {shown}; {form.shape[0]} inputs; {form.objective.task}{said}"


def _read(text: str, targets: int) -> Survey:
    """What a node said of ``targets`` things to predict, checked."""
    if len(text) > LONGEST:
        raise CgpflError(f"statistics: are of {len(text):,} characters; may be of {LONGEST:,}")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CgpflError("statistics: cannot be read") from error
    said = Survey.of_plain(found)
    if len(said.moments) not in (0, targets):
        raise CgpflError(f"statistics: are of {len(said.moments)} targets, not of {targets}")
    return said
