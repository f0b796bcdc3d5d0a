"""``cgpfl audit``: what a run gives away about its clients, by attacking it."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cgpfl.algorithms.wrapper import Seamed
from cgpfl.auditing.bounds import gaussian_epsilon
from cgpfl.auditing.canaries import Planted, bound_of, canary_clients, planted
from cgpfl.auditing.invert import MOST_SAMPLES, Inverted, can_invert, correlations, invert
from cgpfl.auditing.membership import Pool, by_size, confidence, measured, ratio
from cgpfl.auditing.views import VIEWS, Trained, trained, with_parts
from cgpfl.auditing.words import REPLACED
from cgpfl.engine import Simulation
from cgpfl.engine.simulation import check_start
from cgpfl.errors import CgpflError
from cgpfl.experiment.config import read_experiment
from cgpfl.experiment.reload import load_result
from cgpfl.experiment.result import Result
from cgpfl.files import a_path, write
from cgpfl.rounds import ClientLevel, Clip, Noise, Outgoing

DELTA = 1e-5
"""Where the run says none."""
LISTED = 10
"""Clients that are listed."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Audit:
    """What was found, as plain facts (``audit-METHOD.json``), and the reconstructions themselves."""

    facts: dict[str, Any]
    inverted: list[Inverted] = field(default_factory=list, repr=False)

    def save(self, folder: Path) -> Path:
        """``audit-METHOD.json`` and the page ``audit-METHOD.html`` in a run folder; returns the page."""
        from cgpfl.auditing.page import html

        page, name = html(self), f"audit-{self.facts['method']}"
        write(folder / f"{name}.json", (json.dumps(self.facts, indent=2, allow_nan=False) + "\n").encode())
        write(folder / f"{name}.html", page.encode())
        return folder / f"{name}.html"

    def __str__(self) -> str:
        from cgpfl.auditing.words import summary

        return summary(self.facts)


def accounted(folder: Path, label: str) -> dict[str, Any] | None:
    """What the run's own account says, from ``summary.json``: ``level``, ``epsilon``, ``delta``; None: nothing."""
    found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    told = found["methods"].get(label, {}).get("privacy") or found.get("privacy")
    if not isinstance(told, dict) or told.get("epsilon") is None:
        return None
    own: dict[str, Any] = {"level": str(told.get("level", "client"))}
    own |= {name: float(told[name]) for name in ("epsilon", REPLACED) if told.get(name) is not None}
    return {**own, "delta": float(told.get("delta", DELTA)), "by": "the run's account"}


def of_rules(result: Result) -> dict[str, Any] | None:
    """The same of a run with ``clip`` and then ``noise`` and no account: of the uploads, by the Gaussian mechanism."""
    method, rounds = result.method, result.rounds
    multiple = noise_of(method.outgoing) if isinstance(method, Seamed) and not method.sampler.by_loss else None
    if multiple is None:
        return None
    try:  # a choice beside the update leaves as it is
        check_start([dataclasses.replace(method, privacy=ClientLevel())], result.data, result.model)
    except CgpflError:
        return None
    own: dict[str, Any] = {"level": "client", "epsilon": gaussian_epsilon(multiple, rounds, DELTA)}
    own |= {REPLACED: gaussian_epsilon(multiple / 2, rounds, DELTA), "delta": DELTA}
    return {**own, "by": f"the Gaussian mechanism, σ = {multiple:g} in each of {rounds} rounds"}


def noise_of(rules: tuple[Outgoing, ...]) -> float | None:
    """The noise of an upload as a multiple of its largest norm; None where it has no bound before it is noised."""
    norm, scale = math.inf, 0.0
    for rule in rules:
        if isinstance(rule, Noise):
            scale = math.hypot(scale, float(rule.scale))
        elif scale > 0:
            break  # what is done to a noised update neither helps nor hurts
        else:  # what another rule does to its length is not known
            norm = min(norm, float(rule.norm)) if isinstance(rule, Clip) else math.inf
    return None if math.isinf(norm) or scale == 0 else scale / norm


