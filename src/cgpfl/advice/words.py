"""Advice in words, for the terminal and the page."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from cgpfl.advice.apart import LEAST, Difference
from cgpfl.advice.study import CANDIDATES, MANY, MOST, RATES
from cgpfl.advice.weigh import FEW, LEVEL
from cgpfl.data import FederatedData, Reading, make_data

if TYPE_CHECKING:
    from cgpfl.advice.advice import Advice

WIDTH = 80
MEASURE = {
    "classification": "accuracy",
    "regression": "R²",
    "multi-label": "right labels",
    "next-token": "right tokens",
}
"""What a score is called."""
MOST_NAMES = 6
MOST_LINES = 3
"""Names in a list, and differences told of a context."""


def score(value: float, task: str) -> str:
    """A score as text."""
    if not np.isfinite(value):
        return "diverged"
    return f"{value:.3f}" if task == "regression" else f"{100 * value:.1f} %"


def points(value: float, task: str) -> str:
    """A difference of scores."""
    return f"{value:+.3f}" if task == "regression" else f"{100 * value:+.1f} points"


def headline(advice: Advice) -> str:
    """What to do."""
    grouped = 1 < advice.k < len(advice.assignment)
    groups = f"{advice.k} contexts" if grouped else "One context" if advice.k == 1 else "No contexts"
    return {
        "alone": "Train alone: each client on its own samples",
        "one model": "Pool everything: one model for everybody",
        "one model, tuned": "One model for everybody, which each client then tunes",
        "contexts": f"{groups}: clients that are alike share a model"
        if grouped
        else "One model for everybody, trained by CGPFL-Auto",
        "contexts + personal": f"{groups}, and a model of its own for each client",
    }[advice.recommended]


def why(advice: Advice) -> list[str]:
    """The reasons, a sentence each."""
    v, task = advice.verdict, advice.task
    name, measure = v.name, MEASURE[task]
    lines = []
    if v.both_simple:
        other = "one model" if name == "alone" else "alone"
        lines.append(
            f"Alone and one model both do as well as the best, as far as can be told. {name.capitalize()} is better "
            f"for the worst tenth of the clients ({score(v.worst[name], task)}, {other} {score(v.worst[other], task)})."
        )
    elif name == v.best:
        lines.append(f"It has the best {measure}, {score(v.score[name], task)}.")
    else:
        lines.append(
            f"The best {measure} is that of {v.best}, {score(v.score[v.best], task)}; "
            f"{score(v.score[name], task)} cannot be told from it (p = {v.p[name]:.2f}), and is simpler."
        )
    worse = [n for n, p in v.p.items() if p < LEVEL]
    if worse:
        told = ", ".join(f"{n} {points(v.score[n] - v.score[v.best], task)}" for n in worse)
        lines.append(f"Told apart from the best: {told}.")
    else:
        lines.append("No way is told apart from the best: the data is too little, or it does not matter.")
    return lines


def contexts(advice: Advice) -> str:
    """How many, and how sure."""
    folds = len(advice.folds_k)
    if advice.k >= len(advice.assignment):
        return (
            f"No contexts: nothing that clients share says what one of them does ({advice.agreeing} of {folds} folds)."
        )
    found = f"found in {advice.agreeing} of {folds} folds"
    if advice.k == 1:
        return f"One context: no groups of clients differ from each other ({found})."
    sizes = ", ".join(str(n) for n in sorted(np.unique(advice.assignment, return_counts=True)[1], reverse=True))
    sure = f"; the folds agree on who belongs where: {advice.agreement:.2f} of 1" if advice.agreeing > 1 else ""
    return f"{advice.k} contexts of {sizes} clients, {found}{sure}."


def apart(found: Sequence[Difference], image: bool, k: int) -> dict[int, list[str]]:
    """Of each context what sets it apart, a line each."""
    own = {context: [d for d in found if d.context == context] for context in range(k)}
    return {context: (_pixels if image else _columns)(those) for context, those in own.items()}


def _columns(own: Sequence[Difference]) -> list[str]:
    first: dict[str, str] = {}
    for d in [d for d in own if not d.given][:MOST_LINES] or own:
        first.setdefault(d.what, d.words())
    return list(first.values())[:MOST_LINES]


def _pixels(own: Sequence[Difference]) -> list[str]:
    pixels = [d for d in own if d.what.startswith("pixel") and not d.given]
    labels = [d for d in own if d.what.startswith("label")]
    given = [d for d in own if d.what.startswith("pixel") and d.given]
    lines = [d.words() for d in labels[:MOST_LINES]]
    if pixels:
        top = pixels[0]
        lines.append(f"its images differ in {len(pixels)} pixels, most in the {top.what} (effect {top.effect:+.1f})")
    elif given and not labels:
        top = given[0]
        lines.append(f"its images of one label differ, most with {top.given} (effect {top.effect:+.1f})")
    return lines


def nothing_apart() -> str:
    """Where contexts have the same columns and labels."""
    return (
        f"No column and no label differs by {LEAST} standard deviations or more: contexts differ in how labels follow "
        "from the columns, or in what means do not show."
    )


def gains(advice: Advice) -> list[str]:
    """Who gains and who loses against training alone."""
    table, way = advice.clients, advice.shared
    gain, told = table["gain"].to_numpy(), table["told"].to_numpy()
    what = f"by {way}" if advice.recommended != "alone" else f"by {way}, the best way that shares"
    ups, downs = int((gain > 0).sum()), int((gain < 0).sum())
    lines = [
        f"Against training alone {ups} of {len(gain)} clients gain {what}, {downs} lose; "
        f"in the middle {points(float(np.median(gain)), advice.task)}."
    ]
    for word, order in (
        ("gain most", np.argsort(-gain, kind="stable")),
        ("lose most", np.argsort(gain, kind="stable")),
    ):
        sign = 1 if word.startswith("gain") else -1
        who = [i for i in order if sign * gain[i] > 0][:MOST_NAMES]
        if who:
            named = ", ".join(
                f"{table['client'][i]} {points(float(gain[i]), advice.task)}{'*' if told[i] else ''}" for i in who
            )
            lines.append(f"These {word}: {named}.")
    if told.any():
        lines.append("* a difference that the client's own folds tell from chance (5 %).")
    elif len(gain):
        lines.append("No client by itself has enough samples to tell its difference from chance.")
    return lines


def notes(advice: Advice, left_out: Sequence[str], folds: int, time: str) -> list[str]:
    """What to keep in mind."""
    lines = []
    if left_out:
        named = ", ".join(left_out[:MOST_NAMES]) + (", …" if len(left_out) > MOST_NAMES else "")
        lines.append(f"Left out: {len(left_out)} clients with fewer than {folds} samples ({named}).")
    if len(advice.assignment) < FEW:
        lines.append(f"Fewer than {FEW} clients: the test is over folds alone, and says nothing about other clients.")
    for name in dict.fromkeys((advice.recommended, advice.verdict.best)):
        rate = advice.rates[name]
        if rate in (RATES[0], RATES[-1]):
            edge = "smallest" if rate == RATES[0] else "largest"
            lines.append(f"{name}: the {edge} rate tried ({rate:g}) was chosen; one beyond may do better.")
    if len(set(advice.folds_k)) > 1:
        found = ", ".join(str(k) for k in advice.folds_k)
        lines.append(f"The folds do not agree on the number of contexts: {found}.")
    if advice.k == MOST < len(advice.assignment) and len(advice.assignment) > MANY:
        lines.append(f"At most {MOST} contexts were looked for: there may be more.")
    lost = [name for name, s in advice.verdict.score.items() if not np.isfinite(s)]
    if lost:
        lines.append(f"Diverged with every rate in some fold: {', '.join(lost)}.")
    if time:
        lines.append(
            f"Folds are random, though the data is ordered by {time}: the future may be harder than said here."
        )
    return lines


def command(data: FederatedData, model: Any, name: str, rate: float, rounds: int) -> str:
    """How the recommended way is run for good; empty where the data was made by hand."""
    own = next(c for c in CANDIDATES if c.name == name).command.format(rate=f"{rate:g}")
    recipe = data.recipe
    if recipe is None or not isinstance(model, str):
        return ""
    usual = {k: p.default for k, p in signature(make_data).parameters.items()} | vars(Reading())
    flags = ["--data", str(recipe["source"])]
    for key, value in recipe.items():
        if key in ("source", "seed") or value in (usual.get("split_by" if key == "split" else key), "", (), []):
            continue
        if key in ("client", "label", "task", "split", "clients"):
            if value != "auto":
                flags += [f"--{key}", str(value)]
        else:
            flags += ["--set", f"data.{key}={_toml(value)}"]
    flags += ["--model", model] if model != "mlr" else []
    return " ".join(["cgpfl run", shlex.join(flags), own, f"--rounds {rounds}"])


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return json.dumps(list(value))
    return {True: "true", False: "false"}.get(value, f"{value}") if isinstance(value, bool) else f"{value}"


def terminal(advice: Advice) -> str:
    """Everything in short, in lines of at most 80 characters."""
    from cgpfl.advice.page import shown

    def wrapped(text: str, first: str = "", then: str = "") -> str:
        return textwrap.fill(
            text, WIDTH, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
        )

    parts = [wrapped(f"{headline(advice)}.")]
    parts += [wrapped(" ".join(why(advice))), "", shown(advice, short=True).text(), ""]
    parts += [wrapped(contexts(advice))]
    for context, lines in advice.apart.items():
        parts += [wrapped(line, f"  {context + 1}: ", "     ") for line in lines]
    parts += ["", *(wrapped(line) for line in gains(advice)), "", wrapped(advice.curve.words())]
    if advice.notes:
        parts += ["", *(wrapped(line, "- ", "  ") for line in advice.notes)]
    if advice.command:
        parts += ["", "Run it for good:", *_broken(advice.command)]
    return "\n".join(parts)


def _broken(line: str) -> list[str]:
    """A command over several lines that a shell joins again."""
    pieces = textwrap.wrap(line, WIDTH - 6, break_long_words=False, break_on_hyphens=False)
    ends = [" \\"] * (len(pieces) - 1) + [""]
    return [f"  {'  ' if i else ''}{p}{end}" for i, (p, end) in enumerate(zip(pieces, ends, strict=True))]
