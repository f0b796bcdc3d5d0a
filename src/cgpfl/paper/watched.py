"""Runs looked at round by round: contexts, distances between models, and the cost of k-means."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cgpfl.experiment.compared import check_made_with
from cgpfl.files import load_arrays, save_arrays, save_csv
from cgpfl.paper.cells import federation, made_with, model_of
from cgpfl.paper.draw import COLOUR, NAMES, band, legend_below, panels
from cgpfl.paper.plan import Part, Plan
from cgpfl.paper.section import Figure, Section, Verdict, grade
from cgpfl.paper.settings import Setting
from cgpfl.paper.theory import watch
from cgpfl.paper.tuning import tuned
from cgpfl.report.figures import COLOURS, colour_map
from cgpfl.report.pictures import save_picture, whole
from cgpfl.tables import Table

LABELS = ("cgpfl-4", "cgpfl-heur")
SEEDS = 3
"""Of the plan's seeds, so many are watched."""
KEPT = (
    "context",
    "k",
    "transition",
    "personal_distance",
    "upload_distance",
    "gap",
    "kmeans_iterations",
    "client_seconds",
    "server_seconds",
)


class Key(NamedTuple):
    """One watched run."""

    setting: Setting
    label: str
    seed: int


def watched_settings(plan: Plan) -> list[Setting]:
    """The settings that are watched."""
    return [s for s in plan.swept if s.name == "mnist-mlr" or (s.name == "mnist-dnn" and not plan.quick)]


