"""Honest clients' accuracy over the share of liars: each attack of the kit against each mean.

    python benchmarks/liars.py --methods fedavg,cgpfl-auto --out liars.csv
    python benchmarks/liars.py --tune                      # what mean = "auto" has to set, on other data
    python benchmarks/liars.py --ten                       # one liar of ten
    python benchmarks/liars.py --cost                      # what a round costs with each mean
    python benchmarks/liars.py --table liars.csv

Attacks and means are chosen inside one program, by number: compiling one for each pair would take hours.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import cgpfl
from cgpfl.algorithms import Seamed, algorithm, get_method, hyper
from cgpfl.attacks import ATTACKS, Lying
from cgpfl.engine.drive import Drive
from cgpfl.engine.simulation import Simulation
from cgpfl.experiment.records import scores
from cgpfl.hyperparameters import build, component
from cgpfl.models import as_model
from cgpfl.rounds import MEANS, AutoMean, Robust

KIT: dict[str, Any] = {
    "noise": "noise",
    "sign-flip": "sign-flip",
    "sign-flip, 1": {"name": "sign-flip", "factor": 1.0},
    "scaling": "scaling",
    "label-flip": "label-flip",
    "label-flip, 5": {"name": "label-flip", "factor": 5.0},
    "alie": "alie",
    "alie, 1.5": {"name": "alie", "z": 1.5},
    "inner-product, 0.5": {"name": "inner-product", "factor": 0.5},
    "inner-product": "inner-product",
    "backdoor": "backdoor",
    "forged-context, near": {"name": "forged-context", "factor": 0.9},
    "forged-context": "forged-context",
    "counts": "counts",
}
RULES = ("median", "trimmed", "geometric-median", "krum", "centred-clipping", "auto")
SHARES = (0.1, 0.2, 0.3, 0.4)
TRIED = (*((3.0, against) for against in (0.0, 0.1, 0.2, 0.4, 1e9)), (2.0, 0.1))
"""For ``auto``: its bound, and how far against the others one may be (1e9: it remembers nothing)."""


@algorithm
class OneOf(Lying):
    """One of the kit's attacks, by number."""

    name = "one-of"
    poisons = True
    triggers = True

    index: float = hyper(0.0, "which")

    @property
    def kinds(self) -> list[Any]:
        return [build(ATTACKS, values, "attack") for values in KIT.values()]

    def forge(self, updates: Any, seen: Any, key: Any) -> Any:
        kinds = self.kinds
        return jax.lax.switch(jnp.int32(self.index), [lambda u, a=a: a.forge(u, seen, key) for a in kinds], updates)

    def claims(self, samples: Any) -> Any:
        return jax.lax.switch(jnp.int32(self.index), [a.claims for a in self.kinds], samples)

    def poison(self, batch: Any, classes: int) -> Any:
        for i, attack in enumerate(self.kinds):
            if attack.poisons:
                bad, here = attack.poison(batch, classes), self.index == i
                batch = batch._replace(x=jnp.where(here, bad.x, batch.x), y=jnp.where(here, bad.y, batch.y))
        return batch

    def triggered(self, batch: Any) -> Any:
        return ATTACKS["backdoor"].triggered(batch)


@algorithm
class OneRule(Robust):
    """One of the robust means, by number."""

    name = "one-rule"
    remembers = True

    index: float = hyper(0.0, "which")
    auto: AutoMean = component(AutoMean(), "as it is now", MEANS)

    def begin(self, clients: int) -> Any:
        return self.auto.begin(clients)

    def learned(self, *seen: Any) -> Any:
        known, rule = self.auto.learned(*seen)
        return known, dataclasses.replace(self, auto=rule)

    def group_means(self, stacked: Any, labels: Any, weights: Any, fallback: Any) -> Any:
        rules = [self.auto if name == "auto" else MEANS[name] for name in RULES]
        of = [lambda *args, r=rule: r.group_means(*args) for rule in rules]
        return jax.lax.switch(jnp.int32(self.index), of, stacked, labels, weights, fallback)


