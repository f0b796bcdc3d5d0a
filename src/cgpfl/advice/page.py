"""Advice as one HTML page: self-contained, in the report's style, light and dark, printable."""

from __future__ import annotations

from html import escape

import numpy as np

from cgpfl.advice import words
from cgpfl.advice.advice import Advice
from cgpfl.advice.draw import curve_chart, gain_chart, mean_images
from cgpfl.advice.folds import CUTS
from cgpfl.advice.study import CANDIDATES, RATES
from cgpfl.advice.weigh import FEW, LEVEL, RULE
from cgpfl.report.page import document
from cgpfl.tables import Table

STYLE = """
.advice { border: 1px solid var(--line); border-left: 5px solid var(--accent); border-radius: 0.6rem;
  background: var(--card); padding: 0.9rem 1.1rem; margin: 1rem 0; }
.advice h2 { margin: 0 0 0.4rem; font-size: 1.35rem; }
.advice pre { white-space: pre-wrap; overflow-wrap: anywhere; margin-bottom: 0; }
section p, section li { max-width: 60rem; }
tr.taken td { font-weight: 650; } tr.taken td:first-child::after { content: " ←"; color: var(--accent); }
svg { display: block; width: 100%; height: auto; font: 11px system-ui, sans-serif; }
.panel { overflow-x: auto; } .panel svg { min-width: 34rem; }
svg text { fill: var(--quiet); } svg .ink { fill: var(--text); }
svg .axis { stroke: var(--line); } svg .zero { stroke: var(--quiet); }
svg .up { fill: var(--accent); } svg .down { fill: var(--warn); } svg .faint { opacity: 0.45; }
svg .line { stroke: var(--accent); fill: none; stroke-width: 2; }
svg .aim { stroke: var(--warn); stroke-dasharray: 5 4; }
.means { display: flex; flex-wrap: wrap; gap: 0.9rem; margin: 0.6rem 0; }
.means figure { margin: 0; width: 7rem; } .means figcaption { font-size: 0.825rem; color: var(--quiet); }
.means svg { border: 1px solid var(--line); border-radius: 0.3rem; }
td.name { overflow: hidden; text-overflow: ellipsis; max-width: 14rem; }
h3 { margin-top: 0.8rem; } ul { padding-left: 1.2rem; margin: 0.3rem 0; }
"""


def shown(advice: Advice, short: bool = False) -> Table:
    """The ways side by side; ``short``: what fits in 80 columns."""
    task, rows = advice.task, []
    frame = advice.table
    strong = [[i, 0] for i, name in enumerate(frame["way"]) if name == advice.recommended]
    for row in frame.to_dict("records"):
        test = "best" if row["way"] == advice.verdict.best else _p(row["p"]) + (" ≈" if row["tied"] else "")
        cells = [
            str(row["way"]),
            words.score(row["score"], task),
            words.score(row["worst_tenth"], task),
            test,
            f"{row['bytes'] / 1e6:.3g}",
        ]
        more = [f"{row['gradients']:,.0f}", f"{row['seconds']:.1f}", f"{row['rate']:g}"]
        mark = "→ " if short and row["way"] == advice.recommended else "  " if short else ""
        rows.append([mark + cells[0], *cells[1:], *([more[1]] if short else more)])
    columns = ["way", words.MEASURE[task], "worst tenth", "p", "MB"]
    columns += ["seconds"] if short else ["gradients", "seconds", "rate"]
    columns[0] = "  way" if short else "way"
    meaning = [
        "who shares what",
        "over all samples, each tested once",
        "mean over the worst tenth of the clients",
        f"of the paired test against the best; ≈: not told apart ({LEVEL:.0%})",
        "sent and received by all clients in one training",
        "of all clients in one training",
        "one training, its share of compilation included",
        "that most folds chose",
    ]
    return Table("", columns, rows, strong=strong, help=meaning)


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def html(advice: Advice) -> str:
    """The page."""
    sections = [_advice(advice), _ways(advice), _contexts(advice), _clients(advice), _samples(advice), _how(advice)]
    header = f'<div><h1>Advice for your clients</h1><p class="quiet">{escape(advice.title)}</p></div>'
    return document(f"Advice: {escape(advice.recommended)}", STYLE, header, "".join(sections))


def _advice(advice: Advice) -> str:
    reasons = "".join(f"<p>{escape(line)}</p>" for line in words.why(advice))
    run = f"<pre>{escape(advice.command)}</pre>" if advice.command else ""
    notes = "".join(f"<li>{escape(line)}</li>" for line in advice.notes)
    mind = f'<ul class="notes">{notes}</ul>' if notes else ""
    return f'<div class="advice"><h2>{escape(words.headline(advice))}</h2>{reasons}{run}</div>{mind}'


