"""``cgpfl.advise``: a short study on one's own clients, and what it says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.advice import words
from cgpfl.advice.apart import differences
from cgpfl.advice.curve import Curve, learning_curve
from cgpfl.advice.folds import Folds, make_folds
from cgpfl.advice.study import CANDIDATES, NAMES, Study, batches, estimate, study
from cgpfl.advice.weigh import Verdict, of_clients, weigh
from cgpfl.data import FederatedData
from cgpfl.errors import CgpflError
from cgpfl.experiment import Experiment
from cgpfl.experiment.run import Progress
from cgpfl.files import write

FOLDS, ROUNDS = 5, 50


@dataclass(frozen=True)
class Advice:
    """What a study says. ``print(advice)`` for the short of it, :meth:`save` for the page."""

    verdict: Verdict
    table: pd.DataFrame
    """One row a candidate, the simplest first: score, worst_tenth, p, rate, bytes, gradients, seconds."""
    clients: pd.DataFrame
    """One row a client: samples, context, score of each candidate, gain over alone, told from chance or not."""
    differences: pd.DataFrame
    """What sets contexts apart: context, what, given (a label), effect, here, elsewhere; the largest effect first."""
    curve: Curve
    """Training alone with fewer samples, and how many would do as well."""
    k: int
    """Contexts that most folds found; as many as clients: none."""
    assignment: np.ndarray
    """``[N]``."""
    folds_k: tuple[int, ...]
    agreeing: int
    """Folds that found this many,"""
    agreement: float
    """and how much they agree on who belongs where, 1 = exactly."""
    shared: str
    """The way that training alone is compared with: the recommended one, or the best that shares."""
    apart: dict[int, list[str]]
    """Of each context what sets it apart, in words."""
    rates: dict[str, float]
    task: str
    title: str
    command: str
    notes: tuple[str, ...]
    seconds: float
    rounds: int
    means: np.ndarray | None = None
    """Of images: each context's mean ``[K, height, width]``."""

    @property
    def recommended(self) -> str:
        """The candidate's name."""
        return self.verdict.name

    @property
    def words(self) -> list[str]:
        """Everything in sentences."""
        lines = [f"{words.headline(self)}.", *words.why(self), words.contexts(self)]
        lines += [f"Context {k + 1}: {line}" for k, own in self.apart.items() for line in own]
        return [*lines, *words.gains(self), self.curve.words(), *self.notes]

    def __str__(self) -> str:
        return words.terminal(self)

    def _repr_html_(self) -> str:
        from cgpfl.advice.page import shown

        return shown(self).notebook(self.words)

    def facts(self) -> dict[str, Any]:
        return {
            "recommended": self.recommended,
            "best": self.verdict.best,
            "not_told_from_the_best": list(self.verdict.tied),
            "contexts": self.k,
            "contexts_in_folds": list(self.folds_k),
            "words": self.words,
            "command": self.command,
            "seconds": round(self.seconds, 1),
        }

    def save(self, folder: str | Path) -> Path:
        """Write the page (advice.html), the text, the tables and the facts into a folder; returns the page."""
        from cgpfl.advice.page import html

        out = Path(folder)
        if out.exists() and not out.is_dir():
            raise CgpflError(f"out {out}: is a file; name a folder")
        out.mkdir(parents=True, exist_ok=True)
        for name, frame in (("ways", self.table), ("clients", self.clients), ("differences", self.differences)):
            write(out / f"{name}.csv", frame.to_csv(index=False).encode())
        write(out / "advice.txt", f"{self}\n".encode())
        write(out / "advice.json", (json.dumps(self.facts(), indent=2) + "\n").encode())
        write(out / "advice.html", html(self).encode())
        return out / "advice.html"


@dataclass(frozen=True)
class Plan:
    """A study that is ready to be made: everything is checked."""

    data: FederatedData
    folds: Folds
    model: Any
    named: Any
    """The model's name, where that says it all."""
    rounds: int
    seed: int

    @property
    def model_name(self) -> str:
        """What the model is called."""
        return self.named if isinstance(self.named, str) else type(self.model).__name__

    @property
    def seconds(self) -> float:
        """What it may take."""
        return estimate(self.folds, self.model, self.rounds)

    def words(self) -> str:
        """What will be done, and what it may take."""
        clients, folds = self.folds.data.clients, _cut(self.folds)
        runs = sum(len(b.todo) for b in batches(self.folds, self.model, self.rounds, self.seed).values())
        minutes = max(self.seconds / 60, 0.5)
        about = f"{minutes:.0f}" if minutes >= 3 else f"{minutes:.1f}"
        return f"{clients} clients, {folds}, {runs} short trainings: about {about} minutes on two cores"


def prepare(data: Any, model: Any = "mlr", *, folds: int = FOLDS, rounds: int = ROUNDS, seed: int = 0) -> Plan:
    """Read the data, cut the folds and check every candidate against them."""
    experiment = Experiment.of(["local"], data, model, {"rounds": rounds, "seed": seed}, "advise")
    return plan_of(experiment, folds)


