"""An audit in words: tables and sentences, for the terminal and the page."""

from __future__ import annotations

import textwrap
from typing import Any

from cgpfl.auditing.membership import LOW
from cgpfl.auditing.views import VIEWS
from cgpfl.tables import Table

WIDTH = 80
LITTLE = 0.55
"""AUC up to which little is told."""
REPLACED = "epsilon_replaced"
"""Of an account: ε between a client's data and any other in its place, not between its uploads and none."""
ATTACKS = {"loss": "loss", "ratio": "likelihood ratio"}


def membership(facts: dict[str, Any]) -> Table:
    """Each model under each attack."""
    rows = []
    for view, attacks in facts["membership"].items():
        for name, m in attacks.items():
            low, high = m["interval"]
            rows.append(
                [view, ATTACKS[name], f"{m['auc']:.3f}", f"{low:.2f} to {high:.2f}", f"{100 * m['found']:.1f} %"]
            )
    columns = ["model", "attack", "AUC", "95 %", f"found at {100 * LOW:g} %"]
    help_ = [
        "; ".join(f"{view} is seen by {VIEWS[view]}" for view in facts["membership"]),
        "by a low loss, or by the confidence against that of reference models",
        "chance that a training sample is ranked before one that was not trained on; 0.5 = nothing is told",
        "interval of the AUC, over clients drawn again",
        f"share of the training samples found where {100 * LOW:g} % of the others are taken for such",
    ]
    return Table("", columns, rows, left=[0, 1], help=help_)


def bounds(facts: dict[str, Any]) -> Table:
    """ε from below, beside the account."""
    rows, told = [], facts["privacy"]
    for level, b in facts["bounds"].items():
        most = at_most(told, level)
        upper = "none" if most is None else f"{most:.3g}"
        rows.append([level, f"{b['epsilon']:.2f}", upper, f"{b['right']} of {b['guesses']}", f"{b['canaries']:,}"])
    columns = ["canary", "ε at least", "ε at most", "guessed right", "canaries"]
    help_ = [
        "a sample with another's label, or a client that sends one direction",
        f"with 95 % confidence, at δ = {facts['delta']:g}",
        f"by {told['by']}" if told else "the run adds no noise that bounds it",
        "of those about which something was said",
        "put in, or not, by a coin",
    ]
    return Table("", columns, rows, help=help_)


def at_most(privacy: dict[str, Any] | None, level: str) -> float | None:
    """ε that an account says of this kind of canary; None: it says nothing.

    One of clients protects each of their samples, too: as data that are replaced, for the client's uploads stay.
    """
    if privacy is None:
        return None
    name = "epsilon" if privacy["level"] == level else REPLACED
    return float(privacy[name]) if name in privacy else None


def reconstruction(facts: dict[str, Any]) -> Table:
    """What was found of the smallest clients' samples."""
    rows = [
        [
            str(c["client"]),
            str(c["samples"]),
            f"{c['correlation']:.3f}",
            f"{c['worst']:.3f}",
            f"{c['labels']} of {c['samples']}",
        ]
        for c in facts["reconstruction"]["clients"]
    ]
    chance = facts["reconstruction"]["chance"]
    help_ = [
        "",
        "it trains on",
        "of its samples with what was found of them, mean"
        + ("" if chance is None else f"; with what was found of other clients: {chance:.3f}"),
        "of the sample that was found worst",
        "found",
    ]
    return Table("", ["client", "samples", "correlation", "worst", "labels"], rows, help=help_)


def sizes(facts: dict[str, Any]) -> Table:
    """Clients by size."""
    rows = [
        [f"{q['from']}–{q['to']}" if q["from"] < q["to"] else str(q["from"]), str(q["clients"]), f"{q['auc']:.3f}"]
        for q in facts["by_size"]["quarters"]
    ]
    return Table("", ["training samples", "clients", "AUC"], rows)


def verdict(facts: dict[str, Any]) -> list[str]:
    """The sentences that matter."""
    lines: list[str] = []
    for views, whose in ((("upload", "shared"), ""), (("personal",), ", which stays with its client,")):
        found_by = [(m["auc"], v, name) for v in views for name, m in facts["membership"].get(v, {}).items()]
        if found_by:
            best, view, name = max(found_by)
            said = "tells little about who was in the training" if best <= LITTLE else "tells who was in the training"
            lines.append(f"Membership: the {view} model{whose} {said} (AUC {best:.2f}, {ATTACKS[name]}).")
    found = facts["reconstruction"]
    if found["clients"]:
        worst = max(found["clients"], key=lambda c: c["correlation"])
        chance = "" if found["chance"] is None else f"; chance is {found['chance']:.2f}"
        lines.append(
            f"Reconstruction: from client {worst['client']}'s first upload its {worst['samples']} samples are found "
            f"with correlation {worst['correlation']:.3f}, and {worst['labels']} of {worst['samples']} labels{chance}."
        )
    else:
        lines.append(f"Reconstruction: not tried; {found['why']}.")
    for level, b in facts["bounds"].items():
        most = at_most(facts["privacy"], level)
        upper = "" if most is None else f"; the account says at most {most:.3g}"
        wrong = ": THE ACCOUNT IS WRONG" if most is not None and b["epsilon"] > most else ""
        lines.append(f"Canary {level}s: ε is at least {b['epsilon']:.2f} (95 %, δ = {facts['delta']:g}){upper}{wrong}.")
    quarters = facts["by_size"]["quarters"]
    if len(quarters) > 1 and quarters[0]["from"] < quarters[-1]["to"]:
        small, large = quarters[0], quarters[-1]
        lines.append(
            f"Who: AUC {small['auc']:.2f} for the quarter of clients with the fewest samples "
            f"({small['from']}–{small['to']}), "
            f"{large['auc']:.2f} for that with the most ({large['from']}–{large['to']})."
        )
    if facts["ordered"]:
        lines.append("Training and test samples were not drawn alike here, so AUC measures that difference, too.")
    return lines


def summary(facts: dict[str, Any]) -> str:
    """For a terminal: at most 80 columns."""
    few, many = facts["samples"]
    about = f"{facts['clients']} clients with {few} to {many} training samples, {facts['rounds']} rounds"
    lines = [f"{facts['method']}: {about}", ""]
    for line in verdict(facts):
        lines += textwrap.wrap(line, WIDTH, subsequent_indent="  ")
    for table in (membership(facts), bounds(facts), reconstruction(facts)):
        if table.rows:
            lines += ["", table.text()]
    exposed = ", ".join(f"{e['client']} ({e['samples']} samples, {e['auc']:.2f})" for e in facts["exposed"][:5])
    lines += ["", *textwrap.wrap(f"most exposed, by AUC: {exposed}", WIDTH, subsequent_indent="  ")]
    return "\n".join(lines)