def audit(
    run: str | Path,
    method: str | None = None,
    *,
    references: int = 8,
    attacked: int = 4,
    seed: int = 0,
    say: Say = lambda line: None,
) -> Audit:
    """Attack a finished run: membership, reconstruction, canaries.

    ``method``: which of its methods (None: the most accurate). ``references``: trainings for the likelihood ratio, each
    as long as the run; 0: the loss alone. ``attacked``: clients, those with the fewest samples, whose first upload is
    inverted. ``say`` is told what is being done. Nothing is written; see :meth:`Audit.save`.
    """
    for name, value, low in (("references", references, 0), ("attacked", attacked, 0), ("seed", seed, 0)):
        if not isinstance(value, int) or value < low:
            raise CgpflError(f"{name} = {value!r}: must be a whole number >= {low}")
    began, path = time.perf_counter(), a_path(run, "run")
    say("reading the run")
    result = load_result(path, method)
    if not isinstance(result.simulation, Simulation):
        raise CgpflError(
            f"run {path}: its personal states are on the host; an audit needs them on the device: fewer clients"
        )
    settings = {**read_experiment(path).engine(), "rounds": result.rounds}
    data, task = result.data, result.task
    pool, canaries = Pool.of(data), planted(data, seed)
    width = int(data.train.counts.max()) + canaries.rows.shape[1]
    raw = Trained(result.simulation, result.state, result.simulation.rounds).losses(pool.rows)
    target = _phi(raw, task)
    known = _references(result, settings, pool, canaries, references, seed, width, say)
    seen = [view for view in VIEWS if view in target]
    scores = {view: {"loss": np.where(pool.known, -raw[view], 0.0)} for view in seen}
    if references:
        gone = np.stack([pool.without(r, seed) for r in range(references)])
        for view in seen:
            theirs = np.stack([one[view][0] for one in known])
            scores[view]["ratio"] = ratio(target[view], theirs, gone, pool.known)
    membership = {view: {name: measured(s, pool) for name, s in of.items()} for view, of in scores.items()}
    strongest = "ratio" if references else "loss"
    worst = max(seen, key=lambda view: membership[view][strongest]["auc"])
    privacy = accounted(path, result.label) or of_rules(result)
    delta = DELTA if privacy is None else privacy["delta"]
    bounds = _bounds(result, settings, canaries, known, seed, width, privacy, say)
    why, inverted = _inverted(result.simulation, attacked, say)
    # Of samples with what was found of another client's: what an upload without them gives.
    pairs = [(a, b) for a in inverted for b in inverted if a.client != b.client]
    strangers = [correlations(a.true, b.found)[0].mean() for a, b in pairs]
    each = membership[worst][strongest]["each"]
    order = sorted(range(data.clients), key=lambda i: -each[i])[:LISTED]
    facts: dict[str, Any] = {
        "run": path.resolve().name,
        "method": result.label,
        "clients": data.clients,
        "rounds": result.rounds,
        "samples": [int(data.train.counts.min()), int(data.train.counts.max())],
        "references": references,
        "membership": membership,
        "by_size": {"view": worst, "attack": strongest, "quarters": by_size(scores[worst][strongest], pool)},
        "exposed": [{"client": data.name(i), "samples": int(data.train.counts[i]), "auc": each[i]} for i in order],
        "reconstruction": {
            "why": why,
            "clients": [_shown(result, one) for one in inverted],
            "chance": float(np.mean(strangers)) if strangers else None,
        },
        "bounds": bounds,
        "privacy": privacy,
        "delta": delta,
        "ordered": bool((data.recipe or {}).get("time") or (data.recipe or {}).get("held")),
        "seconds": round(time.perf_counter() - began, 1),
    }
    return Audit(facts, inverted)


def _phi(losses: dict[str, np.ndarray], task: str) -> dict[str, np.ndarray]:
    return {view: confidence(v, task) for view, v in losses.items()}


