"""A run folder as the data of a report: plain lists and numbers, of finished runs and of those that go on."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cgpfl.errors import CgpflError
from cgpfl.files import not_deleted, read_text
from cgpfl.report.clients import Clients, clients_of, names_of, of_metrics, of_records
from cgpfl.report.contexts import contexts, explained
from cgpfl.report.events import EventSummary, Follower, seconds_left
from cgpfl.report.files import load, read_history, reading, whole
from cgpfl.report.shrink import MOST_CLIENTS, MOST_POINTS, compact, thin

COLUMNS = (
    *("accuracy", "mean", "worst_tenth", "shared_accuracy", "loss", "train_loss", "objective_context"),
    *("k", "kmeans_iterations", "ari", "bytes_up", "bytes_down", "gradients"),
)
"""What is kept of history.csv, beside the metrics."""


def read_run(path: Path, events: Follower | None = None) -> dict[str, Any]:
    """Everything a report shows of a run or a comparison, ready for JSON; a damaged folder is one clear line.

    ``events``: who has read some of its events already.
    """
    if not path.is_dir():
        raise CgpflError(f"run {path}: no such folder")
    not_deleted(path)
    settings: dict[str, Any] = {}
    config, summary = "", None
    if (path / "config.toml").exists():
        with reading(path / "config.toml"):
            config = read_text(path / "config.toml")
            settings = tomllib.loads(config)
            _sections(settings)
    if (path / "summary.json").exists():
        with reading(path / "summary.json"):
            summary = dict(json.loads(read_text(path / "summary.json")))
    with whole(path):
        if summary is not None and "seeds" in summary:
            return read_comparison(path, summary, config, settings)
        return _read_run(path, summary, config, settings, (events or Follower(path)).read())


def _sections(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The section of each label."""
    return {m.get("label", m["name"]): m for m in settings.get("method", [])}


def absent(path: Path, state: str) -> dict[str, Any]:
    """What a live page shows of a run whose folder has nothing, or nothing yet."""
    nothing: dict[str, Any] = {"config": "", "seeds": [], "data": {}, "model": {}, "methods": [], "truth": None}
    return {"name": path.absolute().name, "kind": "run", "state": state, **nothing}


def _read_run(
    path: Path, summary: dict[str, Any] | None, config: str, settings: dict[str, Any], told: EventSummary | None
) -> dict[str, Any]:
    name = path.resolve().name
    if summary is None and told is None:
        if not config:
            raise CgpflError(f"run {path}: has no config.toml, summary.json or events.jsonl; is it a run folder?")
        kind = "comparison" if "compare" in settings else "run"
        return absent(path, "waiting") | {"name": name, "kind": kind, "config": config}
    finished = summary is not None and (told is None or told.state == "finished")
    about = summary if finished else (told.opened if told else {})
    assert about is not None
    federation, _ = load(path / "federation.safetensors", file="federation")
    sections = _sections(settings)
    run = {
        "name": name,
        "kind": "run",
        "state": "finished" if finished or told is None else told.state,
        "seeds": [about["seed"]],
        "data": _facts(about["data"]),
        "names": names_of(about["data"]),
        "model": about["model"],
        "metrics": about.get("metrics", {}),
        "config": config,
        "truth": federation["context"].tolist() if "context" in federation else None,
    }
    if finished:
        assert summary is not None
        history = read_history(path)
        metrics = None
        if "test" not in federation:  # written before there was such a file
            with reading(path / "metrics.parquet"):
                metrics = pd.read_parquet(path / "metrics.parquet")
        methods = [
            {
                "label": label,
                "summary": facts,
                "rounds": _planned(settings) or facts["rounds"],
                "round": facts["rounds"],
                "history": history[history["method"] == label],
                "clients": of_records(path / "methods" / label, federation.get("test"))
                if metrics is None
                else of_metrics(metrics[metrics["method"] == label]),
            }
            for label, facts in summary["methods"].items()
        ]
    else:
        assert told is not None
        if told.state == "running":
            run["left"] = seconds_left(told.methods, sections)
        methods = [
            {**facts, "clients": of_records(path / "methods" / label, federation.get("test"))}
            for label, facts in told.methods.items()
        ]
    run["methods"] = [
        _method(
            *(m, sections.get(m["label"], {}), federation),
            *(path / "methods" / m["label"] / "models.safetensors", run["metrics"]),
        )
        for m in methods
    ]
    run["notes"] = _notes(run)
    return compact(run)


