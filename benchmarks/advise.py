"""Whether advice is right where the right answer is known: ``python -m benchmarks.advise [--seeds 10] [--out FILE]``.

    iid         digits dealt out at random, 40 clients of about 45 samples      → one model
    rotation    digits in 4 contexts, turned by 90 degrees, 40 clients          → contexts, with or without personal; 4
    alone       digits, 12 clients of about 150, each with names of its own     → alone
                for the ten classes: a permutation that no other client has

What is done is kept in FILE, a line a study, and not done again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import cgpfl
from cgpfl.advice.folds import everything, make_folds
from cgpfl.advice.study import study
from cgpfl.advice.weigh import weigh
from cgpfl.data import FederatedData
from cgpfl.experiment import Experiment

RIGHT = {"iid": ("one model",), "rotation": ("contexts", "contexts + personal"), "alone": ("alone",)}


def federation(kind: str, seed: int) -> FederatedData:
    """One of the three."""
    if kind != "alone":
        return cgpfl.make_data("digits", kind, clients=40, seed=seed)
    data = cgpfl.make_data("digits", "iid", clients=12, seed=seed)
    y, draw = data.y.copy(), np.random.default_rng([seed, 5])
    for rows in everything(data):
        y[rows] = draw.permutation(data.classes).astype(y.dtype)[y[rows]]
    return replace(data, y=y)


def once(kind: str, seed: int) -> dict[str, object]:
    """One study, as ``cgpfl advise`` makes it."""
    began, cpu = time.perf_counter(), time.process_time()
    data = federation(kind, seed)
    folds = make_folds(data, 5, seed)
    model = Experiment.of(["local"], data, "mlr", {}, "advise").make_model(data)
    found = study(folds, model, 50, seed)
    verdict = weigh(found.correct, found.counts)
    return {
        "kind": kind,
        "seed": seed,
        "advice": verdict.name,
        "k": found.contexts()[0],
        "score": {name: round(v, 4) for name, v in verdict.score.items()},
        "p": {name: round(v, 4) for name, v in verdict.p.items()},
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def is_right(line: dict[str, object]) -> bool:
    """Whether the advice is the known answer, with the known number of contexts."""
    return line["advice"] in RIGHT[str(line["kind"])] and (line["kind"] != "rotation" or line["k"] == 4)


def show(lines: list[dict[str, object]]) -> None:
    """The table."""
    print("| federation | right | advice | K | " + " | ".join(lines[0]["score"]) + " | CPU seconds |")  # type: ignore[arg-type]
    print("|---|--:|---|---|" + "--:|" * (len(lines[0]["score"]) + 1))  # type: ignore[arg-type]
    for kind in RIGHT:
        own = [line for line in lines if line["kind"] == kind]
        if not own:
            continue
        given = [str(line["advice"]) for line in own]
        words = ", ".join(f"{name} {given.count(name)}" for name in dict.fromkeys(given))
        ks = [line["k"] for line in own]
        contexts = ", ".join(f"{k}: {ks.count(k)}" for k in dict.fromkeys(ks))
        scores = [np.mean([line["score"][name] for line in own]) for name in own[0]["score"]]  # type: ignore[index]
        figures = " | ".join(f"{100 * v:.1f}" for v in scores)
        cost = np.median([line["cpu_seconds"] for line in own])
        print(f"| {kind} | {sum(map(is_right, own))} of {len(own)} | {words} | {contexts} | {figures} | {cost:.0f} |")


def main() -> None:
    """Run what is missing, then show everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/advise.jsonl"))
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    done = {(line["kind"], line["seed"]) for line in lines}
    for seed in range(asked.seeds):
        for kind in RIGHT:
            if (kind, seed) not in done:
                lines.append(once(kind, seed))
                with asked.out.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    show([line for line in lines if int(line["seed"]) < asked.seeds])


if __name__ == "__main__":
    main()