def _ways(advice: Advice) -> str:
    table = shown(advice)
    scores = advice.table["score"].to_numpy()
    finite = scores[np.isfinite(scores)]
    low = min(0.0, float(finite.min())) if advice.task == "regression" else 0.0

    def cell(r: int, c: int, text: str) -> tuple[str, str]:
        if r < 0:
            return f' title="{escape(table.help[c])}"', text
        if c == 1 and np.isfinite(scores[r]):
            share = 100 * (scores[r] - low) / max(1.0 - low, 1e-9)
            return f' class="bar" style="--part:{min(max(share, 0), 100):.0f}%"', text
        return (f' title="{escape(CANDIDATES[r].does)}"' if c == 0 else ""), text

    made = table.html(cell)
    taken = [str(n) for n in advice.table["way"]].index(advice.recommended)
    rows = made.split("<tr>")
    made = "<tr>".join(rows[: taken + 2]) + '<tr class="taken">' + "<tr>".join(rows[taken + 2 :])
    does = "; ".join(f"{c.name}: {c.does}" for c in CANDIDATES)
    return (
        f'<section id="table"><h2>Five ways, cross-validated</h2><div class="wide">{made}</div>'
        f'<p class="quiet">≈: not told apart from the best. {escape(does)}.</p>'
        f'<p class="quiet">Rule: {escape(RULE)}</p></section>'
    )


def _contexts(advice: Advice) -> str:
    parts = [f"<p>{escape(words.contexts(advice))}</p>"]
    if advice.means is not None:
        parts.append(mean_images(advice.means))
    for context, lines in advice.apart.items():
        members = advice.clients["client"][advice.assignment == context].tolist()
        named = ", ".join(map(str, members[:12])) + (f", … ({len(members)})" if len(members) > 12 else "")
        told = "".join(f"<li>{escape(line)}</li>" for line in lines) or "<li>nothing that means show</li>"
        parts.append(f'<h3>Context {context + 1}</h3><p class="quiet">{escape(named)}</p><ul class="notes">{told}</ul>')
    if advice.apart:
        parts.append(
            '<p class="quiet">Effect: difference of means in standard deviations inside contexts; 0.2 is small, 0.8 '
            "large. Only what the clients of a context share is told.</p>"
        )
    return f'<section id="contexts"><h2>Contexts</h2>{"".join(parts)}</section>'


def _clients(advice: Advice) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in words.gains(advice))
    frame = advice.clients.sort_values("gain", ascending=False)
    grouped = 1 < advice.k < len(frame)
    columns = ["client", "samples", *(["context"] if grouped else []), *advice.table["way"], "gain"]
    rows = [
        [
            str(row["client"]),
            f"{row['samples']:,}",
            *([str(row["context"])] if grouped else []),
            *(words.score(row[name], advice.task) for name in advice.table["way"]),
            words.points(row["gain"], advice.task).removesuffix(" points") + ("*" if row["told"] else ""),
        ]
        for row in frame.to_dict("records")
    ]
    table = Table("", columns, rows).html()
    return (
        f'<section id="clients"><h2>Who gains, who loses</h2>{lines}'
        f'<div class="panel">{gain_chart(advice.clients, advice.task)}</div>'
        f'<details><summary>All clients</summary><div class="wide">{table}</div></details></section>'
    )


def _samples(advice: Advice) -> str:
    return (
        f'<section id="samples"><h2>More samples instead?</h2><p>{escape(advice.curve.words())}</p>'
        f'<div class="panel">{curve_chart(advice.curve, advice.task)}</div>'
        '<p class="quiet">Alone on a quarter, a half and all of each training fold, at rates chosen with all. What is '
        "lost falls with samples as a power of their number, until a floor that cannot be seen from here: hence at "
        "least.</p></section>"
    )


def _how(advice: Advice) -> str:
    folds = len(advice.folds_k) // CUTS
    rates = ", ".join(f"{r:g}" for r in RATES)
    lines = [
        f"Each client's samples were cut into {folds} folds, the same for every way: training on {folds - 1}, testing "
        f"on the one left out, so that every sample is tested once; and that {CUTS} times, with other folds.",
        f"Rates ({rates}) were chosen for every way and fold on a quarter of the training samples, by models that did "
        "not see it; never on the test fold. Then it was trained on all of them.",
        f"Every way trained {advice.rounds} rounds, with 10 minibatches of 20 samples a client and round.",
        "The paired test is made over clients and over folds (with the variance corrected for overlapping training "
        f"sets); the larger p counts. With fewer than {FEW} clients it is over folds alone.",
        "One model and one model tuned are the same training, and so are contexts and contexts + personal "
        "(CGPFL-Auto with one step a minibatch).",
        f"It took {advice.seconds:.0f} seconds.",
    ]
    return (
        '<section id="how"><h2>How this was measured</h2><ul class="notes">'
        + "".join(f"<li>{escape(line)}</li>" for line in lines)
        + "</ul></section>"
    )
