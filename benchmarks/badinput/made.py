"""Inputs that are well formed and make no sense, by hypothesis: values of every kind where others are expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w
from hypothesis import strategies as st

from cgpfl.data import FederatedData, make_data
from cgpfl.experiment.config import apply_setting, from_dict, read_toml

words = st.one_of(
    st.sampled_from(
        ["digits", "fedavg", "cgpfl", "mlr", "auto", "all", "uniform", "rotation", "a:b", "os:system", "~", ".."]
    ),
    st.text(max_size=20),
)
numbers = st.one_of(
    st.integers(), st.integers(-3, 50), st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**30]),
    st.floats(), st.floats(-1, 2),
)  # fmt: skip
plain = st.one_of(st.booleans(), numbers, words, st.dates(), st.datetimes(), st.times())
values = st.recursive(
    plain, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)), max_leaves=8
)
TOP = [
    "rounds",
    "seed",
    "eval_every",
    "participation",
    "dropout",
    "devices",
    "store",
    "precision",
    "metrics",
    "sampler",
]
TOP += ["outgoing", "mean", "patience", "frozen", "loss", "checkpoint_seconds", "clients_per_block", "data", "model"]
DATA = [
    "source",
    "split",
    "clients",
    "contexts",
    "share",
    "alpha",
    "validation",
    "public",
    "client",
    "label",
    "test",
    "task",
]
METHOD = ["name", "label", "rate", "batch_size", "local_rounds", "contexts", "prox", "warmup", "context_rate"]


def section(keys: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """A table with known keys, mostly, and any values."""
    return st.dictionaries(st.one_of(st.sampled_from(keys), words), values, max_size=4)


methods = st.lists(
    st.tuples(st.sampled_from(["fedavg", "cgpfl", "ditto", "ifca", "parts"]), section(METHOD)).map(
        lambda pair: {"name": pair[0], **pair[1]}
    ),
    max_size=2,
)
experiments = st.tuples(section(TOP), section(DATA), methods).map(
    lambda parts: parts[0] | ({"data": parts[1]} if parts[1] else {}) | ({"method": parts[2]} if parts[2] else {})
)


def configuration(folder: Path, given: dict[str, Any]) -> None:
    """A file of these values, where TOML can say them; the values themselves, where not."""
    file = folder / "config.toml"
    try:
        file.write_text(tomli_w.dumps(given), encoding="utf-8")
    except (TypeError, ValueError, AttributeError):
        from_dict(given, "values")
        return
    from_dict(read_toml(file), str(file))


keys = st.one_of(
    st.sampled_from(
        [*TOP, *(f"data.{k}" for k in DATA), *(f"fedavg.{k}" for k in METHOD), "cgpfl.contexts", "model.l2"]
    ),
    words,
)
settings_ = st.tuples(keys, st.one_of(st.text(max_size=30), values.map(str), values.map(repr))).map("=".join)


def setting(folder: Path, given: list[str]) -> None:
    """``--set`` of these."""
    wanted: dict[str, Any] = {"method": [{"name": "fedavg"}, {"name": "cgpfl"}]}
    for one in given:
        apply_setting(wanted, one)
    from_dict(wanted, "command line")


cells = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(), st.floats(), st.text(max_size=5), st.dates()
)
columns = st.dictionaries(
    st.one_of(st.sampled_from(["client", "label", "a", "b"]), st.text(max_size=8)),
    st.lists(cells, min_size=6, max_size=6), min_size=0, max_size=5,
)  # fmt: skip


def table(folder: Path, given: dict[str, list[Any]]) -> None:
    """A table of these columns, as CSV, as Parquet where it can be, and as it is."""
    frame = pd.DataFrame(given)
    frame.to_csv(folder / "table.csv", index=False, errors="replace")
    try:
        frame.to_parquet(folder / "table.parquet", index=False)
    except Exception:  # pyarrow has no column of several kinds
        file = folder / "table.csv"
    else:
        file = folder / "table.parquet"
    first = next((name for name in given if name != "label"), "client")
    if len(given) % 2:
        FederatedData.from_frame(frame, client=first, label="label")
    else:
        make_data(str(file), client=first, label="label")


kinds = st.sampled_from(["f4", "f8", "i4", "i8", "u1", "?", "c8", "U3", "S2", "M8[s]", "f2"])
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
several = st.dictionaries(
    st.one_of(st.sampled_from(["x", "y", "client", "test", "names"]), st.from_regex(r"[a-z]{1,6}", fullmatch=True)),
    st.tuples(kinds, shapes), max_size=4,
)  # fmt: skip


def arrays(folder: Path, given: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    """A file of arrays of these types and shapes."""
    np.savez(folder / "arrays.npz", **{name: np.zeros(shape, kind) for name, (kind, shape) in given.items()})
    make_data(str(folder / "arrays.npz"))


KINDS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "values": (experiments, configuration),
    "settings": (st.lists(settings_, min_size=1, max_size=3), setting),
    "tables": (columns, table),
    "arrays": (several, arrays),
}
"""By name: what is given, and to whom."""
