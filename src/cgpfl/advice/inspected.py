"""``cgpfl.inspect`` and ``cgpfl data inspect``: what is in a federation and what will hurt, as text and as a page."""

from __future__ import annotations

import base64
import textwrap
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cgpfl.data import FederatedData
from cgpfl.data.findings import Finding, class_counts, client_moments, opened
from cgpfl.data.inspection import findings
from cgpfl.errors import CgpflError
from cgpfl.experiment import Experiment
from cgpfl.files import write
from cgpfl.report.federation import draw_federation
from cgpfl.report.page import document

WIDTH = 80
MOST_LABELS = 8
MOST_DRAWN = 40
"""Columns that are drawn, those first by which clients differ most."""
STYLE = """
.finding { border: 1px solid var(--line); border-left: 4px solid var(--quiet); border-radius: 0.5rem; margin: 0.5rem 0;
  background: var(--card); padding: 0.45rem 0.8rem; }
.finding.breaks, .finding.hurts { border-left-color: var(--warn); }
.finding.matters { border-left-color: var(--accent); }
.finding .badge { margin-right: 0.6rem; } .finding p { margin: 0; }
figure { margin: 0.8rem 0; } figure img { max-width: 100%; height: auto; background: #ffffff; border-radius: 0.5rem; }
td { text-align: left; white-space: normal; }
"""


