"""An audit as one HTML page: self-contained, in the report's style."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import Any

import numpy as np

from cgpfl.auditing import words
from cgpfl.auditing.attack import Audit
from cgpfl.auditing.invert import Inverted
from cgpfl.report.page import document
from cgpfl.report.pictures import blank
from cgpfl.tables import Table

STYLE = """
.advice { border: 1px solid var(--line); border-left: 5px solid var(--accent); border-radius: 0.6rem;
  background: var(--card); padding: 0.9rem 1.1rem; margin: 1rem 0; }
.advice p { margin: 0.25rem 0; } section p, section li { max-width: 60rem; }
figure { margin: 0.8rem 0; } figure img { max-width: 100%; height: auto; background: #ffffff; border-radius: 0.5rem; }
dl { font-size: 0.85rem; }
"""


def html(audit: Audit) -> str:
    """The page."""
    facts = audit.facts
    title = f"{escape(facts['run'])}, audited"
    few, many = facts["samples"]
    about = (
        f"{facts['method']}, {facts['clients']} clients with {few} to {many} training samples, {facts['rounds']} rounds"
    )
    said = "".join(f"<p>{escape(line)}</p>" for line in words.verdict(facts))
    exposed = Table(
        "",
        ["client", "training samples", "AUC"],
        [[str(e["client"]), str(e["samples"]), f"{e['auc']:.3f}"] for e in facts["exposed"]],
    )
    by = f"By the {facts['by_size']['view']} model and the {words.ATTACKS[facts['by_size']['attack']]}."
    how = f"{facts['references']} reference trainings. Of a client with few samples the AUC is itself uncertain."
    sections = [
        ("Membership", _table(words.membership(facts))),
        ("From how few samples", f"<p class='quiet'>{escape(by)}</p>{_table(words.sizes(facts))}"),
        ("Who is most exposed", f"<p class='quiet'>{escape(how)}</p>{_table(exposed)}"),
        ("Reconstruction from the first upload", _reconstruction(audit)),
        ("ε from below and from above", _table(words.bounds(facts))),
    ]
    body = "".join(f"<section><h2>{escape(name)}</h2>{inner}</section>" for name, inner in sections)
    header, took = f"<h1>{title}</h1><p class='quiet'>{escape(about)}</p>", f", {facts['seconds']:.0f} s"
    return document(title, STYLE, header, f'<div class="advice">{said}</div>{body}', took)


def _table(table: Table) -> str:
    if not table.rows:
        return "<p>Nothing leaves the clients that could be looked at.</p>"
    pairs = zip(table.columns, table.help, strict=False)
    items = "".join(f"<dt>{escape(n)}</dt><dd>{escape(t)}</dd>" for n, t in pairs if t)
    return f'<div class="wide" tabindex="0">{table.html()}</div><dl class="words quiet">{items}</dl>'


def _reconstruction(audit: Audit) -> str:
    if not audit.inverted:
        return f"<p>Not tried: {escape(audit.facts['reconstruction']['why'])}.</p>"
    at = int(np.argmax([one.correlation.mean() for one in audit.inverted]))
    best, name = audit.inverted[at], audit.facts["reconstruction"]["clients"][at]["client"]
    shape = best.true.shape[1:]
    table = _table(words.reconstruction(audit.facts))
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[-1] not in (1, 3)):
        return table
    file = io.BytesIO()
    picture([(best, "")]).savefig(file, format="png", dpi=130)
    text = f"Above: samples of client {name}. Below: what its first upload gives away."
    image = base64.b64encode(file.getvalue()).decode()
    return (
        f'<figure><img alt="{escape(text)}" src="data:image/png;base64,{image}">'
        f'<figcaption class="quiet">{escape(text)}</figcaption></figure>{table}'
    )


def picture(rows: list[tuple[Inverted, str]], most: int = 8) -> Any:
    """Images over what was found of them; of several attacks on one client, a row each below the first's originals."""
    first = rows[0][0]
    shown = min(most, len(first.true))
    sheet = blank((1.05 * shown + 1.1, 1.15 * (len(rows) + 1)))
    axes = np.asarray(sheet.subplots(len(rows) + 1, shown, squeeze=False))
    lines = [
        (first.true, first.labels, "samples"),
        *((one.found, one.found_labels, said or "found") for one, said in rows),
    ]
    for r, (images, labels, said) in enumerate(lines):
        for c in range(shown):
            image, place = np.squeeze(images[c]), axes[r, c]
            place.imshow(_scaled(image), cmap="gray_r" if image.ndim == 2 else None, interpolation="nearest")
            place.set_xticks([])
            place.set_yticks([])
            place.set_title(str(labels[c]), size=8, pad=2)
        axes[r, 0].set_ylabel(said, size=8)
    return sheet


def _scaled(image: np.ndarray) -> np.ndarray:
    low, high = np.quantile(image, [0.01, 0.99])
    return np.clip((image - low) / max(high - low, 1e-9), 0, 1)
