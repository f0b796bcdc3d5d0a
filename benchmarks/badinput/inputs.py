"""Configurations, settings, tables, arrays and run folders, each mutated from a good one."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pandas as pd

from cgpfl.data import make_data
from cgpfl.experiment.config import apply_setting, config_of, from_dict, read_toml
from cgpfl.files import load_arrays, save_arrays
from cgpfl.report.read import read_run

CONFIG = """rounds = 3
participation = 0.5
metrics = ["accuracy"]
sampler = {name = "uniform"}
[data]
source = "digits"
clients = 4
contexts = 2
[model]
name = "mlr"
l2 = 0.001
[[method]]
name = "fedavg"
rate = 0.1
[[method]]
name = "cgpfl"
contexts = 2
"""
ROWS = [(f"c{i % 3}", i, i * 0.5, i % 2) for i in range(24)]
TABLE = "client,a,b,label\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS)
ODD = ["", "nan", "inf", "-1", "0", "1e999", "9" * 400, "true", "[]", "{}", "'x'", '"""', "\x00", "λ", "\ufeff"]
ODD += ["[" * 500, "../..", "~", "a" * 500, "1979-05-27", "0x7fffffffffffffff", "=", "[[method]]", "[data]", "\n", ","]


def mutated(content: bytes, draw: random.Random) -> bytes:
    """A few bytes, lines or words changed."""
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(content) + 1)
        end = min(len(content), at + draw.choice([0, 1, 1, 4, 20, 200]))
        what = draw.choice([b"", bytes([draw.randrange(256)]), draw.choice(ODD).encode(), content[at:end] * 3])
        content = content[:at] + what + content[end:]
    return content


def configuration(folder: Path, draw: random.Random) -> None:
    file = folder / "config.toml"
    file.write_bytes(mutated(CONFIG.encode(), draw))
    from_dict(read_toml(file), str(file))


def setting(folder: Path, draw: random.Random) -> None:
    values = {"method": [{"name": "fedavg"}, {"name": "cgpfl"}]}
    keys = ["rounds", "seed", "data.clients", "data.alpha", "fedavg.rate", "cgpfl.contexts", "sampler.name", "model.l2"]
    text = f"{draw.choice(keys)}={draw.choice(ODD)}"
    apply_setting(values, mutated(text.encode(), draw).decode("utf-8", "replace") if draw.random() < 0.5 else text)
    from_dict(values, "command line")


def table(folder: Path, draw: random.Random) -> None:
    file = folder / "table.csv"
    file.write_bytes(mutated(TABLE.encode(), draw))
    make_data(str(file), client="client", label="label")


def parquet(folder: Path, draw: random.Random) -> None:
    content = io.BytesIO()
    pd.DataFrame(ROWS, columns=["client", "a", "b", "label"]).to_parquet(content, index=False)
    file = folder / "table.parquet"
    file.write_bytes(mutated(content.getvalue(), draw))
    make_data(str(file), client="client", label="label")


def arrays(folder: Path, draw: random.Random) -> None:
    content = io.BytesIO()
    np.savez(content, x=np.zeros((24, 2), np.float32), y=np.arange(24) % 2, client=np.arange(24) % 3)
    file = folder / "arrays.npz"
    file.write_bytes(mutated(content.getvalue(), draw))
    make_data(str(file))


def run_folder(folder: Path, draw: random.Random) -> None:
    (folder / "config.toml").write_bytes(mutated(CONFIG.encode(), draw) if draw.random() < 0.5 else CONFIG.encode())
    event = b'{"kind": "started", "method": "fedavg", "round": 0, "values": {"rounds": 3}}\n'
    (folder / "events.jsonl").write_bytes(mutated(event * 3, draw))
    config_of(folder)
    read_run(folder)


def weights(folder: Path, draw: random.Random) -> None:
    """Whatever is changed in a file of arrays, it is refused or the arrays are the same."""
    file, right = folder / "a.safetensors", np.linspace(0, 1, 50)
    save_arrays(file, {"w": right}, {"round": 1})
    file.write_bytes(mutated(file.read_bytes(), draw))
    assert load_arrays(file)[0]["w"].tolist() == right.tolist()


KINDS = (configuration, setting, table, parquet, arrays, run_folder, weights)
