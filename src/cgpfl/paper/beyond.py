"""Beyond the paper: problems with latent contexts and little data, every method tuned with the same budget."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgpfl.algorithms import get_method
from cgpfl.experiment.compare import compare, resume_comparison
from cgpfl.experiment.compared import Compared, check_made_with
from cgpfl.experiment.folder import parameters
from cgpfl.experiment.table import LEVEL
from cgpfl.files import save_csv, write
from cgpfl.paper.draw import panels
from cgpfl.paper.plan import Part, Plan, with_spread
from cgpfl.paper.section import Figure, Section
from cgpfl.report.figures import COLOURS
from cgpfl.report.pictures import save_picture
from cgpfl.tables import Table

SCARCE = 0.05
"""Share of the 60,000 samples: 75 a client."""
METHODS: tuple[dict[str, Any], ...] = (
    {"name": "local"},
    {"name": "fedavg"},
    {"name": "ifca"},
    {"name": "l2sgd"},
    {"name": "apfl"},
    {"name": "pfedme"},
    {"name": "per-fedavg"},
    {"name": "ditto"},
    {"name": "cgpfl"},
    {"name": "cgpfl-heur"},
    {"name": "cgpfl-heur", "label": "cgpfl-heur-as-printed", "warmup": 0},
    {"name": "cgpfl-auto"},
)
BUDGET = 8
"""Settings tried for each method."""
QUICK = ("local", "fedavg", "cgpfl-heur")
"""Labels of the methods of a quick run."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """A problem."""

    name: str
    title: str
    data: dict[str, Any]


def scenarios(quick: bool) -> list[Scenario]:
    """The problems, hardest for one global model first."""
    contexts = {"contexts": 4, "share": SCARCE, "clients": 40}
    small = {"split": "cyclic", "spread": 0.6, "share": SCARCE, "smallest": 20, "largest": 250, "clients": 40}
    full = {"split": "cyclic", "spread": 0.6, "smallest": 400, "largest": 5000, "clients": 40}
    all_ = [
        Scenario(
            "mnist-rotation",
            "MNIST, 4 rotations, 5 % of the data",
            {"source": "mnist", "split": "rotation", **contexts},
        ),
        Scenario(
            "fmnist-rotation", "FMNIST, 4 rotations, 5 %", {"source": "fashion-mnist", "split": "rotation", **contexts}
        ),
        Scenario(
            "mnist-labels", "MNIST, 4 label permutations, 5 %", {"source": "mnist", "split": "labels", **contexts}
        ),
        Scenario("mnist-cyclic-5", "MNIST, the paper's split, 5 %", {"source": "mnist", **small}),
        Scenario("mnist-cyclic", "MNIST, the paper's split, all data", {"source": "mnist", **full}),
    ]
    return all_[:1] if quick else all_


def _label(method: dict[str, Any]) -> str:
    return str(method.get("label", method["name"]))


def _method(method: dict[str, Any]) -> Any:
    return get_method(method["name"], {k: v for k, v in method.items() if k not in ("name", "label")})


def _rounds(plan: Plan) -> int:
    return 20 if plan.quick else 200


def _compare(plan: Plan, scenario: Scenario) -> Compared:
    folder, began = plan.out / "beyond" / scenario.name, time.perf_counter()
    finished = (folder / "summary.json").exists()
    if not finished:
        plan.begin(f"beyond, {scenario.title}")
    methods = [m for m in METHODS if not plan.quick or _label(m) in QUICK]
    rounds = _rounds(plan)
    wanted: dict[str, Any] = {
        "seeds": len(plan.seeds),
        "seed": plan.seeds[0],
        "tune": 2 if plan.quick else BUDGET,
        "rounds": rounds,
        "eval_every": max(1, rounds // 20),
    }
    note = folder.with_suffix(".json")
    made = {**wanted, "data": scenario.data, "methods": {_label(m): parameters(_method(m)) for m in methods}}
    if (folder / "config.toml").exists():
        check_made_with(note, json.loads(note.read_text()), made)
        compared = resume_comparison(folder, plan.cells.on_progress)
    else:
        shutil.rmtree(folder, ignore_errors=True)  # stopped before anything was run
        folder.parent.mkdir(parents=True, exist_ok=True)
        write(note, json.dumps(made, indent=1).encode())
        tell = plan.cells.on_progress
        compared = compare(methods, scenario.data, model="mlr", out=folder, progress=False, on_progress=tell, **wanted)
    if not finished:
        plan.cells.add_seconds(f"beyond {scenario.name}", time.perf_counter() - began)
    return compared


def _make(plan: Plan) -> Section:
    found = {s: _compare(plan, s) for s in scenarios(plan.quick)}
    labels = [_label(m) for m in METHODS if _label(m) in next(iter(found.values())).runs]
    rows: list[list[str]] = [[label] for label in labels]
    strong, facts, notes = [], [], []
    for c, (scenario, compared) in enumerate(found.items()):
        table = {str(row["method"]): row for row in compared.table.to_dict("records")}
        best = str(compared.table["method"][0])
        for r, label in enumerate(labels):
            row = table[label]
            mark = "" if label == best or not row["tied"] else " ≈"
            value = with_spread(100 * row["accuracy"], 100 * row["std"], 2)
            rows[r].append(value if np.isnan(row["accuracy"]) else value + mark)
            chosen = compared.runs[label].chosen or {}
            facts.append(
                {
                    "problem": scenario.title,
                    "method": label,
                    "accuracy_%": round(100 * float(row["accuracy"]), 3),
                    "std": round(100 * float(row["std"]), 3),
                    "worst_tenth_%": round(100 * float(row["worst_tenth"]), 3),
                    "p_against_best": row["p"],
                    "chosen": "; ".join(f"{k}={v:.4g}" for k, v in chosen.items()),
                    "ari": " ".join(f"{a:.2f}" for a in compared.runs[label].ari if a is not None),
                }
            )
        strong.append([labels.index(best), c + 1])
        tied = [str(m) for m in compared.table["method"][compared.table["tied"]]]
        notes.append(f"{scenario.title}: {best} first" + (f", not told apart from {', '.join(tied)}" if tied else ""))
    save_csv(plan.out / "beyond" / "beyond.csv", facts)
    _draw(plan, found, labels)
    note = (
        f"Test accuracy (%), mean ± std over {len(plan.seeds)} seeds. ≈: not told apart from the best (paired t-test, "
        f"{LEVEL:.0%}). Each method had {2 if plan.quick else BUDGET} settings, chosen on 20 % of its clients' samples."
    )
    title = f"MLR, 40 clients, {_rounds(plan)} rounds, equal-budget tuning"
    table_ = Table(title, ["method", *(s.title for s in found)], rows, note, strong)
    caption = "Tuned methods on each problem; dashes: local training, dots: FedAvg."
    return Section(
        "beyond",
        "Beyond the paper: when are contexts worth it?",
        ["; ".join(notes) + "."],
        [table_],
        [Figure("beyond", caption)],
    )


def _draw(plan: Plan, found: dict[Scenario, Compared], labels: list[str]) -> None:
    picture, axes = panels(1, len(found), 2.7, 3.4, sharey=True)
    for ax, (scenario, compared) in zip(axes[0], found.items(), strict=True):
        for r, label in enumerate(labels):
            each, y = 100 * compared.runs[label].accuracy(), len(labels) - r
            colour = COLOURS[3] if label.startswith("cgpfl") else COLOURS[0]
            ax.plot(each, np.full(len(each), y), "|", color=colour, ms=7)
            ax.plot(each.mean(), y, "o", color=colour, ms=6)
        for name, style in (("local", "--"), ("fedavg", ":")):
            ax.axvline(100 * compared.runs[name].accuracy().mean(), color=COLOURS[7], ls=style, lw=1.1, zorder=0)
        ax.set_title(scenario.title.replace(", ", "\n", 1), fontsize=8)
        ax.set_yticks(range(len(labels), 0, -1), labels)
    picture.supxlabel("test accuracy (%)", fontsize=9)
    save_picture(picture, plan.out / "beyond", "beyond")


def _prepare(plan: Plan) -> None:
    """The problems with the sets of the plan's settings; they are all MLR."""
    there = {s.data.source for s in plan.settings.values() if s.model == "mlr"}
    for scenario in scenarios(plan.quick):
        if scenario.data["source"] in there:
            _compare(plan, scenario)


BEYOND = Part("beyond", "latent contexts, scarce data, equal-budget tuning", lambda plan: [], _make, prepare=_prepare)
