"""What an audit finds, before and after clipping and noise: the figures and the picture of docs/security.md.

python -m benchmarks.audit figures OUT   runs of 40 clients with eight digits each, attacked
python -m benchmarks.audit seeds OUT     ten seeds: the bound from below under the account
python -m benchmarks.audit usual OUT     membership by loss in the default federation
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cgpfl.auditing import audit
from cgpfl.auditing.bounds import gaussian_epsilon, gaussian_noise
from cgpfl.auditing.page import picture
from cgpfl.experiment.config import from_dict
from cgpfl.experiment.experiment import run_experiment
from cgpfl.report.pictures import write_picture

ROUNDS, EPSILON, DELTA, CLIP = 50, 2.0, 1e-5, 1.0
EIGHT = {"source": "digits", "split": "rotation", "clients": 40, "share": 0.24}


def rules(epsilon: float) -> list[dict[str, Any]]:
    scale = CLIP * gaussian_noise(epsilon, ROUNDS, DELTA)
    return [{"name": "clip", "norm": CLIP}, {"name": "noise", "scale": scale}]


def run(out: Path, data: dict[str, Any], model: str, methods: list[str], seed: int = 0, **more: Any) -> Path:
    if not out.exists():
        named = [{"name": name} for name in methods]
        values = {"rounds": ROUNDS, "seed": seed, "data": data, "model": {"name": model}, "method": named, **more}
        run_experiment(from_dict(values, "benchmark"), out)
    return out


def figures(out: Path) -> None:
    """Both methods, plain and with the noise of ε = 2; the picture of CGPFL-Heur's first client."""
    sheets = {}
    for name, more in (("plain", {}), ("private", {"outgoing": rules(EPSILON)})):
        folder = run(out / name, EIGHT, "dnn", ["fedavg", "cgpfl-heur"], **more)
        for method in ("cgpfl-heur", "fedavg"):
            found = audit(folder, method, references=8 if name == "plain" else 4, attacked=4)
            found.save(folder)
            sheets[name, method] = found
            (out / f"{name}-{method}.txt").write_text(f"{found}\n")
            print(name, method, flush=True)
            print(found, flush=True)
    before, after = (sheets[name, "cgpfl-heur"].inverted[0] for name in ("plain", "private"))
    write_picture(picture([(before, "plain"), (after, f"ε = {EPSILON:g}")]), out / "reconstruction.png")


def seeds(out: Path) -> None:
    """The bound from below and the account, in ten seeds, for a small and a large ε."""
    rows = []
    for epsilon in (EPSILON, 8.0):
        for seed in range(10):
            folder = run(out / f"seed-{epsilon:g}-{seed}", EIGHT, "mlr", ["fedavg"], seed, outgoing=rules(epsilon))
            facts = audit(folder, references=0, attacked=0, seed=seed).facts
            lower = {level: round(b["epsilon"], 3) for level, b in facts["bounds"].items()}
            upper = gaussian_epsilon(gaussian_noise(epsilon, ROUNDS, DELTA), ROUNDS, DELTA)
            auc = {view: round(facts["membership"][view]["loss"]["auc"], 3) for view in ("upload", "shared")}
            rows.append({"epsilon": epsilon, "seed": seed, **lower, "account": round(upper, 3), **auc})
            print(json.dumps(rows[-1]), flush=True)
    (out / "seeds.json").write_text(json.dumps(rows, indent=1) + "\n")


def usual(out: Path) -> None:
    """Membership by loss in the default federation: 40 clients with 34 digits each."""
    for model in ("mlr", "dnn"):
        folder = run(out / f"usual-{model}", {}, model, ["fedavg", "cgpfl-heur"])
        for method in ("fedavg", "cgpfl-heur"):
            facts = audit(folder, method, references=0, attacked=0).facts
            print(model, method, {v: round(m["loss"]["auc"], 3) for v, m in facts["membership"].items()}, flush=True)


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    {"figures": figures, "seeds": seeds, "usual": usual}[what](where)