def measured(method: Any, data: Any, model: Any, seed: int, rounds: int) -> dict[str, float]:
    """The honest clients' pooled accuracy, and how often the trigger works."""
    done = Drive(Simulation(method, data, model, rounds=rounds, eval_every=rounds, seed=seed)).quick()
    values = done.records.values
    found = {"accuracy": 100 * scores(values["correct"][-1], data.test.counts)["pooled"]}
    if "backdoor/pooled" in values:
        found["backdoor"] = 100 * float(values["backdoor/pooled"][-1])
    if "context" in values:
        found["k"] = int(values["k"][-1])
    return found


def attacked(inner: Any, mean: str, attack: str | None, share: float, auto: AutoMean | None = None) -> Any:
    lies = OneOf(share=share if attack else 0.0, index=float(list(KIT).index(attack)) if attack else 0.0)
    if mean == "weighted":
        return Seamed(inner, attack=lies)
    return Seamed(inner, attack=lies, mean=OneRule(index=float(RULES.index(mean)), auto=auto or AutoMean()))


def run(args: argparse.Namespace) -> None:
    rows = []
    for name in args.methods.split(","):
        for mean in args.means.split(","):
            started = time.monotonic()
            for seed in range(args.seeds):
                data = cgpfl.make_data("digits", "rotation", clients=40, contexts=4, seed=seed)
                model = as_model("mlr", data.shape, data.classes)
                todo = [(None, 0.0), *((a, s) for a in KIT for s in args.shares)]
                for attack, share in todo:
                    found = measured(
                        attacked(get_method(name, {}), mean, attack, share), data, model, seed, args.rounds
                    )
                    rows.append(
                        {
                            **{"method": name, "mean": mean, "attack": attack or "none", "share": share, "seed": seed},
                            **found,
                        }
                    )
                pd.DataFrame(rows).to_csv(args.out, index=False)
            print(name, mean, f"{time.monotonic() - started:.0f} s", flush=True)
    table(args)


def tune(args: argparse.Namespace) -> None:
    """What ``auto`` has to set, on other contexts, other splits, another set and other seeds than what is reported."""
    sets = {
        "labels": cgpfl.make_data("digits", "labels", clients=30, contexts=3, seed=11),
        "shift": cgpfl.make_data("digits", "shift", clients=30, contexts=3, seed=14),
        "iid": cgpfl.make_data("digits", "iid", clients=30, seed=12),
        "dirichlet": cgpfl.make_data("digits", "dirichlet", clients=30, alpha=0.5, seed=13),
        "clothes": cgpfl.make_data("fashion-mnist", "rotation", clients=40, contexts=4, seed=16, share=0.04),
    }
    rows = []
    for called, seed in [*((called, 11) for called in sets), ("clothes", 16)]:
        data, inner = sets[called], get_method("fedavg", {})
        called, model = f"{called}, {seed}", as_model("mlr", data.shape, data.classes)
        plain = measured(attacked(inner, "weighted", None, 0.0), data, model, seed, args.rounds)["accuracy"]
        for bound, against in TRIED:
            for attack, share in [(None, 0.0), *((a, 0.2) for a in KIT)]:
                rule = AutoMean(bound=bound, against=against)
                found = measured(attacked(inner, "auto", attack, share, rule), data, model, seed, args.rounds)
                lost = plain - found["accuracy"]
                tried = {"data": called, "bound": bound, "against": against}
                rows.append({**tried, "attack": attack or "none", "lost": lost})
        print(called, f"{plain:.1f}", flush=True)
    frame = pd.DataFrame(rows)
    each = ["bound", "against"]
    print(frame.pivot_table(index=["data", "attack"], columns=each, values="lost").round(1).to_string())
    print(frame[frame.attack != "none"].groupby(["data", *each]).lost.max().unstack(each).round(1).to_string())


def ten(args: argparse.Namespace) -> None:
    """Points that the honest nine of ten lose by one liar, with the weighted mean and with ``auto``."""
    rows = []
    for seed in range(args.seeds):
        data = cgpfl.make_data("digits", "iid", clients=10, seed=seed)
        model, inner = as_model("mlr", data.shape, data.classes), get_method("fedavg", {})
        for mean in ("weighted", "auto"):
            for attack, share in [(None, 0.0), *((a, 0.1) for a in KIT)]:
                found = measured(attacked(inner, mean, attack, share), data, model, seed, args.rounds)
                rows.append({"attack": attack or "none", "mean": mean, "accuracy": found["accuracy"]})
    means = pd.DataFrame(rows).pivot_table(index="attack", columns="mean", values="accuracy")
    print(means.round(1).to_string(), "\nlost", (means.loc["none", "weighted"] - means.min()).round(1).to_dict())


