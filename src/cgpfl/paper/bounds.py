"""Theorems 4.1 and 4.2 evaluated on runs of the paper's first setting."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from cgpfl.experiment.compared import check_made_with
from cgpfl.files import save_csv, write
from cgpfl.paper.cells import federation, made_with, model_of
from cgpfl.paper.draw import legend_below, panels
from cgpfl.paper.plan import Part, Plan
from cgpfl.paper.section import Figure, Section, Verdict, grade
from cgpfl.paper.settings import Setting, at_k
from cgpfl.paper.theory import bound, generalization, rate_check, smoothness, step_condition, watch
from cgpfl.report.figures import COLOURS
from cgpfl.report.pictures import save_picture, whole
from cgpfl.tables import Table


def _ks(plan: Plan) -> list[int]:
    return [k for k in ((1, 4) if plan.quick else (1, 2, 4, 10, 20)) if k in plan.settings["mnist-mlr"].ks]


def _measure(plan: Plan, setting: Setting, k: int) -> dict[str, Any]:
    """Everything of one K, as plain numbers; kept on disk."""
    file, every = plan.out / "theory" / f"k-{k}.json", max(1, setting.rounds // (4 if plan.quick else 20))
    made = made_with(setting, at_k(setting, k), plan.seeds[:1], exact_every=every)
    if file.exists():
        found: dict[str, Any] = json.loads(file.read_text())
        check_made_with(file, found.pop("run"), made)
        return found
    plan.begin(f"theory, K = {k}")
    began, seed = time.perf_counter(), plan.seeds[0]
    data, model, method = federation(setting, seed), model_of(setting), at_k(setting, k)
    seen = watch(method, data, model, rounds=setting.rounds, seed=seed, exact_every=every)
    limit = bound(seen)
    check = rate_check(seen.gradient, limit.constants)
    curve = smoothness(model, data, seen.state.clients)
    error = generalization(seen.simulation, seen.state, smoothness=curve.L)
    exact = np.isfinite(seen.exact_gradient)
    facts: dict[str, Any] = {
        "k": k,
        "terms": list(limit.terms),
        "measured": limit.measured,
        "measured_exact": limit.measured_exact,
        "slope": check.slope,
        "below": check.below,
        "looseness": check.looseness,
        "running": check.running.tolist(),
        "exact_rounds": (np.flatnonzero(exact) + 1).tolist(),
        "exact": seen.exact_gradient[exact].tolist(),
        "L": curve.L,
        "complexity": error.complexity,
        "distance": error.distance,
        "total": error.total,
        "left": error.measured,
        "explain_41": limit.explain(),
        "explain_42": error.explain(),
        "condition": step_condition(method, data.clients, curve).explain(),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, json.dumps({**facts, "run": made}, indent=1).encode())
    plan.cells.add_seconds("theory", time.perf_counter() - began)
    return facts


def _make(plan: Plan) -> Section:
    setting, folder = plan.settings["mnist-mlr"], plan.out / "theory"
    found = [_measure(plan, setting, k) for k in _ks(plan)]
    picture, axes = panels(1, 2, 4.2, 2.9)
    for i, facts in enumerate(found):
        colour, running = COLOURS[i], np.asarray(facts["running"])
        rounds = np.arange(1, len(running) + 1)
        axes[0, 0].loglog(rounds, running, color=colour, lw=1.6, label=f"K = {facts['k']}")
        axes[0, 1].semilogy(facts["exact_rounds"], facts["exact"], "o-", ms=3, color=colour, lw=1.4)
    axes[0, 0].set(xlabel="T", ylabel="mean of (1/K)‖∇G‖² up to T")
    axes[0, 0].set_title("at the clients' own θ", fontsize=10)
    axes[0, 1].set(xlabel="round", ylabel="(1/K)‖∇G‖²")
    axes[0, 1].set_title("at the exact proximal points", fontsize=10)
    whole(axes[0, 1].xaxis)
    legend_below(picture, axes[0, 0])
    save_picture(picture, folder, "gradient")
    columns = [
        "K",
        "bound (Theorem 4.1)",
        "measured",
        "at exact θ̂",
        "slope",
        "complexity",
        "(λ+L/2)·cost",
        "bound (4.2), at least",
        "its left side, at least",
    ]
    rows = [
        [
            str(f["k"]),
            " + ".join(f"{t:.2g}" for t in f["terms"]),
            f"{f['measured']:.2g}",
            f"{f['measured_exact']:.2g}",
            f"{f['slope']:.2f}",
            f"{f['complexity']:.3g}",
            f"{f['distance']:.3g}",
            f"{f['total']:.3g}",
            f"{f['left']:.3g}",
        ]
        for f in found
    ]
    save_csv(folder / "theory.csv", [dict(zip(columns, row, strict=True)) for row in rows])
    exact = [f["measured_exact"] for f in found]
    verdicts = [
        Verdict(
            "Theorem 4.1: the gradient falls at least as fast as the bound's rate in T.",
            grade(f["below"] and f["slope"] <= -0.5 for f in found),
            "log-log slope of the running mean "
            + ", ".join(f"{f['slope']:.2f} (K = {f['k']})" for f in found)
            + "; asked for: -0.5 or less, and under the bound. That is a necessary sign only: the bound is "
            f"{min(f['looseness'] for f in found):.1g} times the measured value or more, its constants are free, and "
            "its condition on β is not met in every reading (above, and docs/theory.md).",
        ),
        Verdict(
            "Remark 4.1: convergence is faster by √K.",
            grade(exact[0] / v >= f["k"] ** 0.5 for v, f in zip(exact, found, strict=True) if f["k"] > 1),
            f"mean squared gradient at exact proximal points, every {setting.rounds // 20 or 1} rounds, "
            f"seed {plan.seeds[0]}: "
            + ", ".join(f"{v:.2g} (K = {f['k']})" for v, f in zip(exact, found, strict=True))
            + "; asked for: a fall by √K. The term with √K never leads the bound.",
        ),
    ]
    text = [
        f"{setting.title}, seed {plan.seeds[0]}, T = {setting.rounds}, at the rates of the first reading (2β/N = λ·lr, "
        "η = lr): the theorems are about small steps. How each number is computed, and what it can and cannot say: "
        "docs/theory.md.",
        *(
            f"K = {f['k']}:\n\n```\n{f['condition']}\n{f['explain_41']}\n{f['explain_42']}\n```"
            for f in found
            if f["k"] == 4
        ),
    ]
    caption = "Squared gradient of the contexts' objective over rounds, for several K."
    tables = [Table("The two theorems on runs", columns, rows)]
    figures = [Figure("gradient", caption)]
    return Section("theory", "The theorems", text, tables, figures, [] if plan.quick else verdicts)


def _prepare(plan: Plan) -> None:
    if "mnist-mlr" in plan.settings:
        for k in _ks(plan):
            _measure(plan, plan.settings["mnist-mlr"], k)


THEORY = Part("theory", "the terms of Theorems 4.1 and 4.2 on runs", lambda plan: [], _make, prepare=_prepare)
