"""What a user should know of a method beside its accuracy, in short lines: it helps nobody, or not everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from cgpfl.algorithms.wrapper import is_private
from cgpfl.data import FederatedData
from cgpfl.rounds.privacy import described, of_all

if TYPE_CHECKING:
    from cgpfl.experiment.result import Outcome

REFERENCES = ("fedavg", "local")


def against(own: Outcome, results: Sequence[Outcome]) -> list[str]:
    """What ``own`` is not better than among FedAvg and local training in the same run, and who loses by it.

    Only of a method with personal or context models; clients are counted where it has contexts.
    """
    if own.name in REFERENCES or _accuracy(own) is None or not _personalised(own):
        return []
    known = {name: best for name in REFERENCES if (best := _best(name, results)) is not None}
    lines, contexts = [], own.summary["contexts"]
    alone = contexts is not None and contexts["alone"]
    below = [said for other in known.values() if (said := _below(own, other))]
    if alone:  # which is local training
        below = [said for said in below if not said.startswith("no better")]
    if below:
        grouped = contexts is not None and contexts["k"] > 1 and not alone
        first, *more = below
        said = ", ".join([first, *(text.replace(" points", "", 1) for text in more)])
        lines.append(("contexts do not help: " if grouped else "") + said)
    if contexts is not None and not alone and "local" in known:
        lines += _losers(own, known["local"])
    return lines


def spent_by_all(own: Outcome, results: Sequence[Outcome]) -> list[str]:
    """What all methods of a run cost in privacy, said of the last that cost anything; nothing where one alone did."""
    private = [r for r in results if (r.summary.get("privacy") or {}).get("epsilon")]
    return [of_all([r.summary["privacy"] for r in private])] if len(private) > 1 and own is private[-1] else []


def spent_by_each(methods: Mapping[str, Any], federations: Mapping[int, FederatedData]) -> list[str]:
    """What each method of a comparison cost in privacy."""
    samples = [int(n) for data in federations.values() for n in data.train.counts]
    each = f", in each of {len(federations)} seeds" if len(federations) > 1 else ""
    private = {label: m for label, m in methods.items() if is_private(m)}
    return [f"{label}: {described(m.privacy.spent(m, samples))}{each}" for label, m in private.items()]


def _accuracy(result: Outcome) -> float | None:
    """Pooled; None of a method that diverged or was never evaluated."""
    found = result.summary["accuracy"]
    return None if result.summary["diverged"] or not found else float(found["pooled"])


def _best(name: str, results: Sequence[Outcome]) -> Outcome | None:
    """The most accurate of a run's methods of this name."""
    there = [(value, r) for r in results if r.name == name and (value := _accuracy(r)) is not None]
    return max(there, key=lambda pair: pair[0])[1] if there else None


def _personalised(result: Outcome) -> bool:
    """Whether clients' models differ from one shared by all."""
    rows = result.clients
    return result.summary["contexts"] is not None or "distance" not in rows or bool((rows["distance"] > 0).any())


def _below(own: Outcome, other: Outcome) -> str:
    """By how much ``own`` is not above another; empty where it is above."""
    mine, theirs = _accuracy(own), _accuracy(other)
    if mine is None or theirs is None or mine > theirs:
        return ""
    by = f"{100 * (theirs - mine):.1f}"
    return f"no better than {other.label}" if by == "0.0" else f"{by} points below {other.label}"


def _losers(own: Outcome, local: Outcome) -> list[str]:
    """How many clients do worse than alone, of those evaluated last with both."""
    gain = (_last(own.clients) - _last(local.clients)).dropna()
    losing = int((gain < 0).sum())
    if not losing:
        return []
    worst = -100 * float(gain.min())
    by = f"{worst:.0f} point{'' if round(worst) == 1 else 's'}" if worst >= 0.5 else f"{worst:.1f} points"
    more = losing > 1
    return [
        f"{losing} of {len(gain)} clients {'do' if more else 'does'} worse than alone, {'the worst ' * more}by {by}"
    ]


def _last(clients: pd.DataFrame) -> pd.Series:
    """Accuracy of each client in the last evaluation, by client."""
    rows = clients[clients["round"] == clients["round"].max()].set_index("client")
    return rows["correct"] / rows["n"]
