"""A campaign of bad input: configurations, settings, tables, arrays and run folders, each mutated from a good one.

    python -m benchmarks.badinput [SECONDS [SEED]]

Whatever comes of one, it must be a result or a CgpflError of one line, soon. What is neither is printed with its seed,
and the exit code is 1.
"""

from __future__ import annotations

import io
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

from cgpfl.data import make_data
from cgpfl.errors import CgpflError
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
TABLE = "client,a,b,label\n" + "".join(f"c{i % 3},{i},{i * 0.5},{i % 2}\n" for i in range(24))
ODD = ["", "nan", "inf", "-1", "0", "1e999", "9" * 400, "true", "[]", "{}", "'x'", '"""', "\x00", "λ", "\ufeff"]
ODD += ["[" * 500, "../..", "~", "a" * 500, "1979-05-27", "0x7fffffffffffffff", "=", "[[method]]", "[data]", "\n", ","]
SLOW = 20.0
"""Seconds in which an answer must come."""


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


KINDS = (configuration, setting, table, arrays, run_folder, weights)


def attempt(seed: int) -> str | None:
    """What is wrong with the answer to the input of a seed, if anything."""
    draw = random.Random(seed)
    kind, began = draw.choice(KINDS), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            kind(Path(folder), draw)
        except CgpflError as error:
            if "\n" in str(error).strip() or len(str(error)) > 1100:
                return f"{kind.__name__}: a long message: {str(error)[:200]!r}"
        except Exception:
            return f"{kind.__name__}: {traceback.format_exc(limit=-3)}"
    late = time.monotonic() - began
    return f"{kind.__name__}: took {late:.0f} s" if late > SLOW else None


def campaign(seconds: float, first: int = 0) -> tuple[int, dict[int, str]]:
    """As many as there is time for → (how many, what was wrong, by seed)."""
    end, seed, wrong = time.monotonic() + seconds, first, dict[int, str]()
    while time.monotonic() < end:
        if (found := attempt(seed)) is not None:
            wrong[seed] = found
        seed += 1
    return seed - first, wrong


if __name__ == "__main__":
    given = [*map(float, sys.argv[1:]), 60.0, 0.0]
    count, wrong = campaign(given[0], int(given[1]) if len(sys.argv) > 2 else 0)
    for seed, found in wrong.items():
        print(f"seed {seed}: {found}")
    print(f"{count} inputs, {len(wrong)} wrong answers")
    sys.exit(bool(wrong))