def _references(
    result: Result, settings: dict[str, Any], pool: Pool, canaries: Planted, count: int, seed: int, width: int, say: Say
) -> list[dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Of each reference, by view: φ of the pool's samples ``[N, P]`` and of the canaries, which none trains on."""
    found = []
    for r in range(count):
        say(f"reference {r + 1} of {count}")
        gone = pool.without(r, seed)
        inside = pool.known & ~gone
        train, test = ([rows[m] for rows, m in zip(pool.rows, mask, strict=True)] for mask in (inside, gone))
        one = trained(result.method, with_parts(canaries.data, train, test, width), result.model, settings)
        both = _phi(one.losses(np.concatenate([pool.rows, canaries.rows], axis=1)), result.task)
        cut = pool.rows.shape[1]
        found.append({view: (v[:, :cut], v[:, cut:]) for view, v in both.items()})
    return found


def _bounds(
    result: Result,
    settings: dict[str, Any],
    canaries: Planted,
    known: list[dict[str, tuple[np.ndarray, np.ndarray]]],
    seed: int,
    width: int,
    privacy: dict[str, Any] | None,
    say: Say,
) -> dict[str, Any]:
    """Lower bounds of ε by canaries; guessed from what leaves a client, never from a personal model.

    Where there is an account, ``privacy``, the upload that is looked at is the last of those that it counts.
    """
    data, found = result.data, dict[str, Any]()
    delta = DELTA if privacy is None else privacy["delta"]
    level = result.method.privacy if isinstance(result.method, Seamed) else None
    summed = isinstance(level, ClientLevel) and (level.summed or level.together > 1)  # noise is enough in a mean alone
    before = settings["rounds"] - (privacy is not None and not summed)
    say("canary samples")
    train = [
        np.concatenate([part, rows[mask]])
        for part, rows, mask in zip(data.train.parts(), canaries.rows, canaries.known & canaries.inside, strict=True)
    ]
    planted_data = with_parts(canaries.data, train, data.test.parts(), width)
    there = trained(result.method, planted_data, result.model, {**settings, "rounds": before})
    with_them = _phi(there.losses(canaries.rows), result.task)
    view = next((v for v in ("shared" if summed else "upload", "shared") if v in with_them), None)
    if view is not None:
        scores = with_them[view]
        if known:
            scores = scores - np.mean([one[view][1] for one in known], axis=0)
        bound = bound_of(scores[canaries.known], canaries.inside[canaries.known], delta)
        found["sample"] = {**bound._asdict(), "view": view}
    if is_noised(result.method) and result.simulation.traffic().upload:
        say("canary clients")
        update, times = result.simulation.task.initial, result.rounds
        if isinstance(level, ClientLevel):
            times = min(times, level.times)
        told, inside = canary_clients(result.method, update, result.simulation.keys, times, seed)
        found["client"] = {**bound_of(told, inside, delta)._asdict(), "view": "mean" if summed else "upload"}
    return found


def is_noised(method: Any) -> bool:
    """Whether whole updates leave with noise."""
    if not isinstance(method, Seamed):
        return False
    level = method.privacy
    noises = [float(rule.scale) for rule in method.outgoing if isinstance(rule, Noise)]
    return any(noises) or (isinstance(level, ClientLevel) and float(level.noise) > 0)


def _inverted(simulation: Simulation, attacked: int, say: Say) -> tuple[str, list[Inverted]]:
    """Reconstructions of the smallest clients' first uploads; or why there are none."""
    if not attacked:
        return "not asked for", []
    counts = simulation.data.train.counts
    small = [int(i) for i in np.argsort(counts, kind="stable")[:attacked] if counts[i] <= MOST_SAMPLES]
    why = can_invert(simulation) or ("" if small else f"nobody has at most {MOST_SAMPLES} samples")
    if why:
        return why, []
    say("reconstruction")
    try:
        return "", invert(simulation, small)
    except (
        TypeError,
        ValueError,
        jax.errors.JAXTypeError,
    ) as error:  # inputs that are no numbers, loops without an end
        return (
            f"method or model cannot be followed back to the inputs ({type(error).__name__}): not tried is not safe",
            [],
        )


def _shown(result: Result, one: Inverted) -> dict[str, Any]:
    return {
        "client": result.data.name(one.client),
        "samples": len(one.true),
        "correlation": float(one.correlation.mean()),
        "worst": float(one.correlation.min()),
        "labels": one.right,
        "unexplained": one.unexplained,
    }
