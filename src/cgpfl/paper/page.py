"""The reproduction as one HTML page: self-contained, light and dark, printable."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

from cgpfl.files import write
from cgpfl.paper.section import Section, Verdict
from cgpfl.tables import Table

STYLE = """
:root { --ink: #1d2330; --soft: #5c6675; --line: #d9dee6; --paper: #ffffff; --card: #f6f8fa; --accent: #3a62a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ef; --soft: #9aa5b5; --line: #333b48; --paper: #14181f; --card: #1c222b; --accent: #8fb2f0; }
  figure img { background: #ffffff; border-radius: 6px; padding: 6px; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 2rem 1.2rem 4rem; }
h1 { font-size: 1.8rem; margin: 0 0 .3rem; } h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; }
p.lead, figcaption, .note, .facts { color: var(--soft); } .note, figcaption { font-size: .9rem; }
nav a { color: var(--accent); margin-right: 1rem; text-decoration: none; white-space: nowrap; }
.scroll { overflow-x: auto; margin: .6rem 0 .3rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; min-width: 40%; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .28rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { font-weight: 600; } th:first-child, td:first-child { text-align: left; }
table.words td, table.words th { text-align: left; white-space: normal; vertical-align: top; }
figure { margin: 1.2rem 0; } figure img { max-width: 100%; height: auto; }
pre { background: var(--card); padding: .8rem; overflow-x: auto; font-size: .82rem; border-radius: 6px; }
.verdict { display: inline-block; border-radius: 4px; padding: 0 .5rem; font-size: .85rem; color: #ffffff; }
.reproduced { background: #2f7d4f; } .partly { background: #a86a10; } .not { background: #b23a3a; }
@media print { nav { display: none; } section { break-inside: avoid-page; } }
"""


def render(title: str, lead: str, sections: list[Section], folder: Path, facts: list[str]) -> str:
    """The page; figures are read from ``folder``/SECTION/."""
    verdicts = [v for s in sections for v in s.verdicts]
    links = " ".join(f'<a href="#{s.name}">{html.escape(s.title)}</a>' for s in sections)
    body = "\n".join(_section(s, folder) for s in sections)
    about = "".join(f"<li>{html.escape(f)}</li>" for f in facts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style></head>\n<body><main>\n<h1>{html.escape(title)}</h1>\n"
        f'<p class="lead">{html.escape(lead)}</p>\n<nav>{links}</nav>\n{_claims(verdicts)}\n{body}\n'
        f'<h2>How this was made</h2><ul class="facts">{about}</ul>\n</main></body></html>\n'
    )


def write_page(path: Path, text: str) -> None:
    """Save a page."""
    write(path, text.encode())


def _claims(verdicts: list[Verdict]) -> str:
    if not verdicts:
        return ""
    rows = [[v.claim, v.verdict, v.evidence] for v in verdicts]
    table = Table("", ["claim", "verdict", "evidence"], rows).html(
        lambda r, c, text: ("", f'<span class="verdict {text}">{text}</span>' if r >= 0 and c == 1 else text),
        words=True,
    )
    return f'<section><h2>The paper\'s claims</h2><div class="scroll">{table}</div></section>'


def _section(section: Section, folder: Path) -> str:
    parts = [f'<section id="{section.name}"><h2>{html.escape(section.title)}</h2>']
    parts += [_text(t) for t in section.text]
    parts += [_table(t) for t in section.tables]
    for figure in section.figures:
        picture = base64.b64encode((folder / section.name / f"{figure.name}.svg").read_bytes()).decode()
        caption = html.escape(figure.caption)
        parts.append(
            f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{picture}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return "\n".join([*parts, "</section>"])


def _text(text: str) -> str:
    """A paragraph; a block between ``` lines stays as it is."""
    pieces = re.split(r"```\n?(.*?)```", text, flags=re.DOTALL)
    shown = [
        f"<pre>{html.escape(p)}</pre>" if i % 2 else f"<p>{html.escape(p.strip())}</p>" for i, p in enumerate(pieces)
    ]
    return "\n".join(s for s in shown if s != "<p></p>")


def _table(table: Table) -> str:
    words = max((len(v) for row in table.rows for v in row[1:]), default=0) > 40
    note = f'<p class="note">{html.escape(table.note)}</p>' if table.note else ""
    return f'<div class="scroll">{table.html(words=words)}</div>{note}'
