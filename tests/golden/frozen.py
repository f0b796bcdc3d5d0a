"""Golden runs: every method in every engine, small, frozen; what a redesign must leave as it was.

    python tests/golden/frozen.py [--write] [NAME ...]      compare bit for bit with runs.npz (or write it anew)

`--write` is for numbers that are meant to change, or a new method's; say in the commit which, and why.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np

from cgpfl.algorithms import METHODS
from cgpfl.data import FederatedData
from cgpfl.engine.reference import simulate_loop
from cgpfl.engine.simulation import simulate
from cgpfl.engine.stream import Streamed
from cgpfl.engine.together import Run, simulate_together
from cgpfl.hyperparameters import replace
from cgpfl.models import as_model
from cgpfl.tree import plain

FILE = Path(__file__).with_name("runs.npz")
ROUNDS, CLIENTS = 6, 6
SMALL = {"cgpfl": {"contexts": 2, "warmup": 2}, "ifca": {"contexts": 2}}
SMALL |= {"cgpfl-heur": {"warmup": 2}, "hypcluster": {"contexts": 2}, "fl-hc": {"warmup": 2}}
WHO = {"rounds": ROUNDS, "eval_every": 3, "participation": 0.67, "dropout": 0.2}
"""Not everybody is asked, and not everybody answers."""
LONGER = {"cgpfl-auto": 20}
"""Rounds until its warm-up, six answers of everybody, has ended."""
ENGINES = ("simulation", "together", "streamed", "loop")


def federation() -> FederatedData:
    """Six clients of two groups, unequal, with public samples: four features, three classes."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(2, 3, 4)) * 2
    x, y, parts, first = [], [], [], 0
    for i in range(CLIENTS):
        n = 12 + 4 * i
        labels = rng.integers(0, 3, n)
        x.append(centres[i % 2, labels] + rng.normal(size=(n, 4)))
        y.append(labels)
        parts.append(np.arange(first, first + n))
        first += n
    public = np.arange(first, first + 9)
    x.append(rng.normal(size=(9, 4)))
    y.append(np.arange(9) % 3)
    arrays = np.concatenate(x).astype(np.float32), np.concatenate(y)
    return FederatedData.from_parts(*arrays, parts, public=public.astype(np.int32), test=0.25, seed=0)


def small(name: str):
    """A method with a warm-up that ends within the run."""
    method = METHODS[name]
    fields = method.__dataclass_fields__
    return replace(method, {k: v for k, v in SMALL.get(name, {}).items() if k in fields})


def run(name: str, engine: str) -> dict[str, np.ndarray]:
    """Records and the last states of a golden run, by path."""
    data, rounds = federation(), LONGER.get(name, ROUNDS)
    who = WHO | {"rounds": rounds}
    model, method = as_model("mlr", data.shape, data.classes), small(name)
    if engine == "loop":
        server, clients, records = simulate_loop(method, data, model, seed=0, **who)
        clients = jax.tree.map(lambda *leaves: np.stack(leaves), *[plain(c) for c in clients])
    elif engine == "together":
        ends = simulate_together([Run(method, data, seed) for seed in (0, 1)], model, **who)
        state, records, _ = ends[0]
        server, clients = state.server, state.clients
    elif engine == "streamed":
        streamed = Streamed(method, data, model, seed=0, **who)
        state, records, _ = streamed.advance(streamed.start(), 0, rounds)
        fresh = streamed._part(np.arange(CLIENTS))
        from cgpfl.engine.problem import with_public
        from cgpfl.engine.stream import _states

        everybody = np.arange(CLIENTS)
        store = state.clients
        task = with_public(streamed.task, fresh)
        clients = _states(method, task, streamed.keys, fresh.ids, store.take(everybody), store.known[everybody])
        server = state.server
    else:
        state, records, _ = simulate(method, data, model, seed=0, **who)
        server, clients = state.server, state.clients
    found = {f"record/{k}": np.asarray(v) for k, v in records.items()}
    for part, tree in (("server", server), ("clients", clients)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(plain(tree)):
            found[f"{part}{jax.tree_util.keystr(path)}"] = np.asarray(leaf)
    return found


def frozen() -> dict[str, dict[str, np.ndarray]]:
    """What is in the file: {method/engine: {path: array}}."""
    out: dict[str, dict[str, np.ndarray]] = {}
    with np.load(FILE) as file:
        for key in file.files:
            name, _, path = key.partition("|")
            out.setdefault(name, {})[path] = file[key]
    return out


def apart(now: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> float:
    """The largest relative difference of anything; 0 where all bits agree. Infinite where something is missing."""
    if now.keys() != before.keys():
        return float("inf")
    worst = 0.0
    for key, new in now.items():
        old = before[key]
        if new.shape != old.shape:
            return float("inf")
        if np.array_equal(new, old, equal_nan=new.dtype.kind == "f"):
            continue
        a, b = np.asarray(new, np.float64), np.asarray(old, np.float64)
        if (np.isfinite(a) != np.isfinite(b)).any():
            return float("inf")
        fine = np.isfinite(a)
        worst = max(worst, float((np.abs(a - b)[fine] / (1e-6 + np.abs(b[fine]).max())).max()))
    return worst


def main() -> None:
    """Compare, or write."""
    names = [f"{m}/{e}" for m in METHODS for e in ENGINES]
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    names = [n for n in names if not wanted or any(w in n for w in wanted)]
    before = {} if "--write" in sys.argv else frozen()
    kept = frozen() if wanted and not before else {}  # the runs that were not asked for stay
    found = {f"{name}|{path}": v for name, run in kept.items() if name not in names for path, v in run.items()}
    for name in names:
        now = run(*name.split("/"))
        found |= {f"{name}|{path}": value for path, value in now.items()}
        if before:
            distance = apart(now, before[name])
            print(f"{name}: {'the same bits' if distance == 0 else f'differs by {distance:.1e}'}", flush=True)
        jax.clear_caches()
    if not before:
        np.savez_compressed(FILE, **found)
        print(f"{len(names)} runs, {FILE.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