@dataclass(frozen=True)
class Inspection:
    """What was found. ``print`` it, or :meth:`save` it with pictures."""

    data: FederatedData
    facts: dict[str, str]
    findings: tuple[Finding, ...]
    """The most harmful first."""

    def __str__(self) -> str:
        n = len(self.findings)
        found = "One finding" if n == 1 else f"{n} findings, the most harmful first" if n else "Nothing was found"
        lines = [found]
        wide = max((len(f.word) for f in self.findings), default=0) + 2
        for f in self.findings:
            room: dict[str, Any] = {"width": WIDTH, "break_long_words": False, "break_on_hyphens": False}
            lines.append(textwrap.fill(f.what, initial_indent=f.word.ljust(wide), subsequent_indent=" " * wide, **room))
            lines.append(
                textwrap.fill(f"→ {f.do}", initial_indent=" " * wide, subsequent_indent=" " * (wide + 2), **room)
            )
        lines.append("")
        longest = max(map(len, self.facts)) + 2
        lines += [
            textwrap.fill(v, WIDTH, initial_indent=k.ljust(longest), subsequent_indent=" " * longest)
            for k, v in self.facts.items()
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def save(self, folder: str | Path) -> Path:
        """Write the text, the pictures and the page (inspection.html) into a folder; returns the page."""
        out = Path(folder)
        if out.exists() and not out.is_dir():
            raise CgpflError(f"out {out}: is a file; name a folder")
        out.mkdir(parents=True, exist_ok=True)
        pictures = _draw(self.data, out)
        write(out / "inspection.txt", f"{self}\n".encode())
        write(out / "inspection.html", _html(self, pictures).encode())
        return out / "inspection.html"


def inspect(data: Any) -> Inspection:
    """Look through a federation before anything is trained; ``data``: as of :func:`cgpfl.run`.

    Told are, by harm: columns that give the label away, test samples that are in training, rows that several clients
    hold, clients with one label, columns in other units, inputs not scaled, missing cells, ids, constant columns.

    >>> print(cgpfl.inspect({"source": "patients.csv", "client": "hospital", "label": "outcome"}))
    """
    if not isinstance(data, FederatedData):
        experiment = Experiment.of(["local"], data, "mlr", {}, "inspect")
        (data,) = experiment.data.federations([experiment.seed]).values()
    return Inspection(data, _facts(data), tuple(findings(data)))


def _facts(data: FederatedData) -> dict[str, str]:
    table = opened(data)
    sizes = np.bincount(table.owner, minlength=data.clients)
    facts = {
        "clients": f"{data.clients}, with {sizes.min():,} to {sizes.max():,} samples",
        "samples": f"{len(table.rows):,}, of them {int(table.test.sum()):,} for testing",
        "task": data.task,
    }
    if data.task == "classification":
        total = class_counts(data, table).sum(axis=0)
        names = data.labels or tuple(range(data.classes))
        order = np.argsort(-total, kind="stable")[:MOST_LABELS]
        listed = ", ".join(f"{names[c]} {total[c] / total.sum():.0%}" for c in order)
        facts["labels"] = listed + (f", … ({data.classes} in all)" if data.classes > MOST_LABELS else "")
    if data.columns is not None:
        words = sum(not c.is_number for c in data.columns.columns)
        numbers = len(data.columns.columns) - words
        facts["columns"] = f"{numbers} of numbers, {words} of words: {data.columns.width} inputs of a model"
    else:
        facts["inputs"] = " × ".join(map(str, data.shape)) + f", {data.x.dtype}"
    return facts


def _draw(data: FederatedData, out: Path) -> list[tuple[Path, str]]:
    """Who holds what, and by which columns clients differ."""
    table = opened(data)
    if data.task == "classification":
        counts = class_counts(data, table)
        names = [str(v) for v in data.labels] or None
    else:
        counts, names = np.bincount(table.owner, minlength=data.clients)[:, None], ["samples"]
    title = str(data.about.get("source", "data"))
    drawn = [
        (draw_federation(counts, Path(title).name, out / "clients.png", names, data.names), "What each client holds")
    ]
    if table.frame.shape[1]:
        found = _columns_map(data, out / "columns.png")
        drawn += [(found, "Means of each client's columns, in standard deviations from everybody's")] if found else []
    return drawn


def _columns_map(data: FederatedData, path: Path) -> Path | None:
    """Clients × columns of numbers: how far a client's mean is from everybody's."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    table = opened(data)
    names, means, _ = client_moments(table, data.clients)
    if not names:
        return None
    whole = table.frame[names].astype(float)
    spread = whole.std(ddof=0).to_numpy()
    away = (means - whole.mean().to_numpy()) / np.where(spread > 0, spread, 1.0)
    first = np.argsort(-np.nan_to_num(np.abs(away)).max(axis=0), kind="stable")[:MOST_DRAWN]
    wide, tall = max(0.42 * len(first), 2.0) + 2.0, max(0.175 * min(data.clients, 60), 0.9) + 1.6
    picture = Figure(figsize=(wide, tall), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.add_subplot()
    image = axes.imshow(away[:, first], aspect="auto", cmap="RdBu_r", vmin=-2, vmax=2, interpolation="nearest")
    axes.set_xticks(range(len(first)), [names[j] for j in first], rotation=40, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    step = max(-(-data.clients // 40), 1)
    axes.set_yticks(range(0, data.clients, step), [data.name(i) for i in range(0, data.clients, step)])
    axes.tick_params(length=0, labelsize=7)
    axes.spines[:].set_visible(False)
    scale = picture.colorbar(image, ax=axes, shrink=0.7, extend="both")
    scale.set_label("standard deviations from everybody's mean", size=8)
    scale.ax.tick_params(labelsize=7)
    picture.savefig(path, dpi=130)
    return path


def _html(inspection: Inspection, pictures: list[tuple[Path, str]]) -> str:
    found = "".join(
        f'<div class="finding {f.word.replace(" ", "-")}"><p><span class="badge">{f.word}</span>{escape(f.what)}</p>'
        f'<p class="quiet">→ {escape(f.do)}</p></div>'
        for f in inspection.findings
    )
    facts = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in inspection.facts.items())
    figures = "".join(
        f'<figure><img alt="{escape(said)}" src="data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}">'
        f'<figcaption class="quiet">{escape(said)}</figcaption></figure>'
        for file, said in pictures
    )
    title = escape(Path(str(inspection.data.about.get("source", "Your data"))).name)
    sections = (
        f'<section id="findings"><h2>What was found</h2>{found or "<p>Nothing that would hurt.</p>"}</section>'
        f'<section id="facts"><h2>What there is</h2><table>{facts}</table>{figures}</section>'
    )
    return document(f"{title}, inspected", STYLE, f"<h1>{title}, inspected</h1>", sections)