def watched(plan: Plan, key: Key) -> dict[str, np.ndarray]:
    """What was seen of a run, at the chosen rates; run it if that is not on disk yet."""
    method = tuned(plan, key.setting, key.label)
    made = made_with(key.setting, method, [key.seed])
    file = plan.out / "watched" / f"{key.setting.name}-{key.label}-{key.seed}.safetensors"
    if not file.exists():
        plan.begin(file.stem)
        began = time.perf_counter()
        problem = (method, federation(key.setting, key.seed), model_of(key.setting))
        seen = watch(*problem, rounds=key.setting.rounds, seed=key.seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(file, {name: np.asarray(getattr(seen, name)) for name in KEPT}, made)
        plan.cells.add_seconds(f"watched {key.setting.name} {key.label}", time.perf_counter() - began)
    arrays, was = load_arrays(file)
    check_made_with(file, was, made)
    return arrays


def _each(plan: Plan) -> dict[tuple[str, str], list[dict[str, np.ndarray]]]:
    """(setting, method) → what was seen, a seed each."""
    return {
        (s.name, label): [watched(plan, Key(s, label, seed)) for seed in plan.seeds[:SEEDS]]
        for s in watched_settings(plan)
        for label in LABELS
    }


def which(plan: Plan) -> str:
    """The seeds that are watched, in words."""
    seeds = plan.seeds[:SEEDS]
    return f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"


def settled(context: np.ndarray) -> int:
    """The round after which no client changes its context any more, from ``context [T, N]``; 1 = from the first."""
    moves = np.flatnonzero((context[1:] != context[:-1]).any(axis=1))
    return 1 if not len(moves) else int(moves[-1]) + 2


def _context_map(ax: Any, context: np.ndarray) -> None:
    order = np.lexsort((np.arange(context.shape[1]), context[-1]))
    names = {c: i for i, c in enumerate(dict.fromkeys(context[-1][order]))}
    image = np.vectorize(lambda c: names.setdefault(c, len(names)))(context.T[order])
    colour_map(ax, image, len(names), (0.5, len(context) + 0.5, context.shape[1] - 0.5, -0.5))
    ax.grid(visible=False)


def _make_contexts(plan: Plan) -> Section:
    seen, folder = _each(plan), plan.out / "figure-contexts"
    settings = watched_settings(plan)
    picture, axes = panels(len(settings), 2 * len(LABELS), 3.0, 2.4)
    rows, rounds, facts = [], [], []
    for r, setting in enumerate(settings):
        for c, label in enumerate(LABELS):
            runs = seen[setting.name, label]
            last = [settled(run["context"]) for run in runs]
            rounds += last
            k = [int(run["k"][-1]) for run in runs]
            rows.append([f"{setting.title}, {NAMES[label]}", " ".join(map(str, k)), " ".join(map(str, last))])
            facts += [
                {"setting": setting.title, "method": label, "seed": s, "K": kk, "settled_in_round": t}
                for s, kk, t in zip(plan.seeds, k, last, strict=False)
            ]
            ax = axes[r, 2 * c]
            _context_map(ax, runs[0]["context"])
            ax.set_title(f"{setting.title}, {NAMES[label]}", fontsize=9)
            ax.set_ylabel("clients", fontsize=8)
            q = axes[r, 2 * c + 1]
            for run in runs:
                q.plot(np.arange(1, len(run["transition"]) + 1), run["transition"], color=COLOUR[label], lw=1.2)
            q.set_title("‖Q − I‖", fontsize=9)
            q.set_ylim(bottom=-0.05)
            for a in (ax, q):
                a.set_xlabel("round", fontsize=8)
                whole(a.xaxis)
    save_picture(picture, folder, "contexts")
    save_csv(folder / "contexts.csv", facts)
    total = settings[0].rounds
    verdict = Verdict(
        "Contexts settle in the first rounds, Q goes to I (appendix).",
        grade(r <= total // 10 for r in rounds),
        f"the last change of any client is in round {max(rounds)} at the latest, of {total}. An upload starts from the "
        "context's model, so a client that was placed wrongly in the first round stays: settled does not mean right.",
    )
    title = f"Rounds after which no client moves, {which(plan)} (1 = the first clustering is the last)"
    caption = (
        "Context of each client over rounds (one colour a context, first seed), and the change of contexts, "
        + which(plan)
        + "."
    )
    return Section(
        "figure-contexts",
        "Contexts over rounds",
        [],
        [Table(title, ["run", "K", "settled in round"], rows)],
        [Figure("contexts", caption)],
        [] if plan.quick else [verdict],
    )


def _make_distances(plan: Plan) -> Section:
    seen, folder = _each(plan), plan.out / "figure-distances"
    settings, facts = watched_settings(plan), []
    picture, axes = panels(1, len(settings), 4.0, 2.9)
    for ax, setting in zip(axes[0], settings, strict=True):
        for label in LABELS:
            for name, style, what in (("personal_distance", "-", "personal"), ("upload_distance", "--", "uploaded")):
                curves = np.stack([run[name] for run in seen[setting.name, label]])
                x = np.arange(1, curves.shape[1] + 1)
                band(ax, x, curves, color=COLOUR[label], ls=style, lw=1.6, label=f"{NAMES[label]}, {what} models")
                facts += [
                    {
                        "setting": setting.title,
                        "method": label,
                        "what": what,
                        "round": int(t),
                        "mean_distance": round(float(v), 5),
                    }
                    for t, v in zip(x[::10], curves.mean(axis=0)[::10], strict=True)
                ]
        ax.set(xlabel="round", ylim=(0, None))
        ax.set_title(setting.title, fontsize=10)
        whole(ax.xaxis)
    axes[0, 0].set_ylabel("mean distance of two clients' models", fontsize=9)
    legend_below(picture, axes[0, 0], 2)
    save_picture(picture, folder, "distances")
    save_csv(folder / "distances.csv", facts)
    tail = [
        float(np.mean([r["upload_distance"][-1] / r["upload_distance"][-len(r["upload_distance"]) // 4] for r in v]))
        - 1
        for v in seen.values()
    ]
    verdict = Verdict(
        "The average distance between models converges (appendix).",
        grade(abs(v) < 0.02 for v in tail),
        "uploaded models, change over the last quarter of the rounds: "
        + ", ".join(f"{100 * v:+.1f} %" for v in tail)
        + ". Asked for: under 2 %.",
    )
    caption = (
        "Mean Euclidean distance between two clients' models over rounds. Where 2β/N = 1 a client uploads its personal "
        "model, and both lines are one."
    )
    figures = [Figure("distances", caption)]
    return Section("figure-distances", "Distances between models", [], [], figures, [] if plan.quick else [verdict])


def _make_kmeans(plan: Plan) -> Section:
    seen, folder = _each(plan), plan.out / "figure-kmeans"
    settings, rows, facts, shares, most = watched_settings(plan), [], [], [], []
    picture, axes = panels(2, len(settings), 4.0, 2.4, sharex="col")
    for c, setting in enumerate(settings):
        work: list[np.ndarray] = []
        for label in LABELS:
            runs = seen[setting.name, label]
            steps = np.stack([run["kmeans_iterations"] for run in runs])
            server = 1000 * np.stack([run["server_seconds"] for run in runs])
            clients = 1000 * np.stack([run["client_seconds"] for run in runs])
            x = np.arange(1, steps.shape[1] + 1)
            band(axes[0, c], x, steps, color=COLOUR[label], lw=1.5, label=NAMES[label])
            late = slice(max(2, len(x) // 10), None)  # without compilation, and the first clustering
            band(axes[1, c], x[late], server[:, late], color=COLOUR[label], lw=1.5, label=f"server, {NAMES[label]}")
            work.append(clients[:, late].mean(axis=0))
            share = float(np.median(server[:, late]) / np.median(server[:, late] + clients[:, late]))
            shares.append(share)
            most.append(int(steps[:, late].max()))
            rows.append(
                [
                    f"{setting.title}, {NAMES[label]}",
                    f"{steps[:, :3].mean():.1f}",
                    f"{steps[:, late].mean():.1f}",
                    f"{np.median(server[:, late]):.2f}",
                    f"{np.median(clients[:, late]):.2f}",
                    f"{100 * share:.0f} %",
                ]
            )
            names = ("run", "iterations_first_3", "iterations_later", "server_ms", "clients_ms", "share")
            facts.append(dict(zip(names, rows[-1], strict=True)))
        for i, curve in enumerate(work):
            named = {"label": "all clients"} if i == 0 else {}
            axes[1, c].plot(x[late], curve, color=COLOURS[7], lw=1, **named)
        axes[0, c].set_ylim(bottom=0)
        axes[0, c].set_title(setting.title, fontsize=10)
        axes[1, c].set(xlabel="round", yscale="log")
        for axis in (axes[0, c].yaxis, axes[1, c].xaxis):
            whole(axis)
    axes[0, 0].set_ylabel("k-means iterations", fontsize=9)
    axes[1, 0].set_ylabel("ms a round", fontsize=9)
    legend_below(picture, axes[1, 0], 4)
    save_picture(picture, folder, "kmeans")
    save_csv(folder / "kmeans.csv", facts)
    columns = ["run", "iterations, rounds 1–3", "later", "server, ms", "all clients, ms", "server's share"]
    verdict = Verdict(
        "k-means needs only few iterations and is not a bottleneck (appendix).",
        grade([max(most) <= 3, max(shares) < 0.5]),
        f"at most {max(most)} iterations a round after the first tenth of the rounds (of the best of 9 starts, one of "
        f"which is the last round's contexts). The server's step, with all 9, is {100 * min(shares):.0f}–"
        f"{100 * max(shares):.0f} % of a round when all clients are simulated on one device (asked for: under half); "
        "real clients would work side by side, and each more slowly.",
    )
    note = "Median over rounds and seeds, timed apart from each other; compilation left out."
    caption = "k-means iterations, and time of the server's step and of all clients' work, over rounds."
    tables, figures = [Table("The server's cost", columns, rows, note)], [Figure("kmeans", caption)]
    return Section("figure-kmeans", "The cost of k-means", [], tables, figures, [] if plan.quick else [verdict])


def _tunes(plan: Plan) -> list[tuple[Setting, str]]:
    return [(s, label) for s in watched_settings(plan) for label in LABELS]


def _part(name: str, meaning: str, make: Callable[[Plan], Section]) -> Part:
    return Part(name, meaning, lambda plan: [], make, _tunes, _each, watched_settings)


FIGURE_CONTEXTS = _part("figure-contexts", "clients × rounds context map, ‖Q − I‖", _make_contexts)
FIGURE_DISTANCES = _part("figure-distances", "mean distance between models over rounds", _make_distances)
FIGURE_KMEANS = _part("figure-kmeans", "k-means iterations and time a round", _make_kmeans)