def _facts(data: dict[str, Any]) -> dict[str, Any]:
    """Facts of the data without the list of its clients."""
    return {k: v for k, v in data.items() if k != "names"} | {"clients": clients_of(data)}


def _notes(run: dict[str, Any]) -> list[str]:
    """What the charts leave out."""
    notes = []
    if run["data"]["clients"] > MOST_CLIENTS:
        notes.append(f"Charts of clients show {MOST_CLIENTS:,} of {run['data']['clients']:,}, evenly spread.")
    if any(len(m["history"]["round"]) == MOST_POINTS for m in run["methods"]):
        notes.append(f"Curves show {MOST_POINTS} evaluated rounds, evenly spread, where there are more.")
    return notes


def read_comparison(path: Path, summary: dict[str, Any], config: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A comparison: means over seeds, with the range of the accuracy."""
    history = read_history(path)
    sections = _sections(settings)
    methods = []
    for label, facts in summary["methods"].items():
        rows = history[history["method"] == label].drop(columns="method").groupby("round")
        mean = rows.mean().reset_index()
        lows, highs = rows["accuracy"].min().to_numpy(), rows["accuracy"].max().to_numpy()
        kept = thin(len(mean))
        band = {"low": lows[kept].tolist(), "high": highs[kept].tolist()} if len(summary["seeds"]) > 1 else None
        curves = {**_curves(mean, summary.get("metrics", {})), "band": band}
        name, ends = sections.get(label, {}).get("name", label), dict.fromkeys(("round", "rounds"), summary["rounds"])
        methods.append({"label": label, "name": name, "summary": facts, "history": curves, **ends})
    about = {k: summary[k] for k in ("seeds", "data", "model", "target", "notes")}
    about["data"] = _facts(about["data"])
    about["metrics"] = summary.get("metrics", {})
    state = {"name": path.resolve().name, "kind": "comparison", "state": "finished", "config": config, "truth": None}
    return compact({**state, **about, "methods": methods})


def _planned(settings: dict[str, Any]) -> int | None:
    rounds = settings.get("rounds")
    return rounds if isinstance(rounds, int) else None


def _method(
    m: dict[str, Any],
    section: dict[str, Any],
    federation: dict[str, np.ndarray],
    models: Path,
    metrics: Iterable[str],
) -> dict[str, Any]:
    """``section``: the method's in the configuration, where there is one."""
    clients: Clients | None = m.pop("clients")
    name, settings = section.get("name", m["label"]), m.pop("settings", section)
    out: dict[str, Any] = {**m, "name": name, "clients": None, "contexts": None}
    history = m["history"]
    if clients is not None:
        out["clients"] = clients.last()
        if "context" in clients.values:
            chosen = explained(clients.values, m["summary"].get("contexts"), settings)
            places = load(models, file="models", method=models.parent.name)
            out["contexts"] = contexts(clients, federation, places, chosen)
            history = _with_ari(history, clients.rounds, out["contexts"]["ari"])
    out["history"] = _curves(history, metrics)
    # A report of a thousand clients needs no list of them in the table's data.
    slim = m["summary"] | {"contexts": dict(m["summary"].get("contexts") or {}) or None}
    for key in ("assignment", "curve", "sizes"):
        (slim["contexts"] or {}).pop(key, None)
    return out | {"summary": slim}


def _with_ari(history: pd.DataFrame, rounds: np.ndarray, ari: list[float] | None) -> pd.DataFrame:
    """The history with the agreement in every round of which it is known."""
    if ari is None or not len(history):
        return history
    found = history["round"].map(dict(zip(rounds.tolist(), ari, strict=True)))
    return history.assign(ari=found.fillna(history["ari"]) if "ari" in history else found)


def _curves(history: pd.DataFrame, metrics: Iterable[str]) -> dict[str, Any]:
    """Columns of the history, thinned."""
    if not len(history):
        return {"round": []}
    rows = history.iloc[thin(len(history))]
    wanted = [*COLUMNS, *(c for c in map(str, rows) if c.partition("/")[0] in metrics)]
    known = [c for c in wanted if c in rows and rows[c].notna().any()]
    return {"round": rows["round"].tolist()} | {c: rows[c].tolist() for c in known}
