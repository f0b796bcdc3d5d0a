"""The contexts of one method, as the data of a report."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgpfl.metrics import agreement, figure
from cgpfl.report.choice import choice
from cgpfl.report.clients import Clients
from cgpfl.report.shrink import run_lengths, spread, thin
from cgpfl.tables import Table


def contexts(
    clients: Clients,
    federation: dict[str, np.ndarray],
    models: tuple[dict[str, np.ndarray], dict[str, Any]],
    chosen: dict[str, Any],
) -> dict[str, Any]:
    """Who was where when, what the contexts hold, where their models lie, and how they were ``chosen``."""
    table = clients.values["context"].astype(int)
    truth, labels = federation.get("context"), federation.get("labels")
    honest = np.isfinite(clients.values["correct"][-1]) if "liar" in clients.values else None
    ari = None if truth is None else _agreement(truth, table, honest)
    kept, shown = thin(len(table)), spread(table.shape[1])
    final = table[-1]
    used = np.unique(final)
    own = clients.accuracy()
    groups = [
        {
            "context": int(c),
            "members": int((final == c).sum()),
            "accuracy": _mean(own[final == c]),
            "labels": None if labels is None else labels[final == c].sum(axis=0),
            "truth": None if truth is None else np.unique(truth[final == c], return_counts=True),
        }
        for c in (used if not chosen["alone"] else [])  # a group a client is no group
    ]
    arrays, facts = models
    return {
        "rounds": clients.rounds[kept],
        "clients": shown,
        "map": [run_lengths(table[kept, i]) for i in shown],
        "moved": [0, *(int((a != b).sum()) for a, b in zip(table[kept][:-1], table[kept][1:], strict=True))],
        "ari": ari,
        "groups": groups,
        "table": group_table(groups),
        "models": {**arrays, **facts} if "place" in arrays else None,
        **chosen,
    }


def group_table(groups: list[dict[str, Any]]) -> str:
    """Who ended where, as HTML; the page colours the first column."""
    known = any(g["truth"] is not None for g in groups)
    head = ["context", "clients", "mean accuracy", *(["of true contexts"] if known else [])]
    rows = [[str(g["context"]), str(g["members"]), figure(g["accuracy"], unit=" %")] for g in groups]
    for row, g in zip(rows, groups, strict=True):
        row += [", ".join(f"{t} ({n})" for t, n in zip(*g["truth"], strict=True))] if known else []

    def cell(r: int, c: int, text: str) -> tuple[str, str]:
        return "", f'<span class="swatch" data-context="{text}"></span>{text}' if r >= 0 and c == 0 else text

    return Table("", head, rows).html(cell)


def explained(values: dict[str, np.ndarray], found: dict[str, Any] | None, settings: dict[str, Any]) -> dict[str, Any]:
    """How contexts were chosen: what a summary ``found``, or of a method that goes on what its records say so far."""
    facts = found or {}
    if "sentence" not in facts and "k" in values:
        facts = choice(values, settings).facts()
    names = ("chosen", "alone", "sentence", "sure", "between", "within", "noise", "curve")
    kept = {"alone": False, "curve": None, **{k: v for k, v in facts.items() if k in names}}
    if "between" in kept:
        trust = choice(values, settings).trust
        assert trust is not None
        kept["trust"] = trust[spread(len(trust))]
    return kept


def _agreement(truth: np.ndarray, table: np.ndarray, honest: np.ndarray | None) -> list[float]:
    """Adjusted Rand index of each row, among ``honest`` clients; rows seldom differ from those before."""
    known: dict[bytes, float] = {}
    for row in table:
        if (key := row.tobytes()) not in known:
            known[key] = agreement(truth, row, honest) or 0.0
    return [known[row.tobytes()] for row in table]


def _mean(values: np.ndarray) -> float | None:
    """The mean of the values that are known, if any is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