def plan_of(experiment: Experiment, folds: int) -> Plan:
    """The same from an experiment, whose methods do not matter."""
    plain = experiment.model.given is None and not experiment.model.settings
    found = next(iter(experiment.data.federations([experiment.seed]).values()))
    if found.clients < 2:
        raise CgpflError("advise: there is one client; advice is about sharing, which takes two")
    made = experiment.make_model(found)
    cut = make_folds(found, folds, experiment.seed)
    plan = Plan(found, cut, made, experiment.model.name if plain else None, experiment.rounds, experiment.seed)
    batches(cut, made, experiment.rounds, experiment.seed)  # raises what a method has to say against it
    return plan


def advise(
    data: Any,
    model: Any = "mlr",
    *,
    folds: int = FOLDS,
    rounds: int = ROUNDS,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> Advice:
    """Study on the data's own clients whether to train alone, together, or in contexts, and say what is found.

    ``data`` and ``model``: as of :func:`cgpfl.run`. All samples of a client are cut into ``folds``; every candidate
    trains ``rounds`` rounds on the same folds, with rates chosen inside the training folds.

    >>> advice = cgpfl.advise("digits")
    >>> print(advice)
    >>> advice.save("advice")
    """
    return conclude(prepare(data, model, folds=folds, rounds=rounds, seed=seed), on_progress)


def _cut(folds: Folds) -> str:
    return f"{folds.cuts} times {len(folds.outer) // folds.cuts} folds"


def conclude(plan: Plan, on_progress: Callable[[Progress], None] | None = None) -> Advice:
    """Make the study and draw the conclusions."""
    began = time.perf_counter()
    found = study(plan.folds, plan.model, plan.rounds, plan.seed, on_progress)
    return concluded(plan, found, time.perf_counter() - began)


def concluded(plan: Plan, found: Study, seconds: float) -> Advice:
    """The conclusions alone."""
    data, cut = plan.folds.data, plan.folds
    verdict = weigh(found.correct, found.counts, cut.cuts)
    k, assignment, agreeing, alike = found.contexts()
    others = {n: s for n, s in verdict.score.items() if n != "alone" and np.isfinite(s)}
    shared = verdict.name if verdict.name != "alone" else max(others, key=lambda n: others[n])
    gain, told = of_clients(found.correct[shared] - found.correct["alone"], found.counts, cut.cuts)
    n = found.counts.sum(axis=0)
    clients = pd.DataFrame({"client": [data.name(i) for i in range(data.clients)], "samples": n // cut.cuts})
    clients["context"] = assignment + 1
    for name in NAMES:
        clients[name] = found.correct[name].sum(axis=0) / n
    clients["gain"], clients["told"] = gain, told
    grouped = 1 < k < data.clients
    apart = differences(data, assignment) if grouped else []
    is_image = data.columns is None and len(data.shape) in (2, 3)
    listed = words.apart(apart, is_image, k) if grouped else {}
    if grouped and not any(listed.values()):
        listed = {0: [words.nothing_apart()]}
    alone = np.concatenate([found.smaller.sum(axis=1), found.correct["alone"].sum(axis=0)[None]])
    curve = learning_curve(alone, found.trained, n, found.correct[verdict.name].sum(axis=0))
    rates = {name: found.rate(name) for name in NAMES}
    facts = plan.data.about
    source = Path(str(facts.get("source", "your data"))).name
    advice = Advice(
        verdict=verdict,
        table=_table(verdict, found, rates),
        clients=clients,
        differences=pd.DataFrame(
            [vars(d) | {"context": d.context + 1} for d in apart],
            columns=["context", "what", "given", "effect", "here", "elsewhere", "share"],
        ),
        curve=curve,
        k=k,
        assignment=assignment,
        folds_k=found.k,
        agreeing=agreeing,
        agreement=alike,
        shared=shared,
        apart=listed,
        rates=rates,
        task=data.task,
        title=f"{source}: {data.clients} clients, {int(n.sum()) // cut.cuts:,} samples, {plan.model_name}, {_cut(cut)}",
        command=words.command(plan.data, plan.named, verdict.name, rates[verdict.name], plan.rounds),
        notes=(),
        seconds=seconds,
        rounds=plan.rounds,
        means=_means(data, assignment, k) if is_image and grouped else None,
    )
    by_time = str((plan.data.recipe or {}).get("time", ""))
    return replace(advice, notes=tuple(words.notes(advice, cut.left_out, len(cut.outer) // cut.cuts, by_time)))


def _table(verdict: Verdict, found: Study, rates: dict[str, float]) -> pd.DataFrame:
    rows = [
        {
            "way": c.name,
            "score": verdict.score[c.name],
            "worst_tenth": verdict.worst[c.name],
            "behind": verdict.score[c.name] - verdict.score[verdict.best],
            "p": verdict.p[c.name],
            "tied": c.name in verdict.tied,
            "rate": rates[c.name],
            **found.costs[c.name],
        }
        for c in CANDIDATES
    ]
    return pd.DataFrame(rows)


def _means(data: FederatedData, assignment: np.ndarray, k: int) -> np.ndarray:
    """Mean image of each context ``[K, height, width]``."""
    parts = data.train.parts()
    rows = [np.concatenate([parts[i] for i in np.flatnonzero(assignment == c)]) for c in range(k)]
    means = np.stack([data.x[r].astype(np.float64).mean(axis=0) for r in rows])
    return means if means.ndim == 3 else means.mean(axis=-1)