def cost(args: argparse.Namespace) -> None:
    """Seconds a round, of the network with one hidden layer, with each mean: by turns, the shortest block of each."""
    data = cgpfl.make_data("digits", "rotation", clients=40, contexts=4, seed=0)
    model = as_model("dnn", data.shape, data.classes)
    means = ("weighted", *RULES, "multi-krum")
    for name in args.methods.split(","):
        inner, block, runs = get_method(name, {}), 20, {}
        for mean in means:
            method = inner if mean == "weighted" else Seamed(inner, mean=MEANS[mean])
            simulation = Simulation(method, data, model, rounds=10**6, eval_every=10**6)
            runs[mean] = (simulation, simulation.advance(simulation.start(), 0, block)[0])
        seconds = dict.fromkeys(means, np.inf)
        for part in range(1, args.turns + 1):
            for mean, (simulation, state) in runs.items():
                jax.block_until_ready(state)
                began = time.monotonic()
                state, _, _ = simulation.advance(state, block * part, block * (part + 1))
                jax.block_until_ready(state)
                seconds[mean] = min(seconds[mean], (time.monotonic() - began) / block)
                runs[mean] = (simulation, state)
        for mean, took in seconds.items():
            print(f"{name:12} {mean:18} {1000 * took:8.2f} ms {took / seconds['weighted']:5.2f} x", flush=True)


def table(args: argparse.Namespace) -> None:
    """For each method, points lost by honest clients at 20 %, of the worst attack at each share, and all figures."""
    frame = pd.read_csv(args.out)
    honest = frame[frame.attack == "none"].groupby(["method", "mean"]).accuracy.mean()
    for name, own in frame.groupby("method", sort=False):
        order = list(dict.fromkeys(own["mean"]))
        plain = honest[name].get("weighted", honest[name].max())
        means = own.groupby(["attack", "share", "mean"]).accuracy.mean().unstack()[order]
        print(f"\n## {name}: honest clients' accuracy at 20 % liars, per cent\n")
        shown = means.xs(0.2, level="share").loc[[a for a in KIT if a in means.index.get_level_values(0)]]
        shown = pd.concat([means.xs(0.0, level="share"), shown])
        lines = [["attack", *order], ["---"] * (len(order) + 1)]
        lines += [[a, *(f"{v:.1f}" for v in row)] for a, row in zip(shown.index, shown.to_numpy(), strict=True)]
        lines += [["**worst**", *(f"{v:.1f}" for v in shown.min())]]
        print("\n".join("| " + " | ".join(line) + " |" for line in lines))
        print(f"\n## {name}: points lost (of {plain:.1f}) by the worst attack, over the share of liars\n")
        worst = plain - means.groupby("share").min()
        lines = [["share", *order], ["---"] * (len(order) + 1)]
        rows = zip(worst.index, worst.to_numpy(), strict=True)
        lines += [[f"{s:.0%}", *(f"{v:.1f}" for v in row)] for s, row in rows]
        print("\n".join("| " + " | ".join(line) + " |" for line in lines))
        if "backdoor" in own:
            fooled = own[(own.attack == "backdoor") & (own.share == 0.2)].groupby("mean").backdoor.mean()[order]
            print("\nbackdoor works:", ", ".join(f"{m} {v:.0f} %" for m, v in fooled.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="fedavg,cgpfl-auto")
    parser.add_argument("--means", default=",".join(("weighted", *RULES)))
    parser.add_argument("--shares", type=float, nargs="*", default=SHARES)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("liars.csv"))
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--ten", action="store_true")
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    if given.table is not None:
        given.out = given.table
    todo = "tune" if given.tune else "ten" if given.ten else "cost" if given.cost else "table" if given.table else "run"
    {"tune": tune, "ten": ten, "cost": cost, "table": table, "run": run}[todo](given)
