"""Run folders written by hand, as large or as odd as a report may meet them."""

import json

import numpy as np
import pandas as pd
from safetensors.numpy import save_file


def write_records(folder, rounds, values):
    """A method's records, ``values[name] [E, N]``."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"facts": json.dumps({"rounds": list(rounds)})}
    save_file(values, folder / f"records-{rounds[-1]:06d}.safetensors", facts)


def make(folder, clients=4, rounds=(1, 2), methods=("local", "fedavg", "cgpfl"), k=2, diverged=None):
    """A finished run. Client i of method j answers correctly ``(i + j) % 10`` of 10 times, in the last round
    and before; it is in context ``i % k`` from the second evaluation on, and that is the truth.

    ``diverged``: {method: round}; the methods named have no evaluation from that round on.
    """
    folder.mkdir(parents=True)
    diverged = diverged or {}
    rng = np.random.default_rng(0)
    who, metrics, history, found = np.arange(clients), [], [], {}
    for j, label in enumerate(methods):
        done, kept = [t for t in rounds if t < diverged.get(label, np.inf)], []
        grouped = label.startswith("cgpfl")
        for e, t in enumerate(done):
            frame = {"method": label, "round": t, "client": who, "n": 10, "correct": (who + j) % 10}
            if label != "local":
                frame |= {"shared_correct": (who + j + 1) % 10, "distance": 1.0 / t}
            frame |= {"context": who % k if e else 0 * who} if grouped else {}
            metrics.append(pd.DataFrame(frame))
            values = {name: v for name, v in frame.items() if name not in ("method", "round", "client", "n")}
            kept.append({name: np.broadcast_to(v, clients).astype(np.float32) for name, v in values.items()})
            row = {"method": label, "round": t, "accuracy": float(((who + j) % 10).mean() / 10), "mean": 0.5}
            row |= {"worst_tenth": 0.1, "loss": 1.0, "train_loss": 0.5}
            row |= {"bytes_up": 1000 * t, "bytes_down": 2000 * t, "gradients": 10 * t}
            history.append(row | ({"k": k, "kmeans_iterations": 3, "objective_context": 1.0 / t} if grouped else {}))
        if kept:
            write_records(folder / "methods" / label, done, {k: np.stack([r[k] for r in kept]) for k in kept[0]})
        scores = {"pooled": history[-1]["accuracy"], "mean": 0.5, "worst_tenth": 0.1, "std": 0.2} if done else None
        found[label] = {
            "accuracy": scores,
            "shared_accuracy": scores,
            "contexts": {"k": k, "ari": 1.0, "assignment": (who % k).tolist()} if grouped and done else None,
            "rounds": done[-1] if done else 0,
            "diverged": diverged.get(label),
            "bytes_down": 2000,
            "bytes_up": 1000,
            "gradients": 10,
            "seconds": 1.0,
        }
    columns = ["method", "round", "accuracy"]
    (pd.DataFrame(history) if history else pd.DataFrame(columns=columns)).to_csv(folder / "history.csv", index=False)
    empty = pd.DataFrame({"method": [], "round": [], "client": []})
    (pd.concat(metrics, ignore_index=True) if metrics else empty).to_parquet(folder / "metrics.parquet")
    data = {"source": "made", "split": "up", "clients": clients, "true_contexts": k, "split_hash": "0", "classes": 3}
    summary = {"methods": found, "data": data, "model": {"name": "mlr"}, "seed": 0}
    (folder / "summary.json").write_text(json.dumps(summary))
    methods_of = "".join(f'[[method]]\nname = "{label}"\nlabel = "{label}"\n' for label in methods)
    (folder / "config.toml").write_text(f"rounds = {rounds[-1]}\n{methods_of}")
    arrays = {"labels": rng.integers(0, 9, (clients, 3)), "context": who % k, "test": np.full(clients, 10)}
    save_file({name: a.astype(np.int32) for name, a in arrays.items()}, folder / "federation.safetensors")
    return folder
